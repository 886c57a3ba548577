//! The sequence numbers of this side's connection IDs (RFC 9000 section 5.1.1).
//!
//! The peer retires a connection ID by its sequence number. quinn-proto's caller generates the IDs, but quinn-proto
//! does not report which number an ID gets.
//!
//! Assumed of quinn-proto: IDs are numbered in the order in which they are generated, and the first is the
//! handshake's; an ID that is already in use gets no number, and another one is generated instead.
//!
//! Not here: the users of these numbers (`quic::connection::connection_id_observer`).

use std::collections::BTreeMap;

/// The connection IDs that one connection has issued and the peer has not retired, by sequence number.
pub struct IssuedConnectionIds {
    live: BTreeMap<u64, Vec<u8>>,
    /// The sequence number of the next ID.
    next: u64,
}

impl IssuedConnectionIds {
    pub fn new(first: Vec<u8>) -> Self {
        Self {
            live: BTreeMap::from([(0, first)]),
            next: 1,
        }
    }

    /// Records a generated ID. Returns false if it is in use already, so that it will not be issued.
    pub fn made(&mut self, id: &[u8]) -> bool {
        let is_new = !self.live.values().any(|live| live == id);
        if is_new {
            self.live.insert(self.next, id.to_vec());
            self.next += 1;
        }
        is_new
    }

    /// Removes and returns the ID that the peer has retired. `None` if no ID has this sequence number.
    pub fn retired(&mut self, sequence: u64) -> Option<Vec<u8>> {
        self.live.remove(&sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::workarounds::bare_quinn::BareQuinn;

    #[test]
    fn bare_quinn_numbers_connection_ids_in_order_and_issues_none_twice() {
        let mut bare = BareQuinn::begin(1, quinn_proto::TransportConfig::default());
        bare.server.ids.repeats.store(true, Ordering::Relaxed);
        bare.complete();
        let made = bare.server.ids.made.lock().unwrap().clone();
        let mut issued = IssuedConnectionIds::new(made[0].to_vec());
        for id in &made[1..] {
            issued.made(id);
        }
        let given = issued.live.len();
        assert!(
            given > 2 && made.len() > given,
            "quinn-proto has generated another ID for each repeated one"
        );
        // The frame consists of: type, sequence number, Retire Prior To, length, ID.
        let sealed = bare.server.spy.sealed.lock().unwrap().clone();
        for (sequence, id) in issued.live.iter().skip(1) {
            let frame = [&[0x18, *sequence as u8, 0, 8], &id[..]].concat();
            let mut payloads = sealed.iter().map(|packet| &packet.payload);
            assert!(
                payloads.any(|payload| payload.windows(12).any(|part| part == frame)),
                "{sequence}"
            );
        }
        // The client switches to the server's second connection ID and retires the first.
        let first = issued.live[&0].clone();
        assert!(bare.client.take_fresh_id());
        bare.client.connection().ping();
        bare.client.transmit(bare.now);
        let sent = bare.client.spy.last_sealed();
        assert_eq!(sent.header[1..9], issued.live[&1]);
        assert!(sent.payload.windows(2).any(|part| part == [0x19, 0]));
        assert_eq!(issued.retired(0), Some(first));
        assert_eq!(issued.retired(0), None);
    }
}
