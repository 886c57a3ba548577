//! Creation and removal of keys as `security:` events, with aioquic's names. The events contain no secrets.

use uringcore_wire::packet_header::PacketType;

use super::json_writer::Object;

/// The packets that keys protect. 1-RTT keys have a generation (RFC 9001 section 6), which is 0 at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Epoch {
    Initial,
    Early,
    Handshake,
    OneRtt(u64),
}

/// Identifies the keys of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyName {
    pub epoch: Epoch,
    /// True if the client seals packets with these keys.
    pub is_clients: bool,
}

impl KeyName {
    fn data(self, trigger: &str) -> String {
        let side = if self.is_clients { "client" } else { "server" };
        let (epoch, generation) = match self.epoch {
            Epoch::Initial => ("initial", None),
            Epoch::Early => ("0rtt", None),
            Epoch::Handshake => ("handshake", None),
            Epoch::OneRtt(generation) => ("1rtt", Some(generation)),
        };
        let mut data = Object::new();
        data.unescaped("key_type", &format!("{side}_{epoch}_secret"));
        if let Some(generation) = generation {
            data.number("generation", generation);
        }
        data.unescaped("trigger", trigger);
        data.finish()
    }
}

/// Counts the keys that exist.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// The number of Initial keys. A server has several, because it opens the first packet before its connection
    /// begins.
    initial: usize,
    early: usize,
    handshake: usize,
    one_rtt: usize,
    /// The current generation of 1-RTT keys, and the cause of the last key update.
    generation: u64,
    update: &'static str,
}

type Event = (&'static str, String);

impl Keys {
    /// Counts new keys of one direction, and returns the event for them. Keys after the first generation cause no event
    /// here, because they are made before they are used.
    pub fn made(&mut self, key: KeyName, has_many_initials: bool) -> Option<Event> {
        let count = self.count(key.epoch);
        *count += 1;
        let is_new = match key.epoch {
            Epoch::Initial => has_many_initials || *count <= 2,
            Epoch::OneRtt(generation) => generation == 0,
            Epoch::Early | Epoch::Handshake => true,
        };
        is_new.then(|| ("security:key_updated", key.data("tls")))
    }

    /// Counts a key update, and returns its events.
    pub fn updated(&mut self, by_peer: bool) -> [Event; 2] {
        self.generation += 1;
        self.update = match by_peer {
            true => "remote_update",
            false => "local_update",
        };
        [true, false].map(|is_clients| {
            let key = KeyName {
                epoch: Epoch::OneRtt(self.generation),
                is_clients,
            };
            ("security:key_updated", key.data(self.update))
        })
    }

    pub fn dropped(&mut self, key: KeyName, has_many_initials: bool) -> Option<Event> {
        let count = self.count(key.epoch);
        *count = count.saturating_sub(1);
        let is_gone = match key.epoch {
            Epoch::Initial => has_many_initials || *count < 2,
            // Keys of a later generation that were never used cause no event.
            Epoch::OneRtt(generation) => generation <= self.generation,
            Epoch::Early | Epoch::Handshake => true,
        };
        let trigger = match key.epoch {
            Epoch::OneRtt(generation) if generation < self.generation => self.update,
            _ => "tls",
        };
        is_gone.then(|| ("security:key_retired", key.data(trigger)))
    }

    pub fn has(&self, packet_type: PacketType) -> bool {
        let count = match packet_type {
            PacketType::Initial => self.initial,
            PacketType::ZeroRtt => self.early,
            PacketType::Handshake => self.handshake,
            PacketType::OneRtt => self.one_rtt,
            PacketType::Retry => 1,
        };
        count > 0
    }

    fn count(&mut self, epoch: Epoch) -> &mut usize {
        match epoch {
            Epoch::Initial => &mut self.initial,
            Epoch::Early => &mut self.early,
            Epoch::Handshake => &mut self.handshake,
            Epoch::OneRtt(_) => &mut self.one_rtt,
        }
    }
}
