//! The path of a connection as the host sees it: its socket, its local address, and the alias of the state
//! machine's remote address.
//!
//! The state machine has one fixed local and, on a client, one fixed remote address. Not here: when a path is
//! changed (`connection::migration`).

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

/// One end of a path: a socket, by the host's number, and an address of it if the socket reports one. The first
/// socket is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Local {
    pub socket: u32,
    pub ip: Option<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct Path {
    route: Route,
    /// The peer's previous address, and where its packets arrived. RFC 9000 section 9.3 requires that this address
    /// is probed after a migration.
    before: Option<(SocketAddr, Local)>,
    /// An address that the peer probes from without using it, and where its packets arrive. The answer has to take
    /// the same path (RFC 9000 section 8.2.2).
    asking: Option<(SocketAddr, Local)>,
    trial: Option<Trial>,
    /// A server that has announced a preferred address.
    has_preferred: bool,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    local: Local,
    /// Packets for the first address, which the state machine uses, go to the second.
    alias: Option<(SocketAddr, SocketAddr)>,
}

/// A client uses a new path at its host's request, and nothing has arrived on it yet.
#[derive(Debug)]
struct Trial {
    deadline: Instant,
    before: Route,
}

impl Path {
    pub fn new(local: Local, has_preferred: bool) -> Self {
        Self {
            route: Route { local, alias: None },
            before: None,
            asking: None,
            trial: None,
            has_preferred,
        }
    }

    pub fn socket(&self) -> u32 {
        self.route.local.socket
    }

    /// The actual destination of a packet that the state machine addressed to `remote`.
    pub fn remote(&self, remote: SocketAddr) -> SocketAddr {
        match self.route.alias {
            Some((known, actual)) if known == remote => actual,
            _ => remote,
        }
    }

    pub fn alias(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.route.alias
    }

    /// True if there is an alias, or will be again if a trial fails.
    pub fn has_alias(&self) -> bool {
        let before = self.trial.as_ref().map(|trial| trial.before);
        [Some(self.route), before]
            .into_iter()
            .flatten()
            .any(|route| route.alias.is_some())
    }

    /// The local end that packets to `remote` are sent from.
    pub fn local(&self, remote: SocketAddr) -> Local {
        let others = [self.asking, self.before].into_iter().flatten();
        let mut there = others.filter(|(address, _)| *address == remote);
        there.next().map_or(self.route.local, |(_, local)| local)
    }

    /// The peer has migrated from `old`, and its packets arrive at `local` now.
    pub fn peer_moved(&mut self, old: SocketAddr, local: Local) {
        self.before = Some((old, self.route.local));
        self.asking = None;
        self.route.local = local;
    }

    /// The peer probes from an address that it does not use, and its packets arrive at `local`.
    pub fn asked_from(&mut self, remote: SocketAddr, local: Local) {
        self.asking = Some((remote, local));
    }

    /// The state machine has returned to the peer's previous address.
    pub fn peer_returned(&mut self, remote: SocketAddr) {
        if let Some((_, local)) = self.before.take_if(|(address, _)| *address == remote) {
            self.route.local = local;
        }
    }

    /// True if it matters that a datagram that arrived here is authentic.
    pub fn needs_proof(&self, local: Local, remote: SocketAddr) -> bool {
        match &self.trial {
            Some(_) => {
                let expected = self.route.alias.map_or(remote, |(_, actual)| actual);
                local.socket == self.route.local.socket && remote == expected
            }
            None => self.has_preferred && local != self.route.local,
        }
    }

    /// Records an authentic datagram at this local address. Returns true if this ends a trial.
    pub fn proved(&mut self, local: Local) -> bool {
        if self.has_preferred {
            self.route.local = local;
        }
        self.trial.take().is_some()
    }

    pub fn is_on_trial(&self) -> bool {
        self.trial.is_some()
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.trial.as_ref().map(|trial| trial.deadline)
    }

