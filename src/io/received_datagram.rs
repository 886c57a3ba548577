//! A received datagram, in a buffer of the pool, with the metadata that the kernel adds: address, GRO, ECN.
//!
//! The buffer has the layout of a multishot `recvmsg`: a header of 16 bytes, space for the address, space for control
//! messages, the payload. The epoll backend writes this layout too. Each accessor parses its field in the buffer;
//! nothing is copied.

use std::fmt;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use socket2::SockAddr;

use crate::receive_buffer_pool::RecvBuf;

/// A received datagram. If [`segment_size`](Datagram::segment_size) is set, it is a batch of datagrams from one peer,
/// which GRO has joined.
pub struct Datagram {
    buffer: RecvBuf,
}

/// The `io_uring_recvmsg_out` at the start of a buffer.
#[derive(Copy, Clone)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) name_length: u32,
    pub(crate) control_length: u32,
    pub(crate) payload_length: u32,
    pub(crate) flags: u32,
}

impl Datagram {
    /// `None` if the buffer is too short for the header, the address and the control messages.
    pub(crate) fn new(buffer: RecvBuf) -> Option<Datagram> {
        (buffer.len() >= HEADER_ROOM).then_some(Datagram { buffer })
    }

    /// The received bytes. If the kernel has joined several datagrams (GRO), the bytes contain them one after the
    /// other. All have the length [`segment_size`](Datagram::segment_size), except the last one, which may be shorter.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        let available = self.buffer.len() - HEADER_ROOM;
        let length = (self.header().payload_length as usize).min(available);
        &self.buffer[HEADER_ROOM..HEADER_ROOM + length]
    }

    /// The sender's IP address and port; `None` for another address family.
    pub fn remote(&self) -> Option<SocketAddr> {
        parse_inet(self.name())
    }

    /// The sender's address in the kernel's form, of any family; a Unix sender without a name has
    /// an empty path.
    pub fn raw_remote(&self) -> SockAddr {
        let name = self.name();
        // SAFETY: `storage` has room for NAME_ROOM bytes and `name` is never longer; the length is
        // the number of bytes copied, which came from the kernel.
        let (_, address) = unsafe {
            SockAddr::try_init(|storage, length| {
                std::ptr::copy_nonoverlapping(name.as_ptr(), storage.cast::<u8>(), name.len());
                *length = name.len() as libc::socklen_t;
                Ok(())
            })
        }
        .expect("the closure never fails");
        address
    }

    /// Bytes of each datagram in a batch that GRO has joined; `None` if the payload is a single datagram.
    pub fn segment_size(&self) -> Option<usize> {
        let data = self.control(libc::SOL_UDP, libc::UDP_GRO)?;
        let size = i32::from_ne_bytes(*data.first_chunk()?);
        usize::try_from(size).ok().filter(|&size| size > 0)
    }

    /// The two ECN bits of the IP header, if the socket reports them.
    pub fn ecn(&self) -> Option<u8> {
        // Received IP_TOS is one byte, IPV6_TCLASS an int.
        let v4 = self
            .control(libc::SOL_IP, libc::IP_TOS)
            .and_then(|data| data.first().copied());
        let bits = v4.or_else(|| {
            let data = self.control(libc::SOL_IPV6, libc::IPV6_TCLASS)?;
            Some(i32::from_ne_bytes(*data.first_chunk()?) as u8)
        })?;
        Some(bits & 0b11)
    }

    /// The local address to which the datagram was sent; `None` if the socket does not report it.
    pub fn local_ip(&self) -> Option<IpAddr> {
        if let Some(data) = self.control(libc::SOL_IP, libc::IP_PKTINFO) {
            // in_pktinfo: interface index, local address, header destination.
            return Some(IpAddr::V4(Ipv4Addr::from(
                *data.get(8..)?.first_chunk::<4>()?,
            )));
        }
        let data = self.control(libc::SOL_IPV6, libc::IPV6_PKTINFO)?;
        Some(IpAddr::V6(Ipv6Addr::from(*data.first_chunk::<16>()?)))
    }

    /// True if the datagram was longer than the buffer. The bytes beyond the buffer are lost.
    pub fn truncated(&self) -> bool {
        self.header().flags & libc::MSG_TRUNC as u32 != 0
    }

    #[inline]
    fn header(&self) -> Header {
        // SAFETY: `new` checked the length; four integers are valid for any bytes.
        unsafe { self.buffer.as_ptr().cast::<Header>().read_unaligned() }
    }

    fn name(&self) -> &[u8] {
        let length = (self.header().name_length as usize).min(NAME_ROOM);
        &self.buffer[HEADER_SIZE..HEADER_SIZE + length]
    }

    fn control(&self, level: i32, kind: i32) -> Option<&[u8]> {
        let length = (self.header().control_length as usize).min(CONTROL_ROOM);
        let start = HEADER_SIZE + NAME_ROOM;
        find_control(&self.buffer[start..start + length], level, kind)
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("remote", &self.remote())
            .field("length", &self.payload().len())
            .field("segment_size", &self.segment_size())
            .finish_non_exhaustive()
    }
}

