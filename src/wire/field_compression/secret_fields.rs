//! The fields whose values an attacker must not be able to guess by the size of compressed fields.

/// True for fields that must not be in a table with which an attacker can test guesses (RFC 7541 section 7.1.3, RFC
/// 9204 section 7.1.3). Long cookies cannot be guessed byte by byte, so only short ones are excluded.
pub fn is_secret(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"authorization" | b"proxy-authorization" | b"set-cookie" => true,
        b"cookie" => value.len() < 20,
        _ => false,
    }
}
