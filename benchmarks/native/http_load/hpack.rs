//! HPACK (RFC 7541) as far as this client needs it: its own requests, with fields that repeat in
//! the dynamic table, and the status of a response.

/// `:method`, `:scheme` and the path `/` of the static table (appendix A).
const METHOD_GET: u8 = 0x82;
const METHOD_POST: u8 = 0x83;
const SCHEME_HTTP: u8 = 0x86;
const STATUS_200: u8 = 0x88;
const FIRST_DYNAMIC: usize = 62;
/// A server with a smaller table gets literals.
pub const TABLE_BYTES_MIN: u32 = 512;

/// Name of a field, by its index in the static table.
pub const AUTHORITY: u8 = 1;
pub const PATH: u8 = 4;
pub const ACCEPT: u8 = 19;
pub const CONTENT_LENGTH: u8 = 28;
pub const CONTENT_TYPE: u8 = 31;
pub const USER_AGENT: u8 = 58;

/// The fields of a request as two blocks: the first of a connection, and all that follow.
pub fn blocks(post: bool, fields: &[(u8, &str)], indexed: bool) -> (Vec<u8>, Vec<u8>) {
    let method = if post { METHOD_POST } else { METHOD_GET };
    let mut first = vec![method, SCHEME_HTTP];
    let mut next = first.clone();
    for (at, (name, value)) in fields.iter().enumerate() {
        // Section 6.2.1: literal with incremental indexing; section 6.2.2: without indexing.
        integer(
            &mut first,
            if indexed { (0x40, 6) } else { (0, 4) },
            usize::from(*name),
        );
        integer(&mut first, (0, 7), value.len());
        first.extend_from_slice(value.as_bytes());
        // The newest entry has the lowest index (section 2.3.3).
        integer(&mut next, (0x80, 7), FIRST_DYNAMIC + fields.len() - 1 - at);
    }
    let next = if indexed { next } else { first.clone() };
    (first, next)
}

/// True if a response's block begins with status 200, as servers write it after changes of the
/// table's size: indexed, or a literal whose name is one of the table's `:status`.
pub fn is_ok(block: &[u8]) -> bool {
    let mut at = 0;
    while at < block.len() && block[at] & 0xe0 == 0x20 {
        let long = block[at] & 0x1f == 0x1f;
        at += 1;
        while long && at < block.len() && block[at] & 0x80 != 0 {
            at += 1;
        }
        at += usize::from(long);
    }
    let rest = block.get(at..).unwrap_or_default();
    let literal = |name: &u8| matches!(name & 0xc0, 0 | 0x40) && (8..=14).contains(&(name & 0x0f));
    match rest {
        [STATUS_200, ..] => true,
        [name, 3, value @ ..] if literal(name) => value.starts_with(b"200"),
        // Huffman-coded (appendix B).
        [name, 0x82, value @ ..] if literal(name) => value.starts_with(&[0x10, 0x01]),
        _ => false,
    }
}

/// Section 5.1.
fn integer(out: &mut Vec<u8>, (pattern, bits): (u8, u32), value: usize) {
    let most = (1_usize << bits) - 1;
    if value < most {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | most as u8);
    let mut rest = value - most;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 0x80);
        rest /= 128;
    }
    out.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_requests_name_entries_of_the_table() {
        let (first, next) = blocks(false, &[(PATH, "/x"), (ACCEPT, "*/*")], true);
        assert_eq!(first, b"\x82\x86\x44\x02/x\x53\x03*/*");
        assert_eq!(next, b"\x82\x86\xbf\xbe");
        let (first, next) = blocks(true, &[(ACCEPT, "*/*")], false);
        assert_eq!(first, b"\x83\x86\x0f\x04\x03*/*");
        assert_eq!(first, next);
    }

    #[test]
    fn a_status_may_follow_changes_of_size() {
        assert!(is_ok(&[0x88]));
        assert!(is_ok(&[0x20, 0x88, 0x40]));
        assert!(is_ok(&[0x3f, 0xe1, 0x1f, 0x88]));
        assert!(is_ok(b"\x08\x03200"));
        assert!(is_ok(b"\x48\x82\x10\x01"));
        assert!(!is_ok(b"\x08\x03404"));
        assert!(!is_ok(&[0x8d]));
        assert!(!is_ok(&[]));
    }
}
