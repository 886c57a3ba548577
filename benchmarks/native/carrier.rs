//! The carrier of the bulk loads' streams and datagrams: a plain QUIC connection, or a WebTransport
//! session.
//!
//! This client implements only the part of HTTP/3 and WebTransport that one session needs: SETTINGS
//! that offer every draft that servers support, the CONNECT request, and the headers of streams and
//! datagrams. Of the server's answer it reads only that the status is 200, so that the client costs
//! as little as possible.

use bytes::{Bytes, BytesMut};
use quinn::{Connection, ReadExactError, RecvStream, SendStream, VarInt};

use crate::Failure;

const CONTROL_STREAM: u64 = 0x00;
const SETTINGS_FRAME: u64 = 0x04;
const HEADERS_FRAME: u64 = 0x01;
const DATA_FRAME: u64 = 0x00;
const BIDIRECTIONAL: u64 = 0x41;
const UNIDIRECTIONAL: u64 = 0x54;
const CLOSE_SESSION: u64 = 0x2843;
/// Extended CONNECT, datagrams of RFC 9297 and of its draft, WebTransport of drafts 02, 07, 13 and 15.
const SETTINGS: [(u64, u64); 7] = [
    (0x08, 1),
    (0x33, 1),
    (0xff_d277, 1),
    (0x2b60_3742, 1),
    (0xc671_706a, 1),
    (0x14e9_cd29, 1),
    (0x2c7c_f000, 1),
];
/// Flow control of sessions. Without it the newest drafts allow one session at a time. The client
/// does not read its capsules: data in a session would use up the limits.
const FLOW_CONTROL: [(u64, u64); 3] = [(0x2b61, 1 << 30), (0x2b64, 1 << 16), (0x2b65, 1 << 16)];
/// `:protocol` of the newest drafts, and of the drafts before them.
const TOKENS: [&str; 2] = ["webtransport-h3", "webtransport"];
/// `:status: 200` in QPACK's static table, as an indexed field line.
const STATUS_200: u8 = 0xd9;

/// Cheap to clone.
#[derive(Clone)]
pub struct Carrier {
    connection: Connection,
    /// Precedes each stream.
    stream_header: Bytes,
    /// Precedes each datagram.
    datagram_header: Bytes,
}

impl Carrier {
    /// A carrier on the connection itself.
    #[must_use]
    pub fn raw(connection: Connection) -> Self {
        Self {
            connection,
            stream_header: Bytes::new(),
            datagram_header: Bytes::new(),
        }
    }

    pub async fn open_bi(&self) -> Result<(SendStream, RecvStream), Failure> {
        let (mut send, receive) = self.connection.open_bi().await?;
        if !self.stream_header.is_empty() {
            send.write_chunk(self.stream_header.clone()).await?;
        }
        Ok((send, receive))
    }

    pub async fn send_datagram(&self, data: &Bytes) -> Result<(), Failure> {
        if self.datagram_header.is_empty() {
            return Ok(self.connection.send_datagram_wait(data.clone()).await?);
        }
        let mut whole = BytesMut::with_capacity(self.datagram_header.len() + data.len());
        whole.extend_from_slice(&self.datagram_header);
        whole.extend_from_slice(data);
        Ok(self.connection.send_datagram_wait(whole.freeze()).await?)
    }

    pub async fn read_datagram(&self) -> Result<Bytes, Failure> {
        let mut whole = self.connection.read_datagram().await?;
        if !whole.starts_with(&self.datagram_header) {
            return Err("a datagram of another session".into());
        }
        Ok(whole.split_off(self.datagram_header.len()))
    }

    pub fn close(&self) {
        self.connection.close(VarInt::from_u32(0), b"done");
    }
}

/// HTTP/3 on a connection, for the connection's lifetime.
pub struct WebTransport {
    connection: Connection,
    authority: String,
    path: &'static str,
    token: &'static str,
    /// The client's control stream. Its end would end the connection.
    _control: SendStream,
}

impl WebTransport {
    /// Opens a first session, which shows the drafts that the server supports; more than one
    /// session need `many`.
    pub async fn new(
        connection: Connection,
        authority: String,
        path: &'static str,
        many: bool,
    ) -> Result<(Self, Session), Failure> {
        let mut control = connection.open_uni().await?;
        let mut settings = Vec::new();
        let flow_control = FLOW_CONTROL.iter().filter(|_| many);
        for &(name, value) in SETTINGS.iter().chain(flow_control) {
            put(&mut settings, name);
            put(&mut settings, value);
        }
        let mut head = Vec::new();
        put(&mut head, CONTROL_STREAM);
        put_frame(&mut head, SETTINGS_FRAME, &settings);
        control.write_all(&head).await?;
        let mut http = Self {
            connection,
            authority,
            path,
            token: TOKENS[0],
            _control: control,
        };
        if let Ok(session) = http.session().await {
            return Ok((http, session));
        }
        http.token = TOKENS[1];
        let session = http.session().await?;
        Ok((http, session))
    }

