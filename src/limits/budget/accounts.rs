//! The accounts of a budget, roughly sorted by what they hold.
//!
//! Accounts of one class hold between one power of two and the next. An account changes its class when it has grown
//! out of it, or shrunk by two classes; so most changes of what it holds take no lock, and none goes through the other
//! accounts. The search for the largest looks at a bounded number of them.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::{Account, AddressBlock};

#[derive(Debug, Default)]
pub(super) struct Accounts {
    entries: HashMap<AddressBlock, Entry>,
    /// Those that hold least come first.
    classes: [Vec<AddressBlock>; CLASSES],
}

#[derive(Debug)]
struct Entry {
    account: Weak<Account>,
    class: usize,
    /// The index in `classes[class]`.
    place: usize,
}

/// The class of an account that holds so much.
pub(super) fn class_of(held: usize) -> usize {
    let doublings = (usize::BITS - (held / SMALL).leading_zeros()) as usize;
    doublings.min(CLASSES - 1)
}

/// True if an account of this class belongs into another one.
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
                // The old account is about to leave; the new one takes its place.
                let account = Arc::new(make(entry.class));
                entry.account = Arc::downgrade(&account);
                account
            });
        }
        let account = Arc::new(make(0));
        let entry = Entry {
            account: Arc::downgrade(&account),
            class: 0,
            place: self.classes[0].len(),
        };
        self.classes[0].push(block);
        self.entries.insert(block, entry);
        account
    }

    /// The account of these addresses, if there is one. As below, for the one who drops it.
    pub fn get(&self, block: AddressBlock) -> Option<Arc<Account>> {
        self.entries.get(&block)?.account.upgrade()
    }

    pub fn leave(&mut self, account: &Account) {
        // The address may have got another account meanwhile.
        if !self.has(account) {
            return;
        }
        if let Some(entry) = self.entries.remove(&account.block) {
            self.take_out(entry.class, entry.place);
        }
        if self.entries.is_empty() {
            self.entries.shrink_to(ACCOUNTS_KEPT);
            self.classes.iter_mut().for_each(Vec::shrink_to_fit);
        }
    }

    /// Moves an account to the class of what it holds. The account's own note of that changes with it: stored after
    /// the lock was given back, it could be that of an earlier sort, and the account would be searched for in a class
    /// that it is not in.
    pub fn sort(&mut self, account: &Account) {
        let class = class_of(account.held());
        account.class.store(class, Ordering::Relaxed);
        if !self.has(account) {
            return;
        }
        let place = self.classes[class].len();
        if let Some(entry) = self.entries.get_mut(&account.block)
            && entry.class != class
        {
            let (old, old_place) = (entry.class, entry.place);
            (entry.class, entry.place) = (class, place);
            self.classes[class].push(account.block);
            self.take_out(old, old_place);
        }
    }

    /// Accounts that hold most, in no order. They have to be dropped outside of the lock: the last reference to an
    /// account takes it.
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
    fn take_out(&mut self, class: usize, place: usize) {
        self.classes[class].swap_remove(place);
        if let Some(moved) = self.classes[class].get(place)
            && let Some(entry) = self.entries.get_mut(moved)
        {
            entry.place = place;
        }
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        let sorted: usize = self.classes.iter().map(Vec::len).sum();
        assert_eq!(sorted, self.entries.len());
        sorted
    }
}

/// The largest `count` of these, the first of them largest of all.
pub(super) fn largest(mut accounts: Vec<Arc<Account>>, count: usize) -> Vec<Arc<Account>> {
    // What others hold may change meanwhile.
    accounts.sort_by_cached_key(|account| Reverse(account.held()));
    accounts.truncate(count);
    accounts
}

/// Up to this an account is in the lowest class, which no account enters by growing.
const SMALL: usize = 64 << 10;
const CLASSES: usize = 32;
/// At so many accounts a search looks.
const LOOKED_AT_MAX: usize = 256;
/// Places in the table that an idle process keeps.
const ACCOUNTS_KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::Budget;
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn classes_double_and_accounts_move_late() {
        assert_eq!(
            [0, 64 * KIB - 1, 64 * KIB, 128 * KIB].map(class_of),
            [0, 0, 1, 2]
        );
        assert_eq!(class_of(usize::MAX), CLASSES - 1);
        assert!(is_misplaced(1, 128 * KIB) && !is_misplaced(2, 64 * KIB));
        assert!(is_misplaced(2, 64 * KIB - 1));
    }

    #[test]
    fn the_heaviest_of_many_accounts_is_found_without_a_look_at_all() {
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
        // It shrinks, and is found no more.
        holdings[4_321].set(0);
        assert_eq!(budget.heaviest(1)[0].held(), 300 * KIB);
        drop(found);
        drop(holdings);
        assert_eq!(budget.accounts().len(), 0);
    }
}
