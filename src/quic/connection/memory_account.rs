//! The memory that a connection holds for its peer, and the credit and streams that the peer gets accordingly.
//!
//! Not here: the sums of a process and their limits (`budget`), and the bytes of single streams
//! (`streams::unread_data`).

use std::{sync::Arc, time::Instant};

use quinn_proto::{self as quinn, Dir};
use uringcore_limits::memory_budget::{Holding, Queued};

use crate::seams::{receive_window::Credit, stream_limits::PeersLimits};

pub(crate) struct PeerAccount {
    credit: Credit,
    streams: PeersLimits,
    /// The bytes that the host keeps for this connection.
    queued: Arc<Queued>,
    /// At a server: this connection's part of its client's account.
    holding: Option<Holding>,
    /// How many streams of the connection were shed.
    sheds: u32,
}

/// The result of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Update {
    /// The bytes that are charged for the connection.
    pub held: usize,
    /// The peer's credit was cut, because its address holds more than its share.
    pub is_cut: bool,
    /// The peer's limits have changed, and a packet must announce that.
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

    /// Starts to charge this connection's bytes.
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

    /// Charges the bytes held now.
    #[inline]
    pub(super) fn charge(&mut self, held: usize) {
        if let Some(holding) = &mut self.holding {
            holding.set(held);
        }
    }

    /// True if the process exceeds its budget, and this client's address holds a significant part of it.
    pub(super) fn is_short(&self) -> bool {
        self.holding.as_ref().is_some_and(Holding::is_short)
    }

    /// Charges the bytes held now, and updates the peer's credit and streams. `received` bytes of stream data have
    /// arrived in all. `None` if bytes are not charged.
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

    /// Withholds credit and streams from the peer, or restores them. Returns true if anything has changed.
    fn set_withheld(&mut self, conn: &mut quinn::Connection, is_withheld: bool) -> bool {
        let mut changes = false;
        if self.streams.is_withheld() != is_withheld {
            for dir in [Dir::Bi, Dir::Uni] {
                self.streams.withhold(conn, dir, is_withheld);
            }
            changes = true;
        }
        if self.credit.is_withheld() != is_withheld {
            // A debt of credit is paid when the peer has sent that much, which a peer that only receives
            // never does. So streams are granted nevertheless.
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

    /// True if the peer's address holds more than its share, or if a debt of credit is left from when it did.
    fn is_withheld(&self) -> bool {
        self.is_over_share() || self.credit.is_withheld()
    }

    /// True if the address of the peer holds more than its share of the budget.
    pub(super) fn is_over_share(&self) -> bool {
        self.streams.is_withheld()
    }

    /// Bytes were read, or never will be.
    #[inline]
    pub(super) fn released(&mut self, bytes: u64) {
        self.credit.released(bytes);
    }

    /// The peer is quiet: takes back its unused credit. Credit that the peer has received cannot be taken back (RFC
    /// 9000 section 4.1), so its reservation ends after a time. Returns that time, if it is in the future.
    pub(super) fn rest(
        &mut self,
        conn: &mut quinn::Connection,
        received: u64,
        now: Instant,
    ) -> Option<Instant> {
        self.credit.rest(conn);
        let until = self.end_promise(conn, received, now)?;
        if self.credit.is_taken_back() {
            self.break_promise();
            return None;
        }
        Some(until)
    }

    /// Ends the reservation for a peer that has not used its credit for a time. Returns that time, if it is
    /// in the future.
    pub(super) fn end_promise(
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
        self.credit.rest(conn);
        self.break_promise();
        None
    }

    fn break_promise(&mut self) {
        if let Some(holding) = &mut self.holding {
            holding.break_promise();
        }
    }

    /// Counts a shed stream, and returns how many streams of this connection were shed.
    pub fn note_shed(&mut self) -> u32 {
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

    /// The peer has opened streams, and may get more.
    pub(super) fn streams_opened(&mut self, conn: &mut quinn::Connection, dir: Dir) {
        self.streams.opened(conn, dir);
    }
}

/// A little more than an idle connection takes, to cover changes that are too small to be charged.
pub(crate) const CONNECTION_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use std::{net::IpAddr, time::Duration};

    use quinn_proto::TransportConfig;
    use uringcore_limits::memory_budget::Budget;

    use super::*;
    use crate::seams::{bare_quinn::BareQuinn, receive_window};

    const MIB: usize = 1 << 20;

    fn account(allowed: u64) -> PeerAccount {
        let credit = Credit::new(allowed, receive_window::first(allowed));
        PeerAccount::new(credit, PeersLimits::new([1_000, 100]))
    }

    fn open(account: &mut PeerAccount, budget: &Arc<Budget>, last: u8) {
        account.open(budget.enter(IpAddr::from([192, 0, 2, last])));
    }

    #[test]
    fn nothing_is_charged_before_the_account_is_open() {
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
    fn an_address_above_its_share_gets_little_credit_until_it_holds_less() {
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
        assert!(
            account.is_withheld(),
            "the peer must use up its credit first"
        );
        account.released(64 * MIB as u64);
        assert!(account.update(conn, 0, 0, false).unwrap().has_changed);
        assert!(!account.is_withheld());
    }

    #[test]
    fn a_closed_connection_changes_no_limit() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let (mut account, budget) = (account(64 * MIB as u64), Budget::new(10 * MIB));
        open(&mut account, &budget, 1);
        let update = account.update(conn, 6 * MIB, 0, true).unwrap();
        assert!(!update.has_changed && !account.is_over_share());
    }

    #[test]
    fn credit_grows_with_use_and_its_reservation_ends_when_the_peer_is_quiet() {
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
        let until = account.end_promise(conn, received, now).unwrap();
        assert!(until > now && account.holding().unwrap().has_promise());
        // The peer sends, so the time begins again.
        let later = until - Duration::from_millis(1);
        let until = account.end_promise(conn, received + 1, later).unwrap();
        assert_eq!(account.end_promise(conn, received + 1, until), None);
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
            .rest(conn, received, now)
            .expect("the peer may use its credit");
        assert!(until > now);
        account.released(8 * MIB as u64);
        assert_eq!(account.rest(conn, received, now), None);
        assert!(!account.holding().unwrap().has_promise());
    }

    #[test]
    fn the_limit_of_streams_is_the_hosts_and_shed_streams_are_counted() {
        let mut bare = BareQuinn::connected(TransportConfig::default());
        let conn = bare.server.connection();
        let mut account = account(MIB as u64);
        assert_eq!(account.max_streams(Dir::Bi), 1_000);
        account.set_max_streams(conn, Dir::Uni, 7);
        assert_eq!(account.max_streams(Dir::Uni), 7);
        assert_eq!((account.note_shed(), account.note_shed()), (1, 2));
    }
}
