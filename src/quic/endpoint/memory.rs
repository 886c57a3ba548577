//! The memory of a server's connections within the budget of its process, and shedding above it.
//!
//! A connection whose address holds more than its share gets little credit at a time, and few streams. When the
//! process exceeds its budget, the address that holds most loses streams: of all its connections first those that
//! have made the least progress since the last search, and of these the oldest. If streams do not release enough,
//! or not for long, the connections that hold most are closed.
//!
//! Not here: the sums (`budget`), and the memory of one connection (`connection::memory_account`,
//! `connection::memory`).
//!
//! How the sums are kept:
//!
//! - A connection's sum is updated when the connection is reconciled, which costs one comparison a turn. Its account
//!   and the budget change when it has moved by 4 KiB.
//! - Each connection counts 32 KiB for itself, in the budget and not in its address's share, from its first packet
//!   until the state machine forgets it.
//! - Clients without a proved address share one account.
//! - A closed connection drops its data as soon as its host has received the end: for three probe time-outs it
//!   sends nothing but CONNECTION_CLOSE (RFC 9000 section 10.2). As many closed connections of one address may
//!   linger as may be open. Above the budget closed connections are forgotten at once, and their late packets get a
//!   stateless reset.
//! - Withdrawn credit is a debt (`seams::receive_window`). Data that is read, data of stopped streams that is dropped, and data
//!   that a RESET_STREAM leaves out pay it. Unused credit reserves room until 30 seconds after the last data of the
//!   connection's streams.
//! - Not counted: data of a response in QUIC, sent or about to be sent (two congestion windows, or 256 KiB if these are
//!   smaller). Of a message whose `send` waits at most 64 KiB count, because an application may send one object to many
//!   clients.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use uringcore_limits::memory_budget::{Account, AddressBlock, Budget, Holding};

use super::{ConnectionKey, Endpoint, Entry};
use crate::accept_policy::Room;
use crate::connection::CONNECTION_BYTES;

/// The endpoint's state between searches.
#[derive(Debug, Default)]
pub(super) struct Shedding {
    /// Something was shed, and the host still keeps its data of those streams.
    is_done: bool,
    /// The bytes of the process when the last search here found nothing, unless fewer were held since.
    in_vain_at: Option<usize>,
    /// Another endpoint has the connections that hold most.
    asks_others: bool,
    /// The bytes of the process when other endpoints were last asked, while it exceeds its budget.
    asked_at: Option<usize>,
}

impl Shedding {
    /// The host has released the data of shed streams, and perhaps more.
    pub fn host_has_seen(&mut self, budget: &Budget) {
        self.is_done = false;
        self.in_vain_at = self.in_vain_at.filter(|&before| budget.held() >= before);
        self.asked_at = self.asked_at.filter(|_| budget.is_exceeded());
    }
}

impl Endpoint {
    /// Opens the account of a new server connection. A client without a proved address counts with all others of
    /// that kind: otherwise forged first flights would use up the share of an address that sent none of them.
    pub(super) fn open_account(&mut self, key: ConnectionKey, proved: Option<IpAddr>) {
        let block = proved.map_or(AddressBlock::Unproved, AddressBlock::from);
        let holding = self.budget.enter(block);
        self.connections[key.index()]
            .connection
            .open_account(holding);
    }

    /// The parts of the budget with room for another connection from this address. Pending accepts count already.
    pub(super) fn room(&self, address: IpAddr) -> Room {
        let pending = self.pending_accepts.len() * CONNECTION_BYTES;
        let has_room_at = |block| (self.budget).has_room_at(block, CONNECTION_BYTES, pending);
        Room {
            in_all: self.budget.has_room(CONNECTION_BYTES, pending),
            at_address: has_room_at(AddressBlock::from(address)),
            for_unproved: has_room_at(AddressBlock::Unproved),
        }
    }

    /// Updates the account with the connection's bytes, and its credit with the account.
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

