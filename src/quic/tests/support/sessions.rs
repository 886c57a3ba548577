//! Helpers for tests with session tickets and 0-RTT data.

use std::time::Duration;

use bytes::Bytes;
use uringcore_quic::{ClientSettings, ConnectionKey, Event, ServerSettings, tls::SessionTicket};

use super::{Pair, Peer, Who, client_settings, server_settings};

pub fn early_server() -> ServerSettings {
    ServerSettings {
        early_data: true,
        ..server_settings()
    }
}

pub fn with_ticket(ticket: &SessionTicket) -> ClientSettings {
    ClientSettings {
        session_ticket: Some(ticket.clone()),
        ..client_settings()
    }
}

/// Connects, and returns the tickets that the client receives.
pub fn tickets(pair: &mut Pair) -> Vec<SessionTicket> {
    let (key, _) = pair.establish();
    pair.run_for(Duration::from_secs(1));
    let found = pair
        .client
        .events
        .iter()
        .filter_map(|(of, event)| match event {
            Event::SessionTicket(ticket) if *of == key => Some(SessionTicket::clone(ticket)),
            _ => None,
        });
    found.collect()
}

pub fn ticket(pair: &mut Pair) -> SessionTicket {
    tickets(pair).remove(0)
}

/// The result of a handshake: true if the session was resumed, and true if 0-RTT data was accepted. `None` before its
/// end.
pub fn outcome(peer: &Peer, key: ConnectionKey) -> Option<(bool, bool)> {
    peer.events.iter().find_map(|(of, event)| match event {
        Event::HandshakeCompleted {
            session_resumed,
            early_data_accepted,
            ..
        } if *of == key => Some((*session_resumed, *early_data_accepted)),
        _ => None,
    })
}

pub fn send(pair: &mut Pair, who: Who, key: ConnectionKey, id: u64, data: &[u8], fin: bool) {
    let connection = pair.peer(who).endpoint.connection(key).unwrap();
    connection
        .send_stream(id, Bytes::copy_from_slice(data), fin)
        .unwrap();
}

/// Begins a connection whose client sends data at once.
pub fn connect_and_send(pair: &mut Pair, data: &[u8]) -> ConnectionKey {
    let key = pair.connect();
    send(pair, Who::Client, key, 0, data, true);
    key
}

pub fn newest_server(pair: &Pair) -> ConnectionKey {
    let accepted = pair.server.events.iter().rev();
    accepted
        .clone()
        .find(|(_, event)| *event == Event::Accepted)
        .unwrap()
        .0
}
