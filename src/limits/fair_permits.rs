//! Permits for something scarce, shared fairly among clients. The host defines the resource and the clients.
//!
//! A holder *works* with a permit, or *keeps* an item with one until it works again. A kept item only saves the host from
//! making it again, so it can be dropped: when a permit is needed, the client that keeps the most loses its oldest item.
//! A permit in work is not taken away; other holders wait, and get permits in the order of how many permits their
//! clients work with.
//!
//! One client works with no more permits than are left for all others (a dynamic threshold, as switches have for their
//! buffers): a single client gets half of all, and the next one finds room.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

/// Identifies the holder of a permit, or one that waits for a permit.
pub type HolderId = u64;

/// The permits of all clients. `K` identifies a client, `T` is a kept item.
pub struct FairPermits<K, T> {
    holders: FxHashMap<HolderId, Holder<K, T>>,
    clients: BTreeMap<K, Client>,
    next_id: HolderId,
    next_stamp: u64,
    working: usize,
    kept: usize,
    /// Clients by the number of items they keep; clients that keep none are absent.
    by_kept: BTreeSet<(usize, K)>,
    /// Clients with waiting holders, by the permits that they work with and their oldest waiting holder.
    by_wait: BTreeSet<(usize, HolderId, K)>,
    changes: Changes<T>,
}

/// Results that the host must handle.
#[derive(Debug)]
pub struct Changes<T> {
    /// Items that lost their permit, to be dropped.
    pub dropped: Vec<T>,
    /// Holders that waited and have a permit now.
    pub granted: Vec<HolderId>,
}

/// The result of a request for a permit.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<T> {
    /// The kept item is still there.
    Kept(T),
    /// A permit without an item.
    Empty,
    /// [`Changes::granted`] lists the holder when it gets a permit.
    Waits,
}

struct Holder<K, T> {
    client: K,
    /// The total of permits, as this holder counts it.
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
    /// Sorted by age.
    keeping: BTreeMap<u64, HolderId>,
    waiting: BTreeSet<HolderId>,
}

impl<K: Ord + Clone, T> FairPermits<K, T> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a holder without a permit. The caller must [`leave`](Self::leave) in the end.
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

    /// True if the holder has a permit to work with.
    pub fn is_working(&self, id: HolderId) -> bool {
        let holder = self.holders.get(&id);
        holder.is_some_and(|holder| matches!(holder.state, State::Working))
    }

    /// Permits in use, worked with or kept.
    pub fn used(&self) -> usize {
        self.working + self.kept
    }

    /// Requests a permit to work with. For a holder that waits, returns the current state.
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

    /// The holder stops working and keeps `item` until the permit is needed. If it has no permit, the item is
    /// returned.
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

    /// Releases the permit, or stops waiting for one.
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

    /// Removes the holder.
    pub fn leave(&mut self, id: HolderId) {
        self.release(id);
        self.holders.remove(&id);
    }

    /// Drops the oldest item of the client that keeps the most. False if nothing is kept.
    pub fn drop_one(&mut self) -> bool {
        match self.by_kept.last().cloned() {
            Some((_, client)) => self.drop_oldest(&client),
            None => false,
        }
    }

    /// Takes the results of the calls so far.
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

    /// Frees a permit for `id` if all are in use.
    fn make_room(&mut self, client: &K, id: HolderId) {
        let max = self.holders.get(&id).map_or(1, |holder| holder.max);
        while self.used() >= max && self.kept > 0 {
            let most = self.by_kept.last().map_or(0, |(count, _)| *count);
            let keeps = |client: &Client| client.keeping.len();
            // A client that keeps as much as any other makes room for itself.
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

    /// Gives free permits to waiting holders.
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

    /// Changes a client and its entries in the indices.
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
        // The holder requests a permit again and gets one at the expense of its own client.
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
        // A client with a single item and clients with fewer items than others lose nothing.
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
        // A holder that stops waiting is removed.
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
            // No holder waits while there is room for all clients alike.
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
