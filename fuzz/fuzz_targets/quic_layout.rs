//! Invariant: a datagram is split into pieces that are not empty and cover all of it. The pieces
//! differ from the input only in the type bits of version 2 packets, which become those of version
//! 1. Converted back, a packet has the header that was sealed.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use uringcore_quic::fuzzing::version_2_packets::{
    hide_type, next_piece, received, show, show_type,
};
use uringcore_wire::coalesced_packets::arrivals;
use uringcore_wire::packet_header::{KNOWN_VERSIONS, PacketType, VERSION_2, version_of};

fuzz_target!(|data: &[u8]| {
    for is_server in [false, true] {
        let mut rest = BytesMut::from(data);
        let mut at = 0;
        while !rest.is_empty() {
            let piece = next_piece(&mut rest, is_server);
            assert!(!piece.is_empty());
            check_piece(&data[at..at + piece.len()], &piece);
            at += piece.len();
        }
        assert_eq!(at, data.len());
    }
    let mut packet = data.to_vec();
    hide_type(&mut packet);
    assert_eq!(received(&packet), data);
    show_type(&mut packet);
    assert_eq!(packet, data);
    for version in KNOWN_VERSIONS {
        let mut shown = data.to_vec();
        show(&mut shown, version);
        let is_long = version_of(data).is_some();
        assert_eq!(version_of(&shown), is_long.then_some(version));
        assert_eq!(shown.get(5..), data.get(5..));
    }
});

fn check_piece(came: &[u8], piece: &[u8]) {
    let mut at = 0;
    let mut changed = vec![false; came.len()];
    for (index, arrival) in arrivals(piece).iter().enumerate() {
        let (before, after) = (&came[at..], &piece[at..]);
        let version = version_of(before);
        assert_eq!(version, version_of(after));
        if index == 0 && version.is_some_and(|version| KNOWN_VERSIONS.contains(&version)) {
            let kind = PacketType::of_long(before[0], version.unwrap_or_default());
            assert_eq!(arrival.packet_type, Some(kind));
        }
        changed[at] = version == Some(VERSION_2);
        at += arrival.length;
    }
    for ((before, after), may_change) in came.iter().zip(piece).zip(changed) {
        let differs = if may_change { 0x30 } else { 0 };
        assert_eq!((before ^ after) & !differs, 0);
    }
}
