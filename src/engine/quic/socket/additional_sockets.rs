//! Additional UDP sockets of a QUIC endpoint: for clients that changed their network, and for a server's preferred
//! address.
//!
//! They can be added and removed at any time, and are numbered from 1. The parent module sends and receives through
//! them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use uringcore_io::{Driver, OpId, Token, net};

use super::{SUB_CLOSE, SUB_RECV};

#[derive(Default)]
pub(super) struct AdditionalSockets {
    slots: Vec<Option<AdditionalSocket>>,
}

struct AdditionalSocket {
    /// `None` while the driver closes it. The close completes after all other operations on the socket.
    fd: Option<OwnedFd>,
    raw_fd: RawFd,
    receiving: Option<OpId>,
    is_closing: bool,
}

impl AdditionalSockets {
    /// Adds a bound UDP socket and prepares it for QUIC. Returns its number.
    pub fn add(&mut self, fd: OwnedFd) -> io::Result<u32> {
        let free = self.slots.iter().position(Option::is_none);
        if free.is_none() && self.slots.len() == SOCKETS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        net::prepare_quic_socket(fd.as_raw_fd())?;
        let socket = AdditionalSocket {
            raw_fd: fd.as_raw_fd(),
            fd: Some(fd),
            receiving: None,
            is_closing: false,
        };
        let index = free.unwrap_or(self.slots.len());
        match free {
            Some(index) => self.slots[index] = Some(socket),
            None => self.slots.push(Some(socket)),
        }
        Ok(index as u32 + 1)
    }

    /// Marks a socket to be closed at the next flush.
    pub fn close(&mut self, number: u32) {
        if let Some(socket) = self.slot(number) {
            socket.is_closing = true;
        }
    }

    pub fn close_all(&mut self) {
        for socket in self.slots.iter_mut().flatten() {
            socket.is_closing = true;
        }
    }

    /// The descriptor through which packets are sent; `None` if the socket is closing.
    pub fn raw_fd(&self, number: u32) -> Option<RawFd> {
        let socket = self.slots.get(index(number)?)?.as_ref()?;
        (!socket.is_closing).then_some(socket.raw_fd)
    }

    /// Arms a receive on each additional socket, and closes the sockets that are marked as removed.
    pub fn flush(&mut self, driver: &mut Driver, token: impl Fn(u8) -> Token) {
        for (number, socket) in (1_u8..).zip(&mut self.slots) {
            let Some(socket) = socket else { continue };
            if socket.is_closing {
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

    fn slot(&mut self, number: u32) -> Option<&mut AdditionalSocket> {
        self.slots.get_mut(index(number)?)?.as_mut()
    }
}

fn index(number: u32) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

/// The number of a socket has six bits in a token.
const SOCKETS_MAX: usize = 63;
