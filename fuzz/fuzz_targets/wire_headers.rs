//! Invariant: packet headers, Version Negotiation, transport parameters and integers are read
//! without a panic, values that were read are written to identical bytes, and the packets of a
//! datagram cover all of its bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_wire::coalesced_packets::{self, FirstPacket};
use uringcore_wire::packet_header::{
    Extent, KNOWN_VERSIONS, LongHeader, PacketType, shift_type, unshift_type,
};
use uringcore_wire::transport_parameters::Parameters;
use uringcore_wire::varint;
use uringcore_wire::version_negotiation::VersionNegotiation;

fuzz_target!(|data: &[u8]| {
    check_integers(data);
    check_parameters(data);
    let arrivals = coalesced_packets::arrivals(data);
    assert!(arrivals.iter().all(|arrival| arrival.length > 0));
    let total: usize = arrivals.iter().map(|arrival| arrival.length).sum();
    assert_eq!(total, data.len());
    let _ = (
        FirstPacket::of(data),
        coalesced_packets::is_retry(data),
        coalesced_packets::initial_version(data),
    );
    if let Some(header) = LongHeader::read(data) {
        check_header(data, &header);
        check_negotiation(data, &header);
    }
});

fn check_integers(data: &[u8]) {
    let mut rest = data;
    while let Some((value, length)) = varint::get(rest) {
        assert_eq!(varint::size_at(rest), Some(length));
        let mut shortest = Vec::new();
        varint::put(&mut shortest, value);
        assert!(shortest.len() <= length && shortest.len() == varint::size(value));
        assert_eq!(varint::get(&shortest), Some((value, shortest.len())));
        let mut filled = vec![0; length];
        varint::fill(&mut filled, value);
        assert_eq!(filled, rest[..length]);
        assert_eq!(varint::take(&mut rest), Some(value));
    }
    assert!(rest.len() < varint::SIZE_MAX);
}

fn check_parameters(data: &[u8]) {
    let mut parameters = Parameters::of(data);
    let found: Vec<_> = parameters.by_ref().collect();
    let mut written = Vec::new();
    for (id, value) in &found {
        varint::put(&mut written, *id);
        varint::put(&mut written, value.len() as u64);
        written.extend_from_slice(value);
    }
    let mut again = Parameters::of(&written);
    assert!(again.by_ref().eq(found) && !again.is_cut_short());
    assert!(parameters.is_cut_short() || written.len() <= data.len());
}

fn check_header(data: &[u8], header: &LongHeader<'_>) {
    let mut written = vec![data[0]];
    written.extend(header.version.to_be_bytes());
    for id in [header.destination, header.source] {
        written.push(id.len() as u8);
        written.extend(id);
    }
    written.extend(header.rest);
    assert_eq!(written, data);
    for version in KNOWN_VERSIONS {
        let kind = PacketType::of_long(data[0], version);
        if let Some(extent) = Extent::of(data, kind) {
            assert!(extent.number_at <= data.len() && extent.number_at <= extent.end);
        }
    }
    assert_eq!(unshift_type(shift_type(data[0])), data[0]);
}

fn check_negotiation(data: &[u8], header: &LongHeader<'_>) {
    if let Some(read) = VersionNegotiation::read(data) {
        let versions: Vec<u8> = read.versions.iter().flat_map(|v| v.to_be_bytes()).collect();
        assert_eq!(versions, header.rest);
    }
    let mut answer = Vec::new();
    VersionNegotiation::answer(data, 0x1a2a_3a4a, &KNOWN_VERSIONS, &mut answer)
        .expect("the header can be read");
    assert!(answer.len() <= data.len() + 12);
    let read = VersionNegotiation::read(&answer).expect("it is ours");
    assert_eq!(
        (read.destination, read.source),
        (header.source, header.destination)
    );
    assert_eq!(read.versions[1..], KNOWN_VERSIONS);
}
