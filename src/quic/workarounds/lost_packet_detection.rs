//! Finds out which packets quinn-proto has declared lost (RFC 9002 section 6).
//!
//! quinn-proto reports only the number of lost packets. The packet keys show which packets were sent and which were
//! acknowledged; together with the number of lost packets that identifies them. The table here has the same packets
//! as quinn-proto's own table, so it is no larger.
//!
//! Assumed of quinn-proto: it declares the oldest packets lost first, in each packet number space those below some
//! number, and only below the largest acknowledged one; its reordering threshold is three; it remembers no more than
//! 1,001 packets that are not ack-eliciting after the last one that is.

use std::{collections::BTreeMap, time::Instant};

use uringcore_wire::{
    frame_iterator::Ack,
    packet_header::{PacketType, Space},
};

/// A packet that was sent and is neither acknowledged nor lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub number: u64,
    pub space: Space,
    pub packet_type: PacketType,
    /// The length of the packet in bytes, header and tag included.
    pub length: usize,
    pub at: Option<Instant>,
    pub is_ack_eliciting: bool,
    /// True if the packet counts as bytes in flight: it is ack-eliciting or has PADDING (RFC 9002 section 2).
    pub is_in_flight: bool,
    /// True for a path MTU probe, whose loss is no sign of congestion (RFC 9000 section 14.4).
    pub is_probe: bool,
}

/// The rule by which a packet was declared lost (RFC 9002 section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    Reordering,
    Time,
}

#[derive(Debug, Default)]
pub struct Flight {
    spaces: [Unacknowledged; 3],
    bytes: u64,
    /// The packets of the batch that is being made.
    batch: Vec<(Space, u64)>,
}

#[derive(Debug, Default)]
struct Unacknowledged {
    packets: BTreeMap<u64, Sent>,
    largest_acked: Option<u64>,
    largest_eliciting: Option<u64>,
    /// The number of packets after the last ack-eliciting one.
    tail: u64,
}

impl Flight {
    pub fn sent(&mut self, packet: Sent) {
        let table = &mut self.spaces[packet.space as usize];
        let forgotten = if packet.is_ack_eliciting {
            table.tail = 0;
            table.largest_eliciting = Some(packet.number);
            None
        } else if table.tail > TAIL_MAX {
            let above = table.largest_eliciting.map_or(0, |number| number + 1);
            let oldest = table.packets.range(above..).next();
            oldest.map(|(number, _)| *number)
        } else {
            table.tail += 1;
            None
        };
        self.bytes += counted(&packet);
        if let Some(replaced) = table.packets.insert(packet.number, packet) {
            self.bytes -= counted(&replaced);
        }
        self.batch.push((packet.space, packet.number));
        if let Some(number) = forgotten
            && let Some(packet) = table.packets.remove(&number)
        {
            self.bytes -= counted(&packet);
        }
    }

    pub fn begin_batch(&mut self) {
        self.batch.clear();
    }

    /// Records a batch of sent packets. quinn-proto tracks the first `tracked` packets of the batch for loss, and also
    /// the last one if it is a probe.
    pub fn batched(&mut self, tracked: usize, has_probe: bool) {
        let mut batch = std::mem::take(&mut self.batch);
        for (space, number) in batch.drain(tracked.min(batch.len())..) {
            self.remove(space, number);
        }
        if has_probe && let Some((space, number)) = batch.last() {
            let packets = &mut self.spaces[*space as usize].packets;
            if let Some(packet) = packets.get_mut(number) {
                packet.is_probe = true;
            }
        }
        batch.clear();
        self.batch = batch;
    }

    pub fn acked(&mut self, space: Space, ack: &Ack<'_>) {
        let table = &mut self.spaces[space as usize];
        table.largest_acked = table.largest_acked.max(Some(ack.largest));
        let mut numbers = Vec::new();
        for range in ack.ranges() {
            numbers.extend(table.packets.range(range).map(|(number, _)| *number));
        }
        for number in numbers {
            self.remove(space, number);
        }
    }

