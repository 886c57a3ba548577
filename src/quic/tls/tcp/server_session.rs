//! One connection of a server: handshake, records and closure.

use std::fmt;

use bytes::{Buf, BytesMut};
use rustls::{
    HandshakeKind, ProtocolVersion,
    server::{ServerConnectionData, UnbufferedServerConnection},
    unbuffered::{
        ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
    },
};

use super::TcpServerSetup;

/// One connection. Each method that may produce records appends them to its argument `records`, and the caller sends
/// them in this order.
pub struct ServerSession {
    tls: Box<UnbufferedServerConnection>,
    /// Received bytes of an incomplete record or handshake message, in a buffer that is at most about twice as large.
    incoming: BytesMut,
    has_client_auth: bool,
    has_peer_closed: bool,
    has_closed: bool,
    has_failed: bool,
    /// The keys may encrypt no further record (TLS 1.2 cannot change them).
    is_exhausted: bool,
}

/// The reason for which a connection has ended. The alert for the client is among the records.
#[derive(Debug, Clone)]
pub struct Failure(rustls::Error);

/// The parameters on which both sides have agreed.
#[derive(Debug, Clone, Copy)]
pub struct Negotiated {
    /// The number of the TLS version, such as 0x0304.
    pub version: u16,
    /// The number of the cipher suite in the IANA registry.
    pub cipher_suite: u16,
    pub is_resumed: bool,
    /// The number of the group of the key exchange in the IANA registry. `None` for a session of TLS 1.2 that was
    /// resumed, which has no key exchange.
    pub group: Option<u16>,
}

