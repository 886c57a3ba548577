//! Invariant: the ClientHello in a client's first packets is collected without a panic and within
//! its bound, from packets that any host can seal; datagrams that cannot be decrypted change
//! nothing; packets give equal results in one datagram and in several.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rustls::Side;
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
use rustls::quic::{Keys, Version};
use uringcore_quic::fuzzing::FirstPackets;
use uringcore_quic::{VERSION_1, VERSION_2};
use uringcore_wire::tls::client_hello_extensions::HELLO_BYTES_MAX;

fuzz_target!(|data: &[u8]| {
    let [options, script @ ..] = data else { return };
    let _ = FirstPackets::new(script);
    let sealer = Sealer::new(options & 1 != 0);
    // Pieces of [length, length][payload].
    let (mut rest, mut datagrams) = (script, Vec::new());
    while let [high, low, after @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high & 7, *low])).min(after.len());
        let payload;
        (payload, rest) = after.split_at(length);
        datagrams.push(sealer.packet(datagrams.len() as u32, payload));
    }
    let Some((first, others)) = datagrams.split_first() else {
        return;
    };
    let mut apart = FirstPackets::new(first).expect("it is an Initial packet");
    for datagram in others {
        apart.push(datagram);
        check(&apart);
        let (before, kept) = (apart.shown_tickets(), apart.kept_bytes());
        let mut changed = datagram.clone();
        *changed.last_mut().expect("it has a tag") ^= 1;
        apart.push(&changed);
        assert_eq!((apart.shown_tickets(), apart.kept_bytes()), (before, kept));
    }
    let joined = FirstPackets::new(&datagrams.concat()).expect("it begins alike");
    check(&joined);
    assert_eq!(joined.kept_bytes(), apart.kept_bytes());
    assert_eq!(joined.shown_tickets(), apart.shown_tickets());
});

fn check(packets: &FirstPackets) {
    assert!(packets.kept_bytes() <= HELLO_BYTES_MAX);
    let tickets = packets.shown_tickets().unwrap_or_default();
    assert!(tickets.len() <= 4);
    assert!(tickets.iter().map(Vec::len).sum::<usize>() <= HELLO_BYTES_MAX);
}

/// A client's Initial keys, computed by rustls alone.
struct Sealer {
    keys: Keys,
    version: u32,
}

impl Sealer {
    fn new(is_version_2: bool) -> Self {
        let suite = TLS13_AES_128_GCM_SHA256
            .tls13()
            .expect("it is one of TLS 1.3");
        let quic = suite.quic_suite().expect("it is one for QUIC");
        let (version, number) = match is_version_2 {
            true => (Version::V2, VERSION_2),
            false => (Version::V1, VERSION_1),
        };
        Self {
            keys: Keys::initial(version, quic.suite, quic.quic, DESTINATION, Side::Client),
            version: number,
        }
    }

    /// An Initial packet with a number of four bytes (RFC 9000 section 17.2.2).
    fn packet(&self, number: u32, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![if self.version == VERSION_2 {
            0xd3
        } else {
            0xc3
        }];
        packet.extend(self.version.to_be_bytes());
        packet.push(DESTINATION.len() as u8);
        packet.extend(DESTINATION);
        packet.extend([0, 0]);
        let key = &self.keys.local.packet;
        let length = 4 + payload.len() + key.tag_len();
        packet.extend((length as u16 | 0x4000).to_be_bytes());
        let number_at = packet.len();
        packet.extend(number.to_be_bytes());
        let mut sealed = payload.to_vec();
        let tag = key.encrypt_in_place(u64::from(number), &packet, &mut sealed);
        sealed.extend_from_slice(tag.expect("there is room for a tag").as_ref());
        packet.extend(sealed);
        let header = &self.keys.local.header;
        let sample_at = number_at + 4;
        if packet.len() >= sample_at + header.sample_len() {
            let (head, tail) = packet.split_at_mut(sample_at);
            let (first, number) = head.split_at_mut(number_at);
            header
                .encrypt_in_place(&tail[..header.sample_len()], &mut first[0], number)
                .expect("the sample is long enough");
        }
        packet
    }
}

const DESTINATION: &[u8] = &[1, 2, 3, 4, 5, 6, 7, 8];
