//! Transport parameters (RFC 9000 section 18) as JSON.

use uringcore_wire::{transport_parameters::Parameters, varint};

use super::json_writer::{List, Object};

/// The connection IDs of a connection's first packets, read from this side's transport parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ConnectionIds {
    /// The destination connection ID of the client's first packet. Only servers send it.
    pub original: Option<Vec<u8>>,
    /// The source connection ID of this side's first packet.
    pub host: Option<Vec<u8>>,
    /// The connection ID of the Retry packet. `None` on a client, and if there was no Retry.
    pub retry: Option<Vec<u8>>,
}

impl ConnectionIds {
    pub fn from_parameters(encoded: &[u8]) -> Self {
        let mut ids = Self::default();
        for (id, value) in Parameters::of(encoded) {
            match id {
                0x00 => ids.original = Some(value.to_vec()),
                0x0f => ids.host = Some(value.to_vec()),
                0x10 => ids.retry = Some(value.to_vec()),
                _ => {}
            }
        }
        ids
    }
}

pub(super) fn ack_delay_exponent(encoded: &[u8]) -> Option<u32> {
    let (_, value) = Parameters::of(encoded).find(|(id, _)| *id == 0x0a)?;
    number(value).and_then(|exponent| u32::try_from(exponent).ok())
}

pub(super) fn to_json(owner: &str, encoded: &[u8]) -> String {
    let mut data = Object::new();
    data.unescaped("owner", owner);
    let mut migration_disabled = false;
    for (id, value) in Parameters::of(encoded) {
        if let Some((_, name)) = NUMBERS.iter().find(|(known, _)| *known == id) {
            if let Some(value) = number(value) {
                data.number(name, value);
            }
            continue;
        }
        match id {
            0x00 => data.hex("original_destination_connection_id", value),
            0x02 => data.hex("stateless_reset_token", value),
            0x0c => migration_disabled = true,
            0x0d => data.hex("preferred_address", value),
            0x0f => data.hex("initial_source_connection_id", value),
            0x10 => data.hex("retry_source_connection_id", value),
            0x11 => version_information(&mut data, value),
            0x2ab2 => data.flag("grease_quic_bit", true),
            // The parameter is reserved (RFC 9000 section 18.1) or belongs to an unknown extension.
            _ => {}
        }
    }
    data.flag("disable_active_migration", migration_disabled);
    data.finish()
}

/// RFC 9368 section 3.
fn version_information(data: &mut Object, value: &[u8]) {
    let mut versions = value.chunks_exact(4);
    let Some(chosen) = versions.next() else {
        return;
    };
    let mut information = Object::new();
    information.hex("chosen_version", chosen);
    let mut available = List::new();
    for version in versions {
        let hex: String = version.iter().map(|byte| format!("{byte:02x}")).collect();
        available.raw(&format!("\"{hex}\""));
    }
    information.raw("available_versions", &available.finish());
    data.raw("version_information", &information.finish());
}

fn number(mut value: &[u8]) -> Option<u64> {
    varint::take(&mut value)
}

const NUMBERS: &[(u64, &str)] = &[
    (0x01, "max_idle_timeout"),
    (0x03, "max_udp_payload_size"),
    (0x04, "initial_max_data"),
    (0x05, "initial_max_stream_data_bidi_local"),
    (0x06, "initial_max_stream_data_bidi_remote"),
    (0x07, "initial_max_stream_data_uni"),
    (0x08, "initial_max_streams_bidi"),
    (0x09, "initial_max_streams_uni"),
    (0x0a, "ack_delay_exponent"),
    (0x0b, "max_ack_delay"),
    (0x0e, "active_connection_id_limit"),
    (0x20, "max_datagram_frame_size"),
    (0xff04_de1b, "min_ack_delay"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_parameters_are_written_as_json() {
        let encoded = [
            0x01, 2, 0x40, 100, 0x0a, 1, 5, 0x0c, 0, 0x0f, 2, 0xaa, 0xbb, 0x00, 1, 0xcc, 0x11, 8,
            0, 0, 0, 1, 0x6b, 0x33, 0x43, 0xcf, 0x1b, 1, 9,
        ];
        assert_eq!(
            to_json("local", &encoded),
            "{\"owner\":\"local\",\"max_idle_timeout\":100,\"ack_delay_exponent\":5,\
             \"initial_source_connection_id\":\"aabb\",\
             \"original_destination_connection_id\":\"cc\",\
             \"version_information\":{\"chosen_version\":\"00000001\",\
             \"available_versions\":[\"6b3343cf\"]},\"disable_active_migration\":true}"
        );
        assert_eq!(ack_delay_exponent(&encoded), Some(5));
        let ids = ConnectionIds::from_parameters(&encoded);
        assert_eq!(ids.original.as_deref(), Some(&[0xcc][..]));
        assert_eq!(ids.host.as_deref(), Some(&[0xaa, 0xbb][..]));
        for end in 0..encoded.len() {
            to_json("remote", &encoded[..end]);
        }
    }
}
