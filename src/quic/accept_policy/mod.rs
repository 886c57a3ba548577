//! Decides which new clients a server accepts, and how it answers a client that exceeds a limit.
//!
//! A flood from spoofed addresses must stay cheap. For a client that has not proved its address by a Retry, the
//! server stores nothing but one handshake, and there are at most [`EndpointSettings::retry_handshakes`] of these.
//! Further clients get a Retry, so they are not excluded.
//!
//! The limits (`settings::endpoint` has their defaults) bound: all connections, connections of one address,
//! connections accepted in a second, handshakes in progress, handshakes above which a client must prove its address,
//! and memory (`limits::memory_budget`).
//!
//! - `client_hello_reader`: the ClientHello of one connection, for programs that route; the server does not use it.
//! - `initial_client_hello`: the ClientHello in a client's first packets.
//! - `pending_session_lookups`: connections that wait until the application has looked up sessions and tokens.
//!
//! Not here: packets that are refused because of their bytes (`endpoint::udp_datagram_dispatch`), the handling of
//! accepted packets (`endpoint::accept`, `endpoint::session_lookup_wait`), and tokens (`address_tokens`).

use std::{collections::HashMap, net::IpAddr, time::Instant};

pub mod client_hello_reader;
pub(super) mod initial_client_hello;
pub(super) mod pending_session_lookups;

use super::{EndpointSettings, Retry, Worker};
use uringcore_limits::memory_budget::AddressBlock;
use uringcore_limits::token_bucket::TokenBucket;

/// The limit for which a client is refused with CONNECTION_REFUSED (RFC 9000 section 20.1). A full memory budget
/// counts as the limit of connections, or of connections of one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// The application accepts no more connections, and no other worker could accept them.
    Closing,
    Connections,
    Handshakes,
    Address,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Retry,
    /// A Retry. The client's next packet arrives at another worker.
    HandOver,
    Refuse(Cause),
    /// No answer. The client sends its packet again, with growing intervals (RFC 9002 section 6.2).
    Ignore,
}

/// A client that asks for a connection with its first packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Applicant {
    pub address: IpAddr,
    /// True if an address validation token proves the client's address.
    pub is_validated: bool,
    pub may_retry: bool,
    pub room: Room,
}

/// The memory budget of the process, reduced to answers: each field is true if that part of the budget has room for
/// another connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub in_all: bool,
    /// The share of the client's address.
    pub at_address: bool,
    /// The share of all clients that have not proved their address. They have one share together.
    pub for_unproved: bool,
}

pub(super) struct AcceptPolicy {
    max_connections: usize,
    max_handshakes: usize,
    retry_handshakes: usize,
    max_per_address: Option<usize>,
    bucket: Option<TokenBucket>,
    is_refusing: bool,
    has_other_workers: bool,
    handshakes: usize,
    /// The number of connections of each client address. Empty unless there is a limit for each address. It has at most
    /// as many entries as the endpoint has connections.
    blocks: HashMap<AddressBlock, Count>,
}

/// The connections of one client address.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    open: usize,
    /// Closed connections whose state is still kept. A client that closes connections may open as many again at once,
    /// but a large `max_ack_delay` keeps closed connections for most of a minute. So closed connections are limited,
    /// too.
    lingering: usize,
}

impl Count {
    fn is_full(self, limit: usize) -> bool {
        self.open >= limit || self.open + self.lingering >= limit.saturating_mul(WITH_LINGERING)
    }
}

impl AcceptPolicy {
    pub fn new(settings: &EndpointSettings) -> Self {
        Self {
            max_connections: settings.max_connections,
            max_handshakes: settings.max_handshakes,
            retry_handshakes: settings.retry_handshakes,
            max_per_address: settings.max_connections_per_address,
            bucket: settings.accept_rate.map(TokenBucket::new),
            is_refusing: false,
            has_other_workers: settings.worker.is_some_and(Worker::has_others),
            handshakes: 0,
            blocks: HashMap::new(),
        }
    }

    pub fn refuse_all(&mut self) {
        self.is_refusing = true;
    }

    pub fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    /// The number of incoming handshakes in progress.
    pub fn handshakes(&self) -> usize {
        self.handshakes
    }

