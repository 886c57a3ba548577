//! Parses and checks a request's header section (RFC 9112 sections 3 and 5).

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};

use super::message_body_length::{Framing, LengthFields, trimmed};
use super::request_target::{Target, is_host};
use super::websocket_handshake::{Handshake, Key};
use crate::request_head::Head;
use crate::response_errors::Refusal;

/// A request line and its fields, with their meaning for the connection.
#[derive(Debug, Default)]
pub(super) struct Section {
    pub head: Head,
    pub is_http10: bool,
    pub framing: Framing,
    /// True if the client permits another request on the connection.
    pub keep_alive: bool,
    /// True if the client waits for the status 100 before it sends the content.
    pub expects_continue: bool,
    /// The client's key, present if the request opens a WebSocket.
    pub key: Option<Key>,
}

impl Section {
    /// Parses a complete section with `fields` field lines and its empty line. If the request is refused, the result
    /// has the parts that were parsed before the error.
    pub fn read(mut section: BytesMut, fields: usize, websockets: bool) -> (Self, Option<Refusal>) {
        lower_names(&mut section);
        let mut read = Self::default();
        let refusal = read.parse(&section.freeze(), fields, websockets).err();
        (read, refusal)
    }

    fn parse(&mut self, section: &Bytes, fields: usize, websockets: bool) -> Result<(), Refusal> {
        let mut few = [const { MaybeUninit::uninit() }; FEW_FIELDS];
        let mut many = Vec::new();
        let space = match fields {
            0..=FEW_FIELDS => &mut few[..],
            _ => {
                many.resize_with(fields, MaybeUninit::uninit);
                &mut many[..]
            }
        };
        let mut request = httparse::Request::new(&mut []);
        let parsed = request.parse_with_uninit_headers(section, space);
        if let Some(method) = request.method {
            self.head.method = known(&METHODS, method.as_bytes(), section);
        }
        match parsed {
            Ok(httparse::Status::Complete(size)) if size == section.len() => {}
            // The section is complete, so the parser has found its end at another position.
            Ok(_) => return Err(Refusal::new(400, "the header section is malformed")),
            Err(error) => return Err(fault(error, section)),
        }
        let target = section.slice_ref(request.path.unwrap_or_default().as_bytes());
        let target = Target::read(&self.head.method, &target).inspect_err(|_| {
            // The log shows the target of a refused request.
            self.head.target = target.clone();
        })?;
        self.is_http10 = request.version == Some(0);
        self.head.target = target.path;
        self.fields(section, request.headers, target.authority, websockets)
    }

