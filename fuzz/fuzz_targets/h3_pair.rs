//! Invariant: of two connections of ours, each accepts everything that the other accepted to send.
//! The exception is content where HTTP allows none: the sender does not check it, and this target
//! does not send it. If a byte was changed on the way, neither connection panics, writes after it
//! has closed, or keeps a stream then.

#![no_main]

use std::collections::BTreeSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::{Event, Output, QueuedConnection, Role, Settings};

fuzz_target!(|data: &[u8]| {
    let [options, script @ ..] = data else { return };
    let mut pair = Pair::new(*options);
    for step in script.chunks(3) {
        let [kind, a, b] = *step else { break };
        pair.step(kind, a, b);
        if pair.changed && pair.ends.iter().any(|end| end.closed) {
            return;
        }
    }
    pair.carry();
    for end in &pair.ends {
        assert!(pair.changed || !end.closed);
    }
});

struct End {
    connection: QueuedConnection,
    closed: bool,
    /// Streams on which nothing more arrives: QUIC delivers nothing after a FIN or a reset.
    over: BTreeSet<u64>,
}

struct Pair {
    /// The client and the server.
    ends: [End; 2],
    /// The change to the next delivered bytes: its position and its value.
    change: Option<(u8, u8)>,
    changed: bool,
    byte_by_byte: bool,
    next_request: u64,
    next_push: u64,
    /// Streams whose response has no content: to HEAD, or with a status that excludes content.
    without_content: BTreeSet<u64>,
}

impl Pair {
    fn new(options: u8) -> Self {
        let settings = Settings {
            max_field_section_size: 400,
            max_fields: 8,
            qpack_max_table_capacity: 256,
            qpack_blocked_streams: 2,
            qpack_may_block: options & 1 != 0,
            enable_connect_protocol: true,
            max_push_id: (options & 4 != 0).then_some(3),
            max_requests: Some(100),
            ..Settings::default()
        };
        let end = |role, uni| End {
            connection: QueuedConnection::new(role, settings.clone(), uni),
            closed: false,
            over: BTreeSet::new(),
        };
        let mut ends = [end(Role::Client, [2, 6, 10]), end(Role::Server, [3, 7, 11])];
        ends[1]
            .connection
            .set_answers_large_requests(options & 8 != 0);
        let mut pair = Self {
            ends,
            change: None,
            changed: false,
            byte_by_byte: options & 2 != 0,
            next_request: 0,
            next_push: 15,
            without_content: BTreeSet::new(),
        };
        pair.carry();
        pair
    }

    /// Performs one application call, or carries its output. A rejected call changes nothing.
    fn step(&mut self, kind: u8, a: u8, b: u8) {
        let stream_id = match a & 0x40 {
            0 => u64::from(a % 8) * 4,
            _ => 15 + u64::from(a % 4) * 4,
        };
        let fin = b & 1 != 0;
        let value = "v".repeat(usize::from(b >> 2) * 4);
        let extra = ("x-same", value.as_str());
        let [client, server] = &mut self.ends;
        match kind % 12 {
            0 => {
                let method = ["GET", "POST", "HEAD", "PUT"][usize::from(a & 3)];
                let list = [
                    (":method", method),
                    (":scheme", "https"),
                    (":authority", "a"),
                    (":path", "/"),
                    extra,
                ];
                if client
                    .connection
                    .send_headers(self.next_request, &list, fin)
                    .is_ok()
                {
                    if method == "HEAD" {
                        self.without_content.insert(self.next_request);
                    }
                    self.next_request += 4;
                }
            }
            1 => {
                let list = [(":method", "CONNECT"), (":authority", "a:1")];
                if client
                    .connection
                    .send_headers(self.next_request, &list, fin)
                    .is_ok()
                {
                    self.next_request += 4;
                }
            }
            2 => drop(client.connection.send_headers(stream_id, &[extra], fin)),
            3 => drop(server.connection.send_headers(stream_id, &[extra], fin)),
            4 => {
                let status = ["200", "103", "204", "404"][usize::from(b & 3)];
                let list = [(":status", status), extra];
                let sent = server.connection.send_headers(stream_id, &list, false);
                if sent.is_ok() && status == "204" {
                    self.without_content.insert(stream_id);
                }
            }
            5 | 6 => {
                let is_server = kind & 1 == 1;
                let end = &mut self.ends[usize::from(is_server)];
                let value = match is_server && self.without_content.contains(&stream_id) {
                    true => String::new(),
                    false => value,
                };
                let content = Bytes::from(value.into_bytes());
                drop(end.connection.send_data(stream_id, content, fin));
            }
            7 => {
                let end = &mut self.ends[usize::from(b & 1)];
                match b & 2 {
                    0 => end.connection.cancel_request(stream_id, 0x10c),
                    _ => end.connection.stop_receiving(stream_id, 0x100),
                }
            }
            8 => {
                let push = self.next_push;
                let method = ["GET", "HEAD", "POST", "GET"][usize::from(b >> 1 & 3)];
                let list = [
                    (":method", method),
                    (":scheme", "https"),
                    (":authority", "a"),
                    (":path", "/p"),
                ];
                let promised = server.connection.send_push_promise(stream_id, push, &list);
                if promised.is_ok() {
                    self.next_push += 4;
                    let response = match method {
                        "HEAD" => &[(":status", "200"), ("content-length", "7")][..],
                        _ => &[(":status", "200")],
                    };
                    if method == "HEAD" {
                        self.without_content.insert(push);
                    }
                    drop(server.connection.send_headers(push, response, fin));
                }
            }
            9 => {
                let end = &mut self.ends[usize::from(b & 1)];
                let id = end.connection.next_goaway_id();
                drop(end.connection.send_goaway(id));
            }
            10 => self.change = Some((a, b)),
            _ => self.carry(),
        }
    }

