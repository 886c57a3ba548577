//! The decision about a response: compressed or not, and the fields that change with it.

use super::accept_encoding::{Coding, accepted};

/// The settings of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The codings, in the order in which the server prefers them.
    pub codings: Vec<Coding>,
    /// Content of fewer bytes is not compressed.
    pub size_min: u64,
    /// 1 (fast) to 9 (small). `None` for a moderate level of each coding.
    pub level: Option<u8>,
}

/// The decision about a response whose media type and fields permit a coding.
///
/// The response depends on Accept-Encoding then, also if it is sent without a coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The coding that the client prefers. `None` if it accepts none of the server's.
    pub coding: Option<Coding>,
    /// The announced length of the content.
    pub length: Option<u64>,
}

impl Plan {
    /// Makes the plan of a response. `None` if the response must stay as it is.
    ///
    /// `fields` are those of the response, with names in lower case. `accept` is the request's Accept-Encoding.
    pub fn new<'a>(
        status: u16,
        fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        accept: &[u8],
        settings: &Settings,
    ) -> Option<Self> {
        // A 206 is a part of a representation, and the others have no content.
        if status < 200 || matches!(status, 204 | 205 | 206 | 304) {
            return None;
        }
        let (mut length, mut is_compressible) = (None, false);
        for (name, value) in fields {
            match name {
                b"content-type" => is_compressible = is_compressible_type(value),
                b"content-length" => length = std::str::from_utf8(value).ok()?.trim().parse().ok(),
                // Content that has a coding, or whose checksums would become wrong.
                b"content-encoding" | b"content-range" | b"content-digest" | b"repr-digest"
                | b"digest" | b"content-md5" => return None,
                // RFC 9111 section 5.2.2.6.
                b"cache-control" if lists(value, b"no-transform") => return None,
                _ => {}
            }
        }
        is_compressible.then(|| Self {
            coding: accepted(accept, &settings.codings).first().copied(),
            length,
        })
    }

    /// True for a Vary field that needs no further member.
    pub fn is_stated_by(name: &[u8], value: &[u8]) -> bool {
        name == b"vary" && (lists(value, b"*") || lists(value, b"accept-encoding"))
    }
}

/// True if a comma-separated list has this member, without regard to case.
fn lists(value: &[u8], member: &[u8]) -> bool {
    let mut members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    members.any(|one| one.eq_ignore_ascii_case(member))
}

/// Makes a strong entity tag weak, because the compressed content has other bytes than the one that the tag was made
/// for (RFC 9110 section 8.8.1).
pub fn weakened(tag: &[u8]) -> Option<Vec<u8>> {
    tag.starts_with(b"\"").then(|| [b"W/", tag].concat())
}

/// True for media types whose content becomes much smaller.
fn is_compressible_type(value: &[u8]) -> bool {
    let kind = value.split(|&byte| byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii().to_ascii_lowercase();
    kind.starts_with(b"text/")
        || kind.ends_with(b"+json")
        || kind.ends_with(b"+xml")
        || TYPES.contains(&&*kind)
}

const TYPES: [&[u8]; 18] = [
    b"application/javascript",
    b"application/json",
    b"application/json-seq",
    b"application/jsonl",
    b"application/ndjson",
    b"application/rtf",
    b"application/sql",
    b"application/toml",
    b"application/wasm",
    b"application/x-javascript",
    b"application/x-ndjson",
    b"application/xml",
    b"application/yaml",
    b"font/otf",
    b"font/ttf",
    b"image/bmp",
    b"image/vnd.microsoft.icon",
    b"image/x-icon",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            codings: vec![Coding::Zstd, Coding::Gzip],
            size_min: 1024,
            level: None,
        }
    }

    fn plan(status: u16, fields: &[(&str, &str)], accept: &str) -> Option<Plan> {
        let fields = fields.iter();
        let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        Plan::new(status, fields, accept.as_bytes(), &settings())
    }

    #[test]
    fn the_media_type_and_the_client_decide() {
        let json = ("content-type", "application/json");
        let found = plan(200, &[json, ("content-length", "5000")], "gzip").unwrap();
        assert_eq!(
            (found.coding, found.length),
            (Some(Coding::Gzip), Some(5000))
        );
        assert_eq!(plan(200, &[json], "br").unwrap().coding, None);
        assert_eq!(
            plan(404, &[json], "zstd").unwrap().coding,
            Some(Coding::Zstd)
        );
        for kind in [
            "text/html; charset=utf-8",
            "image/svg+xml",
            "application/problem+json",
            "TEXT/Event-Stream",
        ] {
            assert!(
                plan(200, &[("content-type", kind)], "gzip").is_some(),
                "{kind}"
            );
        }
        for kind in [
            "image/png",
            "video/mp4",
            "application/zip",
            "application/grpc",
            "multipart/byteranges",
            "font/woff2",
            "",
        ] {
            assert!(
                plan(200, &[("content-type", kind)], "gzip").is_none(),
                "{kind}"
            );
        }
        assert!(plan(200, &[], "gzip").is_none());
    }

    #[test]
    fn responses_that_must_not_change_stay_as_they_are() {
        let json = ("content-type", "application/json");
        for status in [101, 204, 205, 206, 304] {
            assert!(plan(status, &[json], "gzip").is_none(), "{status}");
        }
        for field in [
            ("content-encoding", "br"),
            ("content-encoding", "identity"),
            ("content-range", "bytes 0-1/2"),
            ("cache-control", "public, No-Transform"),
            ("repr-digest", "sha-256=:AAAA:"),
        ] {
            assert!(plan(200, &[json, field], "gzip").is_none(), "{field:?}");
        }
        assert!(plan(200, &[json, ("cache-control", "no-store")], "gzip").is_some());
    }

    #[test]
    fn tags_become_weak_and_vary_is_recognised() {
        assert_eq!(weakened(b"\"a\""), Some(b"W/\"a\"".to_vec()));
        assert_eq!(weakened(b"W/\"a\""), None);
        assert!(Plan::is_stated_by(b"vary", b"origin, Accept-Encoding"));
        assert!(Plan::is_stated_by(b"vary", b"*"));
        assert!(!Plan::is_stated_by(b"vary", b"origin"));
        assert!(!Plan::is_stated_by(b"other", b"*"));
    }
}
