//! A request's header section in the terms of any HTTP version: method, target and fields.
//!
//! HTTP/3 has validated it, so it is never malformed (RFC 9114 section 4.3.1).

use bytes::{BufMut, Bytes, BytesMut};
use uringcore_h3::Field;
use uringcore_h3::capsule::Capsules;
use uringcore_h3::qpack::FIELD_OVERHEAD;

use super::datagram::Datagrams;
use crate::webtransport;

/// A request for the application. The fields are those that HTTP/1.1 would have: `host` for the authority, one
/// `cookie`, no pseudo-header fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Head {
    pub method: Bytes,
    /// Path and query, or `*`. For a CONNECT, the authority.
    pub target: Bytes,
    pub fields: Vec<Field>,
    /// The protocol of an extended CONNECT (RFC 9220) other than WebSocket, which defines the content.
    pub protocol: Option<Bytes>,
    /// The request opens a WebSocket (RFC 9220): its content is the client's frames, the content of a 2xx
    /// response ours.
    pub is_websocket: bool,
    /// The request asks for a WebTransport session (draft-ietf-webtrans-http3 section 3.2).
    pub is_webtransport: bool,
    /// The request uses the newer protocol name of WebTransport.
    pub(super) names_h3: bool,
    /// The request arrived as 0-RTT data, and the handshake is not complete: an attacker can replay it.
    pub is_early: bool,
}

/// A well-formed request that is answered without the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub detail: &'static str,
}

impl Head {
    /// The size of its fields, as SETTINGS_MAX_FIELD_SECTION_SIZE counts them (RFC 9114 section 4.2.2).
    pub fn size(&self) -> usize {
        let sizes = self.fields.iter();
        let sizes = sizes.map(|(name, value)| name.len() + value.len() + FIELD_OVERHEAD);
        sizes.sum::<usize>() + self.target.len()
    }

    /// `protocols`: those that the host supports.
    pub(super) fn read(section: Vec<Field>, protocols: &[Bytes]) -> (Self, Option<Refusal>) {
        let mut head = Self {
            fields: Vec::with_capacity(section.len()),
            ..Self::default()
        };
        let mut authority = None;
        let mut has_host = false;
        let mut cookie: Option<Cookie> = None;
        let mut has_early_data = false;
        let mut refusal = None;
        for (name, value) in section {
            match &*name {
                b":method" => head.method = value,
                b":path" => head.target = value,
                b":authority" => authority = Some(value),
                // The scheme is only the client's claim. Applications rely on it, for secure cookies for example,
                // so they get the connection's scheme. Some clients send "http" for a URL of another scheme.
                b":scheme" if is_web(&value) => {}
                b":scheme" => refusal = Some(Refusal::new(400, "the scheme is not https")),
                b":protocol" if protocols.contains(&value) => {
                    head.is_websocket = &*value == WEBSOCKET;
                    head.protocol = (!head.is_websocket).then_some(value);
                }
                b":protocol" if webtransport::is_token(&value) => {
                    head.is_webtransport = true;
                    head.names_h3 = webtransport::names_h3(&value);
                }
                b":protocol" => {
                    refusal = Some(Refusal::new(501, "the protocol is not supported"));
                }
                // RFC 9114 section 4.2.1: joined into one field for anything but HTTP/2 or 3.
                b"cookie" => match &mut cookie {
                    None => cookie = Some(Cookie::One(value)),
                    Some(cookie) => cookie.add(&value),
                },
                // RFC 8470 section 5.1: every value counts as 1, and so do repeated fields.
                b"early-data" => has_early_data = true,
                _ => {
                    has_host |= &*name == b"host";
                    head.fields.push((name, value));
                }
            }
        }
        if head.is_websocket {
            // RFC 6455 section 4.2.1, which RFC 8441 section 5 keeps.
            if head
                .field(b"sec-websocket-version")
                .is_none_or(|version| version != "13")
            {
                refusal = Some(Refusal::new(400, "sec-websocket-version is not 13"));
            }
        } else if &*head.method == b"CONNECT" && head.protocol.is_none() && !head.is_webtransport {
            head.target = authority.unwrap_or_default();
            let plain = Refusal::new(501, "CONNECT is not supported");
            return (head, Some(refusal.unwrap_or(plain)));
        }
        if let (Some(authority), false) = (authority, has_host) {
            // RFC 9114 section 4.3.1: in HTTP/1.1's terms, the authority is the Host.
            head.fields
                .insert(0, (Bytes::from_static(b"host"), authority));
        }
        if has_early_data {
            head.add_early_data();
        }
        if let Some(cookie) = cookie {
            head.fields
                .push((Bytes::from_static(b"cookie"), cookie.finish()));
        }
        let is_absolute = head.target.first() == Some(&b'/') || &*head.target == b"*";
        if !is_absolute {
            refusal = refusal.or(Some(Refusal::new(400, "the path is not absolute")));
        } else if !head.target.is_ascii() {
            refusal = refusal.or(Some(Refusal::new(400, "the path is not ASCII")));
        }
        (head, refusal)
    }

