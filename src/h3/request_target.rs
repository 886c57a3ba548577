//! The grammar of a request's method and target in its pseudo-header fields (RFC 9114 section 4.3.1). It is checked
//! strictly, so that a router and a server cannot interpret them differently.
//!
//! Not here: the fields that must be present, and their consistency (`field_validation.rs`).

use uringcore_wire::host_characters::is_in_host_and_port;

use super::field_validation::{NAME_BYTES, Reason};

/// A method is a token (RFC 9110 section 9.1).
pub(super) fn check_method(method: &[u8]) -> Result<(), Reason> {
    check_token(method, "pseudo-header :method is not a token")
}

/// `:protocol` is an upgrade token (RFC 9220 section 3), optionally with a version after a slash (RFC 9110 section
/// 7.8).
pub(super) fn check_protocol(protocol: &[u8]) -> Result<(), Reason> {
    let invalid = "pseudo-header :protocol is not an upgrade token";
    let mut parts = protocol.splitn(2, |&byte| byte == b'/');
    parts.try_for_each(|part| check_token(part, invalid))
}

/// A scheme is a letter, then letters, digits, "+", "-" and "." (RFC 3986 section 3.1).
pub(super) fn check_scheme(scheme: &[u8]) -> Result<(), Reason> {
    let is_valid = scheme.first().is_some_and(u8::is_ascii_alphabetic)
        && scheme
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte));
    is_valid
        .then_some(())
        .ok_or_else(|| "pseudo-header :scheme is not a URI scheme".into())
}

/// True if URIs of this scheme must have an authority: `http` and `https` (RFC 9110 section 4.2), `ws` and `wss` (RFC
/// 6455 section 3). For other schemes a request without an authority is accepted. Schemes are compared
/// case-insensitively (RFC 3986 section 3.1), so that `HTTPS` does not bypass the rules for `https`.
pub(super) fn has_mandatory_authority(scheme: &[u8]) -> bool {
    [&b"http"[..], b"https", b"ws", b"wss"]
        .iter()
        .any(|known| scheme.eq_ignore_ascii_case(known))
}

/// Checks the characters of an authority (RFC 3986 section 3.2): no white space, and no delimiter that would end it.
/// Userinfo is forbidden (RFC 9114 section 4.3.1), except for schemes without rules here (`userinfo`).
pub(super) fn check_authority(authority: &[u8], userinfo: bool) -> Result<(), Reason> {
    let is_valid = |&byte: &u8| is_in_host_and_port(byte) || (byte == b'@' && userinfo);
    if authority.iter().all(is_valid) {
        Ok(())
    } else if authority.contains(&b'@') && !userinfo {
        Err("the authority has userinfo".into())
    } else {
        Err("the authority has invalid characters".into())
    }
}

/// Checks that the target of a plain CONNECT is a host and a port; the port must be present even if it is the default
/// (RFC 9114 section 4.4, RFC 9110 section 9.3.6).
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

/// Checks the path and query of a URI with an authority: an absolute path, or the `*` of OPTIONS (RFC 9114 section
/// 4.3.1).
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

/// Checks the path and query of any target. Bytes above ASCII are accepted although they should be percent-encoded,
/// because they are unambiguous and clients send them. "#" is refused, because a target has no fragment (RFC 9110
/// section 7.1).
pub(super) fn check_path(path: &[u8]) -> Result<(), Reason> {
    if path
        .iter()
        .any(|&byte| matches!(byte, 0..=b' ' | b'#' | 0x7f))
    {
        return Err("pseudo-header :path has invalid characters".into());
    }
    Ok(())
}

/// Checks that bytes are a token (RFC 9110 section 5.6.2).
fn check_token(token: &[u8], invalid: &'static str) -> Result<(), Reason> {
    let is_tchar = |byte: &u8| byte.is_ascii_uppercase() || NAME_BYTES[usize::from(*byte)];
    if token.is_empty() || !token.iter().all(is_tchar) {
        return Err(invalid.into());
    }
    Ok(())
}
