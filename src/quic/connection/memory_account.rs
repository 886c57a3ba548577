//! The memory that a connection holds for its peer, and the peer's limits (credit for stream data, number of streams)
//! that depend on it.
//!
//! Not here: the sum and the limits of a process (`limits::memory_budget`), and the bytes of single streams
//! (`streams::unread_data`).

use std::{sync::Arc, time::Instant};

use quinn_proto::{self as quinn, Dir};
use uringcore_limits::memory_budget::{Holding, Queued};

use crate::workarounds::{growing_receive_window::Credit, two_step_stream_limit::PeersLimits};

pub(crate) struct PeerAccount {
    credit: Credit,
    streams: PeersLimits,
    /// Counts bytes that the application stores for this connection.
    queued: Arc<Queued>,
    /// The bytes that this connection has charged to the account of its client's address. `None` on a client, and
    /// before the first charge.
    holding: Option<Holding>,
    /// How many streams of the connection were shed.
    sheds: u32,
}

/// The result of [`PeerAccount::update`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// The bytes that are charged for the connection.
    pub held: usize,
    /// True if the peer's credit for stream data was reduced, because the peer's address holds more than its share of
    /// memory.
    pub is_cut: bool,
    /// True if the peer's limits have changed, so that a packet must announce them.
    pub has_changed: bool,
}

impl PeerAccount {
    pub(super) fn new(credit: Credit, streams: PeersLimits) -> Self {
        Self {
            credit,
            streams,
            queued: Arc::default(),
            holding: None,
            sheds: 0,
        }
    }

    pub(super) fn queued(&self) -> &Arc<Queued> {
        &self.queued
    }

    /// Starts charging this connection's bytes.
    pub(super) fn open(&mut self, holding: Holding) {
        self.queued.charged_to(&holding);
        self.holding.insert(holding).set_fixed(CONNECTION_BYTES);
    }

