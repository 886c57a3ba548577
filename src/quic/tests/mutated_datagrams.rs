//! Sends mutated datagrams to a client and to a server in each state of a connection: a hundred thousand in all,
//! or as many as the variable MUTATED says, a million in `make test-all`.
//!
//! The mutated datagrams are copies of the connection's own ones, so connection IDs, versions and lengths are nearly
//! right, and code behind the first checks is reached. During the attack no genuine datagram arrives and no time
//! passes. After it the connection must continue as if nothing had happened.

use std::time::Duration;

use crate::support::{Pair, Random, Who, with_transport};
use bytes::Bytes;
use uringcore_quic::{CloseKind, ConnectionKey, Event, ServerSettings, VERSION_1, VERSION_2};

/// The number of mutated datagrams, over all stages and both receivers, unless the variable MUTATED has another.
const MUTATED: &str = "100000";
/// A connection with version 1 only, and one that begins with version 1 and switches to version 2.
const VERSIONS: [&[u32]; 2] = [&[VERSION_1], &[VERSION_2, VERSION_1]];
const ATTACKED: u64 = 0;
const LATER: u64 = 4;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// The ClientHello was lost, so the server has no state.
    FirstFlight,
    /// The server requires a token, and its Retry has not arrived.
    Retry,
    /// The server has answered, and its flight has not arrived.
    ServerHandshaking,
    /// The client has completed the handshake, and its last flight has not arrived.
    ClientConnected,
    Established,
    /// Stream data and datagrams are in flight in both directions, and each side has paused one stream.
    Transferring,
    /// One side has updated its keys, and the peer has not received a packet with them.
    KeysUpdated,
    /// The client has closed the connection, and its close has not arrived.
    Closing,
    /// Both sides have handled the close.
    Draining,
    /// Both sides have dropped the connection.
    Forgotten,
}

use Stage::*;

const STAGES: [Stage; 10] = [
    FirstFlight,
    Retry,
    ServerHandshaking,
    ClientConnected,
    Established,
    Transferring,
    KeysUpdated,
    Closing,
    Draining,
    Forgotten,
];

struct Attack {
    pair: Pair,
    client: ConnectionKey,
    server: Option<ConnectionKey>,
}

impl Attack {
    /// A connection that has just reached `stage`, with all datagrams so far recorded.
    fn at(stage: Stage, versions: &[u32]) -> Self {
        let (mut client, mut server) = with_transport(|t| t.datagram_recv_bytes = Some(100_000));
        client.supported_versions = versions.to_vec();
        client.original_version = Some(VERSION_1);
        server.supported_versions = versions.to_vec();
        let retry = (stage == Retry).into();
        let mut pair = Pair::new(client, ServerSettings { retry, ..server });
        pair.record = true;
        let mut attack = Self {
            client: pair.connect(),
            server: None,
            pair,
        };
        match stage {
            FirstFlight => {
                attack.mute(true, false);
                attack.pair.exchange();
            }
            Retry | ServerHandshaking => {
                attack.mute(false, true);
                attack.pair.run_for(Duration::from_millis(8));
            }
            ClientConnected => {
                attack.pair.exchange();
                attack.pair.run_for(Duration::from_millis(8));
                attack.mute(true, false);
                attack.pair.run_for(Duration::from_millis(8));
            }
            _ => attack.beyond_the_handshake(stage),
        }
        attack.mute(true, true);
        attack
    }