    fn fields(
        &mut self,
        section: &Bytes,
        fields: &[httparse::Header<'_>],
        authority: Option<Bytes>,
        websockets: bool,
    ) -> Result<(), Refusal> {
        let mut lengths = LengthFields::default();
        let mut handshake = Handshake::default();
        let mut options = ConnectionOptions::default();
        let mut hosts = 0;
        let mut asks_websocket = false;
        self.head.fields = Vec::with_capacity(fields.len() + 1);
        for field in fields {
            let (name, value) = (field.name.as_bytes(), trimmed(field.value));
            let mut value = section.slice_ref(value);
            match name {
                b"host" => {
                    hosts += 1;
                    if !is_host(&value) {
                        return Err(Refusal::new(400, "the host is invalid"));
                    }
                    if let Some(authority) = &authority {
                        value = authority.clone();
                    }
                }
                b"content-length" => lengths.content_length(&value)?,
                b"transfer-encoding" => lengths.transfer_encoding(&value),
                b"connection" => options.add(&value),
                b"expect" => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
                b"upgrade" => asks_websocket |= has_option(&value, b"websocket"),
                b"sec-websocket-key" => handshake.key(&value),
                b"sec-websocket-version" => handshake.version(&value),
                _ => {}
            }
            self.head.fields.push((known(&NAMES, name, section), value));
        }
        match (hosts, authority) {
            (1, _) => {}
            // A request of HTTP/1.1 without Host is refused (RFC 9112 section 3.2).
            (0, _) if !self.is_http10 => return Err(Refusal::new(400, "there is no host")),
            (0, Some(authority)) => {
                let host = (Bytes::from_static(b"host"), authority);
                self.head.fields.insert(0, host);
            }
            (0, None) => {}
            _ => return Err(Refusal::new(400, "the host is repeated")),
        }
        self.framing = lengths.framing(self.is_http10)?;
        // The default depends on the version (RFC 9112 section 9.3).
        self.keep_alive = !options.close && (!self.is_http10 || options.keep_alive);
        // An expectation of HTTP/1.0 is ignored (RFC 9110 section 10.1.1), and a client without content does not wait.
        let has_content = !matches!(self.framing, Framing::None | Framing::Length(0));
        self.expects_continue &= !self.is_http10 && has_content;
        // An Upgrade of HTTP/1.0, or one that Connection does not name, is ignored (RFC 9110 section 7.8).
        if websockets && asks_websocket && options.upgrade && !self.is_http10 {
            self.key = Some(handshake.checked(&*self.head.method == b"GET" && !has_content)?);
            self.head.is_websocket = true;
        }
        Ok(())
    }
}

/// Returns a part of the section, or the equal one of `frequent` words, which takes no reference to the section.
fn known(frequent: &[&'static [u8]], part: &[u8], section: &Bytes) -> Bytes {
    match frequent.iter().find(|&&word| word == part) {
        Some(word) => Bytes::from_static(word),
        None => section.slice_ref(part),
    }
}

/// The connection options that the server uses (RFC 9110 section 7.6.1).
#[derive(Debug, Default)]
struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    fn add(&mut self, value: &[u8]) {
        self.close |= has_option(value, b"close");
        self.keep_alive |= has_option(value, b"keep-alive");
        self.upgrade |= has_option(value, b"upgrade");
    }
}

/// True if a list of options contains `option`, in any case.
pub(super) fn has_option(list: &[u8], option: &[u8]) -> bool {
    let mut options = list.split(|&byte| byte == b',').map(trimmed);
    options.any(|found| found.eq_ignore_ascii_case(option))
}

/// Changes field names to lower case, in which applications get them. A line without a colon stays as it is, because
/// the parser refuses it.
fn lower_names(section: &mut [u8]) {
    let mut line = memchr::memchr(b'\n', section).map_or(section.len(), |end| end + 1);
    while line < section.len() {
        let rest = &mut section[line..];
        let end = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
        let name = memchr::memchr(b':', &rest[..end]).unwrap_or(0);
        rest[..name].make_ascii_lowercase();
        line += end;
    }
}

fn fault(error: httparse::Error, section: &[u8]) -> Refusal {
    match error {
        httparse::Error::Version if has_other_version(section) => {
            Refusal::new(505, "the version of HTTP is not supported")
        }
        httparse::Error::Version => Refusal::new(400, "the version of HTTP is invalid"),
        httparse::Error::HeaderName => Refusal::new(400, "a field name is invalid"),
        httparse::Error::HeaderValue => Refusal::new(400, "a field value is invalid"),
        httparse::Error::TooManyHeaders => {
            Refusal::new(431, "the header section has too many fields")
        }
        httparse::Error::NewLine | httparse::Error::Status | httparse::Error::Token => {
            Refusal::new(400, "the request line is malformed")
        }
    }
}

/// True if the request line is well-formed and has another version of HTTP than 1.0 and 1.1 (RFC 9112 section 2.3).
fn has_other_version(section: &[u8]) -> bool {
    let line = section.split(|&byte| byte == b'\r').next();
    let mut parts = line.unwrap_or_default().split(|&byte| byte == b' ');
    let version = parts.by_ref().nth(2);
    let is_version = |version: &[u8]| {
        matches!(
            version,
            [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9']
        )
    };
    version.is_some_and(is_version) && parts.next().is_none()
}

/// The methods and field names of most requests, with the most frequent ones first.
const METHODS: [&[u8]; 3] = [b"GET", b"POST", b"PUT"];
const NAMES: [&[u8]; 12] = [
    b"host",
    b"user-agent",
    b"accept",
    b"accept-encoding",
    b"accept-language",
    b"connection",
    b"cookie",
    b"content-type",
    b"content-length",
    b"referer",
    b"authorization",
    b"origin",
];
/// The number of fields that are parsed without an allocation. Most requests have no more.
const FEW_FIELDS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &str) -> (Section, Option<u16>) {
        let fields = section.matches("\r\n").count().saturating_sub(2);
        let (read, refusal) = Section::read(section.as_bytes().into(), fields, true);
        (read, refusal.map(|refusal| refusal.status))
    }

    fn good(section: &str) -> Section {
        let (read, refusal) = read(section);
        assert_eq!(refusal, None, "{section:?}");
        read
    }

    fn fields(section: &Section) -> Vec<(&str, &str)> {
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let fields = section.head.fields.iter();
        fields
            .map(|(name, value)| (text(name), text(value)))
            .collect()
    }

    #[test]
    fn a_section_has_lower_names_and_trimmed_values() {
        let section = good("GET /a HTTP/1.1\r\nHoSt: b\r\nX-Y:\t c: D \t\r\nEmpty:\r\n\r\n");
        assert_eq!(&*section.head.method, b"GET");
        assert_eq!(&*section.head.target, b"/a");
        assert_eq!(
            fields(&section),
            [("host", "b"), ("x-y", "c: D"), ("empty", "")]
        );
        assert!(section.keep_alive && !section.is_http10 && section.framing == Framing::None);
    }

    #[test]
    fn many_fields_are_read_as_few_are() {
        let lines: String = (0..200)
            .map(|number| format!("A{number}: {number}\r\n"))
            .collect();
        let section = good(&format!("GET / HTTP/1.1\r\nHost: b\r\n{lines}\r\n"));
        assert_eq!(section.head.fields.len(), 201);
        assert_eq!(fields(&section)[200], ("a199", "199"));
    }

