//! A client's addresses at its server: the validated one, and the bytes that may be sent to others (RFC 9000
//! sections 8.1, 8.2 and 9.3).
//!
//! An address that is not validated gets at most three times the UDP payload that arrived from it. While the client
//! is at its validated address and nothing is sent anywhere else, nothing is counted.
//!
//! Not here: the frames that validate an address (`connection::path_observer`), and shortened packets
//! (`seams::shortened_packet`).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;
use uringcore_limits::token_bucket::{Rate, TokenBucket};

#[derive(Default)]
pub(crate) struct ClientAddresses {
    validated: Option<SocketAddr>,
    /// Present while packets may go to an address that is not validated, or the state machine validates one.
    limits: Option<Box<Limits>>,
    /// The limit of this client's migrations. Created at the first.
    moves: Option<Box<TokenBucket>>,
}

#[derive(Default)]
struct Limits {
    budgets: Vec<Budget>,
    /// The state machine validates the address that it sends to.
    is_validating: bool,
    /// The state machine's next datagram probes the client's previous address.
    asks_old: bool,
    /// The data of the state machine's last PATH_CHALLENGE to its current address.
    challenge: Option<[u8; 8]>,
    held: Option<Held>,
    repeat: Option<Repeat>,
}

struct Budget {
    address: SocketAddr,
    received: u64,
    sent: u64,
    /// A PATH_RESPONSE is due there.
    is_asking: bool,
}

/// A datagram that waits until it may leave.
struct Held {
    transmit: quinn::Transmit,
    data: Vec<u8>,
}

/// A short challenge that is sent again if no answer arrives. The state machine sends one alone only once, and
/// nothing else while its own budget is used up. So otherwise a lost challenge would end the connection of a client
/// that only receives.
struct Repeat {
    to: SocketAddr,
    data: Vec<u8>,
    at: Instant,
    pause: Duration,
    is_due: bool,
}

/// The limits of the next datagram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// `None`: no limit.
    pub current: Option<u64>,
    /// The limit of a PATH_RESPONSE to an address that the client probes from; `None`: no limit.
    pub response: Option<u64>,
    /// The next datagram probes the validated address, regardless of the limits.
    pub asks_old: bool,
}

impl ClientAddresses {
    /// The last address that the client has proved.
    pub fn validated(&self) -> Option<SocketAddr> {
        self.validated
    }

    /// True if received and sent bytes have to be counted.
    pub fn are_limited(&self) -> bool {
        self.limits.is_some()
    }

    /// Begins with an address that `received` bytes came from.
    pub fn begin(&mut self, address: SocketAddr, received: u64, is_validated: bool) {
        match is_validated {
            true => self.validated = Some(address),
            false => self.limits().budgets.push(Budget::new(address, received)),
        }
    }

    /// True if a datagram from an address that is neither in use nor validated may be processed: it may be a
    /// migration.
    pub fn may_move(&mut self, now: Instant, remote: SocketAddr, current: SocketAddr) -> bool {
        if remote == current || Some(remote) == self.validated {
            return true;
        }
        match &mut self.moves {
            Some(moves) => moves.has_one(now),
            None => true,
        }
    }

    /// The state machine has switched to another address.
    pub fn moved(&mut self, now: Instant) {
        let moves = self
            .moves
            .get_or_insert_with(|| TokenBucket::new(MOVES).into());
        moves.try_take(now);
        let limits = self.limits();
        // This probes the previous address only if that was not being validated itself.
        limits.asks_old |= !limits.is_validating;
        limits.is_validating = true;
        (limits.challenge, limits.repeat) = (None, None);
    }

    /// The state machine no longer validates an address.
    pub fn stopped_validating(&mut self) {
        if let Some(limits) = &mut self.limits {
            (limits.is_validating, limits.asks_old) = (false, false);
            (limits.challenge, limits.repeat) = (None, None);
        }
    }

