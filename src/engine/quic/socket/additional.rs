//! The sockets of an endpoint beside its first: of clients that changed their network, and of a
//! server's preferred address.
//!
//! They are the endpoint's own, come and go while it lives, and are numbered from 1. Not here: what
//! is sent and received through them (the parent).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use uringcore_io::{Driver, OpId, Token, net};

use super::{SUB_CLOSE, SUB_RECV};

#[derive(Default)]
pub(super) struct MoreSockets {
    slots: Vec<Option<MoreSocket>>,
}

struct MoreSocket {
    /// `None` once the driver closes it, which completes after every other operation.
    fd: Option<OwnedFd>,
    raw_fd: RawFd,
    receiving: Option<OpId>,
    is_unwanted: bool,
}

impl MoreSockets {
    /// Takes a bound UDP socket, prepares it, and returns its number.
    pub fn add(&mut self, fd: OwnedFd) -> io::Result<u32> {
        let free = self.slots.iter().position(Option::is_none);
        if free.is_none() && self.slots.len() == SOCKETS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        net::prepare_quic_socket(fd.as_raw_fd())?;
        let socket = MoreSocket {
            raw_fd: fd.as_raw_fd(),
            fd: Some(fd),
            receiving: None,
            is_unwanted: false,
        };
        let index = free.unwrap_or(self.slots.len());
        match free {
            Some(index) => self.slots[index] = Some(socket),
            None => self.slots.push(Some(socket)),
        }
        Ok(index as u32 + 1)
    }

    /// Gives a socket up; it is closed at the next flush.
    pub fn close(&mut self, number: u32) {
        if let Some(socket) = self.slot(number) {
            socket.is_unwanted = true;
        }
    }

    pub fn close_all(&mut self) {
        for socket in self.slots.iter_mut().flatten() {
            socket.is_unwanted = true;
        }
    }

    /// The descriptor of a socket that can be sent from.
    pub fn raw_fd(&self, number: u32) -> Option<RawFd> {
        let socket = self.slots.get(index(number)?)?.as_ref()?;
        (!socket.is_unwanted).then_some(socket.raw_fd)
    }

    /// Arms receives, and closes what is given up.
    pub fn flush(&mut self, driver: &mut Driver, token: impl Fn(u8) -> Token) {
        for (number, socket) in (1_u8..).zip(&mut self.slots) {
            let Some(socket) = socket else { continue };
            if socket.is_unwanted {
                if let Some(fd) = socket.fd.take() {
                    driver.close(fd, token(SUB_CLOSE | number << 2));
                }
            } else if socket.receiving.is_none() {
                let op = driver.recv_msg(socket.raw_fd, token(SUB_RECV | number << 2));
                socket.receiving = Some(op);
            }
        }
    }

    pub fn receive_ended(&mut self, number: u32) {
        if let Some(socket) = self.slot(number) {
            socket.receiving = None;
        }
    }

    pub fn closed(&mut self, number: u32) {
        if let Some(at) = index(number)
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = None;
        }
    }

    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    fn slot(&mut self, number: u32) -> Option<&mut MoreSocket> {
        self.slots.get_mut(index(number)?)?.as_mut()
    }
}

fn index(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

/// The number has six bits of a token.
const SOCKETS_MAX: usize = 63;
