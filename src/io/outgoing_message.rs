//! Messages to send: the caller's description, and its `msghdr` for the kernel.
//!
//! Both payload types contain pointers to themselves. So each lives in a box, is filled there, and is never moved out
//! of it. Received messages are in `received_datagram` and `received_message`.

use std::mem;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr;

use bytes::Bytes;
use socket2::SockAddr;

use crate::errno::Errno;

/// One datagram, or a batch of equal datagrams in one buffer (GSO).
#[derive(Clone, Debug)]
pub struct SendMsg {
    /// The payload, at most 65,507 bytes over IPv4 and 65,487 over IPv6.
    pub data: Bytes,
    /// The destination; `None` on a connected socket.
    pub to: Option<SockAddr>,
    /// GSO: the kernel splits `data` into datagrams of this many bytes; the last may be shorter. If the network device
    /// does not support this, the send fails with `EIO` or `EINVAL`.
    pub segment_size: Option<u16>,
    /// The two ECN bits of the IP header.
    pub ecn: Option<u8>,
    /// The source address of the datagram, for a socket that is bound to the wildcard address.
    pub src_ip: Option<IpAddr>,
}

impl SendMsg {
    /// Makes a message of one datagram without options.
    pub fn plain(data: Bytes, to: Option<SockAddr>) -> Self {
        Self {
            data,
            to,
            segment_size: None,
            ecn: None,
            src_ip: None,
        }
    }
}

/// The flags of every send that bypasses the ring.
pub(crate) const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;

/// A [`SendMsg`] in the kernel's format.
pub(crate) struct MessagePayload {
    header: libc::msghdr,
    iovec: libc::iovec,
    control: ControlBuffer,
    to: Option<SockAddr>,
    data: Bytes,
}

impl MessagePayload {
    pub(crate) fn empty() -> Box<MessagePayload> {
        Box::new(MessagePayload {
            header: empty_header(),
            iovec: libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: 0,
            },
            control: ControlBuffer([0; CONTROL_SIZE]),
            to: None,
            data: Bytes::new(),
        })
    }

    /// Stores the message and points the header to it. The payload must not be moved out of its box afterwards.
    pub(crate) fn fill(&mut self, message: SendMsg) {
        let SendMsg {
            data,
            to,
            segment_size,
            ecn,
            src_ip,
        } = message;
        self.data = data;
        self.to = to;
        self.iovec = iovec_of(&self.data);
        let used = self.control.write(segment_size, ecn, src_ip);
        let to = self.to.as_ref();
        self.header = header_of(&mut self.iovec, to, &mut self.control, used);
    }

    /// Drops the caller's data so that the box can be reused.
    pub(crate) fn clear(&mut self) {
        self.data = Bytes::new();
        self.to = None;
    }

    pub(crate) fn header(&self) -> *const libc::msghdr {
        &raw const self.header
    }
}

/// A datagram, or a batch of datagrams of one size (GSO), whose payload is borrowed because the send ends within the
/// call.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedMsg<'a> {
    pub data: &'a [u8],
    /// [`SendMsg`] describes this field and the following ones.
    pub to: SocketAddr,
    pub segment_size: Option<u16>,
    pub ecn: Option<u8>,
    pub src_ip: Option<IpAddr>,
}

impl BorrowedMsg<'_> {
    /// Sends the message with a system call, after which the kernel has no pointer to it. Fails with `EAGAIN` if the
    /// socket's buffer is full.
    pub(crate) fn send_now(&self, fd: RawFd) -> Result<(), Errno> {
        let to = SockAddr::from(self.to);
        let mut iovec = iovec_of(self.data);
        let mut control = ControlBuffer([0; CONTROL_SIZE]);
        let used = control.write(self.segment_size, self.ecn, self.src_ip);
        let header = header_of(&mut iovec, Some(&to), &mut control, used);
        loop {
            // SAFETY: the header points to the address, the payload and the control messages, which outlive the call;
            // the kernel only reads them.
            let sent = unsafe { libc::sendmsg(fd, &raw const header, SEND_FLAGS) };
            match if sent < 0 { Errno::last().0 } else { 0 } {
                0 => return Ok(()),
                libc::EINTR => {}
                errno => return Err(Errno(errno)),
            }
        }
    }
}

fn iovec_of(data: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: data.as_ptr().cast_mut().cast(),
        iov_len: data.len(),
    }
}

/// The header of a message with one piece and `control_length` bytes of control messages. It points to the arguments,
/// which must not move while it is used.
fn header_of(
    iovec: &mut libc::iovec,
    to: Option<&SockAddr>,
    control: &mut ControlBuffer,
    control_length: usize,
) -> libc::msghdr {
    let mut header = empty_header();
    header.msg_iov = &raw mut *iovec;
    header.msg_iovlen = 1;
    if let Some(to) = to {
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
    }
    if control_length > 0 {
        header.msg_control = (&raw mut *control).cast();
        header.msg_controllen = control_length as _;
    }
    header
}

