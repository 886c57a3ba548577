//! Keeps the memory of a server's connections within the budget of the process. *Shedding* means to end streams or
//! connections to free memory.
//!
//! A connection whose address holds more than its share gets little credit, and few streams. When the process exceeds
//! its budget, the address that holds most loses streams: first those that have made the least progress since the
//! last search, and of these the oldest. If that does not free enough, the connections that hold most are closed.
//!
//! Not here: the sums (`limits::memory_budget`), and the memory of one connection (`connection::memory_account`,
//! `connection::memory_shedding`).
//!
//! How the sums are kept:
//!
//! - A connection's sum is compared once a loop iteration, when the connection is reconciled. Its account and the
//!   budget change when the sum has moved by 4 KiB.
//! - Each connection counts 32 KiB for itself, in the budget and not in its address's share, from its first packet
//!   until quinn-proto forgets it.
//! - All clients that have not proved their addresses share one account.
//! - A closed connection drops its data when the application has polled `Closed`. For three probe time-outs it still
//!   answers late packets with CONNECTION_CLOSE (RFC 9000 section 10.2). An address may have as many connections in
//!   that state as open ones. Above the budget they are removed at once, and late packets get a stateless reset.
//! - Withdrawn credit is a debt (`workarounds::growing_receive_window`). It is paid by data that is read, by dropped
//!   data of stopped streams, and by data that a RESET_STREAM leaves out. Unused credit reserves memory until 30
//!   seconds after the last stream data of the connection.
//! - Not counted: response data in quinn-proto, and data about to be passed to it (two congestion windows, or 256 KiB
//!   if these are smaller). Of a message whose `send` waits at most 64 KiB count, because an application may send one
//!   object to many clients.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use uringcore_limits::memory_budget::{Account, AddressBlock, Budget, Holding};

use super::{ConnectionKey, Endpoint, Entry};
use crate::accept_policy::Room;
use crate::connection::CONNECTION_BYTES;

/// The state of an endpoint's shedding between two searches.
#[derive(Debug, Default)]
pub(super) struct Shedding {
    /// True if streams were shed, and the application has not yet dropped the data of those streams that it stores.
    is_done: bool,
    /// The bytes that the process held when a search last found nothing to shed. `None` if the process has held fewer
    /// since.
    fruitless_at: Option<usize>,
    /// True if the connections that hold most belong to other endpoints, which must therefore be asked to shed.
    asks_others: bool,
    /// The bytes that the process held when other endpoints were last asked. `None` when it is within its budget.
    asked_at: Option<usize>,
}

impl Shedding {
    /// Called when the application has polled all events, so that it has released the data of shed streams.
    pub fn events_polled(&mut self, budget: &Budget) {
        self.is_done = false;
        self.fruitless_at = self.fruitless_at.filter(|&before| budget.held() >= before);
        self.asked_at = self.asked_at.filter(|_| budget.is_exceeded());
    }
}

impl Endpoint {
    /// Opens the account of a server's new connection. A client that has not proved its address is charged to the
    /// account of all such clients. Otherwise spoofed first packets could use up the share of an address that has sent
    /// none.
    pub(super) fn open_account(&mut self, key: ConnectionKey, proved: Option<IpAddr>) {
        let block = proved.map_or(AddressBlock::Unproved, AddressBlock::from);
        let holding = self.budget.enter(block);
        self.connections[key.index()]
            .connection
            .open_account(holding);
    }

    /// The parts of the budget that have room for another connection from `address`. Pending accepts are counted as
    /// connections.
    pub(super) fn room(&self, address: IpAddr) -> Room {
        let pending = self.pending_accepts.len() * CONNECTION_BYTES;
        let has_room_at = |block| (self.budget).has_room_at(block, CONNECTION_BYTES, pending);
        Room {
            in_all: self.budget.has_room(CONNECTION_BYTES, pending),
            at_address: has_room_at(AddressBlock::from(address)),
            for_unproved: has_room_at(AddressBlock::Unproved),
        }
    }

