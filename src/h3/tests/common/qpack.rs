//! A QPACK encoder or decoder alone.

use uringcore_h3::error::RemoteError;
use uringcore_h3::qpack::{Decoded, Decoder, DecoderSettings, Encoder, EncoderSettings, Field};
use uringcore_h3::{Code, ConnectionError};

pub fn decoder(max_table_capacity: usize, blocked_streams: usize) -> Decoder {
    Decoder::new(DecoderSettings {
        max_table_capacity,
        blocked_streams,
        max_field_section_size: 65_536,
        max_fields: 2048,
    })
}

pub fn encoder(
    table_capacity: usize,
    may_block: bool,
    peer_capacity: u64,
    peer_blocked: u64,
) -> Encoder {
    let mut encoder = Encoder::new(EncoderSettings {
        table_capacity,
        may_block,
    });
    encoder.handle_settings(peer_capacity, peer_blocked);
    encoder
}

pub fn encode(encoder: &mut Encoder, stream_id: u64, list: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    let mut section = encoder.section(stream_id, &mut body);
    for (name, value) in list {
        section.field(name.as_bytes(), value.as_bytes());
    }
    let prefix = section.finish();
    let mut out = body.split_off(prefix);
    out.extend_from_slice(&body);
    out
}

pub fn decoded(decoder: &mut Decoder, stream_id: u64, section: &[u8]) -> Vec<Field> {
    match decoder.decode(stream_id, section) {
        Ok(Decoded::Fields(fields)) => fields,
        other => panic!("expected fields, got {other:?}"),
    }
}

pub fn connection_code(error: RemoteError) -> Code {
    match error {
        RemoteError::Connection(ConnectionError { code, .. }) => code,
        error => panic!("not the connection's: {error:?}"),
    }
}
