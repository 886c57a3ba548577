//! The connections of a server over TCP.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PySet};
use pyo3::{PyTraverseError, PyVisit};
use rustc_hash::FxHashMap;
use uringcore_http::response_errors::TooSlow;
use uringcore_limits::connection_limits::{Admitted, Connections, Refused};
use uringcore_limits::memory_budget::{Account, Budget, Holding};
use uringcore_quic::tls::ServerSession;

use super::limits::TcpLimits;
use super::lower_transport::LowerTransport;
use super::tls_server_transport::TlsServerTransport;
use crate::asgi::asgi_service::{AsgiService, ReportedFault};
use crate::capi::gil_cell::GilCell;
use crate::quic::TlsServerSetup;

/// The connections of a server over TCP, of HTTP/1.1 and HTTP/2, and the state that they share.
///
/// `connections` is the set of the server's open connections, of any version of HTTP. `tls(transport)` returns the ASGI
/// extension `tls` for a transport. `on_slow(name)` is called with "nothing_taken" or "little_taken" if a response was
/// cancelled, because the client accepted nothing or too little of it.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TcpService {
    pub asgi: Py<AsgiService>,
    pub limits: Py<TcpLimits>,
    pub all: Py<PySet>,
    pub tls: Option<Py<PyAny>>,
    pub on_slow: Option<Py<PyAny>>,
    /// The numbers of connections and the bytes that they hold, in total and by address.
    clients: Arc<Connections>,
    open: GilCell<Open>,
    /// The TLS settings of new connections. `None` without TLS, and with TLS by OpenSSL.
    tls_setup: GilCell<Option<Py<TlsServerSetup>>>,
}

/// One open connection, of either version of HTTP.
pub trait TcpConnection: Send + Sync {
    /// Enforces the time-outs. The service calls this about once a second.
    fn tick(&self, py: Python<'_>, now: Instant) -> PyResult<()>;

    /// Makes the client send further requests on other connections, because the server will stop.
    fn announce_stop(&self, py: Python<'_>) -> PyResult<()>;

    /// Ends the connection at once, because the server has no memory for its client.
    fn shed(&self, py: Python<'_>) -> PyResult<()>;

    /// The number of bytes that the connection holds; 0 if its client does not belong to this account.
    fn data_of(&self, py: Python<'_>, account: &Arc<Account>) -> usize;

    fn clone_ref(&self, py: Python<'_>) -> Box<dyn TcpConnection>;

    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError>;
}

#[derive(Default)]
struct Open {
    connections: FxHashMap<u64, Box<dyn TcpConnection>>,
    /// Connections whose TLS handshake is not complete.
    handshakes: FxHashMap<u64, Box<dyn TcpConnection>>,
    next_id: u64,
    is_shedding: bool,
    /// True if the server will stop.
    is_stopping: bool,
    /// The number of bytes that the process held when the last search found no connection to end.
    in_vain_at: Option<usize>,
    counts: Counts,
}

#[derive(Default)]
struct Counts {
    refused_for_connections: u64,
    refused_for_address: u64,
    refused_for_handshakes: u64,
    refused_for_rate: u64,
    shed: u64,
    handshakes_failed: u64,
}

#[pymethods]
impl TcpService {
    #[new]
    #[pyo3(signature = (asgi, limits, *, connections, tls = None, on_slow = None))]
    fn new(
        asgi: Py<AsgiService>,
        limits: Py<TcpLimits>,
        connections: Py<PySet>,
        tls: Option<Py<PyAny>>,
        on_slow: Option<Py<PyAny>>,
    ) -> Self {
        let clients = limits.get().connections();
        Self {
            asgi,
            limits,
            all: connections,
            clients,
            tls,
            on_slow,
            open: GilCell::new(Open::default()),
            tls_setup: GilCell::new(None),
        }
    }

    /// Sets the TLS settings of connections from now on.
    fn set_tls_setup(&self, py: Python<'_>, setup: Py<TlsServerSetup>) {
        let old = self.tls_setup.with(py, |kept| kept.replace(setup));
        drop(old);
    }

    /// Returns the numbers of open connections, of refused ones, and of those that were ended for lack of memory.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = PyDict::new(py);
        let counts = self.open.with(py, |open| {
            let counts = &open.counts;
            [
                ("connections", open.connections.len() as u64),
                ("refused_for_connections", counts.refused_for_connections),
                ("refused_for_address", counts.refused_for_address),
                ("refused_for_handshakes", counts.refused_for_handshakes),
                ("refused_for_rate", counts.refused_for_rate),
                ("connections_shed", counts.shed),
                ("handshakes_failed", counts.handshakes_failed),
            ]
        });
        for (name, count) in counts {
            stats.set_item(name, count)?;
        }
        Ok(stats)
    }

    /// Enforces the time-outs and the memory budget. Python calls this about once a second.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        self.open.with(py, |open| open.in_vain_at = None);
        self.shed(py)?;
        let now = Instant::now();
        let handshakes: Vec<_> = self.open.with(py, |open| {
            open.handshakes
                .values()
                .map(|one| one.clone_ref(py))
                .collect()
        });
        self.all_open(py)
            .iter()
            .chain(&handshakes)
            .map(|one| one.tick(py, now))
            .fold(Ok(()), Result::and)
    }

    /// Makes clients send further requests on other connections, because the server will stop. HTTP/2 has GOAWAY for
    /// that. The next response of an HTTP/1.1 connection announces its end. No idle HTTP/1.1 connection is closed.
    fn announce_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.open.with(py, |open| open.is_stopping = true);
        self.all_open(py)
            .iter()
            .map(|one| one.announce_stop(py))
            .fold(Ok(()), Result::and)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.asgi)?;
        visit.call(&self.all)?;
        visit.call(&self.tls)?;
        visit.call(&self.on_slow)?;
        self.tls_setup
            .traverse(|setup| visit.call(setup))
            .unwrap_or(Ok(()))?;
        self.open
            .traverse(|open| {
                open.connections
                    .values()
                    .chain(open.handshakes.values())
                    .try_for_each(|one| one.traverse(&visit))
            })
            .unwrap_or(Ok(()))
    }

    fn __clear__(&self, py: Python<'_>) {
        drop((self.open.take(py), self.tls_setup.take(py)));
    }
}

/// The bytes of a connection of either version of HTTP that are charged to this account, with those of its TLS session.
pub fn data_of(
    py: Python<'_>,
    admitted: Option<&Admitted>,
    lower: Option<&LowerTransport>,
    account: &Arc<Account>,
) -> usize {
    let own = admitted.map_or(0, |admitted| admitted.holding.data_of(account));
    own + lower.map_or(0, |lower| lower.session_data_of(py, account))
}

impl TcpService {
    pub fn is_secure(&self) -> bool {
        self.limits.get().is_secure
    }