    /// Decides if a new connection is accepted, or refused because of load: too many connections, handshakes or
    /// connections of one address, a full memory budget, or too many accepted in the last second. `connections` is the
    /// number of the endpoint's connections. The caller (`endpoint::accept`) carries out the verdict.
    pub fn decide(
        &mut self,
        now: Instant,
        applicant: Applicant,
        retry: Retry,
        connections: usize,
    ) -> Verdict {
        if self.is_refusing {
            return match self.has_other_workers && applicant.may_retry {
                true => Verdict::HandOver,
                false => Verdict::Refuse(Cause::Closing),
            };
        }
        let Room {
            in_all,
            at_address,
            for_unproved,
        } = applicant.room;
        if connections >= self.max_connections || !in_all {
            return Verdict::Refuse(Cause::Connections);
        }
        if self.handshakes >= self.max_handshakes {
            return Verdict::Refuse(Cause::Handshakes);
        }
        let is_proof_wanted = match retry {
            Retry::Always => true,
            Retry::Never => false,
            Retry::Auto => !for_unproved || self.is_proof_wanted(now, applicant.address),
        };
        if is_proof_wanted && !applicant.is_validated && applicant.may_retry {
            return Verdict::Retry;
        }
        let is_full = self
            .max_per_address
            .is_some_and(|limit| self.count_of(applicant.address).is_full(limit));
        if is_full || !at_address {
            return Verdict::Refuse(Cause::Address);
        }
        if !applicant.is_validated && !for_unproved {
            return Verdict::Refuse(Cause::Handshakes);
        }
        match self.bucket.as_mut().map(|bucket| bucket.has_one(now)) {
            Some(false) => Verdict::Ignore,
            _ => Verdict::Accept,
        }
    }

    /// True if the client must prove its address. The upper half of three limits (handshakes, connections of one
    /// address, accept rate) is reserved for clients with a proved address.
    fn is_proof_wanted(&mut self, now: Instant, address: IpAddr) -> bool {
        let is_address_half_full = self
            .max_per_address
            .is_some_and(|limit| self.count_of(address).open >= limit.div_ceil(PROVED_FROM));
        let is_hurried = self
            .bucket
            .as_mut()
            .is_some_and(|bucket| bucket.is_half_empty(now));
        self.handshakes >= self.retry_handshakes || is_address_half_full || is_hurried
    }

    fn count_of(&self, address: IpAddr) -> Count {
        let block = AddressBlock::from(address);
        self.blocks.get(&block).copied().unwrap_or_default()
    }

    /// Counts an accepted client, even if its handshake does not begin at once. The returned block is the argument for
    /// [`closed`](Self::closed) and [`forgotten`](Self::forgotten), or for [`uncount_unstarted`](Self::uncount_unstarted).
    pub fn count_accepted(&mut self, now: Instant, address: IpAddr) -> Option<AddressBlock> {
        self.handshakes += 1;
        if let Some(bucket) = &mut self.bucket {
            bucket.take(now);
        }
        self.max_per_address?;
        let block = AddressBlock::from(address);
        self.blocks.entry(block).or_default().open += 1;
        Some(block)
    }

    /// Uncounts an accepted client whose handshake did not begin.
    pub fn uncount_unstarted(&mut self, block: Option<AddressBlock>) {
        self.handshake_ended();
        if let Some(block) = block {
            self.uncount_open(block);
        }
    }

    /// Counts that one handshake less is in progress, because it has completed or failed.
    pub fn handshake_ended(&mut self) {
        self.handshakes -= 1;
    }

    /// Counts an open connection at the address that its client has proved by migration. If that address is at its
    /// limit, the connection stays at its old one; otherwise a client could open connections without limit and move
    /// them away.
    pub fn moved(&mut self, old: AddressBlock, address: IpAddr) -> AddressBlock {
        let new = AddressBlock::from(address);
        let is_full = self
            .max_per_address
            .is_some_and(|limit| self.count_of(address).is_full(limit));
        if new == old || is_full {
            return old;
        }
        self.blocks.entry(new).or_default().open += 1;
        self.uncount_open(old);
        new
    }

    /// Counts an accepted connection as closed. Its entry stays until [`forgotten`](Self::forgotten) removes it.
    pub fn closed(&mut self, block: AddressBlock) {
        if let Some(count) = self.blocks.get_mut(&block) {
            count.open -= 1;
            count.lingering += 1;
        }
    }

    /// Uncounts a closed connection whose state was dropped.
    pub fn forgotten(&mut self, block: AddressBlock) {
        self.take_out(block, |count| count.lingering -= 1);
    }

    /// Uncounts an open connection that was removed without a close.
    pub fn uncount_open(&mut self, block: AddressBlock) {
        self.take_out(block, |count| count.open -= 1);
    }

    fn take_out(&mut self, block: AddressBlock, one: impl FnOnce(&mut Count)) {
        if let Some(count) = self.blocks.get_mut(&block) {
            one(count);
            if count.open + count.lingering == 0 {
                self.blocks.remove(&block);
            }
        }
        if self.blocks.is_empty() {
            self.blocks.shrink_to(BLOCKS_KEPT);
        }
    }
}