    /// Charges the connection's bytes to its account, and adjusts the peer's credit to the account.
    pub(super) fn reconcile_memory(&mut self, index: usize) {
        let entry = &mut self.connections[index];
        let Some(update) = entry.connection.update_account() else {
            return;
        };
        let before = std::mem::replace(&mut entry.held_bytes, update.held);
        self.stats.held_bytes += update.held as u64;
        self.stats.held_bytes -= before as u64;
        self.stats.credit_withheld += u64::from(update.is_cut);
        if update.has_changed {
            self.mark_sending(index);
        }
    }

    /// The memory budget, which all endpoints of the process share.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// True if each received datagram should have a buffer of its own. Much received data is held then, and a datagram
    /// in a shared buffer would keep the whole batch in memory.
    pub fn keeps_datagrams(&self) -> bool {
        self.budget.data() > self.budget.limit() / FEW
    }

    /// True if the other endpoints of the process must be asked to shed. The call clears the request.
    pub fn take_asks_others(&mut self) -> bool {
        std::mem::take(&mut self.shedding.asks_others)
    }

    pub(super) fn is_short_of_memory(&self) -> bool {
        if self.shedding.is_done || !self.budget.is_exceeded() {
            return false;
        }
        // After a search that found nothing to shed, another search begins only when the process holds considerably
        // more.
        self.has_grown_since(self.shedding.fruitless_at)
    }

    fn has_grown_since(&self, before: Option<usize>) -> bool {
        let step = self.budget.limit() / STEPS;
        before.is_none_or(|held| self.budget.held() > held.saturating_add(step))
    }

    /// Ends streams and connections of this endpoint, until the process is within its budget.
    pub(super) fn shed(&mut self, now: Instant) {
        self.forget_closed();
        let mut excess = self.budget.excess();
        let accounts = self.budget.heaviest(ACCOUNTS_MAX);
        let connections = self.connections_of(&accounts);
        let mut is_fruitless = true;
        for (account, (open, closed)) in accounts.iter().zip(connections) {
            if excess == 0 {
                break;
            }
            let held = account.held();
            if held == 0 {
                // The accounts are sorted by size, so the next ones hold nothing either.
                break;
            }
            if open.is_empty() && closed == 0 && self.has_grown_since(self.shedding.asked_at) {
                self.shedding.asks_others = true;
                self.shedding.asked_at = Some(self.budget.held());
            }
            let wanted = excess.saturating_sub(closed);
            if wanted > 0 {
                let freed = self.shed_streams(&open, wanted);
                let is_enough = freed >= wanted;
                let finds_more = !is_enough && self.shed_connections(now, open, wanted - freed);
                is_fruitless &= freed == 0 && !finds_more;
            }
            // The rest is released soon, by the application, by closed connections or by other endpoints. So it must
            // not be taken from another account.
            excess = excess.saturating_sub(held);
        }
        match is_fruitless {
            true => self.shedding.fruitless_at = Some(self.budget.held()),
            false => self.shedding.is_done = true,
        }
    }

    /// Removes closed connections, except those whose end the application has not polled, and those that must still
    /// send a packet. quinn-proto keeps a closed connection for three probe time-outs, only to answer late packets
    /// without a stateless reset (RFC 9000 section 10.2).
    fn forget_closed(&mut self) {
        let may_go = |entry: &Entry| {
            let is_over = entry.connection.is_closed() && !entry.is_sending && !entry.is_eventful;
            is_over && entry.connection.account().holding().is_some()
        };
        let entries = self.connections.iter();
        let over: Vec<usize> = entries
            .filter(|(_, entry)| may_go(entry))
            .map(|(index, _)| index)
            .collect();
        for index in over {
            self.forget_state(index);
            self.remove_if_over(index);
        }
    }