    /// Counts a received datagram, if packets may be sent back to its address.
    pub fn received(
        &mut self,
        remote: SocketAddr,
        bytes: u64,
        current: SocketAddr,
        is_asking: bool,
    ) {
        if Some(remote) == self.validated {
            return;
        }
        let is_known = self.limits.as_ref().is_some_and(|limits| {
            let mut budgets = limits.budgets.iter();
            budgets.any(|budget| budget.address == remote)
        });
        if !is_known && !is_asking && remote != current {
            return;
        }
        let budgets = &mut self.limits().budgets;
        if let Some(budget) = budgets.iter_mut().find(|budget| budget.address == remote) {
            budget.received += bytes;
            budget.is_asking |= is_asking;
        } else {
            if budgets.len() >= ADDRESSES_MAX {
                // The bytes received from there are dropped together with those sent there.
                let old = budgets.iter().position(|budget| budget.address != current);
                budgets.remove(old.unwrap_or(0));
            }
            let budget = Budget::new(remote, bytes);
            budgets.push(Budget {
                is_asking,
                ..budget
            });
        }
    }

    /// True if a PATH_RESPONSE from `remote` answers the challenge to the current address.
    pub fn is_answer(&self, remote: SocketAddr, current: SocketAddr, data: [u8; 8]) -> bool {
        let limits = self.limits.as_ref();
        remote == current && limits.is_some_and(|limits| limits.challenge == Some(data))
    }

    /// The client has proved `address`. Returns true if that is a change.
    pub fn validate(&mut self, address: SocketAddr) -> bool {
        if let Some(limits) = &mut self.limits {
            limits.budgets.retain(|budget| budget.address != address);
        }
        self.validated.replace(address) != Some(address)
    }

    pub fn room(&self, current: SocketAddr) -> Room {
        let Some(limits) = &self.limits else {
            return Room::default();
        };
        let asking = limits.budgets.iter().filter(|budget| budget.is_asking);
        Room {
            current: self.room_of(current),
            response: asking.map(Budget::room).min(),
            asks_old: limits.asks_old,
        }
    }

    /// `None`: no limit.
    fn room_of(&self, address: SocketAddr) -> Option<u64> {
        if Some(address) == self.validated {
            return None;
        }
        let mut budgets = self.limits.iter().flat_map(|limits| &limits.budgets);
        let budget = budgets.find(|budget| budget.address == address);
        Some(budget.map_or(0, Budget::room))
    }

    /// Counts a datagram, or a batch, that is about to leave. False if it may not.
    pub fn send(&mut self, transmit: &quinn::Transmit) -> bool {
        let bytes = transmit.size as u64;
        if let Some(limits) = &mut self.limits {
            limits.asks_old = false;
        }
        let Some(room) = self.room_of(transmit.destination) else {
            return true;
        };
        let budgets = self
            .limits
            .iter_mut()
            .flat_map(|limits| &mut limits.budgets);
        for budget in budgets.filter(|budget| budget.address == transmit.destination) {
            budget.is_asking = false;
            budget.sent += if bytes <= room { bytes } else { 0 };
        }
        bytes <= room
    }

    /// A challenge was sent to `to`, the current address.
    pub fn challenged(&mut self, to: SocketAddr, data: [u8; 8]) {
        let is_validated = self.validated == Some(to);
        if let Some(limits) = &mut self.limits
            // A client that returns at once is probed twice: on the path that it left, and on its new one.
            && !(limits.asks_old && is_validated)
        {
            limits.challenge = Some(data);
        }
    }