    /// True if this connection's bytes are charged.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.holding.is_some()
    }

    pub fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    pub fn holding_mut(&mut self) -> Option<&mut Holding> {
        self.holding.as_mut()
    }

    /// Charges the peer's address with `held`, the bytes that this connection holds at present.
    #[inline]
    pub(super) fn charge(&mut self, held: usize) {
        if let Some(holding) = &mut self.holding {
            holding.set(held);
        }
    }

    /// True if the process exceeds its budget and this client's address holds a significant part of it.
    pub(super) fn is_short(&self) -> bool {
        self.holding.as_ref().is_some_and(Holding::is_short)
    }

    /// Charges `held`, the bytes that are held now, and adjusts the peer's credit and its number of streams. `received`
    /// is the sum of all stream data that has arrived. `None` if this connection's bytes are not charged.
    pub(super) fn update(
        &mut self,
        conn: &mut quinn::Connection,
        held: usize,
        received: u64,
        is_closed: bool,
    ) -> Option<Update> {
        let is_withheld = self.is_withheld();
        let holding = self.holding.as_mut()?;
        holding.set(held);
        let growth = self.credit.growth(received);
        let mut update = Update {
            held: holding.held(),
            is_cut: false,
            has_changed: false,
        };
        if holding.is_empty() && !holding.has_promise() && growth.is_none() && !is_withheld {
            return Some(update);
        }
        let is_over = !holding.is_empty() && holding.is_over_share();
        if holding.has_promise() && (is_closed || self.credit.is_taken_back()) {
            holding.break_promise();
        }
        let growth = growth.filter(|_| !is_over);
        let growth = growth.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let grows = growth.is_some_and(|bytes| holding.promise(bytes));
        update.has_changed = !is_closed && self.set_withheld(conn, is_over);
        update.is_cut = update.has_changed && is_over;
        if grows {
            self.credit.grow(conn);
            update.has_changed = true;
        }
        Some(update)
    }

    /// Withholds credit and streams from the peer, or restores them. Returns true if the peer's limits have changed.
    fn set_withheld(&mut self, conn: &mut quinn::Connection, is_withheld: bool) -> bool {
        let mut changes = false;
        if self.streams.is_withheld() != is_withheld {
            for dir in [Dir::Bi, Dir::Uni] {
                self.streams.withhold(conn, dir, is_withheld);
            }
            changes = true;
        }
        if self.credit.is_withheld() != is_withheld {
            // Withheld credit comes back when the peer has sent that much, which a peer that only receives never does.
            // So streams are restored without waiting for it.
            changes |= match is_withheld {
                true => {
                    self.credit.withhold(conn);
                    true
                }
                false => self.credit.restore(conn),
            };
        }
        changes
    }

    /// True if the peer gets no credit at present: its address holds more than its share of memory, or did so and the
    /// credit is not restored yet.
    fn is_withheld(&self) -> bool {
        self.is_over_share() || self.credit.is_withheld()
    }

    /// True if the peer's address holds more than its share of the memory budget.
    pub(super) fn is_over_share(&self) -> bool {
        self.streams.is_withheld()
    }

    /// Counts bytes that were read, or dropped because they will never be read.
    #[inline]
    pub(super) fn released(&mut self, bytes: u64) {
        self.credit.released(bytes);
    }

    /// Takes unused credit back from a peer that is quiet. Credit that was announced cannot be withdrawn (RFC 9000
    /// section 4.1), so memory stays reserved for it. Returns the time at which that reservation ends.
    pub(super) fn take_back_credit(
        &mut self,
        conn: &mut quinn::Connection,
        received: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.credit.take_back(conn);
        let until = self.end_reservation(conn, received, now)?;
        if self.credit.is_taken_back() {
            self.break_promise();
            return None;
        }
        Some(until)
    }

    /// Ends the reservation for a peer that has not used its credit for a time. If the peer has sent since, returns the
    /// later time at which the reservation ends.
    pub(super) fn end_reservation(
        &mut self,
        conn: &mut quinn::Connection,
        received: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.holding.as_ref().filter(|it| it.has_promise())?;
        let until = self.credit.kept_until(received, now);
        if until > now {
            return Some(until);
        }
        self.credit.take_back(conn);
        self.break_promise();
        None
    }

    fn break_promise(&mut self) {
        if let Some(holding) = &mut self.holding {
            holding.break_promise();
        }
    }

    /// Counts a shed stream, and returns how many streams of this connection were shed.
    pub fn count_shed(&mut self) -> u32 {
        self.sheds += 1;
        self.sheds
    }

    /// The limit of streams that the peer may have open at a time.
    pub(super) fn max_streams(&self, dir: Dir) -> u64 {
        self.streams.allowed(dir)
    }

    pub(super) fn set_max_streams(&mut self, conn: &mut quinn::Connection, dir: Dir, count: u64) {
        self.streams.allow(conn, dir, count);
    }

    /// Called when the peer has opened streams. Raises the limit of streams if the peer has used enough of it.
    pub(super) fn streams_opened(&mut self, conn: &mut quinn::Connection, dir: Dir) {
        self.streams.opened(conn, dir);
    }
}

