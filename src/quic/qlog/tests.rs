//! The recorder accepts any input of a peer without a panic.

use super::*;

#[test]
fn random_packets_are_recorded_without_a_panic() {
    let mut seed = 7_u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % below
    };
    let recorder = Recorder::new(true);
    let spaces = [Space::Initial, Space::Handshake, Space::Data];
    for turn in 0..20_000_u64 {
        let mut bytes = |below: usize| -> Vec<u8> {
            let length = random(below);
            (0..length).map(|_| random(256) as u8).collect()
        };
        let (header, mut payload) = (bytes(40), bytes(60));
        // Half of the payloads begin as an ACK frame.
        if payload.len() % 2 == 0 {
            payload.insert(0, 0x02);
        }
        let space = spaces[random(3)];
        let number = match random(4) {
            0 => (1 << 62) - 1 - turn,
            _ => random(300) as u64,
        };
        let direction = match random(3) {
            0 => Direction::Sent,
            _ => Direction::Received,
        };
        recorder.receiving(
            Some(payload.len()),
            vec![CoalescedPacket {
                packet_type: [Some(PacketType::Initial), Some(PacketType::OneRtt), None][random(3)],
                length: payload.len(),
            }],
        );
        recorder.packet(&Packet {
            direction,
            space,
            number,
            header: &header,
            payload: &payload,
            tag_len: 16,
        });
        recorder.unopened(space, &header, random(2) == 0);
        recorder.received_all(None);
        recorder.datagrams_sent(payload.len(), random(5), random(3), random(9) == 0);
        recorder.recovery(Metrics {
            packets_lost: turn / 3,
            probes_lost: turn / 50,
            ..Metrics::default()
        });
        recorder.remote_parameters(&payload);
        recorder.retry(&header, payload.len());
        if turn % 100 == 0 {
            let taken = recorder.take();
            assert!(taken.iter().all(|event| event.data.starts_with('{')));
            recorder.begin_again();
        }
    }
}

#[test]
fn the_spin_bit_of_the_newest_packet_is_logged() {
    let client = Recorder::new(true);
    let receive = |number, first| {
        client.packet(&Packet {
            direction: Direction::Received,
            space: Space::Data,
            number,
            header: &[first, 0],
            payload: &[0x01],
            tag_len: 16,
        });
    };
    // A client sends the opposite of the bit in the newest packet.
    receive(0, 0x40);
    receive(2, 0x60);
    receive(1, 0x40);
    receive(3, 0x60);
    let events = client.take();
    let spin = events.iter().filter(|event| event.name.contains("spin"));
    let states: Vec<_> = spin.map(|event| event.data.as_str()).collect();
    assert_eq!(states, ["{\"state\":true}", "{\"state\":false}"]);
}
