//! The accounts of a budget, roughly sorted by the bytes they hold.
//!
//! Each class covers one power of two of held bytes. An account moves to another class when its bytes have grown out
//! of its class, or have shrunk by two classes. So most changes of the held bytes take no lock, and none visits other
//! accounts. The search for the largest accounts visits at most [`LOOKED_AT_MAX`] of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Account, AddressBlock};

#[derive(Debug, Default)]
pub(super) struct Accounts {
    entries: HashMap<AddressBlock, Entry>,
    /// Accounts by class; the class with the fewest held bytes is first.
    classes: [Vec<AddressBlock>; CLASSES],
}

#[derive(Debug)]
struct Entry {
    account: Weak<Account>,
    class: usize,
    /// The account's index in `classes[class]`.
    position: usize,
}

/// The class of an account that holds `held` bytes.
pub(super) fn class_of(held: usize) -> usize {
    let doublings = (usize::BITS - (held / SMALL).leading_zeros()) as usize;
    doublings.min(CLASSES - 1)
}

/// True if an account with `held` bytes has to move from `class` to another class.
pub(super) fn is_misplaced(class: usize, held: usize) -> bool {
    let right = class_of(held);
    right > class || right + 1 < class
}

impl Accounts {
    /// Returns the account of `block`, or makes one with `make`, which gets the class.
    pub fn enter(
        &mut self,
        block: AddressBlock,
        make: impl FnOnce(usize) -> Account,
    ) -> Arc<Account> {
        if let Some(entry) = self.entries.get_mut(&block) {
            return entry.account.upgrade().unwrap_or_else(|| {
                // Another thread is dropping the old account of this address. The new account takes over the entry of
                // the old one.
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

    /// Returns the account of `block` if there is one. The caller must drop it after unlocking, because dropping the
    /// last reference to an account locks the accounts again.
    pub fn get(&self, block: AddressBlock) -> Option<Arc<Account>> {
        self.entries.get(&block)?.account.upgrade()
    }

    pub fn leave(&mut self, account: &Account) {
        // While the account was being dropped, a new account may have replaced it. The entry then belongs to the new
        // account.
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

    /// Moves an account to the class of its held bytes. The account's `class` field is stored while the accounts are
    /// locked. If it were stored later, the result of an earlier sort could overwrite a later one, and the account
    /// would be searched in the wrong class.
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

    /// Returns the accounts of the highest classes, unsorted. The caller must drop them after unlocking, because
    /// dropping the last reference to an account locks the accounts again.
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

    /// Removes an account from its class. The last account of the class moves to its position.
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

/// Returns the `count` largest of these accounts, the largest first.
pub(super) fn largest(mut accounts: Vec<Arc<Account>>, count: usize) -> Vec<Arc<Account>> {
    // Each key is read only once, because other threads may change `held` during the sort.
    accounts.sort_by_cached_key(|account| Reverse(account.held()));
    accounts.truncate(count);
    accounts
}

/// Accounts with fewer bytes than this are in class 0.
const SMALL: usize = 64 << 10;
const CLASSES: usize = 32;
/// The maximum number of accounts that one search visits.
const LOOKED_AT_MAX: usize = 256;
/// The capacity of `entries` that is kept when there are no accounts.
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
        // After the largest account has released its bytes, the search finds the next largest.
        holdings[4_321].set(0);
        assert_eq!(budget.heaviest(1)[0].held(), 300 * KIB);
        drop(found);
        drop(holdings);
        assert_eq!(budget.accounts().len(), 0);
    }
}
