//! A budget of the bytes that a process holds for its clients, with an account for each client address.
//!
//! One [`Budget`] has the limit and the sums of a process; all QUIC endpoints share it. An [`Account`] belongs to a
//! client address. Each connection from that address has a [`Holding`] in the account, which the connection's endpoint
//! updates. A [`Charge`] counts the bytes that the host keeps for a connection: messages, content, and datagrams that
//! wait for the application.
//!
//! The share of an account is the unused part of the budget ("dynamic thresholds", Choudhury and Hahne 1998). So a
//! single account may hold half of the budget, and each of n accounts that all want more may hold 1 / (n + 1) of it.
//! This rule needs no count of the accounts, and leaves room for clients that come later.
//!
//! The memory of the connections themselves (`fixed`) counts in the budget, but not against their account's share,
//! because an address with thousands of idle clients is not the cause of a flood of data. New connections are limited
//! by the same rule within half of the budget ([`Budget::has_room_at`]). So the other half is left for data, which can
//! be shed.
//!
//! - `accounts`: the search for the accounts that hold most; `charge`: bytes that hosts keep;
//!   `flood_end_detection`: the memory that returns to the system after a flood.
//!
//! Not here: which bytes count, and the reaction to an account above its share (`quic::endpoint::memory_shedding`).

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

mod accounts;
mod charge;
mod flood_end_detection;

use accounts::Accounts;
pub use charge::{Charge, Queued};
use flood_end_detection::FloodRecovery;

/// The addresses that limits count as one client: an IPv4 address, or the /64 network of one IPv6 subscriber (RFC
/// 6177). The Python server's log counts clients in the same way (`_log_rate_limits.network`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressBlock {
    V4(u32),
    V6(u64),
    /// The common account of all clients whose address is not validated yet.
    Unproved,
}

impl From<IpAddr> for AddressBlock {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.to_bits()),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

/// The limit of the bytes that a process holds for its clients, and the sums of these bytes.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
    /// The part of `held` that the connections themselves need, without their data, in bytes.
    fixed: AtomicUsize,
    /// The bytes of flow-control credit that peers got beyond their initial credit. Memory for them is reserved.
    promised: AtomicUsize,
    accounts: Mutex<Accounts>,
    flood: FloodRecovery,
}

/// The bytes that a process holds for the clients of one [`AddressBlock`].
#[derive(Debug)]
pub struct Account {
    block: AddressBlock,
    budget: Arc<Budget>,
    /// Bytes of data that the account's connections hold, without the connections themselves.
    held: AtomicUsize,
    /// Bytes of the account's connections themselves, without data.
    fixed: AtomicUsize,
    promised: AtomicUsize,
    /// The account's class in `Budget::accounts`. It changes only while the mutex of `accounts` is locked.
    class: AtomicUsize,
}