/// An address may have twice as many connections, open and closed ones together, as open ones.
const WITH_LINGERING: usize = 2;
/// When an address has a half of the connections that it may have, further clients from it must prove by a Retry that
/// the address is theirs.
const PROVED_FROM: usize = 2;
const BLOCKS_KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use uringcore_limits::token_bucket::Rate;

    use super::*;

    fn stranger(address: &str) -> Applicant {
        Applicant {
            address: address.parse().unwrap(),
            is_validated: false,
            may_retry: true,
            room: Room {
                in_all: true,
                at_address: true,
                for_unproved: true,
            },
        }
    }

    fn proved(address: &str) -> Applicant {
        Applicant {
            is_validated: true,
            may_retry: false,
            ..stranger(address)
        }
    }

    #[test]
    fn the_upper_half_of_an_addresss_limit_needs_a_proved_address() {
        let mut accept_policy = AcceptPolicy::new(&EndpointSettings {
            max_connections_per_address: Some(4),
            ..EndpointSettings::default()
        });
        let now = Instant::now();
        let (victim, proved) = (stranger("192.0.2.1"), proved("192.0.2.1"));
        let mut entered = Vec::new();
        for _ in 0..2 {
            assert_eq!(
                accept_policy.decide(now, victim, Retry::Auto, 0),
                Verdict::Accept
            );
            entered.extend(accept_policy.count_accepted(now, victim.address));
        }
        for _ in 0..2 {
            assert_eq!(
                accept_policy.decide(now, victim, Retry::Auto, 0),
                Verdict::Retry
            );
            assert_eq!(
                accept_policy.decide(now, proved, Retry::Auto, 0),
                Verdict::Accept
            );
            entered.extend(accept_policy.count_accepted(now, proved.address));
        }
        let refused = Verdict::Refuse(Cause::Address);
        assert_eq!(
            accept_policy.decide(now, victim, Retry::Auto, 0),
            Verdict::Retry
        );
        assert_eq!(accept_policy.decide(now, proved, Retry::Auto, 0), refused);
        assert_eq!(accept_policy.decide(now, victim, Retry::Never, 0), refused);
        let other = stranger("192.0.2.2");
        assert_eq!(
            accept_policy.decide(now, other, Retry::Auto, 0),
            Verdict::Accept
        );
        accept_policy.uncount_open(entered.pop().unwrap());
        assert_eq!(
            accept_policy.decide(now, proved, Retry::Auto, 0),
            Verdict::Accept
        );
        entered
            .drain(..)
            .for_each(|one| accept_policy.uncount_open(one));
        assert!(accept_policy.blocks.is_empty());
    }

    #[test]
    fn a_full_memory_budget_refuses_clients_or_sends_a_retry() {
        let mut accept_policy = AcceptPolicy::new(&EndpointSettings::default());
        let mut decide = |mut client: Applicant, change: fn(&mut Room), retry| {
            change(&mut client.room);
            accept_policy.decide(Instant::now(), client, retry, 0)
        };
        let [unproved, proved] = [stranger("192.0.2.1"), proved("192.0.2.1")];
        let full = |room: &mut Room| room.in_all = false;
        let full_address = |room: &mut Room| room.at_address = false;
        let unproved_full = |room: &mut Room| room.for_unproved = false;
        for client in [unproved, proved] {
            let verdict = decide(client, full, Retry::Auto);
            assert_eq!(verdict, Verdict::Refuse(Cause::Connections));
            let verdict = decide(client, full_address, Retry::Auto);
            assert_eq!(verdict, Verdict::Refuse(Cause::Address));
        }
        assert_eq!(decide(unproved, unproved_full, Retry::Auto), Verdict::Retry);
        let refused = Verdict::Refuse(Cause::Handshakes);
        assert_eq!(decide(unproved, unproved_full, Retry::Never), refused);
        assert_eq!(decide(proved, unproved_full, Retry::Auto), Verdict::Accept);
    }

    #[test]
    fn closed_connections_make_room_until_there_are_as_many_as_open_ones_may_be() {
        let mut accept_policy = AcceptPolicy::new(&EndpointSettings {
            max_connections_per_address: Some(2),
            ..EndpointSettings::default()
        });
        let now = Instant::now();
        let client = proved("192.0.2.1");
        let (accepted, refused) = (Verdict::Accept, Verdict::Refuse(Cause::Address));
        let mut all = Vec::new();
        for expected in [accepted, accepted, refused] {
            let verdict = accept_policy.decide(now, client, Retry::Never, 0);
            assert_eq!(verdict, expected);
            if verdict == accepted {
                all.extend(accept_policy.count_accepted(now, client.address));
            }
        }
        for expected in [accepted, accepted, refused] {
            accept_policy.closed(all[0]);
            let verdict = accept_policy.decide(now, client, Retry::Never, 0);
            assert_eq!(verdict, expected);
            if verdict == accepted {
                accept_policy.count_accepted(now, client.address);
            }
        }
        // One connection is open and three are closed.
        accept_policy.forgotten(all[0]);
        assert_eq!(accept_policy.decide(now, client, Retry::Never, 0), accepted);
        accept_policy.closed(all[0]);
        (0..3).for_each(|_| accept_policy.forgotten(all[0]));
        assert!(accept_policy.blocks.is_empty());
    }

    #[test]
    fn a_connection_that_migrates_to_a_full_address_is_counted_at_its_old_one() {
        let mut accept_policy = AcceptPolicy::new(&EndpointSettings {
            max_connections_per_address: Some(1),
            ..EndpointSettings::default()
        });
        let now = Instant::now();
        let clients = ["192.0.2.1", "192.0.2.2"].map(proved);
        let [first, second] = clients.map(|client| {
            let entered = accept_policy.count_accepted(now, client.address);
            entered.expect("the settings limit connections of one address")
        });
        let [refused, accepted] = [Verdict::Refuse(Cause::Address), Verdict::Accept];
        let decide = |accept_policy: &mut AcceptPolicy| {
            clients.map(|c| accept_policy.decide(now, c, Retry::Never, 0))
        };
        assert_eq!(accept_policy.moved(first, clients[1].address), first);
        assert_eq!(decide(&mut accept_policy), [refused, refused]);
        accept_policy.uncount_open(second);
        assert_eq!(accept_policy.moved(first, clients[1].address), second);
        assert_eq!(decide(&mut accept_policy), [accepted, refused]);
        assert_eq!(accept_policy.moved(second, clients[1].address), second);
        accept_policy.uncount_open(second);
        assert!(accept_policy.blocks.is_empty());
    }

    #[test]
    fn a_closing_worker_sends_clients_to_the_next_worker_before_it_refuses_them() {
        let verdicts = |worker| {
            let mut accept_policy = AcceptPolicy::new(&EndpointSettings {
                worker,
                ..EndpointSettings::default()
            });
            accept_policy.refuse_all();
            [stranger("192.0.2.1"), proved("192.0.2.1")]
                .map(|client| accept_policy.decide(Instant::now(), client, Retry::Never, 0))
        };
        let refused = Verdict::Refuse(Cause::Closing);
        let one_of = |count| Some(Worker { index: 0, count });
        assert_eq!(verdicts(one_of(2)), [Verdict::HandOver, refused]);
        assert_eq!(verdicts(one_of(1)), [refused, refused]);
        assert_eq!(verdicts(None), [refused, refused]);
    }

    #[test]
    fn the_accept_rate_allows_more_clients_as_time_passes() {
        let mut accept_policy = AcceptPolicy::new(&EndpointSettings {
            accept_rate: Some(Rate {
                per_second: 10.0,
                burst: 2,
            }),
            ..EndpointSettings::default()
        });
        let begin = Instant::now();
        let client = proved("192.0.2.1");
        for _ in 0..2 {
            assert_eq!(
                accept_policy.decide(begin, client, Retry::Never, 0),
                Verdict::Accept
            );
            accept_policy.count_accepted(begin, client.address);
        }
        assert_eq!(
            accept_policy.decide(begin, client, Retry::Never, 0),
            Verdict::Ignore
        );
        let stranger = stranger("192.0.2.1");
        assert_eq!(
            accept_policy.decide(begin, stranger, Retry::Auto, 0),
            Verdict::Retry
        );
        let later = begin + Duration::from_millis(101);
        assert_eq!(
            accept_policy.decide(later, client, Retry::Never, 0),
            Verdict::Accept
        );
        accept_policy.count_accepted(later, client.address);
        assert_eq!(
            accept_policy.decide(later, client, Retry::Never, 0),
            Verdict::Ignore
        );
        // After any pause, the bucket has tokens for one burst and no more.
        let much_later = begin + Duration::from_secs(3600);
        for _ in 0..2 {
            assert_eq!(
                accept_policy.decide(much_later, client, Retry::Never, 0),
                Verdict::Accept
            );
            accept_policy.count_accepted(much_later, client.address);
        }
        assert_eq!(
            accept_policy.decide(much_later, client, Retry::Never, 0),
            Verdict::Ignore
        );
    }
}