    /// For each account, the slots of its open connections, and the bytes of its closed ones, which are released soon.
    fn connections_of(&self, accounts: &[Arc<Account>]) -> Vec<(Vec<usize>, usize)> {
        let mut found = vec![(Vec::new(), 0); accounts.len()];
        for (index, entry) in &self.connections {
            let Some(holding) = entry.connection.account().holding() else {
                continue;
            };
            let Some(position) = accounts.iter().position(|it| holding.is_of(it)) else {
                continue;
            };
            let (open, closed) = &mut found[position];
            match entry.connection.is_closed() {
                true => *closed += holding.data(),
                false => open.push(index),
            }
        }
        found
    }

    /// Ends streams of these connections. Returns the bytes that are free at once. The application will release more.
    fn shed_streams(&mut self, connections: &[usize], excess: usize) -> usize {
        let mut found = Vec::new();
        for &index in connections {
            let entry = &mut self.connections[index];
            let age = entry.generation;
            let streams = entry.connection.sheddable().into_iter();
            found.extend(streams.map(|stream| (index, age, stream)));
        }
        found.sort_by_key(|(_, age, stream)| (stream.progress, *age, stream.stream_id));
        let mut freed = 0;
        let mut touched = Vec::new();
        for (index, _, stream) in found {
            if freed >= excess {
                break;
            }
            freed += stream.bytes;
            let connection = &mut self.connections[index].connection;
            connection.shed_stream(stream.stream_id);
            self.stats.streams_shed += 1;
            touched.push(index);
        }
        touched.sort_unstable();
        touched.dedup();
        touched
            .into_iter()
            .for_each(|index| self.update_after_shedding(index));
        freed
    }

    /// Queues a connection for sending and for events after streams of it, or all of it, were shed, and reconciles the
    /// tables of the endpoint with it.
    fn update_after_shedding(&mut self, index: usize) {
        self.touch(index);
        self.reconcile(index);
    }

    /// Closes connections that hold data outside streams, or that have lost streams often: the largest first, and of
    /// equal ones the oldest. Connections without data are kept, because their number is limited when they begin.
    /// Returns false if there is none to close.
    fn shed_connections(
        &mut self,
        now: Instant,
        mut connections: Vec<usize>,
        excess: usize,
    ) -> bool {
        connections.retain(|&index| self.data_of(index) > 0);
        connections.sort_by_key(|&index| {
            let age = self.connections[index].generation;
            (Reverse(self.data_of(index)), age)
        });
        let finds_some = !connections.is_empty();
        let mut looked_at = 0;
        for index in connections {
            if looked_at >= excess {
                break;
            }
            looked_at += self.data_of(index);
            let connection = &mut self.connections[index].connection;
            // The application drops the data of shed streams when it polls the events.
            if connection.account_mut().count_shed() <= SHEDS_MAX {
                continue;
            }
            connection.shed(now);
            self.stats.connections_shed += 1;
            self.update_after_shedding(index);
        }
        finds_some
    }

    fn data_of(&self, index: usize) -> usize {
        let holding = self.connections[index].connection.account().holding();
        holding.map_or(0, Holding::data)
    }
}

/// At most this many accounts lose streams in one loop iteration.
const ACCOUNTS_MAX: usize = 8;
/// The divisor of the budget for repeated searches. After a search that found nothing to shed, the next search begins
/// when the process holds more memory by 1/64 of its budget.
const STEPS: usize = 64;
/// A connection is closed when its streams were shed this many times before.
const SHEDS_MAX: u32 = 2;
/// Memory that unread datagrams pin is released only if more than 1/8 of the budget is used.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_found_nothing_is_not_repeated_in_the_next_iteration() {
        let budget = Budget::new(100 << 10);
        let mut holding = budget.enter(IpAddr::from([192, 0, 2, 1]));
        holding.set(200 << 10);
        let mut shedding = Shedding {
            fruitless_at: Some(budget.held()),
            ..Shedding::default()
        };
        shedding.events_polled(&budget);
        assert_eq!(shedding.fruitless_at, Some(200 << 10));
        holding.set(190 << 10);
        shedding.events_polled(&budget);
        assert_eq!(shedding.fruitless_at, None);
    }
}