impl ServerSession {
    pub fn new(setup: &TcpServerSetup) -> Result<Self, Failure> {
        let tls = UnbufferedServerConnection::new(setup.config.clone()).map_err(Failure)?;
        Ok(Self {
            tls: Box::new(tls),
            incoming: BytesMut::new(),
            has_client_auth: setup.has_client_auth,
            has_peer_closed: false,
            has_closed: false,
            has_failed: false,
            is_exhausted: false,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    /// True if the client has sent close_notify. What it sends afterwards is ignored.
    pub fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    /// The memory for bytes that wait for the rest of a record or handshake message.
    pub fn incoming_bytes(&self) -> usize {
        self.incoming.capacity()
    }

    /// The application protocol on which both sides have agreed.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.tls.alpn_protocol()
    }

    /// The client's certificate chain in DER, leaf first. Empty if the client has sent none.
    pub fn client_chain(&self) -> impl Iterator<Item = &[u8]> {
        let chain = self.tls.peer_certificates().unwrap_or_default();
        chain.iter().map(AsRef::as_ref)
    }

    /// `None` before the end of the handshake.
    pub fn negotiated(&self) -> Option<Negotiated> {
        Some(Negotiated {
            version: match self.tls.protocol_version()? {
                ProtocolVersion::TLSv1_3 => 0x0304,
                _ => 0x0303,
            },
            cipher_suite: self.tls.negotiated_cipher_suite()?.suite().into(),
            is_resumed: self.tls.handshake_kind() == Some(HandshakeKind::Resumed),
            group: self
                .tls
                .negotiated_key_exchange_group()
                .map(|group| group.name().into()),
        })
    }

    /// Reads bytes of the client. Appends the decrypted data to `plain`.
    pub fn handle_input(
        &mut self,
        data: BytesMut,
        plain: &mut BytesMut,
        records: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.has_failed || self.has_peer_closed {
            return Ok(());
        }
        match self.incoming.is_empty() {
            true => self.incoming = data,
            false => self.incoming.extend_from_slice(&data),
        }
        let received = self.incoming.len();
        let outcome = self.process(plain, records);
        let rest = self.incoming.len();
        if rest < received || self.incoming.capacity() / 2 > rest {
            // The buffer of all that was received is much larger than a rest. An idle connection keeps no buffer.
            self.incoming = BytesMut::from(&self.incoming[..]);
        }
        let incoming_max = match self.has_client_auth || !self.is_handshaking() {
            true => INCOMING_MAX,
            false => HELLO_MAX,
        };
        let is_too_long = self.incoming.len() > incoming_max;
        let outcome = match outcome {
            Ok(()) if is_too_long => Err(rustls::Error::General("a message is too long".into())),
            outcome => outcome,
        };
        outcome.map_err(|error| {
            self.has_failed = true;
            self.drain_alerts(records);
            self.incoming = BytesMut::new();
            Failure(error)
        })
    }

    /// Encrypts `pieces`. Small pieces share a record. Does nothing after [`close`](Self::close) or after a failure of
    /// received bytes.
    ///
    /// If this fails, a part of the data is lost, and each later call fails. The caller has to end the connection
    /// without close_notify, which would tell the client that its data is complete.
    pub fn encrypt<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        records: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if self.has_closed || self.has_failed {
            return Ok(());
        }
        if self.is_exhausted {
            return Err(Failure(rustls::Error::EncryptError));
        }
        let written = self.with_traffic(records, |traffic, records| {
            let mut short = Vec::new();
            for mut piece in pieces {
                if short.is_empty() {
                    let whole = piece.len() - piece.len() % RECORD_BYTES_MAX;
                    encrypt_piece(traffic, &piece[..whole], records)?;
                    piece = &piece[whole..];
                }
                while !piece.is_empty() {
                    let room = RECORD_BYTES_MAX - short.len();
                    let (now, later) = piece.split_at(room.min(piece.len()));
                    short.extend_from_slice(now);
                    piece = later;
                    if short.len() == RECORD_BYTES_MAX {
                        encrypt_piece(traffic, &short, records)?;
                        short.clear();
                    }
                }
            }
            encrypt_piece(traffic, &short, records)
        });
        match written {
            Some(Ok(())) => Ok(()),
            Some(Err(_)) => {
                self.is_exhausted = true;
                Err(Failure(rustls::Error::EncryptError))
            }
            None => Err(Failure(rustls::Error::HandshakeNotComplete)),
        }
    }

    /// Ends this side with close_notify (RFC 8446 section 6.1). Before the end of the handshake, there is nothing to
    /// close.
    pub fn close(&mut self, records: &mut Vec<u8>) {
        let cannot_close = self.has_failed || self.is_exhausted;
        if cannot_close || std::mem::replace(&mut self.has_closed, true) {
            return;
        }
        // No data can follow, so an error has no consequence.
        let _ = self.with_traffic(records, |traffic, records| {
            fill(records, ALERT_BYTES_MAX, |room| {
                traffic.queue_close_notify(room)
            })
        });
    }

    fn process(
        &mut self,
        plain: &mut BytesMut,
        records: &mut Vec<u8>,
    ) -> Result<(), rustls::Error> {
        loop {
            let (discard, outcome) = self.step(plain, records);
            self.incoming.advance(discard);
            if !outcome? {
                return Ok(());
            }
        }
    }

    /// Processes one record at most. Returns the number of bytes that are not needed any more, and false if nothing is
    /// left to do.
    fn step(
        &mut self,
        plain: &mut BytesMut,
        records: &mut Vec<u8>,
    ) -> (usize, Result<bool, rustls::Error>) {
        let UnbufferedStatus { discard, state } = self.tls.process_tls_records(&mut self.incoming);
        match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    match record {
                        Ok(record) => plain.extend_from_slice(record.payload),
                        Err(error) => return (discard, Err(error)),
                    }
                }
            }
            Ok(ConnectionState::EncodeTlsData(message)) => encode(message, records),
            Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
            Ok(ConnectionState::PeerClosed) => self.has_peer_closed = true,
            Ok(_) => return (discard, Ok(false)),
            Err(error) => return (discard, Err(error)),
        }
        (discard, Ok(true))
    }

    /// Calls `run` if data may be sent now. First appends the records that must precede the data, such as a
    /// KeyUpdate.
    fn with_traffic<R>(
        &mut self,
        records: &mut Vec<u8>,
        run: impl FnOnce(&mut WriteTraffic<'_, ServerConnectionData>, &mut Vec<u8>) -> R,
    ) -> Option<R> {
        loop {
            // All complete records were processed when they came, so these bytes produce no data here.
            let UnbufferedStatus { state, .. } = self.tls.process_tls_records(&mut self.incoming);
            match state {
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    return Some(run(&mut traffic, records));
                }
                Ok(ConnectionState::EncodeTlsData(message)) => encode(message, records),
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                Ok(ConnectionState::PeerClosed) => self.has_peer_closed = true,
                Ok(_) | Err(_) => return None,
            }
        }
    }

    /// Appends the alert of a failure. rustls remembers places of the bytes that it has not discarded, so these must
    /// still be there. After the alert, it would read them again, and an assertion of its debug builds would fail.
    fn drain_alerts(&mut self, records: &mut Vec<u8>) {
        loop {
            let UnbufferedStatus { discard, state } =
                self.tls.process_tls_records(&mut self.incoming);
            match state {
                Ok(ConnectionState::EncodeTlsData(message)) => {
                    let end = records.len();
                    encode(message, records);
                    if is_alert(&records[end..]) {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(sent)) => sent.done(),
                _ => return,
            }
            self.incoming.advance(discard);
        }
    }
}

