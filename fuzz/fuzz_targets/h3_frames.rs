//! Invariant: frame headers and SETTINGS make no reader panic, their splitting makes no difference,
//! no reader reads beyond their ends, and written frames read back unchanged.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use uringcore_h3::frame_header::{FrameHeader, HeaderBuffer};
use uringcore_h3::{PeerSettings, varint};

fuzz_target!(|data: &[u8]| {
    let mut rest = Bytes::copy_from_slice(data);
    let whole = HeaderBuffer::default().read_pair(&mut rest);

    let mut pieces = HeaderBuffer::default();
    let mut used = 0;
    let mut read = None;
    for &byte in data {
        let mut piece = Bytes::copy_from_slice(&[byte]);
        read = pieces.read_pair(&mut piece);
        assert!(piece.is_empty());
        used += 1;
        if read.is_some() {
            break;
        }
        assert!(!pieces.is_empty());
    }
    assert_eq!(read, whole);
    assert_eq!(rest.len(), data.len() - used);

    if let Some((frame_type, length)) = whole {
        let header = FrameHeader::new(frame_type, length);
        assert!(header.len() <= used, "the shortest form");
        let mut again = Bytes::copy_from_slice(&header);
        let read = HeaderBuffer::default().read_pair(&mut again);
        assert_eq!(read, Some((frame_type, length)));
        assert!(again.is_empty());
    }

    if let Ok(settings) = PeerSettings::parse(data) {
        let mut written = Vec::new();
        for &(identifier, value) in settings.pairs() {
            assert_eq!(settings.get(identifier), Some(value));
            varint::put(&mut written, identifier);
            varint::put(&mut written, value);
        }
        assert_eq!(PeerSettings::parse(&written), Ok(settings));
    }
});
