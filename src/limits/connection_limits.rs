//! Limits the open connections of a server, in total and by address.
//!
//! [`Connections::admit`] counts a connection with its client's address, and the drop of its [`Admitted`] ends that.
//! Each connection is also charged to the [`Budget`] of the process, so both the number of connections and their memory
//! are limited.
//!
//! These limits require that the kernel has verified the client's address, as for TCP. Not here: connections of QUIC
//! (`quic::accept_policy`), whose clients may have forged their address.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustc_hash::FxHashMap;

use crate::memory_budget::{AddressBlock, Budget, Holding};
use crate::token_bucket::{Rate, TokenBucket};

/// The limits of all connections.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: usize,
    /// The maximum number of connections of one address block; `None` means no limit.
    pub per_address: Option<usize>,
    /// The maximum number of connections whose handshake is not complete.
    pub handshakes: usize,
    /// The maximum rate of accepted connections; `None` means no limit.
    pub rate: Option<Rate>,
    /// The number of bytes that one connection is charged to the budget before it holds any data.
    pub bytes: usize,
}

/// The limit for which a client gets no connection. A limit of the budget is reported as the corresponding limit of
/// numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    Connections,
    Address,
    Handshakes,
    Rate,
}

/// The open connections.
pub struct Connections {
    limits: Limits,
    budget: Arc<Budget>,
    counts: Mutex<Counts>,
}

struct Counts {
    open: usize,
    handshakes: usize,
    /// The number of connections of each address block that has any.
    blocks: FxHashMap<AddressBlock, usize>,
    bucket: Option<TokenBucket>,
}

/// One open connection, and the bytes that it holds.
pub struct Admitted {
    connections: Arc<Connections>,
    /// The address block of the client. `None` if the client has no address, so that only the limits in total apply.
    block: Option<AddressBlock>,
    is_in_handshake: bool,
    pub holding: Holding,
}

