//! Converts the header section of an HTTP/3 request to a head in the terms of any HTTP version.
//!
//! `h3` has validated the header section, so it is well-formed (RFC 9114 section 4.3.1).

use bytes::{BufMut, Bytes, BytesMut};
use uringcore_h3::Field;
use uringcore_h3::capsule::Capsules;

use super::http_datagram::Datagrams;
use crate::request_head::Head;
use crate::response_errors::Refusal;
use crate::webtransport;

impl Head {
    /// Makes the head from a header section. `protocols` are the `:protocol` values that the host supports.
    pub(crate) fn read(section: Vec<Field>, protocols: &[Bytes]) -> (Self, Option<Refusal>) {
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
                // The scheme is ignored, because the client may send any. Applications rely on it, for example for
                // secure cookies, so they get the scheme of the connection. Some clients send "http" for a URL of
                // another scheme.
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
                // RFC 9114 section 4.2.1: several cookie lines are joined to one for anything but HTTP/2 and HTTP/3.
                b"cookie" => match &mut cookie {
                    None => cookie = Some(Cookie::One(value)),
                    Some(cookie) => cookie.add(&value),
                },
                // RFC 8470 section 5.1: any value, and several lines, mean 1.
                b"early-data" => has_early_data = true,
                _ => {
                    has_host |= &*name == b"host";
                    head.fields.push((name, value));
                }
            }
        }
        if head.is_websocket {
            // RFC 6455 section 4.2.1 requires this version, also over HTTP/3 (RFC 8441 section 5).
            let mut versions = head
                .fields
                .iter()
                .filter(|(name, _)| &**name == b"sec-websocket-version")
                .map(|(_, value)| value);
            if versions.next().is_none_or(|version| version != "13") || versions.next().is_some() {
                refusal = Some(Refusal::new(400, "sec-websocket-version is not 13"));
            }
        } else if &*head.method == b"CONNECT" && head.protocol.is_none() && !head.is_webtransport {
            head.target = authority.unwrap_or_default();
            let plain = Refusal::new(501, "CONNECT is not supported");
            return (head, Some(refusal.unwrap_or(plain)));
        }
        if let (Some(authority), false) = (authority, has_host) {
            // RFC 9114 section 4.3.1: in HTTP/1.1 the authority is the value of Host.
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

    /// True if the request is safe to repeat: its method is safe (RFC 9110 section 9.2.1).
    pub(crate) fn may_be_repeated(&self) -> bool {
        matches!(&*self.method, b"GET" | b"HEAD" | b"OPTIONS")
    }

    /// Marks a request that arrived in 0-RTT data. The application gets `early-data: 1`, as it would from a gateway,
    /// and may answer 425 (RFC 8470 section 5.1).
    pub(crate) fn mark_early(&mut self) {
        self.is_early = true;
        if self.field(b"early-data").is_none() {
            self.add_early_data();
        }
    }

    fn add_early_data(&mut self) {
        let line = (Bytes::from_static(b"early-data"), Bytes::from_static(b"1"));
        self.fields.push(line);
    }

    /// The encodings of datagrams that belong to the request (RFC 9297 section 2). Its content consists of capsules if
    /// it has the capsule-protocol field (section 3.4), or if the RFC of its protocol requires them (RFC 9298 section
    /// 3.2).
    pub(crate) fn datagrams(&self) -> Datagrams {
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

pub(crate) const WEBSOCKET: &[u8] = b"websocket";
