//! Where a connection's packets go and come from, as the host sees it: which of its sockets, which
//! local address, and which of the peer's addresses stands for the one that the state machine knows.
//!
//! The state machine knows one local and, on a client, one remote address for ever. Not here: when a
//! path is changed (`connection::migration`).

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

/// One end of a path: a socket, by the host's number for it, and an address of it where the socket
/// tells. The first socket is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Local {
    pub socket: u32,
    pub ip: Option<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct Path {
    place: Place,
    /// Where the packets of the address arrived that the peer had before (RFC 9000 section 9.3
    /// has it asked whether it is still there).
    before: Option<(SocketAddr, Local)>,
    /// Where the packets of an address arrive that the peer does not use, but asks from: its answer
    /// has to go back the same way (RFC 9000 section 8.2.2).
    asking: Option<(SocketAddr, Local)>,
    trial: Option<Trial>,
    /// A server that told its clients to come to another address.
    has_preferred: bool,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    local: Local,
    /// Packets for the first address, which the state machine knows, go to the second.
    alias: Option<(SocketAddr, SocketAddr)>,
}

/// A client is on a new path, as its host wished, and nothing has been heard on it.
#[derive(Debug)]
struct Trial {
    deadline: Instant,
    before: Place,
}

impl Path {
    pub fn new(local: Local, has_preferred: bool) -> Self {
        Self {
            place: Place { local, alias: None },
            before: None,
            asking: None,
            trial: None,
            has_preferred,
        }
    }

    pub fn socket(&self) -> u32 {
        self.place.local.socket
    }

    /// Where a packet that the state machine addressed to `remote` really goes.
    pub fn remote(&self, remote: SocketAddr) -> SocketAddr {
        match self.place.alias {
            Some((known, actual)) if known == remote => actual,
            _ => remote,
        }
    }

    pub fn alias(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.place.alias
    }

    /// True if there is such an address, or will be again when a trial fails.
    pub fn has_alias(&self) -> bool {
        let before = self.trial.as_ref().map(|trial| trial.before);
        [Some(self.place), before]
            .into_iter()
            .flatten()
            .any(|place| place.alias.is_some())
    }

    /// Where packets to `remote` are sent from.
    pub fn local(&self, remote: SocketAddr) -> Local {
        let others = [self.asking, self.before].into_iter().flatten();
        let mut there = others.filter(|(address, _)| *address == remote);
        there.next().map_or(self.place.local, |(_, local)| local)
    }

    /// The peer has moved away from `old`, and its packets arrive at `local` now.
    pub fn peer_moved(&mut self, old: SocketAddr, local: Local) {
        self.before = Some((old, self.place.local));
        self.asking = None;
        self.place.local = local;
    }

    /// The peer asks from an address that it does not use, and its packets arrive at `local`.
    pub fn asked_from(&mut self, remote: SocketAddr, local: Local) {
        self.asking = Some((remote, local));
    }

    /// The state machine believes the peer to be where it was before.
    pub fn peer_returned(&mut self, remote: SocketAddr) {
        if let Some((_, local)) = self.before.take_if(|(address, _)| *address == remote) {
            self.place.local = local;
        }
    }

    /// True if it matters that a datagram that arrived here is authentic.
    pub fn needs_proof(&self, local: Local, remote: SocketAddr) -> bool {
        match &self.trial {
            Some(_) => {
                let expected = self.place.alias.map_or(remote, |(_, actual)| actual);
                local.socket == self.place.local.socket && remote == expected
            }
            None => self.has_preferred && local != self.place.local,
        }
    }

    /// Such a datagram was authentic. Returns whether this ends a trial.
    pub fn proved(&mut self, local: Local) -> bool {
        if self.has_preferred {
            self.place.local = local;
        }
        self.trial.take().is_some()
    }

    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.deadline)
    }

    /// Goes over to another socket until `deadline` or for good.
    pub fn try_socket(&mut self, socket: u32, deadline: Instant) {
        // What was never heard of is no place to return to.
        let before = self.trial.take().map_or(self.place, |trial| trial.before);
        self.trial = Some(Trial { deadline, before });
        self.place.local = Local { socket, ip: None };
    }

    /// Sends to `actual` instead of `known`.
    pub fn use_alias(&mut self, known: SocketAddr, actual: SocketAddr) {
        self.place.alias = Some((known, actual));
    }

    /// Sends to the address as the state machine knows it, from now on and after a trial.
    pub fn leave_alias(&mut self) {
        self.place.alias = None;
        if let Some(trial) = &mut self.trial {
            trial.before.alias = None;
        }
    }

    /// Goes back to the path before the trial, if its time is over. Returns whether it was.
    pub fn give_up(&mut self, now: Instant) -> bool {
        let Some(trial) = self.trial.take_if(|trial| trial.deadline <= now) else {
            return false;
        };
        self.place = trial.before;
        true
    }
}