    #[test]
    fn the_host_is_there_once() {
        let status = |lines: &str| read(&format!("GET / HTTP/1.1\r\n{lines}\r\n")).1;
        assert_eq!(status(""), Some(400));
        assert_eq!(status("Host: a\r\nHost: a\r\n"), Some(400));
        assert_eq!(status("Host: a\r\nhost: b\r\n"), Some(400));
        for bad in ["a b", "a/b", "u@a", "a\"", "a,b/", "\u{e9}", "a?b", "a#b"] {
            assert_eq!(status(&format!("Host: {bad}\r\n")), Some(400), "{bad:?}");
        }
        assert_eq!(status("Host:\r\n"), None);
        assert_eq!(read("GET / HTTP/1.0\r\n\r\n").1, None);
        assert_eq!(
            read("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n").1,
            Some(400)
        );
    }

    #[test]
    fn the_host_of_an_absolute_target_wins() {
        let section = good("GET http://a:8/b HTTP/1.1\r\nAccept: c\r\nHost: other\r\n\r\n");
        assert_eq!(&*section.head.target, b"/b");
        assert_eq!(fields(&section), [("accept", "c"), ("host", "a:8")]);
        let old = good("GET http://a/b HTTP/1.0\r\nAccept: c\r\n\r\n");
        assert_eq!(fields(&old), [("host", "a"), ("accept", "c")]);
        assert_eq!(read("GET http://a/b HTTP/1.1\r\n\r\n").1, Some(400));
    }

    #[test]
    fn the_connection_is_kept_as_the_versions_say() {
        let keeps = |version: &str, option: &str| {
            let section =
                format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: {option}\r\n\r\n");
            good(&section).keep_alive
        };
        assert!(keeps("1.1", "") && keeps("1.1", "keep-alive") && keeps("1.0", "x, Keep-Alive"));
        assert!(!keeps("1.1", "Close") && !keeps("1.1", "keep-alive ,close"));
        assert!(!keeps("1.0", "") && !keeps("1.0", "keep-alive, close"));
        assert!(keeps("1.1", "closer"));
    }

    #[test]
    fn an_expectation_counts_if_content_follows() {
        let expects = |version: &str, length: &str| {
            let head = format!("POST / HTTP/{version}\r\nHost: a\r\nExpect: 100-Continue\r\n");
            good(&format!("{head}Content-Length: {length}\r\n\r\n")).expects_continue
        };
        assert!(expects("1.1", "5"));
        assert!(!expects("1.1", "0") && !expects("1.0", "5"));
    }

    #[test]
    fn a_websocket_is_a_get_of_version_13_with_a_key() {
        let ask = |line: &str, more: &str| {
            read(&format!(
                "{line}\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n{more}\r\n"
            ))
        };
        let get = "GET / HTTP/1.1";
        let (key, version) = (
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
            "Sec-WebSocket-Version: 13\r\n",
        );
        let both = format!("{key}{version}");
        let (section, refusal) = ask(get, &both);
        assert_eq!(refusal, None);
        assert!(section.head.is_websocket && section.key.is_some());
        assert_eq!(ask(get, version).1, Some(400));
        assert_eq!(ask(get, key).1, Some(426));
        assert_eq!(ask("POST / HTTP/1.1", &both).1, Some(400));
        assert_eq!(
            ask(get, &format!("{both}Content-Length: 5\r\n")).1,
            Some(400)
        );
        // These requests do not ask for a WebSocket, so they are served as any other.
        let (old, refusal) = ask("GET / HTTP/1.0", &both);
        assert!(refusal.is_none() && !old.head.is_websocket);
        let plain = good("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n");
        assert!(!plain.head.is_websocket);
        let other =
            good("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n");
        assert!(!other.head.is_websocket);
    }

    #[test]
    fn malformed_sections_are_refused() {
        for (section, status) in [
            // A folded line (RFC 9112 section 5.2), and white space before the colon (section 5.1).
            ("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\t2\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\n",
                400,
            ),
            (
                "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\t: chunked\r\n\r\n",
                400,
            ),
            ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nNo colon\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX\u{e9}: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX(: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\r\rc\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: b\x7fc\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400),
            ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /  HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
            ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\u{e9} HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET /\r\nHost: a\r\n\r\n", 400),
            ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/11\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1,1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505),
            ("GET / HTTP/0.9\r\nHost: a\r\n\r\n", 505),
            ("PRI * HTTP/2.0\r\n\r\n", 505),
            ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ] {
            assert_eq!(read(section).1, Some(status), "{section:?}");
        }
    }

    #[test]
    fn a_refused_request_has_its_method_and_target_for_the_log() {
        let (section, _) = read("HEAD /a HTTP/1.1\r\n\r\n");
        assert_eq!(
            (&*section.head.method, &*section.head.target),
            (&b"HEAD"[..], &b"/a"[..])
        );
    }
}