    /// Removes and returns the packets that quinn-proto has just declared lost: `count` of them, and a probe if
    /// `has_probe`.
    pub fn lost(&mut self, count: u64, has_probe: bool) -> Vec<(Sent, Trigger)> {
        let mut lost = Vec::new();
        for _ in 0..count {
            let candidates = self.spaces.iter().filter_map(|table| table.oldest(false));
            let by_order = |(packet, trigger): &(Sent, Trigger)| (*trigger as u8, packet.at);
            let Some(found) = candidates.min_by_key(by_order) else {
                break;
            };
            self.remove(found.0.space, found.0.number);
            lost.push(found);
        }
        let probe = self.spaces[Space::Data as usize].oldest(true);
        if let Some(probe) = probe.filter(|_| has_probe) {
            self.remove(Space::Data, probe.0.number);
            lost.push(probe);
        }
        lost
    }

    /// Removes all packets of a space that quinn-proto has discarded.
    pub fn discard(&mut self, space: Space) {
        let table = std::mem::take(&mut self.spaces[space as usize]);
        self.bytes -= table.packets.values().map(counted).sum::<u64>();
    }

    /// Bytes in flight, as RFC 9002 appendix B.2 counts them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn remove(&mut self, space: Space, number: u64) {
        let table = &mut self.spaces[space as usize];
        let Some(packet) = table.packets.remove(&number) else {
            return;
        };
        self.bytes -= counted(&packet);
        if !packet.is_ack_eliciting && Some(number) > table.largest_eliciting {
            table.tail = table.tail.saturating_sub(1);
        }
    }
}

impl Unacknowledged {
    /// The oldest packet that may have been declared lost: a probe, or one that is no probe.
    fn oldest(&self, is_probe: bool) -> Option<(Sent, Trigger)> {
        let largest = self.largest_acked?;
        let mut below = self.packets.range(..largest).map(|(_, packet)| *packet);
        let packet = below.find(|packet| packet.is_probe == is_probe)?;
        Some(match packet.number + REORDERING_THRESHOLD <= largest {
            true => (packet, Trigger::Reordering),
            false => (packet, Trigger::Time),
        })
    }
}

fn counted(packet: &Sent) -> u64 {
    match packet.is_in_flight {
        true => packet.length as u64,
        false => 0,
    }
}

/// RFC 9002 section 6.1.1. quinn-proto uses this default.
const REORDERING_THRESHOLD: u64 = 3;
/// The number of packets after the last ack-eliciting one that quinn-proto remembers.
const TAIL_MAX: u64 = 1_000;

#[cfg(test)]
mod tests {
    use uringcore_wire::frame_iterator::{Frame, Frames};

    use super::*;
    use crate::workarounds::bare_quinn::{BareQuinn, Packet};

    fn packet(space: Space, number: u64, is_ack_eliciting: bool) -> Sent {
        Sent {
            number,
            space,
            packet_type: PacketType::in_space(space, false),
            length: 100,
            at: None,
            is_ack_eliciting,
            is_in_flight: is_ack_eliciting,
            is_probe: false,
        }
    }

    fn flight(numbers: std::ops::Range<u64>) -> Flight {
        let mut flight = Flight::default();
        for number in numbers {
            flight.sent(packet(Space::Data, number, true));
        }
        flight
    }

    fn ack(flight: &mut Flight, payload: &[u8]) {
        for (_, _, frame) in Frames::new(payload) {
            let Frame::Ack(ack) = frame else { panic!() };
            flight.acked(Space::Data, &ack);
        }
    }

    fn numbers(lost: &[(Sent, Trigger)]) -> Vec<(u64, Trigger)> {
        let each = lost.iter();
        each.map(|(packet, trigger)| (packet.number, *trigger))
            .collect()
    }