    pub fn is_validating(&self) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.is_validating)
    }

    /// Stores a datagram until it may leave.
    pub fn hold(&mut self, transmit: quinn::Transmit, data: &[u8]) {
        let data = data.to_vec();
        self.limits().held = Some(Held { transmit, data });
    }

    pub fn holds(&self) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.held.is_some())
    }

    /// The connection is closed: earlier datagrams must not leave any more.
    pub fn drop_waiting(&mut self) {
        if let Some(limits) = &mut self.limits {
            (limits.held, limits.repeat) = (None, None);
        }
    }

    /// Sends a datagram with a challenge again after this pause, and after twice the pause.
    pub fn repeat(&mut self, now: Instant, to: SocketAddr, data: &[u8], pause: Duration) {
        self.limits().repeat = Some(Repeat {
            to,
            data: data.to_vec(),
            at: now + pause,
            pause,
            is_due: false,
        });
    }

    /// When a challenge must be repeated.
    pub fn deadline(&self) -> Option<Instant> {
        let repeat = self.limits.as_ref()?.repeat.as_ref()?;
        (!repeat.is_due).then_some(repeat.at)
    }

    pub fn handle_timeout(&mut self, now: Instant) {
        if let Some(limits) = &mut self.limits
            && let Some(repeat) = limits.repeat.as_mut().filter(|repeat| repeat.at <= now)
        {
            repeat.is_due = true;
        }
    }

    /// The challenge that is due again, if there is room for it.
    fn repeated(&mut self, buf: &mut Vec<u8>) -> Option<quinn::Transmit> {
        let due = self.limits.as_ref()?.repeat.as_ref();
        let (to, size) = due
            .filter(|repeat| repeat.is_due)
            .map(|repeat| (repeat.to, repeat.data.len() as u64))?;
        if self.room_of(to).is_some_and(|room| room < size) {
            // The datagram is sent when more bytes have arrived from this address.
            return None;
        }
        let mut repeat = self.limits.as_mut()?.repeat.take()?;
        let transmit = quinn::Transmit {
            destination: repeat.to,
            ecn: None,
            size: repeat.data.len(),
            segment_size: None,
            src_ip: None,
        };
        self.send(&transmit);
        buf.clear();
        buf.extend_from_slice(&repeat.data);
        repeat.pause *= 2;
        (repeat.at, repeat.is_due) = (repeat.at + repeat.pause, false);
        self.limits().repeat = Some(repeat);
        Some(transmit)
    }

    /// A stored datagram, if it may leave now.
    pub fn release(&mut self, buf: &mut Vec<u8>) -> Option<quinn::Transmit> {
        if let Some(transmit) = self.repeated(buf) {
            return Some(transmit);
        }
        let held = self.limits.as_mut()?.held.take()?;
        if !self.send(&held.transmit) {
            self.limits().held = Some(held);
            return None;
        }
        buf.clear();
        buf.extend_from_slice(&held.data);
        Some(held.transmit)
    }

    /// Stops counting if nothing has to be counted any more. Returns true if it has stopped.
    pub fn relax(&mut self, current: SocketAddr) -> bool {
        let Some(limits) = &mut self.limits else {
            return false;
        };
        let budgets = &mut limits.budgets;
        budgets.retain(|budget| budget.address == current || budget.is_asking);
        let is_over = budgets.is_empty() && !limits.is_validating && limits.held.is_none();
        if is_over {
            self.limits = None;
        }
        is_over
    }

    fn limits(&mut self) -> &mut Limits {
        self.limits.get_or_insert_default()
    }
}

impl Budget {
    fn new(address: SocketAddr, received: u64) -> Self {
        Self {
            address,
            received,
            sent: 0,
            is_asking: false,
        }
    }

    fn room(&self) -> u64 {
        (FACTOR * self.received).saturating_sub(self.sent)
    }
}

