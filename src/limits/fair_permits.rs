//! Permits for a scarce resource, for example open files, shared fairly among clients. The host defines the resource
//! and the clients.
//!
//! A *holder* is one user of the resource, for example a response. It *works* with a permit, or *keeps* an item (such
//! as an open file) with the permit until it works again. A kept item saves only the effort to make the item again, so
//! it can be dropped: when a holder needs a permit and none is free, the client that keeps the most items loses its
//! oldest. A permit of a working holder is never taken away. Further holders wait, and the next free permit goes to a
//! holder of the client that works with the fewest.
//!
//! A client works with at most as many permits as are left for all others ("dynamic threshold", as switches have for
//! their buffers). So a single client gets half of all permits, and a second client finds some free.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

/// Identifies a holder, with or without a permit.
pub type HolderId = u64;

/// The permits of all clients. `K` identifies a client, `T` is a kept item.
pub struct FairPermits<K, T> {
    holders: FxHashMap<HolderId, Holder<K, T>>,
    clients: BTreeMap<K, Client>,
    next_id: HolderId,
    next_stamp: u64,
    working: usize,
    kept: usize,
    /// Clients sorted by the number of items that are kept for them. A client without kept items has no entry.
    by_kept: BTreeSet<(usize, K)>,
    /// Clients with waiting holders, sorted by the number of permits that the client works with, then by its oldest
    /// waiting holder.
    by_wait: BTreeSet<(usize, HolderId, K)>,
    changes: Changes<T>,
}

/// Effects of calls on other holders, which the host has to handle.
#[derive(Debug)]
pub struct Changes<T> {
    /// Items whose permit another holder has got. The host drops them.
    pub dropped: Vec<T>,
    /// Holders that waited and now work with a permit.
    pub granted: Vec<HolderId>,
}

/// The result of a request for a permit.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The holder works again, with this item that was kept for it.
    Kept(T),
    /// The holder works with a permit. No item was kept for it, or the item was dropped.
    Empty,
    /// No permit is free. When the holder gets one, [`Changes::granted`] lists it.
    Waits,
}

struct Holder<K, T> {
    client: K,
    /// The number of permits of all clients together, which the host may give each holder differently.
    max: usize,
    state: State<T>,
}

enum State<T> {
    Idle,
    Waiting,
    Working,
    Keeping(u64, T),
}

#[derive(Default)]
struct Client {
    working: usize,
    /// The kept items of the client, by their age stamps, each with its holder. The oldest is first.
    keeping: BTreeMap<u64, HolderId>,
    waiting: BTreeSet<HolderId>,
}