    /// True if it is safe to repeat: a safe method (RFC 9110 section 9.2.1).
    pub(super) fn may_be_repeated(&self) -> bool {
        matches!(&*self.method, b"GET" | b"HEAD" | b"OPTIONS")
    }

    /// RFC 8470 section 5.1: the application can answer 425, like a server behind a gateway.
    pub(super) fn mark_early(&mut self) {
        self.is_early = true;
        if self.field(b"early-data").is_none() {
            self.add_early_data();
        }
    }

    fn add_early_data(&mut self) {
        let line = (Bytes::from_static(b"early-data"), Bytes::from_static(b"1"));
        self.fields.push(line);
    }

    /// True if HTTP datagrams may belong to it (RFC 9297 section 2), and its content consists of capsules: it has
    /// the field for that (section 3.4), or its protocol's RFC requires it (RFC 9298 section 3.2).
    pub(super) fn datagrams(&self) -> Datagrams {
        match self.protocol.as_deref() {
            None => Datagrams::None,
            Some(b"connect-udp") => Datagrams::Capsules(Capsules::default()),
            Some(_) => match self
                .field(b"capsule-protocol")
                .map(|value| value.trim_ascii())
            {
                Some(b"?1") => Datagrams::Capsules(Capsules::default()),
                Some([b'?', b'1', b';', ..]) => Datagrams::Capsules(Capsules::default()),
                _ => Datagrams::Frames,
            },
        }
    }

    /// True if a proxy may have added the client's address.
    pub fn is_forwarded(&self) -> bool {
        let mut names = self.fields.iter().map(|(name, _)| name);
        names.any(|name| name.starts_with(b"x-forwarded-"))
    }

    /// The first field of that name.
    pub fn field(&self, name: &[u8]) -> Option<&Bytes> {
        let found = self.fields.iter().find(|(known, _)| &**known == name);
        found.map(|(_, value)| value)
    }
}

impl Refusal {
    pub const fn new(status: u16, detail: &'static str) -> Self {
        Self { status, detail }
    }

    /// True if the client could have avoided it: all but 425, after which it sends the request again.
    pub fn is_a_fault(&self) -> bool {
        self.status != 425
    }
}

enum Cookie {
    One(Bytes),
    Several(BytesMut),
}

impl Cookie {
    fn add(&mut self, value: &[u8]) {
        if let Self::One(first) = self {
            *self = Self::Several(BytesMut::from(&**first));
        }
        if let Self::Several(all) = self {
            all.put_slice(b"; ");
            all.put_slice(value);
        }
    }

    fn finish(self) -> Bytes {
        match self {
            Self::One(value) => value,
            Self::Several(all) => all.freeze(),
        }
    }
}

fn is_web(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

pub(super) const WEBSOCKET: &[u8] = b"websocket";