    /// Switches to another socket until `deadline` or for good.
    pub fn try_socket(&mut self, socket: u32, deadline: Instant) {
        // A path on which nothing has ever arrived is no fallback.
        let before = self.trial.take().map_or(self.route, |trial| trial.before);
        self.trial = Some(Trial { deadline, before });
        self.route.local = Local { socket, ip: None };
    }

    /// Sends to `actual` instead of `known`.
    pub fn use_alias(&mut self, known: SocketAddr, actual: SocketAddr) {
        self.route.alias = Some((known, actual));
    }

    /// Sends to the state machine's address from now on, and after a failed trial.
    pub fn leave_alias(&mut self) {
        self.route.alias = None;
        if let Some(trial) = &mut self.trial {
            trial.before.alias = None;
        }
    }

    /// Returns to the path before the trial, if its deadline has passed. Returns true if it has.
    pub fn give_up(&mut self, now: Instant) -> bool {
        let Some(trial) = self.trial.take_if(|trial| trial.deadline <= now) else {
            return false;
        };
        self.route = trial.before;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn addr(last: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, last], 443))
    }

    fn local(socket: u32) -> Local {
        Local { socket, ip: None }
    }

    #[test]
    fn a_trial_ends_with_an_authentic_datagram_on_the_new_socket() {
        let now = Instant::now();
        let mut path = Path::new(local(0), false);
        assert!(
            !path.needs_proof(local(0), addr(1)),
            "nothing is being tried"
        );
        path.try_socket(1, now);
        assert_eq!((path.socket(), path.deadline()), (1, Some(now)));
        assert!(
            !path.needs_proof(local(0), addr(1)),
            "it arrived on the old socket"
        );
        assert!(path.needs_proof(local(1), addr(1)));
        assert!(path.proved(local(1)));
        assert!(!path.is_on_trial() && path.deadline().is_none());
        assert!(!path.give_up(now));
        assert_eq!(path.socket(), 1);
    }

    #[test]
    fn trials_that_fail_return_to_the_last_path_on_which_something_arrived() {
        let now = Instant::now();
        let mut path = Path::new(local(0), false);
        path.try_socket(1, now + Duration::from_secs(1));
        path.try_socket(2, now + Duration::from_secs(2));
        assert!(!path.give_up(now + Duration::from_secs(1)));
        assert_eq!(path.socket(), 2);
        assert!(path.give_up(now + Duration::from_secs(2)));
        assert_eq!((path.socket(), path.is_on_trial()), (0, false));
    }

    #[test]
    fn an_alias_replaces_its_address_alone_until_it_is_left() {
        let now = Instant::now();
        let mut path = Path::new(local(0), false);
        path.use_alias(addr(1), addr(2));
        assert_eq!(path.remote(addr(1)), addr(2));
        assert_eq!(path.remote(addr(3)), addr(3));
        path.try_socket(1, now);
        assert!(path.needs_proof(local(1), addr(2)));
        assert!(!path.needs_proof(local(1), addr(1)));
        path.leave_alias();
        assert!(path.give_up(now) && !path.has_alias());
        assert_eq!(path.remote(addr(1)), addr(1));
    }

    #[test]
    fn answers_take_the_path_on_which_the_peer_was_asked_for() {
        let mut path = Path::new(local(0), false);
        path.peer_moved(addr(1), local(1));
        assert_eq!(
            path.local(addr(1)),
            local(0),
            "the address before is probed there"
        );
        assert_eq!(path.local(addr(2)), local(1));
        path.asked_from(addr(3), local(2));
        assert_eq!(path.local(addr(3)), local(2));
        path.peer_returned(addr(3));
        assert_eq!(path.socket(), 1, "the peer was never there");
        path.peer_returned(addr(1));
        assert_eq!(path.socket(), 0);
    }

    #[test]
    fn a_server_answers_at_its_preferred_address_once_a_client_has_used_it() {
        let mut path = Path::new(local(0), true);
        assert!(!path.needs_proof(local(0), addr(1)));
        assert!(path.needs_proof(local(1), addr(1)));
        assert!(!path.proved(local(1)), "no trial has ended");
        assert_eq!(path.socket(), 1);
    }
}