/// RFC 9000 section 8.1.
const FACTOR: u64 = 3;
/// The state machine answers this many addresses at a time, and uses one more.
const ADDRESSES_MAX: usize = 17;
/// How often a client may migrate. Each migration costs about as much as a key update, and a datagram to its old
/// address. A client behind a NAT that loses its mappings migrates a few times a minute.
const MOVES: Rate = Rate {
    per_second: 1.0,
    burst: 10,
};

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn datagram(to: SocketAddr, size: usize) -> quinn::Transmit {
        quinn::Transmit {
            destination: to,
            ecn: None,
            size,
            segment_size: None,
            src_ip: None,
        }
    }

    #[test]
    fn an_address_that_is_not_validated_gets_three_times_what_came_from_it() {
        let client = addr("192.0.2.1:1000");
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, false);
        assert_eq!(addresses.room(client).current, Some(3_600));
        assert!(addresses.send(&datagram(client, 3_600)));
        assert!(!addresses.send(&datagram(client, 1)));
        addresses.received(client, 10, client, false);
        assert!(addresses.send(&datagram(client, 30)));
        assert!(addresses.validate(client));
        assert!(addresses.relax(client));
        assert_eq!(addresses.room(client).current, None);
    }

    #[test]
    fn what_is_held_leaves_when_there_is_room() {
        let client = addr("192.0.2.1:1000");
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 100, false);
        let mut buf = vec![7; 400];
        addresses.hold(datagram(client, 400), &buf);
        assert!(addresses.release(&mut buf).is_none());
        addresses.received(client, 34, client, false);
        buf.clear();
        assert!(addresses.release(&mut buf).is_some());
        assert_eq!((buf.len(), addresses.holds()), (400, false));
    }

    #[test]
    fn the_challenge_of_a_client_that_came_back_at_once_is_the_one_of_its_new_path() {
        let (client, there) = (addr("192.0.2.1:1000"), addr("192.0.2.2:2"));
        let now = Instant::now();
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        // Two datagrams of one batch: nothing is sent between the migrations.
        addresses.moved(now);
        addresses.received(there, 30, there, false);
        addresses.moved(now);
        let (of_old_path, of_new_path) = ([1; 8], [2; 8]);
        addresses.challenged(client, of_old_path);
        assert!(addresses.send(&datagram(client, 1_200)));
        assert!(!addresses.is_answer(client, client, of_old_path));
        addresses.challenged(client, of_new_path);
        assert!(addresses.send(&datagram(client, 1_200)));
        assert!(!addresses.is_answer(client, client, of_old_path));
        assert!(addresses.is_answer(client, client, of_new_path));
    }

    #[test]
    fn a_challenge_that_finds_no_room_leaves_when_more_has_come() {
        let (client, there) = (addr("192.0.2.1:1000"), addr("192.0.2.2:2"));
        let (now, pause) = (Instant::now(), Duration::from_secs(1));
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        addresses.moved(now);
        addresses.received(there, 30, there, false);
        assert!(addresses.send(&datagram(there, 60)));
        addresses.repeat(now, there, &[7; 60], pause);
        addresses.handle_timeout(now + pause);
        let mut buf = Vec::new();
        for _ in 0..3 {
            assert!(addresses.release(&mut buf).is_none(), "30 bytes are left");
            assert_eq!((buf.len(), addresses.deadline()), (0, None));
        }
        addresses.received(there, 10, there, false);
        let transmit = addresses.release(&mut buf).expect("60 bytes are left");
        assert_eq!((transmit.destination, transmit.size), (there, 60));
        assert_eq!(buf, [7; 60]);
        assert_eq!(addresses.room(there).current, Some(0));
        assert_eq!(addresses.deadline(), Some(now + 3 * pause));
        assert!(addresses.release(&mut buf).is_none(), "once for each pause");
    }

    #[test]
    fn an_address_without_a_budget_gets_nothing_and_old_ones_are_forgotten() {
        let (client, now) = (addr("192.0.2.1:1000"), Instant::now());
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        addresses.received(addr("192.0.2.9:9"), 1_200, client, false);
        assert!(!addresses.are_limited(), "nothing is sent there");
        for port in 0..100 {
            let asker = SocketAddr::from(([192, 0, 2, 2], port));
            addresses.received(asker, 50, client, true);
            assert!(addresses.limits().budgets.len() <= ADDRESSES_MAX);
        }
        assert!(!addresses.send(&datagram(addr("192.0.2.2:0"), 1)));
        assert!(addresses.send(&datagram(addr("192.0.2.2:99"), 150)));
        assert!(addresses.may_move(now, addr("192.0.2.3:3"), client));
    }

    #[test]
    fn moves_are_bounded_but_for_the_way_back() {
        let (client, now) = (addr("192.0.2.1:1000"), Instant::now());
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        let (there, elsewhere) = (addr("192.0.2.2:2"), addr("192.0.2.3:3"));
        for _ in 0..MOVES.burst {
            assert!(addresses.may_move(now, elsewhere, there));
            addresses.moved(now);
        }
        assert!(!addresses.may_move(now, elsewhere, there));
        assert!(addresses.may_move(now, there, there));
        assert!(addresses.may_move(now, client, there));
        let later = now + std::time::Duration::from_secs(1);
        assert!(addresses.may_move(later, elsewhere, there));
    }
}
