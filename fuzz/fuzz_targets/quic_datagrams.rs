//! Invariant: datagrams between a client and a server may be dropped, repeated, reordered, changed,
//! cut, joined or sent from other addresses; no endpoint panics, and both finally drop all state.
//! To an address that has not proved that it receives datagrams, the server sends at most three
//! times as many bytes as came from it (RFC 9000 sections 8.1 and 9.3).

#![no_main]

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_quic::{Connection, ConnectionKey};

use crate::datagrams::{CLIENTS, Flight, Network, SERVER, STRANGERS};

mod datagrams;

fuzz_target!(|data: &[u8]| {
    let [options, script @ ..] = data else { return };
    let mut network = Network::new(*options);
    network.connect();
    if options & 0x40 != 0 {
        network.carry();
    }
    for step in script.chunks_exact(3).take(STEPS_MAX) {
        network.step += 1;
        act(&mut network, step[0], step[1], step[2]);
    }
    network.end();
});

/// Performs one action of a host, the network or the attacker.
fn act(network: &mut Network, kind: u8, a: u8, b: u8) {
    match kind % 20 {
        0 => network.carry(),
        1 | 2 => {
            if let Some(flight) = take(network, a) {
                network.deliver(&flight);
            }
        }
        3 => drop(take(network, a)),
        4 => {
            if let Some(flight) = kept(network, a) {
                network.deliver(&flight);
            }
        }
        5 | 6 => {
            let flight = match kind % 20 {
                5 => take(network, a),
                _ => kept(network, a),
            };
            if let Some(flight) = flight {
                for _ in 0..=b >> 4 {
                    network.deliver(&from(stranger(b), flight.clone()));
                }
            }
        }
        7 => {
            if let Some(mut flight) = take(network, a) {
                let at = usize::from(b) * flight.data.len() / 256;
                flight.data[at] ^= 1 << (b & 7);
                network.deliver(&flight);
            }
        }
        8 => {
            if let Some(mut flight) = take(network, a) {
                flight
                    .data
                    .truncate(1 + usize::from(b) * flight.data.len() / 256);
                network.deliver(&flight);
            }
        }
        9 => join(network, a, b),
        10 => {
            if let Some(flight) = take(network, a) {
                network.forward(&flight);
            }
        }
        11 => network.pass(Duration::from_millis(
            u64::from(a) + 256 * u64::from(b & 0x1f),
        )),
        12 => with_connection(network, a, |connection| {
            let uni = b & 1 != 0;
            let id = connection.next_stream_id(uni);
            let data = Bytes::from(vec![b; 1 + 64 * usize::from(b)]);
            let _ = connection.send_stream(id, data, b & 2 != 0);
        }),
        13 => with_connection(network, a, |connection| {
            let data = Bytes::from(vec![a; usize::from(b)]);
            let _ = connection.send_datagram(data);
            connection.ping(u64::from(b));
        }),
        14 => with_connection(network, a, |connection| match b & 3 {
            0 => connection.request_key_update(),
            1 => connection.change_connection_id(),
            2 => drop(connection.reset_stream(u64::from(b >> 2), 7)),
            _ => drop(connection.stop_stream(u64::from(b >> 2), 7)),
        }),
        15 => migrate(network, a, b),
        16 => close(network, a, b),
        17 => network.connect(),
        18 => {
            let data = vec![a; 1 + 6 * usize::from(b)];
            let from = stranger(a);
            network.deliver(&Flight {
                from,
                to: SERVER,
                data,
                step: 0,
            });
        }
        _ => {
            let now = network.now;
            network.client.handle_unreachable(now, SERVER, 111);
            network.exchange();
        }
    }
}

fn take(network: &mut Network, index: u8) -> Option<Flight> {
    let count = network.flights.len().max(1);
    network.lose(usize::from(index) % count)
}

fn kept(network: &Network, index: u8) -> Option<Flight> {
    let count = network.past.len().max(1);
    network.past.get(usize::from(index) % count).cloned()
}

/// Returns a spoofed source address: a stranger's, or another socket of the client's.
fn stranger(choice: u8) -> SocketAddr {
    let all = [STRANGERS, CLIENTS].concat();
    all[usize::from(choice & 0x0f) % all.len()]
}

fn from(address: SocketAddr, flight: Flight) -> Flight {
    Flight {
        from: address,
        ..flight
    }
}

/// Joins two datagrams for one address into one.
fn join(network: &mut Network, a: u8, b: u8) {
    let (Some(mut first), Some(second)) = (take(network, a), kept(network, b)) else {
        return;
    };
    if first.to == second.to {
        first.data.extend(second.data);
        first.step = first.step.max(second.step);
    }
    network.deliver(&first);
}

fn with_connection(network: &mut Network, choice: u8, run: impl FnOnce(&mut Connection)) {
    let (is_server, key) = chosen(network, choice);
    let endpoint = match is_server {
        true => &mut network.server,
        false => &mut network.client,
    };
    if let Some(connection) = key.and_then(|key| endpoint.connection(key)) {
        run(connection);
    }
    network.exchange();
}

fn chosen(network: &Network, choice: u8) -> (bool, Option<ConnectionKey>) {
    let is_server = choice & 1 != 0;
    let keys = match is_server {
        true => &network.servers,
        false => &network.clients,
    };
    let index = usize::from(choice >> 1) % keys.len().max(1);
    (is_server, keys.get(index).copied())
}

fn migrate(network: &mut Network, a: u8, b: u8) {
    let (false, Some(key)) = chosen(network, a & !1) else {
        return;
    };
    let (now, socket) = (network.now, u32::from(b) % CLIENTS.len() as u32);
    let timeout = Duration::from_secs(3);
    let _ = network.client.migrate(now, key, socket, timeout);
    network.exchange();
}

fn close(network: &mut Network, a: u8, b: u8) {
    let now = network.now;
    with_connection(network, a, |connection| {
        let frame_type = (b & 1 != 0).then_some(u64::from(b >> 1));
        connection.close(now, u64::from(b), frame_type, &[b; 40]);
    });
}

const STEPS_MAX: usize = 300;
