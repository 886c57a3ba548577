//! The grammar of a request's pseudo-header fields (RFC 9114 section 4.3.1): a router and a server must not
//! interpret the method or the target differently.
//!
//! Not here: the required fields, and their consistency (`field_validation.rs`).

use super::field_validation::{NAME_BYTES, Reason};

/// A token (RFC 9110 section 9.1).
pub(super) fn check_method(method: &[u8]) -> Result<(), Reason> {
    check_token(method, "pseudo-header :method is not a token")
}

/// A token of the registry of upgrade tokens (RFC 9220 section 3), with a version after a slash (RFC 9110 section
/// 7.8).
pub(super) fn check_protocol(protocol: &[u8]) -> Result<(), Reason> {
    let invalid = "pseudo-header :protocol is not an upgrade token";
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    parts.try_for_each(|part| check_token(part, invalid))
}

/// RFC 3986 section 3.1.
pub(super) fn check_scheme(scheme: &[u8]) -> Result<(), Reason> {
    let is_valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    is_valid
        .then_some(())
        .ok_or_else(|| "pseudo-header :scheme is not a URI scheme".into())
}

/// True if a scheme's URIs must have an authority: `http` and `https` (RFC 9110 section 4.2), `ws` and `wss` (RFC
/// 6455 section 3). The rules of other schemes are unknown here, and their requests are accepted without one.
/// Schemes are compared without regard to case (RFC 3986 section 3.1), so that `HTTPS` does not bypass the rules
/// for `https`.
pub(super) fn has_mandatory_authority(scheme: &[u8]) -> bool {
    [&b"http"[..], b"https", b"ws", b"wss"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

/// The characters of an authority (RFC 3986 section 3.2): no delimiter that ends it, no white space. A request must
/// not have userinfo in it (RFC 9114 section 4.3.1), except with schemes that are unknown here.
pub(super) fn check_authority(authority: &[u8], userinfo: bool) -> Result<(), Reason> {
    let is_valid = |&byte: &u8| match byte {
        b'@' => userinfo,
        // unreserved, sub-delims, pct-encoded, and the characters of an IP literal and a port.
        b'-'
        | b'.'
        | b'_'
        | b'~'
        | b'!'
        | b'$'
        | b'&'..=b','
        | b';'
        | b'='
        | b'%'
        | b':'
        | b'['
        | b']' => true,
        _ => byte.is_ascii_alphanumeric(),
    };
    if authority.iter().all(is_valid) {
        Ok(())
    } else if authority.contains(&b'@') && !userinfo {
        Err("the authority has userinfo".into())
    } else {
        Err("the authority has invalid characters".into())
    }
}

/// The target of a plain CONNECT is a host and a port, even a default port (RFC 9114 section 4.4, RFC 9110 section
/// 9.3.6).
pub(super) fn check_port(authority: &[u8]) -> Result<(), Reason> {
    let colon = authority.iter().rposition(|&byte| byte == b':');
    let (host, port) = authority.split_at(colon.unwrap_or(authority.len()));
    let port = port.get(1..).unwrap_or_default();
    let number = port.iter().try_fold(0u16, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u16::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    });
    match number {
        Some(1..) if !host.is_empty() => Ok(()),
        _ => Err("the authority of a CONNECT request is not a host and a port".into()),
    }
}

/// The path and query of a scheme whose URIs have an authority: an absolute path, or the `*` of OPTIONS (RFC 9114
/// section 4.3.1).
pub(super) fn check_absolute_path(path: &[u8], is_options: bool) -> Result<(), Reason> {
    match path {
        [] => return Err("pseudo-header :path is empty".into()),
        [b'/', ..] => {}
        b"*" if is_options => {}
        b"*" => return Err("pseudo-header :path is \"*\", which is only for OPTIONS".into()),
        _ => return Err("pseudo-header :path does not begin with \"/\"".into()),
    }
    check_path(path)
}

/// The path and query of any target. Bytes above ASCII should be percent-encoded, but they are unambiguous, and
/// clients do send them; a fragment is not part of a target (RFC 9110 section 7.1).
pub(super) fn check_path(path: &[u8]) -> Result<(), Reason> {
    if path
        .iter()
        .any(|&byte| matches!(byte, 0..=b' ' | b'#' | 0x7f))
    {
        return Err("pseudo-header :path has invalid characters".into());
    }
    Ok(())
}

/// RFC 9110 section 5.6.2.
fn check_token(token: &[u8], invalid: &'static str) -> Result<(), Reason> {
    let is_tchar = |byte: &u8| byte.is_ascii_uppercase() || NAME_BYTES[usize::from(*byte)];
    if token.is_empty() || !token.iter().all(is_tchar) {
        return Err(invalid.into());
    }
    Ok(())
}