    fn beyond_the_handshake(&mut self, stage: Stage) {
        self.finish_handshake();
        self.transfer(ATTACKED);
        match stage {
            Transferring => {
                for who in [Who::Client, Who::Server] {
                    let key = self.key(who);
                    let conn = self.pair.peer(who).endpoint.connection(key).unwrap();
                    let stream = 8 + u64::from(who == Who::Server);
                    conn.send_stream(stream, vec![7; 300_000].into(), false)
                        .unwrap();
                    conn.send_datagram(vec![1; 900].into()).unwrap();
                }
                self.pair.run_for(Duration::from_millis(12));
            }
            KeysUpdated => {
                self.mute(true, true);
                let (key, endpoint) = (self.client, &mut self.pair.client.endpoint);
                let conn = endpoint.connection(key).unwrap();
                conn.request_key_update();
                conn.send_stream(LATER, Bytes::from_static(b"new keys"), false)
                    .unwrap();
                self.pair.exchange();
            }
            Closing => {
                self.mute(true, true);
                self.close();
                self.pair.exchange();
            }
            Draining => {
                self.close();
                self.pair.exchange();
                self.pair.run_for(Duration::from_millis(6));
            }
            Forgotten => {
                self.close();
                self.pair.run_until_idle();
            }
            _ => {}
        }
    }

    fn key(&self, who: Who) -> ConnectionKey {
        match who {
            Who::Client => self.client,
            Who::Server => self.server.expect("the server has accepted"),
        }
    }

    fn mute(&mut self, client: bool, server: bool) {
        self.pair.client.is_mute = client;
        self.pair.server.is_mute = server;
    }

    fn finish_handshake(&mut self) {
        let client = self.client;
        let done = |event: &Event| matches!(event, Event::HandshakeCompleted { .. });
        self.pair.run_until("the handshake", |pair| {
            pair.client.has(client, done) && pair.server.events.iter().any(|(_, event)| done(event))
        });
        let accepted = |(_, event): &&(ConnectionKey, Event)| *event == Event::Accepted;
        let all: Vec<_> = self.pair.server.events.iter().filter(accepted).collect();
        assert_eq!(all.len(), 1, "the datagrams have begun no other connection");
        self.server = Some(all[0].0);
    }

    /// Sends data with a FIN in both directions of a stream.
    fn transfer(&mut self, stream: u64) {
        let server = self.key(Who::Server);
        let data: Bytes = Random::new(stream).bytes(60_000).into();
        for (who, key) in [(Who::Client, self.client), (Who::Server, server)] {
            let conn = self.pair.peer(who).endpoint.connection(key).unwrap();
            conn.send_stream(stream, data.clone(), true).unwrap();
            let other = who.other();
            let key = self.key(other);
            self.pair
                .run_until("a stream", |pair| pair.peer(other).finished(key, stream));
            let received = self.pair.peer(other).received(key, stream);
            assert!(received.ends_with(&data), "the data is not what was sent");
        }
    }

    fn close(&mut self) {
        let now = self.pair.now;
        let conn = self.pair.client.endpoint.connection(self.client).unwrap();
        conn.close(now, 7, None, b"enough");
    }

    /// Delivers `count` mutated datagrams. Returns the number of those that the client got, and of those that the
    /// server got.
    fn attack(&mut self, stage: Stage, count: usize, random: &mut Random) -> [usize; 2] {
        let recorded = std::mem::take(&mut self.pair.recorded);
        self.pair.record = false;
        assert!(!recorded.is_empty(), "{stage:?}: nothing to mutate");
        let mut delivered = [0; 2];
        while delivered[0] + delivered[1] < count {
            let (from, datagram) = &recorded[random.below(recorded.len())];
            let mutated = mutate(random, datagram);
            if mutated == *datagram || is_believed(&mutated) {
                continue;
            }
            // Most datagrams go to their destination, some back to their sender.
            let to = if random.percent(95) {
                from.other()
            } else {
                *from
            };
            self.pair.deliver(to, &mutated, Some(random.below(4) as u8));
            delivered[usize::from(to == Who::Server)] += 1;
            if (delivered[0] + delivered[1]) % 500 == 0 {
                self.pair.exchange();
                assert!(
                    self.pair.server.endpoint.len() <= 1,
                    "{stage:?}: mutated datagrams have begun connections"
                );
            }
        }
        self.pair.exchange();
        delivered
    }