/// The bytes charged for one connection. Dropping the holding releases all of them.
#[derive(Debug)]
pub struct Holding {
    account: Arc<Account>,
    /// Bytes of the connection itself, without data.
    fixed: usize,
    /// Bytes of data that the connection holds.
    held: usize,
    promised: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            flood: FloodRecovery::within(limit),
            ..Self::default()
        })
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    #[inline]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The bytes that the connections themselves need, without their data.
    fn fixed(&self) -> usize {
        self.fixed.load(Ordering::Relaxed)
    }

    /// Bytes of data that all connections hold, without the connections themselves.
    #[inline]
    pub fn data(&self) -> usize {
        self.held().saturating_sub(self.fixed())
    }

    #[inline]
    pub fn is_exceeded(&self) -> bool {
        self.held() > self.limit
    }

    /// The number of bytes that shedding has to release. Shedding ends an eighth below the limit, so that the next few
    /// bytes do not start another search for the largest accounts.
    pub fn excess(&self) -> usize {
        self.held()
            .saturating_sub(self.limit - self.limit / SHED_BELOW)
    }

    /// The number of bytes of data that each account may hold at present. The fuller the budget, the smaller this share
    /// is.
    fn share(&self) -> usize {
        self.limit.saturating_sub(self.held())
    }

    /// The bytes that new connections may still take for their own state, without data. `pending` bytes belong to
    /// accepted connections that are not entered in the budget yet.
    fn connections_share(&self, pending: usize) -> usize {
        let taken = self.fixed().saturating_add(pending);
        (self.limit / CONNECTIONS_PART).saturating_sub(taken)
    }

    /// True if another connection of `bytes` fits in the half of the budget that connections themselves may take.
    pub fn has_room(&self, bytes: usize, pending: usize) -> bool {
        bytes <= self.connections_share(pending)
    }

    /// True if another connection of `bytes` fits in the share of this address block: connections of one block may
    /// take a part of the half that all connections may take.
    pub fn has_room_at(
        &self,
        block: impl Into<AddressBlock>,
        bytes: usize,
        pending: usize,
    ) -> bool {
        let account = self.accounts().get(block.into());
        let taken = account.map_or(0, |account| account.fixed.load(Ordering::Relaxed));
        taken.saturating_add(bytes) <= self.connections_share(pending)
    }

    /// Adds a connection from this address block to its account.
    pub fn enter(self: &Arc<Self>, block: impl Into<AddressBlock>) -> Holding {
        let block = block.into();
        let make = |class| Account {
            block,
            budget: self.clone(),
            held: AtomicUsize::new(0),
            fixed: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            class: AtomicUsize::new(class),
        };
        Holding {
            account: self.accounts().enter(block, make),
            fixed: 0,
            held: 0,
            promised: 0,
        }
    }

    /// The `count` accounts that hold the most bytes, the largest first. The search visits a bounded number of
    /// accounts.
    pub fn heaviest(&self, count: usize) -> Vec<Arc<Account>> {
        let found = self.accounts().heaviest();
        accounts::largest(found, count)
    }

    /// The time at which a flood that has receded counts as ended; `None` if there was no flood. Several endpoints may
    /// get the same time.
    pub fn flood_end(&self, now: Instant) -> Option<Instant> {
        self.flood.observe(now, [self.fixed(), self.data()])
    }

    /// True once after each flood of data, when its end has come. The caller then returns freed memory to the system.
    pub fn take_flood_end(&self, now: Instant) -> bool {
        self.flood.take_end(now)
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // No code panics while it holds this lock, so the accounts are consistent even if the mutex is poisoned.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A budget without a limit.
impl Default for Budget {
    fn default() -> Self {
        Self {
            limit: usize::MAX,
            held: AtomicUsize::new(0),
            fixed: AtomicUsize::new(0),
            promised: AtomicUsize::new(0),
            accounts: Mutex::default(),
            flood: FloodRecovery::within(usize::MAX),
        }
    }
}

impl Account {
    /// Bytes of data that the account's connections hold.
    #[inline]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    fn move_by(&self, old: usize, new: usize) {
        for sum in [&self.held, &self.budget.held] {
            move_by(sum, old, new);
        }
        self.sort();
    }

    /// Moves the account to the class of sizes that its `held` bytes belong to.
    fn sort(&self) {
        let class = self.class.load(Ordering::Relaxed);
        if accounts::is_misplaced(class, self.held()) {
            self.budget.accounts().sort(self);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.budget.accounts().leave(self);
    }
}

impl Holding {
    /// All bytes charged for the connection: the connection itself and its data.
    #[inline]
    pub fn held(&self) -> usize {
        self.fixed + self.held
    }

    /// Bytes of data that the connection holds, without the connection itself.
    #[inline]
    pub fn data(&self) -> usize {
        self.held
    }

    /// Bytes of data that the connection holds, if it is charged to `account`; otherwise none.
    pub fn data_of(&self, account: &Arc<Account>) -> usize {
        match self.is_of(account) {
            true => self.held,
            false => 0,
        }
    }

    /// True if the connection holds no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Sets the number of bytes of the connection itself.
    #[inline]
    pub fn set_fixed(&mut self, bytes: usize) {
        let budget = &self.account.budget;
        for sum in [&budget.held, &budget.fixed, &self.account.fixed] {
            move_by(sum, self.fixed, bytes);
        }
        self.fixed = bytes;
    }

    /// Sets the number of bytes of data that the connection holds. A change of less than [`STEP`] is ignored until a
    /// later call, except to zero.
    #[inline]
    pub fn set(&mut self, held: usize) {
        if held == self.held || (held != 0 && held.abs_diff(self.held) < STEP) {
            return;
        }
        self.account.move_by(self.held, held);
        self.held = held;
    }

    /// Moves the connection, with all bytes charged for it, to the account of `address`.
    pub fn move_to(&mut self, address: IpAddr) {
        let block = AddressBlock::from(address);
        if self.account.block == block {
            return;
        }
        let mut moved = self.account.budget.enter(block);
        moved.set_fixed(self.fixed);
        moved.set(self.held);
        moved.set_promised(self.promised);
        *self = moved;
    }

    /// True if the account holds more data than its share of the budget.
    pub fn is_over_share(&self) -> bool {
        self.account.held() > self.account.budget.share()
    }

    /// True if the process exceeds its budget and this account holds at least a 64th of the budget.
    pub fn is_short(&self) -> bool {
        let budget = &self.account.budget;
        budget.is_exceeded() && self.account.held() > budget.limit / FEW
    }

    /// Reserves room for `bytes` of further flow-control credit. False if the account's share has not that much room
    /// beside the bytes it holds and the room that is already reserved.
    pub fn promise(&mut self, bytes: usize) -> bool {
        let (account, budget) = (&self.account, &self.account.budget);
        if budget.limit == usize::MAX {
            return true;
        }
        let own = account.held() + account.promised.load(Ordering::Relaxed);
        let share = budget
            .share()
            .saturating_sub(budget.promised.load(Ordering::Relaxed));
        let has_room = own.saturating_add(bytes) <= share;
        if has_room {
            self.set_promised(self.promised + bytes);
        }
        has_room
    }

    #[inline]
    pub fn has_promise(&self) -> bool {
        self.promised > 0
    }

    /// Releases the reserved room, after the credit was withdrawn or used up.
    pub fn break_promise(&mut self) {
        self.set_promised(0);
    }

    fn set_promised(&mut self, promised: usize) {
        for sum in [&self.account.promised, &self.account.budget.promised] {
            move_by(sum, self.promised, promised);
        }
        self.promised = promised;
    }

    pub fn is_of(&self, account: &Arc<Account>) -> bool {
        Arc::ptr_eq(&self.account, account)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set_fixed(0);
        self.set(0);
        self.set_promised(0);
    }
}

fn move_by(sum: &AtomicUsize, old: usize, new: usize) {
    match new >= old {
        true => sum.fetch_add(new - old, Ordering::Relaxed),
        false => sum.fetch_sub(old - new, Ordering::Relaxed),
    };
}

/// A change of a connection's data by fewer bytes than this does not update the account.
const STEP: usize = 4 << 10;
/// The divisor of the budget for connections themselves: they may use one half of it.
const CONNECTIONS_PART: usize = 2;
/// The divisor of the limit at which shedding ends: when the held bytes are below the limit by an eighth.
const SHED_BELOW: usize = 8;
/// An account that holds less than this part of the budget, a 64th, is not treated as a cause of memory shortage.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn idle_connections_count_in_the_budget_and_not_against_their_accounts_share() {
        let budget = Budget::new(640 * KIB);
        let [mut many, mut flooder] = [1, 2].map(|last| budget.enter(address(last)));
        many.set_fixed(300 * KIB);
        many.set(4 * KIB);
        flooder.set(344 * KIB);
        assert!(budget.is_exceeded());
        assert_eq!((budget.held(), budget.data()), (648 * KIB, 348 * KIB));
        let held: Vec<usize> = budget.heaviest(2).iter().map(|it| it.held()).collect();
        assert_eq!(held, [344 * KIB, 4 * KIB]);
        assert!(!many.is_short() && flooder.is_short());
        flooder.set(300 * KIB);
        assert!(!many.is_over_share() && flooder.is_over_share());
        assert!(many.promise(16 * KIB));
    }

    #[test]
    fn connections_of_one_account_take_a_quarter_of_the_budget_and_all_together_half() {
        let budget = Budget::new(640 * KIB);
        let fill = |last: u8| {
            let mut holdings = Vec::new();
            while budget.has_room_at(address(last), 32 * KIB, 0) {
                let mut holding = budget.enter(address(last));
                holding.set_fixed(32 * KIB);
                holdings.push(holding);
            }
            holdings
        };
        let holdings: Vec<_> = (1..10).map(fill).collect();
        let counts: Vec<usize> = holdings.iter().map(Vec::len).collect();
        assert_eq!(counts, [5, 3, 1, 1, 0, 0, 0, 0, 0]);
        assert!(!budget.has_room(32 * KIB, 0));
        drop(holdings);
        assert!(budget.has_room(320 * KIB, 0) && !budget.has_room(320 * KIB, 32 * KIB));
        assert!(budget.has_room_at(address(9), 320 * KIB, 0));
        assert!(Budget::default().has_room_at(address(1), usize::MAX / 2, 0));
    }

    #[test]
    fn a_flood_of_data_ends_although_idle_connections_remain() {
        let (now, budget) = (Instant::now(), Budget::new(1 << 30));
        let [mut many, mut flooder] = [1, 2].map(|last| budget.enter(address(last)));
        many.set_fixed(256 << 20);
        flooder.set(64 << 20);
        assert_eq!(budget.flood_end(now), None);
        drop(flooder);
        assert!(budget.flood_end(now).is_some());
    }

    #[test]
    fn an_address_block_is_an_ipv4_address_or_an_ipv6_64_prefix() {
        let of = |text: &str| AddressBlock::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert!(
            !["::", "::1", "0.0.0.0"]
                .map(of)
                .contains(&AddressBlock::Unproved)
        );
    }

    #[test]
    fn one_account_may_hold_half_of_the_budget_and_two_a_third_each() {
        let budget = Budget::new(600 * KIB);
        let [mut one, mut sibling, mut other] = [1, 1, 2].map(|last| budget.enter(address(last)));
        one.set(200 * KIB);
        sibling.set(100 * KIB);
        assert!(!one.is_over_share() && !sibling.is_over_share());
        sibling.set(108 * KIB);
        assert!(one.is_over_share() && sibling.is_over_share());
        assert!(!other.is_over_share());
        drop(sibling);
        other.set(200 * KIB);
        assert!(!one.is_over_share() && !other.is_over_share());
        other.set(208 * KIB);
        assert!(one.is_over_share() && other.is_over_share());
        let held: Vec<usize> = budget.heaviest(2).iter().map(|it| it.held()).collect();
        assert_eq!(held, [208 * KIB, 200 * KIB]);
    }

    #[test]
    fn a_dropped_connection_releases_its_bytes_and_its_account() {
        let budget = Budget::new(100 * KIB);
        let mut holding = budget.enter(address(1));
        holding.set(50 * KIB);
        assert!(!holding.promise(1) && holding.held() == 50 * KIB);
        // A change of less than `STEP` is ignored.
        holding.set(50 * KIB + 1);
        assert_eq!(budget.held(), 50 * KIB);
        drop(holding);
        assert_eq!((budget.held(), budget.accounts().len()), (0, 0));
        assert!(budget.heaviest(1).is_empty());
    }

    #[test]
    fn a_connection_that_changes_its_address_moves_its_bytes_to_the_new_account() {
        let budget = Budget::new(600 * KIB);
        let mut holding = budget.enter(address(1));
        holding.set(50 * KIB);
        assert!(holding.promise(100 * KIB));
        holding.move_to(address(2));
        let accounts = budget.heaviest(2);
        assert_eq!((accounts.len(), budget.held()), (1, 50 * KIB));
        assert_eq!(accounts[0].block, AddressBlock::from(address(2)));
        assert!(holding.held() == 50 * KIB && holding.has_promise());
        drop((holding, accounts));
        assert_eq!((budget.held(), budget.accounts().len()), (0, 0));
    }

    #[test]
    fn credit_is_reserved_only_within_the_share() {
        let budget = Budget::new(600 * KIB);
        let [mut one, mut other] = [1, 2].map(|last| budget.enter(address(last)));
        assert!(one.promise(200 * KIB));
        assert!(other.promise(200 * KIB));
        assert!(!one.promise(200 * KIB));
        other.break_promise();
        assert!(one.promise(100 * KIB));
        drop(one);
        assert!(other.promise(300 * KIB));
        assert!(!other.promise(301 * KIB));
    }

    #[test]
    fn shedding_the_excess_ends_below_the_limit() {
        let budget = Budget::new(80 * KIB);
        let mut holding = budget.enter(address(1));
        holding.set(80 * KIB);
        assert!(!budget.is_exceeded());
        holding.set(84 * KIB);
        assert!(budget.is_exceeded());
        assert_eq!(budget.excess(), 14 * KIB);
    }

    #[test]
    fn a_small_account_is_not_short_of_memory_when_others_exceed_the_budget() {
        let budget = Budget::new(640 * KIB);
        let [mut heavy, mut light] = [1, 2].map(|last| budget.enter(address(last)));
        heavy.set(636 * KIB);
        light.set(4 * KIB);
        assert!(!heavy.is_short());
        heavy.set(644 * KIB);
        assert!(heavy.is_short() && !light.is_short());
    }
}