    /// The budget that all endpoints of the process share.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// True if each datagram should be received into memory of its own: many received datagrams are held, and each
    /// would pin its whole batch.
    pub fn keeps_datagrams(&self) -> bool {
        self.budget.data() > self.budget.limit() / FEW
    }

    /// True if other endpoints of the process must be asked to shed. Reported once.
    pub fn take_asks_others(&mut self) -> bool {
        std::mem::take(&mut self.shedding.asks_others)
    }

    pub(super) fn is_short_of_memory(&self) -> bool {
        if self.shedding.is_done || !self.budget.is_exceeded() {
            return false;
        }
        // A fruitless search is repeated when much more is held.
        self.has_grown_since(self.shedding.in_vain_at)
    }

    fn has_grown_since(&self, before: Option<usize>) -> bool {
        let step = self.budget.limit() / STEPS;
        before.is_none_or(|held| self.budget.held() > held.saturating_add(step))
    }

    /// Sheds the excess of the process above its budget, as far as it is held here.
    pub(super) fn shed(&mut self, now: Instant) {
        self.forget_closed();
        let mut excess = self.budget.excess();
        let accounts = self.budget.heaviest(ACCOUNTS_MAX);
        let connections = self.connections_of(&accounts);
        let mut is_in_vain = true;
        for (account, (open, closed)) in accounts.iter().zip(connections) {
            if excess == 0 {
                break;
            }
            let held = account.held();
            if held == 0 {
                // No later account has anything to shed either.
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
                is_in_vain &= freed == 0 && !finds_more;
            }
            // The host will release the rest soon, and so will closed connections and other endpoints: no
            // other account pays for bytes that this one will release.
            excess = excess.saturating_sub(held);
        }
        match is_in_vain {
            true => self.shedding.in_vain_at = Some(self.budget.held()),
            false => self.shedding.is_done = true,
        }
    }

    /// Closed connections linger for three probe time-outs only so that late packets of their peers need no
    /// stateless reset (RFC 9000 section 10.2). Those whose host has received the end, and whose peer was sent
    /// everything, can be removed.
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

    /// For each account the open connections, and the bytes of other connections, which are released soon.
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

    /// Returns the bytes that are released here; the host releases more.
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
        touched.into_iter().for_each(|index| self.shed_of(index));
        freed
    }

    /// Updates a connection after something of it was shed.
    fn shed_of(&mut self, index: usize) {
        self.touch(index);
        self.reconcile(index);
    }

    /// Closes connections that hold data outside streams, or that have lost streams often: the largest first, and
    /// of these the oldest. Connections without data are kept, because their number is limited when they begin.
    /// Returns false if there are none to close.
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
            // The host releases its part when it receives the events.
            if connection.account_mut().note_shed() <= SHEDS_MAX {
                continue;
            }
            connection.shed(now);
            self.stats.connections_shed += 1;
            self.shed_of(index);
        }
        finds_some
    }

    fn data_of(&self, index: usize) -> usize {
        let holding = self.connections[index].connection.account().holding();
        holding.map_or(0, Holding::data)
    }
}

/// How many accounts are shed in one turn.
const ACCOUNTS_MAX: usize = 8;
/// The budget must grow by this part of itself between two fruitless searches of one turn.
const STEPS: usize = 64;
/// How often a connection's streams are shed before the connection itself is.
const SHEDS_MAX: u32 = 2;
/// Below this part of the budget the memory that datagrams pin does not matter.
const FEW: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_in_vain_is_not_repeated_in_the_next_turn_unless_less_is_held() {
        let budget = Budget::new(100 << 10);
        let mut holding = budget.enter(IpAddr::from([192, 0, 2, 1]));
        holding.set(200 << 10);
        let mut shedding = Shedding {
            in_vain_at: Some(budget.held()),
            ..Shedding::default()
        };
        shedding.host_has_seen(&budget);
        assert_eq!(shedding.in_vain_at, Some(200 << 10));
        holding.set(190 << 10);
        shedding.host_has_seen(&budget);
        assert_eq!(shedding.in_vain_at, None);
    }
}