    /// Continues the connection from `stage` to its end.
    fn continue_to_end(mut self, stage: Stage) {
        self.mute(false, false);
        if matches!(
            stage,
            FirstFlight | Retry | ServerHandshaking | ClientConnected
        ) {
            self.finish_handshake();
        }
        if !matches!(stage, Closing | Draining | Forgotten) {
            self.transfer(LATER * 5);
            self.close();
        }
        if stage == Closing {
            // The close was lost. A closed endpoint repeats it when more packets arrive (RFC 9000 section 10.2.1).
            let key = self.key(Who::Server);
            let conn = self.pair.server.endpoint.connection(key).unwrap();
            conn.send_stream(1, Bytes::from_static(b"there?"), false)
                .unwrap();
        }
        self.pair.run_until_idle();
        let (_, _, _, kind) = self.pair.client.closed(self.client).unwrap();
        assert_eq!(kind, CloseKind::Local, "{stage:?}");
        let (code, _, reason, kind) = self.pair.server.closed(self.key(Who::Server)).unwrap();
        assert_eq!(kind, CloseKind::PeerApplication, "{stage:?}");
        assert_eq!((code, reason.as_str()), (7, "enough"));
    }
}

/// True for packets without authentication that change a connection before the server's first packet: a Version
/// Negotiation packet (RFC 9000 section 6.2), and any Retry, because quinn-proto counts one even if its tag is wrong.
fn is_believed(datagram: &[u8]) -> bool {
    let (Some(first), Some(version)) = (datagram.first(), datagram.get(1..5)) else {
        return false;
    };
    let retry = match version == VERSION_2.to_be_bytes() {
        true => 0x80,
        false => 0xb0,
    };
    first & 0xb0 == retry || version == [0; 4]
}

/// Changes, cuts, inserts and repeats bytes. Most mutations are in headers, on which most decisions depend.
fn mutate(random: &mut Random, datagram: &[u8]) -> Vec<u8> {
    let mut result = datagram.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(result.len().max(1));
        let head = random.below(result.len().clamp(1, 60));
        match random.below(7) {
            0 | 1 => set(&mut result, head, |_, value| value, random),
            2 => set(
                &mut result,
                head,
                |old, value| old ^ (1 << (value & 7)),
                random,
            ),
            3 => set(
                &mut result,
                at,
                |old, value| old ^ (1 << (value & 7)),
                random,
            ),
            4 => result.truncate(at),
            5 => result.splice(head..head, random.bytes(3)).for_each(drop),
            _ => result.extend_from_within(at..),
        }
    }
    result.truncate(65_527);
    result
}

fn set(bytes: &mut [u8], at: usize, change: fn(u8, u8) -> u8, random: &mut Random) {
    let value = random.next() as u8;
    if let Some(byte) = bytes.get_mut(at) {
        *byte = change(*byte, value);
    }
}

/// The number of mutated datagrams.
pub fn wanted() -> usize {
    let text = std::env::var("MUTATED").unwrap_or(MUTATED.into());
    text.parse().expect("MUTATED is a number")
}

#[test]
fn mutated_datagrams_change_no_connection() {
    let mut random = Random::new(0x6d75_7461);
    let mut delivered = [0; 2];
    let wanted = wanted();
    let each = wanted / STAGES.len() / VERSIONS.len();
    for (stage, versions) in STAGES
        .iter()
        .flat_map(|stage| VERSIONS.map(|v| (*stage, v)))
    {
        eprintln!("{stage:?} {versions:x?}"); // Shown when the test fails.
        let mut attack = Attack::at(stage, versions);
        let here = attack.attack(stage, each, &mut random);
        delivered = [delivered[0] + here[0], delivered[1] + here[1]];
        attack.continue_to_end(stage);
    }
    assert_eq!(delivered[0] + delivered[1], wanted);
    assert!(
        delivered.iter().all(|&count| count > wanted / 4),
        "{delivered:?}"
    );
}