/// Appends a message that the handshake or an alert has produced.
fn encode(mut message: EncodeTlsData<'_, ServerConnectionData>, records: &mut Vec<u8>) {
    let end = records.len();
    let needed = match message.encode(&mut []) {
        Err(EncodeError::InsufficientSize(error)) => error.required_size,
        Ok(_) | Err(EncodeError::AlreadyEncoded) => return,
    };
    records.resize(end + needed, 0);
    let written = message.encode(&mut records[end..]).unwrap_or(0);
    records.truncate(end + written);
}

/// True if this record of the server contains an alert. An encrypted record of TLS 1.3 does not show its content type,
/// but no other message is as short.
fn is_alert(record: &[u8]) -> bool {
    record.first() == Some(&ALERT) || record.len() == ENCRYPTED_ALERT_BYTES
}

fn encrypt_piece(
    traffic: &mut WriteTraffic<'_, ServerConnectionData>,
    piece: &[u8],
    records: &mut Vec<u8>,
) -> Result<(), EncryptError> {
    if piece.is_empty() {
        return Ok(());
    }
    let number = piece.len().div_ceil(RECORD_BYTES_MAX);
    fill(records, piece.len() + number * OVERHEAD_BYTES, |room| {
        traffic.encrypt(piece, room)
    })
}

/// Appends the output of `write`, which gets room for `expected` bytes, and more if it requires that.
fn fill(
    records: &mut Vec<u8>,
    expected: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), EncryptError> {
    let end = records.len();
    records.resize(end + expected, 0);
    let written = match write(&mut records[end..]) {
        Err(EncryptError::InsufficientSize(error)) => {
            records.resize(end + error.required_size, 0);
            write(&mut records[end..])
        }
        written => written,
    };
    records.truncate(end + *written.as_ref().unwrap_or(&0));
    written.map(drop)
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failure {}

impl fmt::Debug for ServerSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerSession")
            .field("is_handshaking", &self.is_handshaking())
            .finish_non_exhaustive()
    }
}

/// The largest fragment of a record (RFC 8446 section 5.1).
const RECORD_BYTES_MAX: usize = 1 << 14;
/// A record's header, explicit nonce (TLS 1.2), content type (TLS 1.3) and tag, rounded up.
const OVERHEAD_BYTES: usize = 32;
/// The content type of alerts (RFC 8446 section 5.1).
const ALERT: u8 = 21;
/// The size of a TLS 1.3 record with an alert: the header, two bytes, their content type, and the tag.
const ENCRYPTED_ALERT_BYTES: usize = 5 + 2 + 1 + 16;
/// An encrypted alert, rounded up.
const ALERT_BYTES_MAX: usize = 64;
/// Received bytes that may wait in a handshake without a client certificate. A ClientHello has some KiB at most.
const HELLO_MAX: usize = 16 << 10;
/// Received bytes that may wait: a handshake message of 64 KiB, which rustls accepts at most, in records of any size
/// that a client has a reason for, and one more record.
const INCOMING_MAX: usize = 128 << 10;