/// Returns the data of the first control message with this level and kind.
pub(crate) fn find_control(mut area: &[u8], level: i32, kind: i32) -> Option<&[u8]> {
    while area.len() >= CMSG_HEADER {
        // SAFETY: long enough by the loop's condition; a cmsghdr is valid for any bytes.
        let header = unsafe { area.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast)] // not usize in every C library
        let length = header.cmsg_len as usize;
        if length < CMSG_HEADER || length > area.len() {
            return None;
        }
        if header.cmsg_level == level && header.cmsg_type == kind {
            return Some(&area[CMSG_HEADER..length]);
        }
        area = area.get(length.next_multiple_of(mem::align_of::<libc::cmsghdr>())..)?;
    }
    None
}

/// Parses the `sockaddr_in` or `sockaddr_in6` at the start of `name`; `None` for other families.
pub(crate) fn parse_inet(name: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(*name.first_chunk()?);
    let port = u16::from_be_bytes(*name.get(2..)?.first_chunk()?);
    match i32::from(family) {
        libc::AF_INET => {
            let ip: [u8; 4] = *name.get(4..)?.first_chunk()?;
            Some(SocketAddr::V4(SocketAddrV4::new(ip.into(), port)))
        }
        libc::AF_INET6 => {
            let flow = u32::from_be_bytes(*name.get(4..)?.first_chunk()?);
            let ip: [u8; 16] = *name.get(8..)?.first_chunk()?;
            let scope = u32::from_ne_bytes(*name.get(24..)?.first_chunk()?);
            Some(SocketAddr::V6(SocketAddrV6::new(
                ip.into(),
                port,
                flow,
                scope,
            )))
        }
        _ => None,
    }
}

pub(crate) const HEADER_SIZE: usize = mem::size_of::<Header>();
/// Bytes for an address of any family.
pub(crate) const NAME_ROOM: usize = mem::size_of::<libc::sockaddr_storage>();
/// Bytes for control messages: GRO 24, TOS 24, TCLASS 24, and packet info of IPv4 (32) and of IPv6 (40), both of which
/// a dual-stack socket reports.
pub(crate) const CONTROL_ROOM: usize = 144;
/// The offset of the payload.
pub(crate) const HEADER_ROOM: usize = HEADER_SIZE + NAME_ROOM + CONTROL_ROOM;
/// Bytes of a control message's header (`CMSG_LEN(0)`). They are a multiple of the alignment on every Linux target, so
/// there is no padding behind them.
const CMSG_HEADER: usize = mem::size_of::<libc::cmsghdr>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_of_a_damaged_control_area_ends_without_a_result() {
        assert_eq!(find_control(&[], 0, 0), None);
        assert_eq!(find_control(&[0; 15], 0, 0), None);
        // A message length of zero must not cause an endless loop, and a length beyond the area must not be read.
        assert_eq!(find_control(&[0; 64], 1, 1), None);
        let mut long = [0u8; 64];
        long[..8].copy_from_slice(&usize::MAX.to_ne_bytes()[..8]);
        assert_eq!(find_control(&long, 0, 0), None);
        for length in 0..64usize {
            let mut area = [0u8; 32];
            area[..8].copy_from_slice(&(length as u64).to_ne_bytes());
            let found = find_control(&area, 0, 0);
            assert_eq!(
                found.map(<[u8]>::len),
                (16..=32).contains(&length).then(|| length - 16)
            );
        }
    }

    #[test]
    fn addresses_shorter_than_their_family_are_refused() {
        let address = SockAddr::from("[fe80::1%7]:443".parse::<SocketAddr>().unwrap());
        // SAFETY: a SockAddr has `len` readable bytes.
        let bytes = unsafe {
            std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.len() as usize)
        };
        assert_eq!(parse_inet(bytes), address.as_socket());
        for length in 0..bytes.len() {
            assert_eq!(parse_inet(&bytes[..length]), None, "{length} bytes");
        }
    }
}