impl Connections {
    pub fn new(limits: Limits, budget: Arc<Budget>) -> Arc<Self> {
        Arc::new(Self {
            limits,
            budget,
            counts: Mutex::new(Counts {
                open: 0,
                handshakes: 0,
                blocks: FxHashMap::default(),
                bucket: limits.rate.map(TokenBucket::new),
            }),
        })
    }

    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Counts a new connection, whose handshake is not complete. Clients without an address, such as those of a Unix
    /// socket, share one account of the budget.
    pub fn admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        now: Instant,
    ) -> Result<Admitted, Refused> {
        let block = address.map(AddressBlock::from);
        let account = block.unwrap_or(AddressBlock::Unproved);
        let limits = &self.limits;
        let mut counts = self.counts();
        let of_address = block.and_then(|block| counts.blocks.get(&block).copied());
        if counts.open >= limits.connections || !self.budget.has_room(limits.bytes, 0) {
            return Err(Refused::Connections);
        }
        if counts.handshakes >= limits.handshakes {
            return Err(Refused::Handshakes);
        }
        let is_full = limits
            .per_address
            .is_some_and(|most| of_address.unwrap_or(0) >= most);
        if is_full || !self.budget.has_room_at(account, limits.bytes, 0) {
            return Err(Refused::Address);
        }
        // This check comes last, so that a client that is refused for another reason uses up no token.
        let is_fast = counts.bucket.as_mut().is_some_and(|it| !it.try_take(now));
        if is_fast {
            return Err(Refused::Rate);
        }
        counts.open += 1;
        counts.handshakes += 1;
        if let Some(block) = block {
            *counts.blocks.entry(block).or_default() += 1;
        }
        drop(counts);
        let mut holding = self.budget.enter(account);
        holding.set_fixed(limits.bytes);
        Ok(Admitted {
            connections: self.clone(),
            block,
            is_in_handshake: true,
            holding,
        })
    }

    /// Begins to charge an admitted client for further memory, which another part of the program holds for the
    /// connection.
    pub fn charge_more(&self, address: Option<IpAddr>) -> Holding {
        let block = address.map(AddressBlock::from);
        self.budget.enter(block.unwrap_or(AddressBlock::Unproved))
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // No code that holds this lock panics, so the counts are consistent.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admitted {
    /// Records that the handshake is complete.
    pub fn established(&mut self) {
        if std::mem::take(&mut self.is_in_handshake) {
            self.connections.counts().handshakes -= 1;
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.established();
        let mut counts = self.connections.counts();
        counts.open -= 1;
        let Some(block) = self.block else { return };
        if let Some(count) = counts.blocks.get_mut(&block) {
            *count -= 1;
            if *count == 0 {
                counts.blocks.remove(&block);
            }
        }
        if counts.blocks.is_empty() {
            counts.blocks.shrink_to(BLOCKS_KEPT);
        }
    }
}

/// The capacity of `blocks` that is kept when no connection is open.
const BLOCKS_KEPT: usize = 128;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 4,
        per_address: Some(2),
        handshakes: 3,
        rate: None,
        bytes: 1 << 10,
    };

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn refused(connections: &Arc<Connections>, address: Option<IpAddr>) -> Option<Refused> {
        connections.admit(address, Instant::now()).err()
    }

    fn established(connections: &Arc<Connections>, address: Option<IpAddr>) -> Admitted {
        let admitted = connections.admit(address, Instant::now());
        let mut admitted = admitted.unwrap_or_else(|refused| panic!("{refused:?}"));
        admitted.established();
        admitted
    }

    #[test]
    fn connections_have_a_bound_in_total_and_for_each_address() {
        let connections = Connections::new(LIMITS, Arc::default());
        let one = established(&connections, address(1));
        let another = established(&connections, address(1));
        assert_eq!(refused(&connections, address(1)), Some(Refused::Address));
        let others = [2, 3].map(|last| established(&connections, address(last)));
        assert_eq!(
            refused(&connections, address(4)),
            Some(Refused::Connections)
        );
        drop(one);
        assert_eq!(refused(&connections, address(1)), None);
        drop((another, others));
        let counts = connections.counts();
        assert!(counts.blocks.is_empty());
        assert_eq!((counts.open, counts.handshakes), (0, 0));
    }

    #[test]
    fn subscribers_of_ipv6_count_by_their_network() {
        let connections = Connections::new(LIMITS, Arc::default());
        let at = |text: &str| Some(text.parse().unwrap());
        let _held = ["2001:db8::1", "2001:db8::2"].map(|it| established(&connections, at(it)));
        assert_eq!(
            refused(&connections, at("2001:db8::3")),
            Some(Refused::Address)
        );
        assert_eq!(refused(&connections, at("2001:db8:0:1::3")), None);
    }

    #[test]
    fn handshakes_have_a_bound_and_clients_without_an_address_have_none_of_their_own() {
        let connections = Connections::new(LIMITS, Arc::default());
        let now = Instant::now();
        let mut held: Vec<_> = (0..3)
            .map(|_| connections.admit(None, now).ok().unwrap())
            .collect();
        assert_eq!(refused(&connections, None), Some(Refused::Handshakes));
        held[0].established();
        held[0].established();
        assert_eq!(refused(&connections, None), None);
        assert_eq!(connections.counts().handshakes, 2);
    }

    #[test]
    fn a_rate_refills_with_time() {
        let rate = Rate {
            per_second: 1.0,
            burst: 2,
        };
        let limits = Limits {
            rate: Some(rate),
            ..LIMITS
        };
        let connections = Connections::new(limits, Arc::default());
        let begin = Instant::now();
        let admit = |after| {
            connections
                .admit(None, begin + Duration::from_secs(after))
                .err()
        };
        assert_eq!(
            [admit(0), admit(0), admit(0)],
            [None, None, Some(Refused::Rate)]
        );
        assert_eq!([admit(1), admit(1)], [None, Some(Refused::Rate)]);
    }

    #[test]
    fn connections_count_in_the_budget() {
        let limits = Limits {
            connections: 100,
            per_address: None,
            handshakes: 100,
            ..LIMITS
        };
        // All connections together may use half of the budget, and one address half of that.
        let budget = Budget::new(16 << 10);
        let connections = Connections::new(limits, budget.clone());
        let held: Vec<_> = (0..4)
            .map(|_| established(&connections, address(1)))
            .collect();
        assert_eq!(refused(&connections, address(1)), Some(Refused::Address));
        let others: Vec<_> = (2..6)
            .map(|last| established(&connections, address(last)))
            .collect();
        assert_eq!(
            refused(&connections, address(9)),
            Some(Refused::Connections)
        );
        assert_eq!(budget.held(), 8 << 10);
        drop((held, others));
        assert_eq!(budget.held(), 0);
    }
}