    /// Begins TLS on a new connection. `None` if there are no settings.
    pub fn tls_session(&self, py: Python<'_>) -> Option<ServerSession> {
        self.tls_setup.with(py, |setup| {
            let setup = setup.as_ref()?.get();
            ServerSession::new(&setup.setup).ok()
        })
    }

    pub fn handshake_timeout(&self) -> Duration {
        self.limits.get().handshake_timeout
    }

    /// Adds a connection whose TLS handshake begins. Returns its number.
    pub fn enter_handshake(&self, py: Python<'_>, connection: Box<dyn TcpConnection>) -> u64 {
        self.open.with(py, |open| {
            open.next_id += 1;
            open.handshakes.insert(open.next_id, connection);
            open.next_id
        })
    }

    /// Removes a connection from those in a handshake. Returns false if it is none of them.
    pub fn leave_handshake(&self, py: Python<'_>, id: u64) -> bool {
        let kept = self.open.with(py, |open| open.handshakes.remove(&id));
        kept.is_some()
    }

    pub fn count_failed_handshake(&self, py: Python<'_>) {
        self.open
            .with(py, |open| open.counts.handshakes_failed += 1);
    }

    /// True if the server will stop.
    pub fn is_stopping(&self, py: Python<'_>) -> bool {
        self.open.with(py, |open| open.is_stopping)
    }

    /// The connections whose TLS handshake, if they have one, is complete.
    fn all_open(&self, py: Python<'_>) -> Vec<Box<dyn TcpConnection>> {
        self.open.with(py, |open| {
            let connections = open.connections.values();
            connections.map(|one| one.clone_ref(py)).collect()
        })
    }

    /// Counts a new connection. Returns `None` if it exceeds a limit, so that the caller closes it.
    pub fn admit(&self, py: Python<'_>, address: Option<IpAddr>) -> Option<Admitted> {
        let refused = match self.clients.admit(address, Instant::now()) {
            Ok(admitted) => return Some(admitted),
            Err(refused) => refused,
        };
        let limit = self.open.with(py, |open| {
            let counts = &mut open.counts;
            let (count, limit) = match refused {
                Refused::Connections => (&mut counts.refused_for_connections, "connections"),
                Refused::Address => (
                    &mut counts.refused_for_address,
                    "connections of one address",
                ),
                Refused::Handshakes => (&mut counts.refused_for_handshakes, "handshakes"),
                Refused::Rate => (&mut counts.refused_for_rate, "new connections a second"),
            };
            *count += 1;
            limit
        });
        let text = format!("A TCP connection was refused: the limit of {limit} is reached.");
        self.asgi.get().report_fault(py, ReportedFault::Load, &text);
        None
    }