impl<K: Ord + Clone, T> FairPermits<K, T> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a holder without a permit for `client`. `max` is the number of permits of all clients together. The caller
    /// removes the holder with [`leave`](Self::leave).
    pub fn join(&mut self, client: K, max: usize) -> HolderId {
        self.next_id += 1;
        let holder = Holder {
            client,
            max: max.max(1),
            state: State::Idle,
        };
        self.holders.insert(self.next_id, holder);
        self.next_id
    }

    /// True if the holder works with a permit.
    pub fn is_working(&self, id: HolderId) -> bool {
        let holder = self.holders.get(&id);
        holder.is_some_and(|holder| matches!(holder.state, State::Working))
    }

    /// Permits in use by working holders and for kept items.
    pub fn used(&self) -> usize {
        self.working + self.kept
    }

    /// Requests a permit for a holder. A holder that already has a permit or waits for one stays in that state, which
    /// is returned.
    pub fn take(&mut self, id: HolderId) -> Taken<T> {
        let Some(holder) = self.holders.get_mut(&id) else {
            return Taken::Waits;
        };
        let client = holder.client.clone();
        match std::mem::replace(&mut holder.state, State::Working) {
            State::Working => Taken::Empty,
            State::Keeping(stamp, item) => {
                self.kept -= 1;
                self.working += 1;
                self.change(&client, |client| {
                    client.keeping.remove(&stamp);
                    client.working += 1;
                });
                Taken::Kept(item)
            }
            State::Waiting => {
                holder.state = State::Waiting;
                Taken::Waits
            }
            State::Idle if self.may_work(&client, id) => {
                self.make_room(&client, id);
                self.working += 1;
                self.change(&client, |client| client.working += 1);
                Taken::Empty
            }
            State::Idle => {
                self.set(id, State::Waiting);
                self.change(&client, |client| client.waiting.insert(id));
                Taken::Waits
            }
        }
    }

    /// Changes the holder from working to keeping: `item` is kept until another holder needs the permit. Returns
    /// `item` if the holder does not work with a permit.
    pub fn keep(&mut self, id: HolderId, item: T) -> Option<T> {
        match self.holders.get(&id) {
            Some(holder) if matches!(holder.state, State::Working) => {}
            _ => return Some(item),
        }
        self.next_stamp += 1;
        let stamp = self.next_stamp;
        self.working -= 1;
        self.kept += 1;
        let client = self.set(id, State::Keeping(stamp, item))?;
        self.change(&client, |client| {
            client.working -= 1;
            client.keeping.insert(stamp, id);
        });
        self.admit();
        None
    }

    /// Releases the permit of the holder and drops its kept item. A holder that waits for a permit stops waiting.
    pub fn release(&mut self, id: HolderId) {
        let Some(holder) = self.holders.get_mut(&id) else {
            return;
        };
        let client = holder.client.clone();
        match std::mem::replace(&mut holder.state, State::Idle) {
            State::Idle => {}
            State::Waiting => {
                self.change(&client, |client| client.waiting.remove(&id));
            }
            State::Working => {
                self.working -= 1;
                self.change(&client, |client| client.working -= 1);
            }
            State::Keeping(stamp, item) => {
                self.kept -= 1;
                self.changes.dropped.push(item);
                self.change(&client, |client| client.keeping.remove(&stamp));
            }
        }
        self.admit();
    }

    /// Removes the holder after releasing its permit.
    pub fn leave(&mut self, id: HolderId) {
        self.release(id);
        self.holders.remove(&id);
    }

    /// Drops the oldest item of the client that keeps the most items. False if no client keeps an item.
    pub fn drop_one(&mut self) -> bool {
        match self.by_kept.last().cloned() {
            Some((_, client)) => self.drop_oldest(&client),
            None => false,
        }
    }

    /// Takes the effects of all calls since the last `take_changes`.
    pub fn take_changes(&mut self) -> Changes<T> {
        std::mem::take(&mut self.changes)
    }

    fn may_work(&self, client: &K, id: HolderId) -> bool {
        let working = self.clients.get(client).map_or(0, |client| client.working);
        let max = self.holders.get(&id).map_or(1, |holder| holder.max);
        let left = max.saturating_sub(self.working);
        let is_first = self.by_wait.first().is_none_or(|first| working < first.0);
        is_first && left > 0 && working < left
    }

    /// Drops kept items of clients until a permit is free for `id`.
    fn make_room(&mut self, client: &K, id: HolderId) {
        let max = self.holders.get(&id).map_or(1, |holder| holder.max);
        while self.used() >= max && self.kept > 0 {
            let most = self.by_kept.last().map_or(0, |(count, _)| *count);
            let keeps = |client: &Client| client.keeping.len();
            // If no client has more kept items than this one, the oldest kept item of this client itself is dropped.
            match self.clients.get(client).map_or(0, keeps) == most {
                true => self.drop_oldest(client),
                false => self.drop_one(),
            };
        }
    }

    fn drop_oldest(&mut self, client: &K) -> bool {
        let oldest = self.clients.get(client).and_then(|client| {
            let (stamp, id) = client.keeping.first_key_value()?;
            Some((*stamp, *id))
        });
        let Some((stamp, id)) = oldest else {
            return false;
        };
        self.kept -= 1;
        if let Some(holder) = self.holders.get_mut(&id)
            && let State::Keeping(_, item) = std::mem::replace(&mut holder.state, State::Idle)
        {
            self.changes.dropped.push(item);
        }
        self.change(client, |client| client.keeping.remove(&stamp));
        true
    }

    /// Gives free permits to waiting holders, first to those of the client that works with the fewest.
    fn admit(&mut self) {
        while let Some((working, id, client)) = self.by_wait.first().cloned() {
            let max = self.holders.get(&id).map_or(1, |holder| holder.max);
            let left = max.saturating_sub(self.working);
            if working >= left {
                return;
            }
            self.make_room(&client, id);
            self.set(id, State::Working);
            self.working += 1;
            self.change(&client, |client| {
                client.waiting.remove(&id);
                client.working += 1;
            });
            self.changes.granted.push(id);
        }
    }

    fn set(&mut self, id: HolderId, state: State<T>) -> Option<K> {
        let holder = self.holders.get_mut(&id)?;
        holder.state = state;
        Some(holder.client.clone())
    }

    /// Changes a client and updates its entries in `by_kept` and `by_wait`.
    fn change<R>(&mut self, key: &K, change: impl FnOnce(&mut Client) -> R) -> R {
        let client = self.clients.entry(key.clone()).or_default();
        let before = (client.keeping.len(), client.first_waiting());
        let result = change(client);
        let after = (client.keeping.len(), client.first_waiting());
        if client.working == 0 && after == (0, None) {
            self.clients.remove(key);
        }
        if before.0 != after.0 {
            self.by_kept.remove(&(before.0, key.clone()));
            if after.0 > 0 {
                self.by_kept.insert((after.0, key.clone()));
            }
        }
        if before.1 != after.1 {
            if let Some((working, id)) = before.1 {
                self.by_wait.remove(&(working, id, key.clone()));
            }
            if let Some((working, id)) = after.1 {
                self.by_wait.insert((working, id, key.clone()));
            }
        }
        result
    }
}

