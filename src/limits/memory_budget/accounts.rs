//! The accounts of a budget, roughly sorted by the bytes they hold.
//!
//! Each class covers one power of two of held bytes. An account changes its class when it has outgrown it, or
//! shrunk by two classes. So most changes of the held bytes take no lock, and none visits the other accounts. The
//! search for the largest account visits a bounded number of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Account, AddressBlock};

#[derive(Debug, Default)]
pub(super) struct Accounts {
    entries: HashMap<AddressBlock, Entry>,
    /// The classes with the fewest held bytes come first.
    classes: [Vec<AddressBlock>; CLASSES],
}

#[derive(Debug)]
struct Entry {
    account: Weak<Account>,
    class: usize,
    /// The index in `classes[class]`.
    position: usize,
}

/// The class of an account that holds `held` bytes.
pub(super) fn class_of(held: usize) -> usize {
    let doublings = (usize::BITS - (held / SMALL).leading_zeros()) as usize;
    doublings.min(CLASSES - 1)
}

/// True if an account of this class belongs in another one.
pub(super) fn is_misplaced(class: usize, held: usize) -> bool {
    let right = class_of(held);
    right > class || right + 1 < class
}

impl Accounts {
    /// The account of these addresses, or a new one.
    pub fn enter(
        &mut self,
        block: AddressBlock,
        make: impl FnOnce(usize) -> Account,
    ) -> Arc<Account> {
        if let Some(entry) = self.entries.get_mut(&block) {
            return entry.account.upgrade().unwrap_or_else(|| {
                // The old account is being dropped; the new one takes its entry.
                let account = Arc::new(make(entry.class));
                entry.account = Arc::downgrade(&account);
                account
            });
        }
        let account = Arc::new(make(0));
        let entry = Entry {
            account: Arc::downgrade(&account),
            class: 0,
            position: self.classes[0].len(),
        };
        self.classes[0].push(block);
        self.entries.insert(block, entry);
        account
    }

    /// The account of these addresses, if there is one. Like those of [`heaviest`](Self::heaviest), it must be
    /// dropped outside the lock.
    pub fn get(&self, block: AddressBlock) -> Option<Arc<Account>> {
        self.entries.get(&block)?.account.upgrade()
    }

    pub fn leave(&mut self, account: &Account) {
        // A new account may have taken the entry of these addresses.
        if !self.has(account) {
            return;
        }
        if let Some(entry) = self.entries.remove(&account.block) {
            self.take_out(entry.class, entry.position);
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(ACCOUNTS_KEPT);
            self.classes.iter_mut().for_each(Vec::shrink_to_fit);
        }
    }

    /// Moves an account to the class of its held bytes. The account's own `class` field changes under the same
    /// lock. Stored after the lock was released, it could come from an earlier sort, and the account would be
    /// looked up in the wrong class.
    pub fn sort(&mut self, account: &Account) {
        let class = class_of(account.held());
        account.class.store(class, Ordering::Relaxed);
        if !self.has(account) {
            return;
        }
        let position = self.classes[class].len();
        if let Some(entry) = self.entries.get_mut(&account.block)
            && entry.class != class
        {
            let (old, old_position) = (entry.class, entry.position);
            (entry.class, entry.position) = (class, position);
            self.classes[class].push(account.block);
            self.take_out(old, old_position);
        }
    }

    /// The accounts that hold most, in no order. They must be dropped outside the lock, because dropping the last
    /// reference to an account takes it.
    pub fn heaviest(&self) -> Vec<Arc<Account>> {
        let blocks = self.classes.iter().rev().flatten().take(LOOKED_AT_MAX);
        let entries = blocks.filter_map(|block| self.entries.get(block));
        entries
            .filter_map(|entry| entry.account.upgrade())
            .collect()
    }

    fn has(&self, account: &Account) -> bool {
        let entry = self.entries.get(&account.block);
        entry.is_some_and(|entry| std::ptr::eq(entry.account.as_ptr(), account))
    }

    /// Fills the gap with the last account of the class.
    fn take_out(&mut self, class: usize, position: usize) {
        self.classes[class].swap_remove(position);
        if let Some(moved) = self.classes[class].get(position)
            && let Some(entry) = self.entries.get_mut(moved)
        {
            entry.position = position;
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let sorted: usize = self.classes.iter().map(Vec::len).sum();
        assert_eq!(sorted, self.entries.len());
        sorted
    }
}

/// The `count` largest of these accounts, the largest first.
pub(super) fn largest(mut accounts: Vec<Arc<Account>>, count: usize) -> Vec<Arc<Account>> {
    // Other threads may change the held bytes during the sort, so each key is read once.
    accounts.sort_by_cached_key(|account| Reverse(account.held()));
    accounts.truncate(count);
    accounts
}

/// An account up to this size is in the lowest class, which no account enters by growing.
const SMALL: usize = 64 << 10;
const CLASSES: usize = 32;
/// The most accounts that one search visits.
const LOOKED_AT_MAX: usize = 256;
/// Capacity of the table that an idle process keeps.
const ACCOUNTS_KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::Budget;
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn classes_double_in_size_and_small_changes_keep_the_class() {
        assert_eq!(
            [0, 64 * KIB - 1, 64 * KIB, 128 * KIB].map(class_of),
            [0, 0, 1, 2]
        );
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
        assert!(is_misplaced(1, 128 * KIB) && !is_misplaced(2, 64 * KIB));
        assert!(is_misplaced(2, 64 * KIB - 1));
    }

    #[test]
    fn the_largest_of_many_accounts_is_found_by_a_bounded_search() {
        let budget = Budget::new(1 << 30);
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let mut holdings: Vec<_> = (0..5_000)
            .map(|number| budget.enter(address(number)))
            .collect();
        for holding in &mut holdings {
            holding.set(5 * KIB);
        }
        for (number, size) in [(4_321, 900 * KIB), (17, 300 * KIB)] {
            holdings[number].set(size);
        }
        let found = budget.heaviest(3);
        assert_eq!(budget.accounts().heaviest().len(), LOOKED_AT_MAX);
        let sizes: Vec<_> = found.iter().map(|it| it.held()).collect();
        assert_eq!(sizes, [900 * KIB, 300 * KIB, 5 * KIB]);
        // The account shrinks and is no longer found.
        holdings[4_321].set(0);
        assert_eq!(budget.heaviest(1)[0].held(), 300 * KIB);
        drop(found);
        drop(holdings);
        assert_eq!(budget.accounts().len(), 0);
    }
}
