//! The addresses of a server's client: the validated one, and the amplification limits of others (RFC 9000 sections
//! 8.1, 8.2 and 9.3).
//!
//! An address that is not validated gets at most three times the UDP payload that has arrived from it. While the
//! client is at its validated address and nothing is sent anywhere else, nothing is counted.
//!
//! Not here: the frames that validate an address (`connection::path_observer`), and shortened packets
//! (`workarounds::amplification_limited_packet`).

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use quinn_proto as quinn;
use uringcore_limits::token_bucket::{Rate, TokenBucket};

#[derive(Default)]
pub(crate) struct ClientAddresses {
    validated: Option<SocketAddr>,
    /// Counts bytes while packets may go to an address that is not validated. `None` otherwise.
    limits: Option<Box<Limits>>,
    /// The limit on this client's migrations. Created at the first one.
    moves: Option<Box<TokenBucket>>,
}

#[derive(Default)]
struct Limits {
    budgets: Vec<Budget>,
    /// True while quinn-proto validates the address that it sends to.
    is_validating: bool,
    /// True if quinn-proto's next datagram probes the client's previous address.
    probes_old: bool,
    /// The data of quinn-proto's last PATH_CHALLENGE to the client's current address.
    challenge: Option<[u8; 8]>,
    held: Option<Held>,
    repeat: Option<Repeat>,
}

struct Budget {
    address: SocketAddr,
    received: u64,
    sent: u64,
    /// True if a PATH_RESPONSE must be sent to this address.
    is_asking: bool,
}

/// A datagram that waits until the amplification limit allows it.
struct Held {
    transmit: quinn::Transmit,
    data: Vec<u8>,
}

/// A datagram with a PATH_CHALLENGE that is sent again if no answer arrives. quinn-proto sends a challenge alone only
/// once, and sends nothing else while its own limit is used up. So without the repetition a lost challenge would end
/// the connection of a client that only receives.
struct Repeat {
    to: SocketAddr,
    data: Vec<u8>,
    at: Instant,
    pause: Duration,
    is_due: bool,
}

/// The maximum number of bytes of the next datagram to an address, by the amplification limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The limit for the client's current address. `None`: no limit.
    pub current: Option<u64>,
    /// The limit for a PATH_RESPONSE to an address from which the client only probes. `None`: no limit.
    pub response: Option<u64>,
    /// True if the next datagram probes the client's validated address, to which no limit applies.
    pub probes_old: bool,
}

impl ClientAddresses {
    /// The last address that the client has proved.
    pub fn validated(&self) -> Option<SocketAddr> {
        self.validated
    }

    /// True if received and sent bytes must be counted.
    pub fn are_limited(&self) -> bool {
        self.limits.is_some()
    }

    /// Sets the client's first address, from which `received` bytes have come.
    pub fn begin(&mut self, address: SocketAddr, received: u64, is_validated: bool) {
        match is_validated {
            true => self.validated = Some(address),
            false => self.limits().budgets.push(Budget::new(address, received)),
        }
    }

    /// True if a datagram from `remote` may be processed. A datagram from an address that is neither in use nor
    /// validated may be a migration, and the number of migrations is limited.
    pub fn allows_migration(
        &mut self,
        now: Instant,
        remote: SocketAddr,
        current: SocketAddr,
    ) -> bool {
        if remote == current || Some(remote) == self.validated {
            return true;
        }
        match &mut self.moves {
            Some(moves) => moves.has_one(now),
            None => true,
        }
    }

    /// Called when quinn-proto has switched to another address of the client.
    pub fn moved(&mut self, now: Instant) {
        let moves = self
            .moves
            .get_or_insert_with(|| TokenBucket::new(MOVES).into());
        moves.try_take(now);
        let limits = self.limits();
        // quinn-proto probes the previous address only if it was not validating that one.
        limits.probes_old |= !limits.is_validating;
        limits.is_validating = true;
        (limits.challenge, limits.repeat) = (None, None);
    }

    /// Called when quinn-proto has stopped validating an address.
    pub fn stopped_validating(&mut self) {
        if let Some(limits) = &mut self.limits {
            (limits.is_validating, limits.probes_old) = (false, false);
            (limits.challenge, limits.repeat) = (None, None);
        }
    }

    /// Counts the bytes of a received datagram for its source address `remote`, if packets may be sent there: `remote`
    /// is the client's current address or already has an entry, or `is_asking` is true, because the datagram contained
    /// a PATH_CHALLENGE, whose answer goes to `remote`.
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
                // The list is full, so its oldest entry is removed, unless that is the client's current address. An
                // address without an entry may get nothing, so the removal cannot raise a limit.
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

    /// True if a PATH_RESPONSE from `remote` answers the challenge to the client's current address.
    pub fn is_answer(&self, remote: SocketAddr, current: SocketAddr, data: [u8; 8]) -> bool {
        let limits = self.limits.as_ref();
        remote == current && limits.is_some_and(|limits| limits.challenge == Some(data))
    }