impl Client {
    fn first_waiting(&self) -> Option<(usize, HolderId)> {
        self.waiting.first().map(|id| (self.working, *id))
    }
}

impl<K: Ord + Clone, T> Default for FairPermits<K, T> {
    fn default() -> Self {
        Self {
            holders: FxHashMap::default(),
            clients: BTreeMap::new(),
            next_id: 0,
            next_stamp: 0,
            working: 0,
            kept: 0,
            by_kept: BTreeSet::new(),
            by_wait: BTreeSet::new(),
            changes: Changes::default(),
        }
    }
}

impl<T> Default for Changes<T> {
    fn default() -> Self {
        Self {
            dropped: Vec::new(),
            granted: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 8;

    fn working(permits: &mut FairPermits<u8, u32>, client: u8) -> HolderId {
        let id = permits.join(client, MAX);
        assert_eq!(permits.take(id), Taken::Empty);
        id
    }

    fn keeping(permits: &mut FairPermits<u8, u32>, client: u8, item: u32) -> HolderId {
        let id = working(permits, client);
        assert_eq!(permits.keep(id, item), None);
        id
    }

    #[test]
    fn a_kept_item_is_returned_until_a_working_holder_needs_its_permit() {
        let mut permits = FairPermits::new();
        let ids: Vec<_> = (0..8).map(|item| keeping(&mut permits, 1, item)).collect();
        assert_eq!(permits.take(ids[3]), Taken::Kept(3));
        assert_eq!(permits.keep(ids[3], 3), None);
        assert!(permits.take_changes().dropped.is_empty());
        working(&mut permits, 2);
        assert_eq!(permits.take_changes().dropped, [0]);
        assert_eq!(permits.used(), MAX);
        // The holder whose item was dropped requests a permit again. In return, the next oldest item of its client is
        // dropped.
        assert_eq!(permits.take(ids[0]), Taken::Empty);
        assert_eq!(permits.take_changes().dropped, [1]);
    }

    #[test]
    fn the_client_with_the_most_kept_items_loses_its_oldest() {
        let mut permits = FairPermits::new();
        keeping(&mut permits, 9, 90);
        for item in 0..7 {
            keeping(&mut permits, 1, item);
        }
        for item in 0..6 {
            keeping(&mut permits, 2, 20 + item);
        }
        // The clients with the most items lose the oldest ones. A client with a single item loses none.
        assert_eq!(permits.take_changes().dropped, [0, 1, 2, 3, 20, 21]);
        assert_eq!(permits.used(), MAX);
    }

    #[test]
    fn one_client_gets_half_of_the_permits_and_the_next_finds_one() {
        let mut permits = FairPermits::<u8, u32>::new();
        let ids: Vec<_> = (0..8).map(|_| permits.join(1, MAX)).collect();
        let taken: Vec<_> = ids.iter().map(|id| permits.take(*id)).collect();
        assert_eq!(
            taken.iter().filter(|taken| **taken == Taken::Empty).count(),
            4
        );
        assert_eq!(taken[4], Taken::Waits);
        let other = working(&mut permits, 2);
        permits.release(ids[0]);
        assert_eq!(permits.take_changes().granted, [ids[4]]);
        permits.leave(other);
        assert_eq!(permits.take_changes().granted, [] as [u64; 0]);
        assert_eq!(permits.take(ids[4]), Taken::Empty);
    }

    #[test]
    fn a_free_permit_goes_to_the_client_that_works_with_the_fewest() {
        let mut permits = FairPermits::<u8, u32>::new();
        let join = |permits: &mut FairPermits<u8, u32>, client| permits.join(client, 2);
        let (first, second) = (join(&mut permits, 1), join(&mut permits, 2));
        assert_eq!(permits.take(first), Taken::Empty);
        assert_eq!(permits.take(second), Taken::Empty);
        let (same, new) = (join(&mut permits, 1), join(&mut permits, 3));
        assert_eq!(permits.take(same), Taken::Waits);
        assert_eq!(permits.take(new), Taken::Waits);
        permits.release(second);
        assert_eq!(permits.take_changes().granted, [new]);
        // `leave` removes a waiting holder from the queue.
        permits.leave(same);
        permits.release(first);
        assert_eq!(permits.take_changes().granted, [] as [u64; 0]);
    }

    #[test]
    fn an_item_of_a_holder_without_a_permit_is_returned() {
        let mut permits = FairPermits::<u8, u32>::new();
        let id = permits.join(1, MAX);
        assert_eq!(permits.keep(id, 5), Some(5));
        assert!(!permits.drop_one());
        assert_eq!(permits.take(77), Taken::Waits);
    }

    #[test]
    fn random_calls_never_use_more_permits_than_the_maximum() {
        let mut seed = 7_u64;
        let mut draw = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut permits = FairPermits::<u8, u32>::new();
        let mut ids = Vec::new();
        for step in 0..20_000_u32 {
            if ids.is_empty() || (ids.len() < 60 && draw(4) == 0) {
                ids.push(permits.join(draw(5) as u8, MAX));
            }
            let at = draw(ids.len() as u64) as usize;
            match draw(6) {
                0..=2 => drop(permits.take(ids[at])),
                3 => drop(permits.keep(ids[at], step)),
                4 => permits.release(ids[at]),
                _ => permits.leave(ids.swap_remove(at)),
            }
            permits.take_changes();
            assert!(permits.used() <= MAX);
            let count = |is: fn(&State<u32>) -> bool| {
                let holders = permits.holders.values();
                holders.filter(|holder| is(&holder.state)).count()
            };
            assert_eq!(
                count(|state| matches!(state, State::Working)),
                permits.working
            );
            assert_eq!(
                count(|state| matches!(state, State::Keeping(..))),
                permits.kept
            );
            // Holders wait only while some holder works.
            let waits = count(|state| matches!(state, State::Waiting)) > 0;
            assert!(!waits || permits.working > 0);
        }
        ids.into_iter().for_each(|id| permits.leave(id));
        assert_eq!(
            (permits.used(), permits.holders.len(), permits.clients.len()),
            (0, 0, 0)
        );
        assert!(permits.by_kept.is_empty() && permits.by_wait.is_empty());
    }
}