/// The charge of an idle connection in bytes. It is a little more than the real size, which covers changes too small
/// to be charged.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use quinn_proto::TransportConfig;
    use uringcore_limits::memory_budget::Budget;

    use super::*;
    use crate::workarounds::{bare_quinn::BareQuinn, growing_receive_window};

    const MIB: usize = 1 << 20;

    fn account(allowed: u64) -> PeerAccount {
        let credit = Credit::new(allowed, growing_receive_window::first(allowed));
        PeerAccount::new(credit, PeersLimits::new([1_000, 100]))
    }

    fn open(account: &mut PeerAccount, budget: &Arc<Budget>, last: u8) {
        account.open(budget.enter(IpAddr::from([192, 0, 2, last])));
    }

    #[test]
    fn no_bytes_are_charged_before_the_account_is_open() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let mut account = account(MIB as u64);
        assert!(!account.is_open());
        account.charge(MIB);
        assert_eq!(account.update(conn, MIB, 0, false), None);
        let budget = Budget::new(100 * MIB);
        open(&mut account, &budget, 1);
        assert_eq!(budget.held(), CONNECTION_BYTES);
        account.charge(MIB);
        assert_eq!(
            (budget.held(), budget.data()),
            (CONNECTION_BYTES + MIB, MIB)
        );
        assert!(account.is_open() && !account.is_short());
    }

    #[test]
    fn an_address_above_its_share_gets_little_credit() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let (mut account, budget) = (account(64 * MIB as u64), Budget::new(10 * MIB));
        open(&mut account, &budget, 1);
        let update = account.update(conn, 6 * MIB, 0, false).unwrap();
        assert!(update.is_cut && update.has_changed && account.is_over_share());
        assert_eq!(update.held, CONNECTION_BYTES + 6 * MIB);
        let again = account.update(conn, 6 * MIB, 0, false).unwrap();
        assert!(!again.is_cut && !again.has_changed);
        let less = account.update(conn, 0, 0, false).unwrap();
        assert!(less.has_changed && !less.is_cut && !account.is_over_share());
        assert!(account.is_withheld(), "the debt of credit is not paid yet");
        account.released(64 * MIB as u64);
        assert!(account.update(conn, 0, 0, false).unwrap().has_changed);
        assert!(!account.is_withheld());
    }

    #[test]
    fn a_closed_connections_limits_do_not_change() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let (mut account, budget) = (account(64 * MIB as u64), Budget::new(10 * MIB));
        open(&mut account, &budget, 1);
        let update = account.update(conn, 6 * MIB, 0, true).unwrap();
        assert!(!update.has_changed && !account.is_over_share());
    }

    #[test]
    fn credit_grows_with_use_and_its_reservation_ends_for_a_quiet_peer() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let (mut account, budget) = (account(8 * MIB as u64), Budget::new(100 * MIB));
        open(&mut account, &budget, 1);
        let received = MIB as u64;
        assert!(!account.update(conn, 0, 0, false).unwrap().has_changed);
        assert!(
            account
                .update(conn, 0, received, false)
                .unwrap()
                .has_changed
        );
        assert!(account.holding().unwrap().has_promise());
        let now = Instant::now();
        let until = account.end_reservation(conn, received, now).unwrap();
        assert!(until > now && account.holding().unwrap().has_promise());
        // The peer has sent one byte, so the time begins again.
        let later = until - Duration::from_millis(1);
        let until = account.end_reservation(conn, received + 1, later).unwrap();
        assert_eq!(account.end_reservation(conn, received + 1, until), None);
        assert!(!account.holding().unwrap().has_promise());
    }

    #[test]
    fn a_quiet_peer_without_a_debt_loses_its_reservation_at_once() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let (mut account, budget) = (account(8 * MIB as u64), Budget::new(100 * MIB));
        open(&mut account, &budget, 1);
        let received = MIB as u64;
        assert!(
            account
                .update(conn, 0, received, false)
                .unwrap()
                .has_changed
        );
        let now = Instant::now();
        let until = account
            .take_back_credit(conn, received, now)
            .expect("the peer may use its credit");
        assert!(until > now);
        account.released(8 * MIB as u64);
        assert_eq!(account.take_back_credit(conn, received, now), None);
        assert!(!account.holding().unwrap().has_promise());
    }

    #[test]
    fn the_application_sets_the_limit_of_streams_and_shed_streams_are_counted() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let mut account = account(MIB as u64);
        assert_eq!(account.max_streams(Dir::Bi), 1_000);
        account.set_max_streams(conn, Dir::Uni, 7);
        assert_eq!(account.max_streams(Dir::Uni), 7);
        assert_eq!((account.count_shed(), account.count_shed()), (1, 2));
    }
}