    /// Records that the client has proved `address`. Returns true if that is another address than before.
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
            probes_old: limits.probes_old,
        }
    }

    /// The bytes that may be sent to `address`. `None`: no limit.
    fn room_of(&self, address: SocketAddr) -> Option<u64> {
        if Some(address) == self.validated {
            return None;
        }
        let mut budgets = self.limits.iter().flat_map(|limits| &limits.budgets);
        let budget = budgets.find(|budget| budget.address == address);
        Some(budget.map_or(0, Budget::room))
    }

    /// Counts a datagram, or a batch, against the amplification limit of its destination before it is sent. Returns
    /// false if it must not be sent.
    pub fn send(&mut self, transmit: &quinn::Transmit) -> bool {
        let bytes = transmit.size as u64;
        if let Some(limits) = &mut self.limits {
            limits.probes_old = false;
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

    /// Records that a challenge with `data` was sent to `to`, the client's current address.
    pub fn challenged(&mut self, to: SocketAddr, data: [u8; 8]) {
        let is_validated = self.validated == Some(to);
        if let Some(limits) = &mut self.limits
            // If the client returns to its validated address at once, quinn-proto sends two challenges there: one that
            // probes the previous path, then one for the current path. Only the second is recorded.
            && !(limits.probes_old && is_validated)
        {
            limits.challenge = Some(data);
        }
    }

    pub fn is_validating(&self) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.is_validating)
    }

    /// Keeps a datagram until the amplification limit of its destination allows it to be sent.
    pub fn hold(&mut self, transmit: quinn::Transmit, data: &[u8]) {
        let data = data.to_vec();
        self.limits().held = Some(Held { transmit, data });
    }

    pub fn holds(&self) -> bool {
        self.limits
            .as_ref()
            .is_some_and(|limits| limits.held.is_some())
    }

    /// Drops waiting datagrams after the connection was closed.
    pub fn drop_waiting(&mut self) {
        if let Some(limits) = &mut self.limits {
            (limits.held, limits.repeat) = (None, None);
        }
    }

    /// Sends a datagram with a challenge again after `pause`, and once more after twice that time.
    pub fn repeat(&mut self, now: Instant, to: SocketAddr, data: &[u8], pause: Duration) {
        self.limits().repeat = Some(Repeat {
            to,
            data: data.to_vec(),
            at: now + pause,
            pause,
            is_due: false,
        });
    }

    /// The time at which a challenge must be repeated. `None` if none must be.
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

    /// Writes the challenge that must be repeated into `buf`, if the limit allows it.
    fn repeated(&mut self, buf: &mut Vec<u8>) -> Option<quinn::Transmit> {
        let due = self.limits.as_ref()?.repeat.as_ref();
        let (to, size) = due
            .filter(|repeat| repeat.is_due)
            .map(|repeat| (repeat.to, repeat.data.len() as u64))?;
        if self.room_of(to).is_some_and(|room| room < size) {
            // The challenge waits until more bytes have arrived from this address.
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

    /// Writes a kept datagram into `buf`, if the amplification limit allows it to be sent now.
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

    /// Stops counting if all addresses in use are validated. Returns true if it has stopped.
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

/// RFC 9000 section 8.1: three times the received bytes may be sent.
const FACTOR: u64 = 3;
/// The number of addresses that are counted: quinn-proto answers 16 probing addresses at a time, and uses one more.
const ADDRESSES_MAX: usize = 17;
/// The rate of a client's migrations. Each costs about as much as a key update, and a datagram to the old address. A
/// client behind a NAT that loses its mappings migrates a few times a minute.
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
    fn an_unvalidated_address_gets_at_most_three_times_its_bytes() {
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
    fn a_waiting_datagram_leaves_when_the_limit_allows_it() {
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
    fn after_an_immediate_return_the_challenge_of_the_new_path_counts() {
        let (client, there) = (addr("192.0.2.1:1000"), addr("192.0.2.2:2"));
        let now = Instant::now();
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        // Two datagrams of one batch cause two migrations, and this side sends nothing in between.
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
    fn a_challenge_above_the_limit_leaves_when_more_bytes_have_arrived() {
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
            assert!(
                addresses.release(&mut buf).is_none(),
                "30 bytes may still be sent"
            );
            assert_eq!((buf.len(), addresses.deadline()), (0, None));
        }
        addresses.received(there, 10, there, false);
        let transmit = addresses
            .release(&mut buf)
            .expect("60 bytes may still be sent");
        assert_eq!((transmit.destination, transmit.size), (there, 60));
        assert_eq!(buf, [7; 60]);
        assert_eq!(addresses.room(there).current, Some(0));
        assert_eq!(addresses.deadline(), Some(now + 3 * pause));
        assert!(
            addresses.release(&mut buf).is_none(),
            "the challenge is repeated once after each pause"
        );
    }

    #[test]
    fn an_unknown_address_gets_nothing_and_the_oldest_is_forgotten() {
        let (client, now) = (addr("192.0.2.1:1000"), Instant::now());
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        addresses.received(addr("192.0.2.9:9"), 1_200, client, false);
        assert!(!addresses.are_limited(), "no packet goes to that address");
        for port in 0..100 {
            let asker = SocketAddr::from(([192, 0, 2, 2], port));
            addresses.received(asker, 50, client, true);
            assert!(addresses.limits().budgets.len() <= ADDRESSES_MAX);
        }
        assert!(!addresses.send(&datagram(addr("192.0.2.2:0"), 1)));
        assert!(addresses.send(&datagram(addr("192.0.2.2:99"), 150)));
        assert!(addresses.allows_migration(now, addr("192.0.2.3:3"), client));
    }

    #[test]
    fn migrations_are_limited_except_back_to_the_validated_address() {
        let (client, now) = (addr("192.0.2.1:1000"), Instant::now());
        let mut addresses = ClientAddresses::default();
        addresses.begin(client, 1_200, true);
        let (there, elsewhere) = (addr("192.0.2.2:2"), addr("192.0.2.3:3"));
        for _ in 0..MOVES.burst {
            assert!(addresses.allows_migration(now, elsewhere, there));
            addresses.moved(now);
        }
        assert!(!addresses.allows_migration(now, elsewhere, there));
        assert!(addresses.allows_migration(now, there, there));
        assert!(addresses.allows_migration(now, client, there));
        let later = now + std::time::Duration::from_secs(1);
        assert!(addresses.allows_migration(later, elsewhere, there));
    }
}