    #[test]
    fn the_oldest_unacknowledged_packets_are_lost() {
        let mut flight = flight(0..10);
        assert_eq!(flight.bytes(), 1_000);
        // The ACK acknowledges 8 and 2 to 4.
        ack(&mut flight, &[0x02, 8, 0, 1, 0, 2, 2]);
        assert_eq!(flight.bytes(), 600);
        let lost = flight.lost(4, false);
        let expected = [0, 1, 5].map(|number| (number, Trigger::Reordering));
        assert_eq!(numbers(&lost[..3]), expected);
        assert_eq!(numbers(&lost[3..]), [(6, Trigger::Time)]);
        assert_eq!(flight.bytes(), 200);
        // Packet 9 is newer than the largest acknowledged one, so it cannot be lost.
        assert_eq!(numbers(&flight.lost(5, false)), [(7, Trigger::Time)]);
        assert_eq!(flight.bytes(), 100);
        flight.discard(Space::Data);
        assert_eq!(flight.bytes(), 0);
        assert!(flight.lost(1, true).is_empty());
    }

    #[test]
    fn lost_mtu_probes_are_counted_apart() {
        let mut flight = flight(0..1);
        flight.batched(1, true);
        flight.sent(packet(Space::Data, 1, true));
        flight.batched(1, false);
        flight.sent(packet(Space::Data, 2, true));
        flight.sent(packet(Space::Data, 3, true));
        // quinn-proto tracks only the first of these two packets for loss.
        flight.batched(1, false);
        ack(&mut flight, &[0x02, 2, 0, 0, 0]);
        assert_eq!(numbers(&flight.lost(1, false)), [(1, Trigger::Time)]);
        assert!(flight.lost(1, false).is_empty());
        assert_eq!(numbers(&flight.lost(0, true)), [(0, Trigger::Time)]);
        assert_eq!(flight.bytes(), 0);
    }

    #[test]
    fn packets_that_are_not_ack_eliciting_are_forgotten() {
        let mut flight = flight(0..1);
        for number in 1..5_000 {
            flight.sent(packet(Space::Data, number, false));
            flight.batched(1, false);
        }
        let kept = flight.spaces[Space::Data as usize].packets.len() as u64;
        assert!((TAIL_MAX..TAIL_MAX + 3).contains(&kept), "{kept}");
        assert_eq!(flight.bytes(), 100);
    }

    fn note(flight: &mut Flight, packets: &[Packet]) {
        for sealed in packets {
            flight.sent(packet(Space::Data, sealed.number, true));
        }
    }