impl ControlBuffer {
    /// Writes the control messages of a send and returns their length.
    fn write(
        &mut self,
        segment_size: Option<u16>,
        ecn: Option<u8>,
        src_ip: Option<IpAddr>,
    ) -> usize {
        if segment_size.is_none() && ecn.is_none() && src_ip.is_none() {
            return 0;
        }
        let mut writer = ControlWriter {
            buffer: &mut self.0,
            used: 0,
        };
        if let Some(size) = segment_size {
            writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, &size.to_ne_bytes());
        }
        if let Some(ecn) = ecn {
            // IPv4 packets need IP_TOS, IPv6 packets IPV6_TCLASS, and the kernel ignores the other one. On a
            // connected socket the destination's family is unknown, so the message gets both. A mapped IPv4
            // destination on an IPv6 socket is sent as IPv4 and needs IP_TOS.
            let bits = i32::from(ecn & 0b11).to_ne_bytes();
            writer.put(libc::SOL_IP, libc::IP_TOS, &bits);
            writer.put(libc::SOL_IPV6, libc::IPV6_TCLASS, &bits);
        }
        match src_ip.map(|ip| ip.to_canonical()) {
            Some(IpAddr::V4(ip)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: in_addr(ip),
                    ipi_addr: in_addr(Ipv4Addr::UNSPECIFIED),
                };
                writer.put(libc::SOL_IP, libc::IP_PKTINFO, as_bytes(&info));
            }
            Some(IpAddr::V6(ip)) => {
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr {
                        s6_addr: ip.octets(),
                    },
                    ipi6_ifindex: 0,
                };
                writer.put(libc::SOL_IPV6, libc::IPV6_PKTINFO, as_bytes(&info));
            }
            None => {}
        }
        writer.used
    }
}

/// Several pieces of stream data, sent by one `sendmsg`.
pub(crate) struct GatherPayload {
    header: libc::msghdr,
    iovecs: Vec<libc::iovec>,
    data: Vec<Bytes>,
    /// The index of the first piece that was not sent completely. Only the epoll backend changes it.
    first: usize,
}

impl GatherPayload {
    pub(crate) fn empty() -> Box<GatherPayload> {
        Box::new(GatherPayload {
            header: empty_header(),
            iovecs: Vec::new(),
            data: Vec::new(),
            first: 0,
        })
    }

    /// Stores the pieces and points the header to them. The payload must not be moved out of its box afterwards.
    pub(crate) fn fill(&mut self, pieces: impl IntoIterator<Item = Bytes>) {
        self.data.extend(pieces);
        self.iovecs
            .extend(self.data.iter().map(|piece| iovec_of(piece)));
        self.first = 0;
        self.point();
    }

    /// Drops the caller's data so that the box can be reused.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.iovecs.clear();
    }

    pub(crate) fn header(&self) -> *const libc::msghdr {
        &raw const self.header
    }

    pub(crate) fn pieces(&self) -> usize {
        self.data.len()
    }

    pub(crate) fn total(&self) -> usize {
        self.data.iter().map(Bytes::len).sum()
    }

    /// Skips `count` bytes that were sent.
    pub(crate) fn advance(&mut self, mut count: usize) {
        while count > 0 {
            let iovec = &mut self.iovecs[self.first];
            let step = count.min(iovec.iov_len);
            iovec.iov_base = iovec.iov_base.wrapping_byte_add(step);
            iovec.iov_len -= step;
            count -= step;
            if iovec.iov_len == 0 {
                self.first += 1;
            }
        }
        self.point();
    }

    fn point(&mut self) {
        let rest = &mut self.iovecs[self.first..];
        self.header.msg_iov = rest.as_mut_ptr();
        self.header.msg_iovlen = rest.len() as _;
    }
}

/// Appends control messages to a buffer, which has space for one message of each kind.
struct ControlWriter<'a> {
    buffer: &'a mut [u8; CONTROL_SIZE],
    used: usize,
}

impl ControlWriter<'_> {
    fn put(&mut self, level: i32, kind: i32, data: &[u8]) {
        let header_size = mem::size_of::<libc::cmsghdr>();
        // SAFETY: the two macros are plain arithmetic.
        let (length, space) = unsafe {
            (
                libc::CMSG_LEN(data.len() as u32) as usize,
                libc::CMSG_SPACE(data.len() as u32) as usize,
            )
        };
        // SAFETY: zero bytes are a valid cmsghdr. A literal would not compile with musl, whose cmsghdr has private
        // padding.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = length as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        let slot = &mut self.buffer[self.used..self.used + space];
        slot.fill(0);
        slot[..header_size].copy_from_slice(as_bytes(&header));
        slot[length - data.len()..length].copy_from_slice(data);
        self.used += space;
    }
}

#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_SIZE]);

fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr {
        s_addr: u32::from_ne_bytes(ip.octets()),
    }
}

/// Views one of libc's structures without padding as bytes.
fn as_bytes<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: callers pass a cmsghdr that was zeroed first, an in_pktinfo or an in6_pktinfo. All of their bytes are
    // initialised. The slice borrows `value`.
    unsafe { std::slice::from_raw_parts(ptr::from_ref(value).cast(), mem::size_of::<T>()) }
}

pub(crate) fn empty_header() -> libc::msghdr {
    // SAFETY: all-zero is a valid msghdr: null pointers with zero lengths.
    unsafe { mem::zeroed() }
}

/// Bytes for control messages: GSO 24, TOS 24, TCLASS 24, and packet info of IPv6 (40), which is the larger kind.
const CONTROL_SIZE: usize = 112;