    /// Begins to charge a client for memory beside that of its connection's [`Admitted`].
    pub fn new_holding(&self, address: Option<IpAddr>) -> Holding {
        self.clients.charge_more(address)
    }

    /// If the process exceeds its memory budget, ends connections of the addresses that hold most.
    pub fn shed(&self, py: Python<'_>) -> PyResult<()> {
        let budget = self.clients.budget();
        let begins = budget.is_exceeded()
            && self.open.with(py, |open| {
                let has_grown = has_grown_since(open.in_vain_at, budget);
                has_grown && !std::mem::replace(&mut open.is_shedding, true)
            });
        if !begins {
            return Ok(());
        }
        let mut excess = budget.excess();
        let mut outcome = Ok(());
        let mut shed = 0;
        for account in budget.heaviest(ACCOUNTS_MAX) {
            let held = account.held();
            if excess == 0 || held == 0 {
                break;
            }
            let mut freed = 0;
            for (bytes, connection) in self.connections_of(py, &account) {
                if freed >= excess {
                    break;
                }
                freed += bytes;
                shed += 1;
                outcome = outcome.and(connection.shed(py));
            }
            // QUIC endpoints hold the rest of this account, and end their own connections. Other accounts do not have
            // to free that rest.
            excess = excess.saturating_sub(held);
        }
        self.open.with(py, |open| {
            open.is_shedding = false;
            open.counts.shed += shed;
            open.in_vain_at = (shed == 0).then(|| budget.held());
        });
        if shed > 0 {
            let text = "TCP connections were ended: their clients made the server hold too much.";
            self.asgi.get().report_fault(py, ReportedFault::Load, text);
        }
        outcome
    }

    /// Returns the connections of an account that hold data, with the number of bytes, and with the largest first.
    fn connections_of(
        &self,
        py: Python<'_>,
        account: &Arc<Account>,
    ) -> Vec<(usize, Box<dyn TcpConnection>)> {
        let mut found: Vec<_> = self.open.with(py, |open| {
            let connections = open.connections.values().chain(open.handshakes.values());
            let held = connections.filter_map(|connection| {
                let bytes = connection.data_of(py, account);
                (bytes > 0).then(|| (bytes, connection.clone_ref(py)))
            });
            held.collect()
        });
        found.sort_by_key(|(bytes, _)| Reverse(*bytes));
        found
    }

    /// Reports a response that was abandoned because its client reads too slowly.
    pub fn report_slow(&self, py: Python<'_>, why: TooSlow) -> PyResult<()> {
        match &self.on_slow {
            Some(on_slow) => on_slow.bind(py).call1((why.name(),)).map(drop),
            None => Ok(()),
        }
    }

    /// Adds a connection, whose object is `protocol`. Returns its number.
    pub fn enter(
        &self,
        protocol: &Bound<'_, PyAny>,
        connection: Box<dyn TcpConnection>,
    ) -> PyResult<u64> {
        let py = protocol.py();
        self.all.bind(py).add(protocol)?;
        Ok(self.open.with(py, |open| {
            open.next_id += 1;
            open.connections.insert(open.next_id, connection);
            open.next_id
        }))
    }

    pub fn leave(&self, id: u64, protocol: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = protocol.py();
        let kept = self.open.with(py, |open| open.connections.remove(&id));
        drop(kept);
        self.all.bind(py).discard(protocol).map(drop)
    }
}

/// Returns the protocol on which both sides have agreed by ALPN; `None` without TLS or ALPN.
pub fn negotiated_protocol(transport: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = transport.py();
    if let Ok(tls) = transport.cast::<TlsServerTransport>() {
        return Ok(tls.get().alpn(py));
    }
    let name = intern!(py, "get_extra_info");
    let tls = transport.call_method1(name, (intern!(py, "ssl_object"),))?;
    match tls.is_none() {
        true => Ok(None),
        false => tls
            .call_method0(intern!(py, "selected_alpn_protocol"))?
            .extract(),
    }
}

/// True if the process holds much more than `before`, when the last search found nothing.
fn has_grown_since(before: Option<usize>, budget: &Budget) -> bool {
    let step = budget.limit() / STEPS;
    before.is_none_or(|held| budget.held() > held.saturating_add(step))
}

/// The maximum number of addresses that lose connections in one search.
const ACCOUNTS_MAX: usize = 8;
/// The held bytes must grow by this fraction of the budget before a search that found nothing is repeated.
const STEPS: usize = 64;
