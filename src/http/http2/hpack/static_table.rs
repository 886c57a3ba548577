//! The static table (RFC 7541 appendix A), and the search for a field line in it.

/// The best match in the static table for a field line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// The entry with this index has the line's name and value.
    Field(u8),
    /// The entry with this index has the line's name and another value.
    Name(u8),
    None,
}

/// The number of entries. Indices begin at 1.
pub const ENTRY_COUNT: usize = 61;

/// Returns the entry with this index.
pub fn get(index: usize) -> Option<(&'static [u8], &'static [u8])> {
    ENTRIES.get(index.checked_sub(1)?).copied()
}

/// Finds the entry for a field line: one with its name and value, or else the first one with its name.
pub fn find(name: &[u8], value: &[u8]) -> Match {
    let mut named = Match::None;
    let mut slot = FIRST[hash(name)];
    while slot != END {
        let (entry_name, entry_value) = ENTRIES[usize::from(slot)];
        if entry_name == name {
            if entry_value == value {
                return Match::Field(slot + 1);
            }
            if named == Match::None {
                named = Match::Name(slot + 1);
            }
        }
        slot = NEXT[usize::from(slot)];
    }
    named
}

const END: u8 = u8::MAX;
const BUCKETS: usize = 128;

/// A hash of the name's length and two of its bytes, which distinguish the names in the table well enough.
const fn hash(name: &[u8]) -> usize {
    let length = name.len();
    if length < 3 {
        return length;
    }
    (length * 31 + name[1] as usize * 7 + name[length - 1] as usize * 5) % BUCKETS
}

/// For each bucket, the position of its first entry.
static FIRST: [u8; BUCKETS] = CHAINS.0;
/// For each entry, the position of the next entry in its bucket.
static NEXT: [u8; ENTRY_COUNT] = CHAINS.1;

const CHAINS: ([u8; BUCKETS], [u8; ENTRY_COUNT]) = {
    let mut first = [END; BUCKETS];
    let mut next = [END; ENTRY_COUNT];
    // From the last entry to the first, so that each chain is in ascending order.
    let mut at = ENTRY_COUNT;
    while at > 0 {
        at -= 1;
        let bucket = hash(ENTRY_TABLE[at].0);
        next[at] = first[bucket];
        first[bucket] = at as u8;
    }
    (first, next)
};

static ENTRIES: [(&[u8], &[u8]); ENTRY_COUNT] = ENTRY_TABLE;

const ENTRY_TABLE: [(&[u8], &[u8]); ENTRY_COUNT] = [
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_found_and_names_give_the_first_entry() {
        for (at, (name, value)) in ENTRIES.iter().enumerate() {
            let index = at as u8 + 1;
            assert_eq!(find(name, value), Match::Field(index));
            assert_eq!(get(usize::from(index)), Some((*name, *value)));
        }
        assert_eq!(find(b":status", b"418"), Match::Name(8));
        assert_eq!(find(b":path", b"/other"), Match::Name(4));
        assert_eq!(find(b"x-unknown", b""), Match::None);
        assert_eq!((get(0), get(62)), (None, None));
    }
}
