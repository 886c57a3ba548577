//! Messages that are received into memory of their own, and addresses of accepted peers: the memory that `recvmsg(2)`
//! and `accept4(2)` fill.
//!
//! Multishot receives of datagrams use the buffer pool instead (`received_datagram`).

use std::fmt;
use std::mem;
use std::ptr;

use socket2::SockAddr;

use crate::outgoing_message::empty_header;

/// A received message, with the memory that the kernel wrote it to.
pub struct ReceivedMessage(Box<ReceivePayload>);

impl ReceivedMessage {
    /// The received bytes.
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }

    /// The sender's address; `None` on a stream socket, and if the sender is a Unix socket without a name.
    pub fn from(&self) -> Option<SockAddr> {
        let length = self.0.header.msg_namelen;
        (length > 0).then(|| address(&self.0.name, length))
    }
}

impl fmt::Debug for ReceivedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedMessage")
            .field("length", &self.data().len())
            .finish_non_exhaustive()
    }
}

/// The address of the peer of an accepted connection, in the memory that the kernel wrote it to.
pub struct PeerAddress(pub(crate) Box<AddressPayload>);

impl PeerAddress {
    pub fn address(&self) -> SockAddr {
        address(&self.0.storage, self.0.length)
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

/// Memory for a peer's address, which `accept4(2)` fills.
pub(crate) struct AddressPayload {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl AddressPayload {
    pub(crate) fn new() -> Box<AddressPayload> {
        Box::new(AddressPayload {
            storage: empty_name(),
            length: NAME_SIZE,
        })
    }

    /// Returns the pointers for the kernel, and resets the length, which the previous attempt may have changed.
    pub(crate) fn pointers(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        self.length = NAME_SIZE;
        ((&raw mut self.storage).cast(), &raw mut self.length)
    }
}

/// Memory for one received message, with its `msghdr`. The structure contains pointers into itself, so it is never
/// moved out of its box.
pub(crate) struct ReceivePayload {
    header: libc::msghdr,
    iovec: libc::iovec,
    name: libc::sockaddr_storage,
    data: Vec<u8>,
}

impl ReceivePayload {
    pub(crate) fn new(size: usize) -> Box<ReceivePayload> {
        Box::new(ReceivePayload {
            header: empty_header(),
            iovec: libc::iovec {
                iov_base: ptr::null_mut(),
                iov_len: size,
            },
            name: empty_name(),
            data: Vec::with_capacity(size),
        })
    }

    /// Returns the header, with pointers into this box. Each attempt sets it again, because the kernel overwrites its
    /// lengths.
    pub(crate) fn header(&mut self) -> *mut libc::msghdr {
        self.iovec.iov_base = self.data.as_mut_ptr().cast();
        self.header.msg_iov = &raw mut self.iovec;
        self.header.msg_iovlen = 1;
        self.header.msg_name = (&raw mut self.name).cast();
        self.header.msg_namelen = NAME_SIZE;
        &raw mut self.header
    }

    /// Converts the memory to a message, after the kernel has received `length` bytes.
    pub(crate) fn received(mut self: Box<Self>, length: usize) -> ReceivedMessage {
        let length = length.min(self.data.capacity()).min(self.iovec.iov_len);
        // SAFETY: the kernel has written that many bytes to the start of this vector's memory, whose capacity is at
        // least `iov_len`.
        unsafe { self.data.set_len(length) };
        ReceivedMessage(self)
    }
}

fn address(storage: &libc::sockaddr_storage, length: libc::socklen_t) -> SockAddr {
    let length = length.min(NAME_SIZE);
    // SAFETY: both are whole `sockaddr_storage`s, and the length is the kernel's.
    let (_, address) = unsafe {
        SockAddr::try_init(|target, target_length| {
            ptr::copy_nonoverlapping(
                ptr::from_ref(storage).cast::<u8>(),
                target.cast::<u8>(),
                length as usize,
            );
            *target_length = length;
            Ok(())
        })
    }
    .expect("the closure never fails");
    address
}

fn empty_name() -> libc::sockaddr_storage {
    // SAFETY: plain integers and bytes, for which zero is a value.
    unsafe { mem::zeroed() }
}

const NAME_SIZE: libc::socklen_t = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