    /// Requests a session and waits for the response.
    pub async fn session(&self) -> Result<Session, Failure> {
        let (mut send, mut receive) = self.connection.open_bi().await?;
        let mut request = Vec::new();
        put_frame(
            &mut request,
            HEADERS_FRAME,
            &fields(&self.authority, self.path, self.token),
        );
        send.write_all(&request).await?;
        loop {
            let kind = read(&mut receive).await?;
            let mut content = vec![0; usize::try_from(read(&mut receive).await?)?];
            receive.read_exact(&mut content).await?;
            if kind == HEADERS_FRAME {
                // The section's prefix has two bytes.
                return match content.get(2) {
                    Some(&STATUS_200) => Ok(Session { send, receive }),
                    _ => Err(format!("the session was refused: {content:02x?}").into()),
                };
            }
        }
    }

    #[must_use]
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// A unidirectional stream in `session`.
    pub async fn open_uni(&self, session: &Session) -> Result<SendStream, Failure> {
        let mut send = self.connection.open_uni().await?;
        let mut header = Vec::new();
        put(&mut header, UNIDIRECTIONAL);
        put(&mut header, session.id());
        send.write_all(&header).await?;
        Ok(send)
    }

    /// The carrier of a session's streams and datagrams.
    #[must_use]
    pub fn carrier(&self, session: &Session) -> Carrier {
        let id = session.id();
        let (mut stream_header, mut datagram_header) = (Vec::new(), Vec::new());
        put(&mut stream_header, BIDIRECTIONAL);
        put(&mut stream_header, id);
        put(&mut datagram_header, id / 4);
        Carrier {
            connection: self.connection.clone(),
            stream_header: stream_header.into(),
            datagram_header: datagram_header.into(),
        }
    }
}

/// A session, which lasts as long as its CONNECT stream.
pub struct Session {
    send: SendStream,
    receive: RecvStream,
}

impl Session {
    fn id(&self) -> u64 {
        u64::from(VarInt::from(self.send.id()))
    }

    /// Closes the session with code 0 and waits until the server has ended its side.
    pub async fn close(mut self) -> Result<(), Failure> {
        let (mut capsule, mut frame) = (Vec::new(), Vec::new());
        put(&mut capsule, CLOSE_SESSION);
        put(&mut capsule, 4);
        capsule.extend_from_slice(&[0; 4]);
        put_frame(&mut frame, DATA_FRAME, &capsule);
        self.send.write_all(&frame).await?;
        self.send.finish()?;
        // A server may answer the close with a FIN or with a reset.
        while let Ok(Some(_)) = self.receive.read_chunk(1 << 16, true).await {}
        Ok(())
    }
}

/// Reads the header of a unidirectional stream and returns true if the stream belongs to a session;
/// the server's control and QPACK streams do not.
pub async fn is_of_session(stream: &mut RecvStream) -> Result<bool, Failure> {
    if read(stream).await? != UNIDIRECTIONAL {
        return Ok(false);
    }
    read(stream).await?;
    Ok(true)
}

/// The request's field section, of entries in QPACK's static table and of literals.
fn fields(authority: &str, path: &str, token: &str) -> Vec<u8> {
    // The prefix, `:method: CONNECT`, `:scheme: https`.
    let mut block = vec![0, 0, 0xcf, 0xd7];
    for (name, value) in [(0x50, authority), (0x51, path)] {
        block.push(name);
        put_text(&mut block, value);
    }
    for (name, value) in [
        (":protocol", token),
        ("sec-webtransport-http3-draft02", "1"),
    ] {
        // A literal name whose length does not fit its prefix of three bits.
        block.push(0x27);
        block.push(u8::try_from(name.len() - 7).expect("a short name"));
        block.extend_from_slice(name.as_bytes());
        put_text(&mut block, value);
    }
    block
}

/// A string whose length fits its prefix of seven bits.
fn put_text(block: &mut Vec<u8>, text: &str) {
    block.push(u8::try_from(text.len()).expect("a short text"));
    block.extend_from_slice(text.as_bytes());
}

fn put_frame(out: &mut Vec<u8>, kind: u64, content: &[u8]) {
    put(out, kind);
    put(out, content.len() as u64);
    out.extend_from_slice(content);
}

/// A variable-length integer (RFC 9000 section 16).
fn put(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    match value {
        0..0x40 => out.push(bytes[7]),
        0x40..0x4000 => out.extend_from_slice(&[bytes[6] | 0x40, bytes[7]]),
        0x4000..0x4000_0000 => {
            out.extend_from_slice(&[bytes[4] | 0x80, bytes[5], bytes[6], bytes[7]]);
        }
        _ => {
            out.push(bytes[0] | 0xc0);
            out.extend_from_slice(&bytes[1..]);
        }
    }
}

async fn read(stream: &mut RecvStream) -> Result<u64, ReadExactError> {
    let mut first = [0];
    stream.read_exact(&mut first).await?;
    let mut value = u64::from(first[0] & 0x3f);
    for _ in 1..1_u8 << (first[0] >> 6) {
        let mut next = [0];
        stream.read_exact(&mut next).await?;
        value = value << 8 | u64::from(next[0]);
    }
    Ok(value)
}
