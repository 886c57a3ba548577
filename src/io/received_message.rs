//! Results with a sender's address: the memory of one-shot accepts and of receives into memory of their own.
//!
//! Multishot datagram receives use the buffer pool instead, see `received_datagram`.

use std::fmt;
use std::mem;
use std::ptr;

use socket2::SockAddr;

use crate::outgoing_message::empty_header;

/// A message received into memory that the operation owns.
pub struct ReceivedMessage(Box<ReceivePayload>);

impl ReceivedMessage {
    /// The bytes, at most as many as requested.
    pub fn data(&self) -> &[u8] {
        &self.0.data
    }

    /// The sender; `None` from a stream socket and from a Unix socket without a name.
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

/// The address of an accepted connection's peer, in the memory that the kernel wrote it to.
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

/// Room for a peer's address, which an accept fills.
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

    /// Pointers for the kernel; they reset the length for each attempt.
    pub(crate) fn pointers(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        self.length = NAME_SIZE;
        ((&raw mut self.storage).cast(), &raw mut self.length)
    }
}

/// The `msghdr` of a receive. It points into itself, so its content never leaves its box.
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

    /// The header, with pointers into this box; it is set for each attempt, because the kernel overwrites lengths.
    pub(crate) fn header(&mut self) -> *mut libc::msghdr {
        self.iovec.iov_base = self.data.as_mut_ptr().cast();
        self.header.msg_iov = &raw mut self.iovec;
        self.header.msg_iovlen = 1;
        self.header.msg_name = (&raw mut self.name).cast();
        self.header.msg_namelen = NAME_SIZE;
        &raw mut self.header
    }

    /// The result of a receive of `length` bytes.
    pub(crate) fn received(mut self: Box<Self>, length: usize) -> ReceivedMessage {
        let length = length.min(self.data.capacity()).min(self.iovec.iov_len);
        // SAFETY: the kernel reported that many bytes written to the start of this vector's memory,
        // whose capacity is at least `iov_len`.
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
