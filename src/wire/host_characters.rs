//! The characters of the host and port in a URI (RFC 3986 section 3.2).

/// True for a character that may occur in a host with a port (section 3.2): unreserved, sub-delims, the "%" of
/// percent-encoding, and the characters of an IP literal and a port. A delimiter that ends the host is not among them,
/// and neither is the "@" of a userinfo, which HTTP forbids (RFC 9110 section 4.2.4).
pub fn is_in_host_and_port(byte: u8) -> bool {
    match byte {
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
        byte => byte.is_ascii_alphanumeric(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_in_host_and_port;

    #[test]
    fn delimiters_of_a_host_are_not_among_its_characters() {
        let allowed: Vec<u8> = (0..=255)
            .filter(|&byte| is_in_host_and_port(byte))
            .collect();
        let mut expected = b"!$%&'()*+,-.0123456789:;=".to_vec();
        expected.extend(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ[]_abcdefghijklmnopqrstuvwxyz~");
        assert_eq!(allowed, expected);
    }
}