    /// Makes the client send `count` packets on `stream`, and returns their datagrams.
    fn send(bare: &mut BareQuinn, stream: quinn_proto::StreamId, count: usize) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        for _ in 0..count {
            bare.client
                .connection()
                .send_stream(stream)
                .write(b"one")
                .unwrap();
            sent.extend(bare.client.transmit(bare.now));
        }
        assert_eq!(sent.len(), count);
        sent
    }

    #[test]
    fn bare_quinn_loses_the_oldest_packets_below_the_largest_acked() {
        let mut bare = BareQuinn::connected(quinn_proto::TransportConfig::default());
        let streams = bare
            .client
            .connection()
            .streams()
            .open(quinn_proto::Dir::Uni);
        let stream = streams.unwrap();
        bare.client.spy.sealed.lock().unwrap().clear();
        let lost_before = bare.client.connection().stats().path.lost_packets;
        let sent = send(&mut bare, stream, 10);
        let mut flight = Flight::default();
        note(&mut flight, &bare.client.spy.sealed.lock().unwrap());
        let numbers: Vec<u64> = flight.spaces[Space::Data as usize]
            .packets
            .keys()
            .copied()
            .collect();
        // Of ten packets the second, the fifth and the eighth are lost, and the last two arrive late.
        let dropped = [1, 4, 7].map(|at: usize| numbers[at]);
        for at in [0, 2, 3, 5, 6] {
            bare.server_gets(&sent[at]);
        }
        bare.client.spy.opened.lock().unwrap().clear();
        let mut named = Vec::new();
        for late in [8, 9] {
            let answer = bare.server.transmit(bare.now);
            answer
                .iter()
                .for_each(|datagram| bare.client_gets(datagram));
            bare.server_gets(&sent[late]);
        }
        bare.sleep(std::time::Duration::from_millis(30));
        let answer = bare.server.transmit(bare.now);
        answer
            .iter()
            .for_each(|datagram| bare.client_gets(datagram));
        for opened in bare.client.spy.opened.lock().unwrap().iter() {
            for (_, _, frame) in uringcore_wire::frame_iterator::Frames::new(&opened.payload) {
                if let uringcore_wire::frame_iterator::Frame::Ack(ack) = frame {
                    flight.acked(Space::Data, &ack);
                }
            }
        }
        let lost = bare.client.connection().stats().path.lost_packets - lost_before;
        named.extend(
            flight
                .lost(lost, false)
                .into_iter()
                .map(|(packet, _)| packet.number),
        );
        let by_reordering = dropped
            .iter()
            .filter(|number| **number + 3 <= numbers[9])
            .count();
        assert!(lost >= by_reordering as u64, "{lost}");
        assert_eq!(
            named,
            dropped[..lost as usize],
            "the oldest packets are lost first, and none that has arrived"
        );
        // All packets that are not acknowledged after one second are declared lost.
        bare.sleep(std::time::Duration::from_secs(1));
        let all = bare.client.connection().stats().path.lost_packets - lost_before;
        assert_eq!(all, 3);
    }

    #[test]
    fn bare_quinn_remembers_a_thousand_packets_that_are_not_ack_eliciting() {
        let mut cubic = quinn_proto::congestion::CubicConfig::default();
        cubic.initial_window(1 << 20);
        let mut transport = quinn_proto::TransportConfig::default();
        transport.congestion_controller_factory(std::sync::Arc::new(cubic));
        let mut bare = BareQuinn::connected(transport);
        bare.client.spy.sealed.lock().unwrap().clear();
        let lost_before = bare.client.connection().stats().path.lost_packets;
        // The client acknowledges every second packet of the server, and its ACKs are lost.
        for _ in 0..3_000 {
            bare.server.connection().ping();
            for datagram in bare.server.transmit(bare.now) {
                bare.client_gets(&datagram);
            }
            bare.client.transmit(bare.now);
        }
        bare.client.connection().ping();
        let last = bare.client.transmit(bare.now);
        let mut flight = Flight::default();
        for sealed in bare.client.spy.sealed.lock().unwrap().iter() {
            let mut frames = Frames::new(&sealed.payload);
            let asks = frames.any(|(_, _, frame)| !matches!(frame, Frame::Ack(_)));
            flight.sent(packet(Space::Data, sealed.number, asks));
        }
        let sent = bare.client.spy.sealed.lock().unwrap().len();
        assert!(sent > 1_400 && last.len() == 1, "{sent}");
        let kept = flight.spaces[Space::Data as usize].packets.len() as u64;
        bare.client.spy.opened.lock().unwrap().clear();
        bare.server_gets(&last[0]);
        bare.sleep(std::time::Duration::from_millis(30));
        for datagram in bare.server.transmit(bare.now) {
            bare.client_gets(&datagram);
        }
        for opened in bare.client.spy.opened.lock().unwrap().iter() {
            for (_, _, frame) in Frames::new(&opened.payload) {
                if let Frame::Ack(ack) = frame {
                    flight.acked(Space::Data, &ack);
                }
            }
        }
        // The last packets before the acknowledged one are declared lost by time.
        bare.sleep(std::time::Duration::from_secs(1));
        let lost = bare.client.connection().stats().path.lost_packets - lost_before;
        assert_eq!((kept, lost), (TAIL_MAX + 2, TAIL_MAX + 1));
        assert_eq!(flight.lost(lost, false).len() as u64, lost);
    }
}
