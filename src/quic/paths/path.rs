//! The path of a connection as the application sees it: the socket, the local address, and the remote address that
//! may replace quinn-proto's.
//!
//! quinn-proto has one fixed local address and, on a client, one fixed remote address. Not here: when a path is
//! changed (`connection::migration`).

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

/// The local end of a path: the application's number of the socket (the first is 0), and the local address if the
/// socket reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Local {
    pub socket: u32,
    pub ip: Option<IpAddr>,
}

#[derive(Debug)]
pub(crate) struct Path {
    route: Route,
    /// The peer's previous address, and the local end at which its packets arrived. After a migration that address must
    /// be probed (RFC 9000 section 9.3).
    before: Option<(SocketAddr, Local)>,
    /// An address from which the peer only probes, and the local end at which the probe arrived. The answer must take
    /// the same path (RFC 9000 section 8.2.2).
    asking: Option<(SocketAddr, Local)>,
    trial: Option<Trial>,
    /// True on a server that has announced a preferred address.
    has_preferred: bool,
}

#[derive(Debug, Clone, Copy)]
struct Route {
    local: Local,
    /// Two server addresses. Packets that quinn-proto addresses to the first one are sent to the second one.
    alias: Option<(SocketAddr, SocketAddr)>,
}

/// A path to which a client moves at its application's request, until the first packet has arrived on it.
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

    /// The destination of a packet that quinn-proto has addressed to `remote`.
    pub fn remote(&self, remote: SocketAddr) -> SocketAddr {
        match self.route.alias {
            Some((known, actual)) if known == remote => actual,
            _ => remote,
        }
    }

    pub fn alias(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.route.alias
    }

    /// True if packets go to an alias, or will again when the current trial fails.
    pub fn has_alias(&self) -> bool {
        let before = self.trial.as_ref().map(|trial| &trial.before);
        self.route.alias.is_some() || before.is_some_and(|route| route.alias.is_some())
    }

    /// The local end from which packets to `remote` are sent.
    pub fn local(&self, remote: SocketAddr) -> Local {
        for other in [&self.asking, &self.before] {
            if let Some((address, local)) = other
                && *address == remote
            {
                return *local;
            }
        }
        self.route.local
    }

    /// Called when the peer has migrated away from `old`. Its packets arrive at `local` now.
    pub fn peer_moved(&mut self, old: SocketAddr, local: Local) {
        self.before = Some((old, self.route.local));
        self.asking = None;
        self.route.local = local;
    }

    /// Called when the peer probes from `remote` without migrating. The probe arrived at `local`.
    pub fn probed_from(&mut self, remote: SocketAddr, local: Local) {
        self.asking = Some((remote, local));
    }

    /// Called when quinn-proto has returned to the peer's previous address.
    pub fn peer_returned(&mut self, remote: SocketAddr) {
        if let Some((_, local)) = self.before.take_if(|(address, _)| *address == remote) {
            self.route.local = local;
        }
    }

    /// True if the caller must find out whether a datagram that arrived here is authentic.
    pub fn needs_proof(&self, local: Local, remote: SocketAddr) -> bool {
        match &self.trial {
            Some(_) => {
                let expected = self.route.alias.map_or(remote, |(_, actual)| actual);
                local.socket == self.route.local.socket && remote == expected
            }
            None => self.has_preferred && local != self.route.local,
        }
    }

    /// Records that an authentic datagram has arrived at `local`. Returns true if that ends a trial.
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

    /// Moves the connection to another socket on trial. If no authentic datagram arrives on that socket until
    /// `deadline`, [`give_up`](Self::give_up) returns to the path before.
    pub fn try_socket(&mut self, socket: u32, deadline: Instant) {
        // If a trial is in progress, its path has not worked yet. So the path before it stays the one to return to.
        let before = self.trial.take().map_or(self.route, |trial| trial.before);
        self.trial = Some(Trial { deadline, before });
        self.route.local = Local { socket, ip: None };
    }

    /// From now on, packets that quinn-proto addresses to `known` (the server's first address) are sent to `actual`
    /// (its preferred address).
    pub fn use_alias(&mut self, known: SocketAddr, actual: SocketAddr) {
        self.route.alias = Some((known, actual));
    }

    /// Ends the use of the alias: packets are sent to the address to which quinn-proto addresses them, also if a failed
    /// trial restores the path before it.
    pub fn leave_alias(&mut self) {
        self.route.alias = None;
        if let Some(trial) = &mut self.trial {
            trial.before.alias = None;
        }
    }

    /// Returns to the path before the trial if its deadline has passed. Then returns true.
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
    fn an_authentic_datagram_on_the_new_socket_ends_a_trial() {
        let now = Instant::now();
        let mut path = Path::new(local(0), false);
        assert!(
            !path.needs_proof(local(0), addr(1)),
            "no trial is in progress"
        );
        path.try_socket(1, now);
        assert_eq!((path.socket(), path.deadline()), (1, Some(now)));
        assert!(
            !path.needs_proof(local(0), addr(1)),
            "the datagram arrived on the old socket"
        );
        assert!(path.needs_proof(local(1), addr(1)));
        assert!(path.proved(local(1)));
        assert!(!path.is_on_trial() && path.deadline().is_none());
        assert!(!path.give_up(now));
        assert_eq!(path.socket(), 1);
    }

    #[test]
    fn failed_trials_return_to_the_last_working_path() {
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
    fn an_alias_replaces_only_its_address() {
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
    fn a_path_response_takes_the_path_of_its_challenge() {
        let mut path = Path::new(local(0), false);
        path.peer_moved(addr(1), local(1));
        assert_eq!(
            path.local(addr(1)),
            local(0),
            "the previous address is probed from its old local end"
        );
        assert_eq!(path.local(addr(2)), local(1));
        path.probed_from(addr(3), local(2));
        assert_eq!(path.local(addr(3)), local(2));
        path.peer_returned(addr(3));
        assert_eq!(path.socket(), 1, "the peer never had that address");
        path.peer_returned(addr(1));
        assert_eq!(path.socket(), 0);
    }

    #[test]
    fn a_server_answers_at_its_preferred_address_once_a_client_has_used_it() {
        let mut path = Path::new(local(0), true);
        assert!(!path.needs_proof(local(0), addr(1)));
        assert!(path.needs_proof(local(1), addr(1)));
        assert!(!path.proved(local(1)), "no trial was in progress");
        assert_eq!(path.socket(), 1);
    }
}