    /// Carries all data until both ends are idle.
    fn carry(&mut self) {
        loop {
            let mut moved = false;
            for from in [0, 1] {
                while let Some(output) = self.ends[from].connection.poll_output() {
                    moved = true;
                    assert!(!self.ends[from].closed, "{output:?} after the close");
                    self.deliver(from, output);
                }
                while let Some(event) = self.ends[from].connection.poll_event() {
                    let is_fault = matches!(event, Event::Reset { local: true, .. });
                    assert!(self.changed || !is_fault, "{event:?}");
                }
            }
            if !moved {
                return;
            }
        }
    }

    fn deliver(&mut self, from: usize, output: Output) {
        match output {
            Output::Write {
                stream_id,
                data,
                fin,
            } => self.deliver_data(from, stream_id, &data, fin),
            Output::Datagram { data } => self.ends[1 - from].connection.handle_datagram(data),
            Output::ResetStream { stream_id, code } => {
                let to = &mut self.ends[1 - from];
                if to.over.insert(stream_id) {
                    to.connection.handle_stream_reset(stream_id, code.0);
                }
            }
            Output::StopSending { stream_id, code } => {
                // The receiver of a STOP_SENDING resets the stream by itself (RFC 9000 section
                // 3.5), unless it ended.
                self.ends[1 - from]
                    .connection
                    .handle_stop_sending(stream_id, code.0);
                let asking = &mut self.ends[from];
                if asking.over.insert(stream_id) {
                    asking.connection.handle_stream_reset(stream_id, code.0);
                }
            }
            Output::CloseConnection { code, reason } => {
                assert!(self.changed, "{code}: {reason}");
                let end = &mut self.ends[from];
                end.closed = true;
                assert_eq!(end.connection.open_requests(), 0);
            }
        }
    }

    fn deliver_data(&mut self, from: usize, stream_id: u64, data: &[u8], fin: bool) {
        let mut data = data.to_vec();
        if !data.is_empty()
            && let Some((at, with)) = self.change.take()
            && with != 0
        {
            let at = usize::from(at) % data.len();
            data[at] ^= with;
            self.changed = true;
        }
        let to = &mut self.ends[1 - from];
        if to.over.contains(&stream_id) {
            return;
        }
        if fin {
            to.over.insert(stream_id);
        }
        if !self.byte_by_byte || data.is_empty() {
            to.connection
                .handle_stream_data(stream_id, data.into(), fin);
            return;
        }
        let last = data.len() - 1;
        for (index, &byte) in data.iter().enumerate() {
            let piece = Bytes::copy_from_slice(&[byte]);
            to.connection
                .handle_stream_data(stream_id, piece, fin && index == last);
        }
    }
}
