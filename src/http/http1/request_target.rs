//! Parses a request's target (RFC 9112 section 3.2), and checks its host.

use bytes::Bytes;
use uringcore_wire::host_characters::is_in_host_and_port;

use crate::response_errors::Refusal;

/// The path and query of a target, and the authority if the target has one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub path: Bytes,
    /// The authority, which replaces the field Host (RFC 9112 section 3.2.2).
    pub authority: Option<Bytes>,
}

impl Target {
    pub fn read(method: &[u8], target: &Bytes) -> Result<Self, Refusal> {
        // A target has only visible ASCII characters, because clients percent-encode all others. A fragment is not part
        // of a target (RFC 9110 section 7.1).
        if !target.iter().all(|byte| matches!(byte, b'!'..=b'~')) || target.contains(&b'#') {
            return Err(Refusal::new(400, "the target has invalid characters"));
        }
        let origin = |path: &Bytes| Self {
            path: path.clone(),
            authority: None,
        };
        match &target[..] {
            _ if method == b"CONNECT" => Err(Refusal::new(501, "CONNECT is not supported")),
            [b'/', ..] => Ok(origin(target)),
            b"*" if method == b"OPTIONS" => Ok(origin(target)),
            _ => Self::absolute(method, target),
        }
    }

    /// Parses a URL. Clients send this form to proxies, and a server must accept it (RFC 9112 section 3.2.2).
    fn absolute(method: &[u8], target: &Bytes) -> Result<Self, Refusal> {
        let invalid = Refusal::new(400, "the target is neither a path nor a URL");
        let colon = memchr::memchr(b':', target).ok_or(invalid)?;
        let (scheme, rest) = target.split_at(colon);
        let is_web = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
        let rest = rest.strip_prefix(b"://").filter(|_| is_web);
        let rest = rest.ok_or(invalid)?;
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?'));
        let (authority, path) = rest.split_at(end.unwrap_or(rest.len()));
        if authority.is_empty() || !is_host(authority) {
            return Err(Refusal::new(400, "the host in the target is invalid"));
        }
        let path = match path {
            // OPTIONS without a path asks for the whole server (RFC 9112 section 3.2.4).
            [] if method == b"OPTIONS" => Bytes::from_static(b"*"),
            [] => Bytes::from_static(b"/"),
            [b'?', ..] => [b"/", path].concat().into(),
            path => target.slice_ref(path),
        };
        Ok(Self {
            path,
            authority: Some(target.slice_ref(authority)),
        })
    }
}

/// True if all characters may occur in a host with a port.
pub(super) fn is_host(host: &[u8]) -> bool {
    host.iter().copied().all(is_in_host_and_port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(method: &str, target: &'static str) -> Result<(Bytes, Option<Bytes>), u16> {
        let target = Bytes::from_static(target.as_bytes());
        Target::read(method.as_bytes(), &target)
            .map(|target| (target.path, target.authority))
            .map_err(|refusal| refusal.status)
    }

    fn path(path: &'static str) -> Result<(Bytes, Option<Bytes>), u16> {
        Ok((Bytes::from_static(path.as_bytes()), None))
    }

    fn at(host: &'static str, path: &'static str) -> Result<(Bytes, Option<Bytes>), u16> {
        let authority = Bytes::from_static(host.as_bytes());
        Ok((Bytes::from_static(path.as_bytes()), Some(authority)))
    }

    #[test]
    fn each_form_of_a_target_is_read() {
        assert_eq!(read("GET", "/a?b=c"), path("/a?b=c"));
        assert_eq!(read("GET", "//a"), path("//a"));
        assert_eq!(read("OPTIONS", "*"), path("*"));
        assert_eq!(read("GET", "http://a:80/b?c"), at("a:80", "/b?c"));
        assert_eq!(read("GET", "HTTPS://[::1]"), at("[::1]", "/"));
        assert_eq!(read("GET", "http://a?b"), at("a", "/?b"));
        assert_eq!(read("OPTIONS", "http://a"), at("a", "*"));
        assert_eq!(read("CONNECT", "a:443"), Err(501));
    }

    #[test]
    fn other_targets_are_refused() {
        for target in [
            "*",
            "a",
            "a:443",
            "a/b",
            "http:/a",
            "http:a",
            "http://",
            "http:///a",
            "http://u@a/",
            "ftp://a/b",
            "http://a b",
            "/a#b",
            "/\u{e9}",
            "",
            "://a",
            "http://a\\b/",
        ] {
            assert_eq!(read("GET", target), Err(400), "{target:?}");
        }
    }
}
