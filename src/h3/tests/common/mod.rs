//! Two HTTP/3 connections that are connected in memory, and encoders of wire formats for tests.

pub mod qpack;
pub mod violations;

use std::collections::VecDeque;

use bytes::Bytes;
use uringcore_h3::frame_header::FrameHeader;
use uringcore_h3::{Code, Event, Output, QueuedConnection, Role, Settings, varint};

/// The client's unidirectional streams: control, QPACK encoder, QPACK decoder.
pub const CLIENT_UNI: [u64; 3] = [2, 6, 10];
pub const SERVER_UNI: [u64; 3] = [3, 7, 11];

/// How the bytes of one output are passed to the other side: at once or one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feed {
    Whole,
    ByteByByte,
}

/// A client and a server that exchange their outputs without a network.
pub struct Pair {
    pub client: QueuedConnection,
    pub server: QueuedConnection,
    pub feed: Feed,
    /// The stream whose data the test holds back. The next field has that data.
    pub held_stream: Option<u64>,
    held: VecDeque<Output>,
}

impl Pair {
    pub fn new(feed: Feed) -> Self {
        Self::with_settings(feed, Settings::default(), Settings::default())
    }

    /// Makes a pair whose client's QPACK encoder may block streams.
    pub fn blocking(feed: Feed) -> Self {
        let client = Settings {
            qpack_may_block: true,
            ..Settings::default()
        };
        Self::with_settings(feed, client, Settings::default())
    }

    pub fn with_settings(feed: Feed, client: Settings, server: Settings) -> Self {
        let mut pair = Self {
            client: QueuedConnection::new(Role::Client, client, CLIENT_UNI),
            server: QueuedConnection::new(Role::Server, server, SERVER_UNI),
            feed,
            held_stream: None,
            held: VecDeque::new(),
        };
        pair.pump();
        assert_eq!(pair.client.poll_event(), Some(Event::SettingsReceived));
        assert_eq!(pair.server.poll_event(), Some(Event::SettingsReceived));
        pair
    }

    /// Passes the output of each side to the other, until neither side has more.
    pub fn pump(&mut self) {
        loop {
            let mut moved = false;
            while let Some(output) = self.client.poll_output() {
                moved = true;
                if self.held_stream.is_some() && stream_of(&output) == self.held_stream {
                    self.held.push_back(output);
                } else {
                    deliver(&mut self.server, output, self.feed);
                }
            }
            while let Some(output) = self.server.poll_output() {
                moved = true;
                deliver(&mut self.client, output, self.feed);
            }
            if !moved {
                return;
            }
        }
    }

    /// Delivers the data that was held back.
    pub fn release(&mut self) {
        self.held_stream = None;
        while let Some(output) = self.held.pop_front() {
            deliver(&mut self.server, output, self.feed);
        }
        self.pump();
    }
}

fn stream_of(output: &Output) -> Option<u64> {
    match output {
        Output::Write { stream_id, .. } => Some(*stream_id),
        _ => None,
    }
}

pub fn deliver(to: &mut QueuedConnection, output: Output, feed: Feed) {
    match output {
        Output::Write {
            stream_id,
            data,
            fin,
        } => feed_stream(to, stream_id, &data, fin, feed),
        Output::Datagram { data } => to.handle_datagram(data),
        Output::ResetStream { stream_id, code } => to.handle_stream_reset(stream_id, code.0),
        Output::StopSending { stream_id, code } => to.handle_stop_sending(stream_id, code.0),
        Output::CloseConnection { code, reason } => panic!("closed with {code}: {reason}"),
    }
}

pub fn feed_stream(to: &mut QueuedConnection, stream_id: u64, data: &[u8], fin: bool, feed: Feed) {
    match feed {
        Feed::Whole => to.handle_stream_data(stream_id, Bytes::copy_from_slice(data), fin),
        Feed::ByteByByte => {
            for (index, byte) in data.iter().enumerate() {
                let last = index + 1 == data.len();
                to.handle_stream_data(stream_id, Bytes::copy_from_slice(&[*byte]), fin && last);
            }
            if data.is_empty() {
                to.handle_stream_data(stream_id, Bytes::new(), fin);
            }
        }
    }
}

/// Takes all events. Adjacent content events of one stream are joined, so that the size of pieces does not matter.
pub fn events(connection: &mut QueuedConnection) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    while let Some(event) = connection.poll_event() {
        match (joined.last_mut(), event) {
            (
                Some(Event::Data {
                    stream_id,
                    data,
                    fin,
                }),
                Event::Data {
                    stream_id: next_id,
                    data: next,
                    fin: next_fin,
                },
            ) if *stream_id == next_id && !*fin => {
                *data = [&data[..], &next[..]].concat().into();
                *fin = next_fin;
            }
            (
                Some(Event::WebTransportData {
                    stream_id,
                    data,
                    fin,
                    ..
                }),
                Event::WebTransportData {
                    stream_id: next_id,
                    data: next,
                    fin: next_fin,
                    ..
                },
            ) if *stream_id == next_id && !*fin => {
                *data = [&data[..], &next[..]].concat().into();
                *fin = next_fin;
            }
            (
                Some(Event::Headers { stream_id, fin, .. }),
                Event::Data {
                    stream_id: next_id,
                    data,
                    fin: true,
                },
            ) if *stream_id == next_id && data.is_empty() => {
                *fin = true;
            }
            (_, event) => joined.push(event),
        }
    }
    joined
}

pub fn outputs(connection: &mut QueuedConnection) -> Vec<Output> {
    std::iter::from_fn(|| connection.poll_output()).collect()
}

/// The error code of the connection's close command.
pub fn close_code(connection: &mut QueuedConnection) -> Option<Code> {
    outputs(connection)
        .into_iter()
        .find_map(|output| match output {
            Output::CloseConnection { code, .. } => Some(code),
            _ => None,
        })
}

pub fn frame(frame_type: u64, payload: &[u8]) -> Vec<u8> {
    [
        &FrameHeader::new(frame_type, payload.len() as u64)[..],
        payload,
    ]
    .concat()
}

pub fn varints(values: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    for &value in values {
        varint::put(&mut out, value);
    }
    out
}

/// Encodes a field section of literals, without references to tables.
pub fn literal_section(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = vec![0, 0];
    for (name, value) in fields {
        uringcore_h3::qpack::prefixed_integer::put(&mut out, 0x20, 3, name.len() as u64);
        out.extend_from_slice(name.as_bytes());
        uringcore_h3::qpack::prefixed_integer::put(&mut out, 0, 7, value.len() as u64);
        out.extend_from_slice(value.as_bytes());
    }
    out
}

pub fn headers_frame(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(0x1, &literal_section(fields))
}

pub const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "example.com"),
    (":path", "/"),
];

pub fn fields(list: &[(&str, &str)]) -> Vec<(Bytes, Bytes)> {
    list.iter()
        .map(|(name, value)| {
            (
                Bytes::copy_from_slice(name.as_bytes()),
                Bytes::copy_from_slice(value.as_bytes()),
            )
        })
        .collect()
}
