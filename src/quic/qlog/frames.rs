//! A packet's payload as a list of qlog frames (RFC 9000 section 19, RFC 9221, draft-ietf-quic-ack-frequency).
//!
//! The list ends at a malformed or unknown frame; quinn-proto decides what happens with the packet. It also ends
//! after more frames than an honest packet has, because a frame of one byte becomes 22 bytes of JSON and a peer's
//! packets may be full of such frames.

use uringcore_wire::varint;

use super::json_writer::{List, Object};

/// The frames of `payload` as a JSON list, and the number of bytes after the last frame in the list. Delays in ACK
/// frames are in units of `2^exponent` microseconds.
pub(super) fn to_json(payload: &[u8], exponent: u32) -> (String, usize) {
    let mut list = List::new();
    let mut rest = payload;
    for _ in 0..FRAMES_MAX {
        if rest.is_empty() {
            break;
        }
        let before = rest.len();
        match frame(&mut rest, exponent) {
            Some(frame) if rest.len() < before => list.raw(&frame.finish()),
            _ => {
                let mut unknown = Object::new();
                unknown.unescaped("frame_type", "unknown");
                unknown.number("length", before as u64);
                list.raw(&unknown.finish());
                rest = &[];
            }
        }
    }
    (list.finish(), rest.len())
}

fn frame(rest: &mut &[u8], exponent: u32) -> Option<Object> {
    let mut out = Object::new();
    match varint::take(rest)? {
        0x00 => {
            // Consecutive PADDING frames are one entry.
            while let Some((0, after)) = rest.split_first() {
                *rest = after;
            }
            out.unescaped("frame_type", "padding");
        }
        0x01 => out.unescaped("frame_type", "ping"),
        kind @ 0x02..=0x03 => ack(&mut out, rest, kind == 0x03, exponent)?,
        0x04 => {
            let (stream_id, code, size) = (
                varint::take(rest)?,
                varint::take(rest)?,
                varint::take(rest)?,
            );
            out.number("error_code", code);
            out.number("final_size", size);
            out.unescaped("frame_type", "reset_stream");
            out.number("stream_id", stream_id);
        }
        0x05 => {
            let (stream_id, code) = (varint::take(rest)?, varint::take(rest)?);
            out.unescaped("frame_type", "stop_sending");
            out.number("error_code", code);
            out.number("stream_id", stream_id);
        }
        0x06 => {
            let offset = varint::take(rest)?;
            let data = counted(rest)?;
            out.unescaped("frame_type", "crypto");
            out.number("length", data.len() as u64);
            out.number("offset", offset);
        }
        0x07 => {
            let token = counted(rest)?;
            out.unescaped("frame_type", "new_token");
            out.number("length", token.len() as u64);
            out.hex("token", token);
        }
        kind @ 0x08..=0x0f => stream(&mut out, rest, kind)?,
        0x10 => limit(&mut out, "max_data", "maximum", varint::take(rest)?),
        0x11 => {
            let (stream_id, maximum) = (varint::take(rest)?, varint::take(rest)?);
            limit(&mut out, "max_stream_data", "maximum", maximum);
            out.number("stream_id", stream_id);
        }
        kind @ 0x12..=0x13 => {
            limit(&mut out, "max_streams", "maximum", varint::take(rest)?);
            direction(&mut out, kind == 0x13);
        }
        0x14 => limit(&mut out, "data_blocked", "limit", varint::take(rest)?),
        0x15 => {
            let (stream_id, maximum) = (varint::take(rest)?, varint::take(rest)?);
            limit(&mut out, "stream_data_blocked", "limit", maximum);
            out.number("stream_id", stream_id);
        }
        kind @ 0x16..=0x17 => {
            limit(&mut out, "streams_blocked", "limit", varint::take(rest)?);
            direction(&mut out, kind == 0x17);
        }
        0x18 => {
            let (number, retire) = (varint::take(rest)?, varint::take(rest)?);
            let (&length, after) = rest.split_first()?;
            *rest = after;
            let id = take(rest, usize::from(length))?;
            let token = take(rest, 16)?;
            out.hex("connection_id", id);
            out.unescaped("frame_type", "new_connection_id");
            out.number("length", id.len() as u64);
            out.hex("reset_token", token);
            out.number("retire_prior_to", retire);
            out.number("sequence_number", number);
        }
        0x19 => limit(
            &mut out,
            "retire_connection_id",
            "sequence_number",
            varint::take(rest)?,
        ),
        kind @ 0x1a..=0x1b => {
            out.hex("data", take(rest, 8)?);
            out.unescaped(
                "frame_type",
                match kind {
                    0x1a => "path_challenge",
                    _ => "path_response",
                },
            );
        }
        kind @ 0x1c..=0x1d => close(&mut out, rest, kind == 0x1c)?,
        0x1e => out.unescaped("frame_type", "handshake_done"),
        0x1f => out.unescaped("frame_type", "immediate_ack"),
        kind @ 0x30..=0x31 => {
            let data = match kind {
                0x30 => take(rest, rest.len())?,
                _ => counted(rest)?,
            };
            out.unescaped("frame_type", "datagram");
            out.number("length", data.len() as u64);
        }
        0xaf => {
            out.unescaped("frame_type", "ack_frequency");
            out.number("sequence_number", varint::take(rest)?);
            out.number("ack_eliciting_threshold", varint::take(rest)?);
            out.number("request_max_ack_delay", varint::take(rest)?);
            out.number("reordering_threshold", varint::take(rest)?);
        }
        _ => return None,
    }
    Some(out)
}

fn ack(out: &mut Object, rest: &mut &[u8], has_ecn: bool, exponent: u32) -> Option<()> {
    let mut end = varint::take(rest)?;
    let delay = varint::take(rest)?;
    let count = varint::take(rest)?;
    let mut start = end.checked_sub(varint::take(rest)?)?;
    let mut ranges = vec![(start, end)];
    for _ in 0..count {
        end = start.checked_sub(varint::take(rest)?)?.checked_sub(2)?;
        start = end.checked_sub(varint::take(rest)?)?;
        ranges.push((start, end));
    }
    let microseconds = delay as f64 * f64::from(2u32.saturating_pow(exponent.min(20)));
    out.raw("ack_delay", &format!("{}", microseconds / 1000.0));
    let mut list = List::new();
    for (start, end) in ranges.iter().rev() {
        list.raw(&format!("[{start},{end}]"));
    }
    out.raw("acked_ranges", &list.finish());
    out.unescaped("frame_type", "ack");
    if has_ecn {
        for name in ["ect0", "ect1", "ce"] {
            out.number(name, varint::take(rest)?);
        }
    }
    Some(())
}

fn stream(out: &mut Object, rest: &mut &[u8], kind: u64) -> Option<()> {
    let stream_id = varint::take(rest)?;
    let offset = match kind & 0x04 {
        0 => 0,
        _ => varint::take(rest)?,
    };
    let data = match kind & 0x02 {
        0 => take(rest, rest.len())?,
        _ => counted(rest)?,
    };
    out.flag("fin", kind & 0x01 != 0);
    out.unescaped("frame_type", "stream");
    out.number("length", data.len() as u64);
    out.number("offset", offset);
    out.number("stream_id", stream_id);
    Some(())
}

fn close(out: &mut Object, rest: &mut &[u8], is_transport: bool) -> Option<()> {
    let code = varint::take(rest)?;
    let frame_type = match is_transport {
        true => Some(varint::take(rest)?),
        false => None,
    };
    let reason = String::from_utf8_lossy(counted(rest)?);
    out.number("error_code", code);
    out.unescaped(
        "error_space",
        match is_transport {
            true => "transport",
            false => "application",
        },
    );
    out.unescaped("frame_type", "connection_close");
    out.number("raw_error_code", code);
    out.text("reason", &reason);
    if let Some(frame_type) = frame_type {
        out.number("trigger_frame_type", frame_type);
    }
    Some(())
}

fn limit(out: &mut Object, frame_type: &str, name: &str, value: u64) {
    out.unescaped("frame_type", frame_type);
    out.number(name, value);
}

fn direction(out: &mut Object, is_unidirectional: bool) {
    out.unescaped(
        "stream_type",
        match is_unidirectional {
            true => "unidirectional",
            false => "bidirectional",
        },
    );
}

fn counted<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint::take(rest)?).ok()?;
    take(rest, length)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

/// At most this many frames of one packet are listed.
const FRAMES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use uringcore_wire::frame_iterator::{Frame, Frames};

    use super::*;

    const EVERY_FRAME: &[&[u8]] = &[
        &[0x01],
        &[0x02, 10, 25, 1, 2, 1, 1],
        &[0x03, 5, 0, 0, 5, 1, 2, 3],
        &[0x04, 4, 1, 2],
        &[0x05, 4, 1],
        &[0x06, 0, 2, 9, 9],
        &[0x07, 1, 0xab],
        &[0x0f, 4, 3, 2, 7, 7],
        &[0x10, 1],
        &[0x11, 4, 1],
        &[0x12, 1],
        &[0x13, 1],
        &[0x14, 1],
        &[0x15, 4, 1],
        &[0x16, 1],
        &[0x17, 1],
        &[
            0x18, 1, 0, 1, 0xcc, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
        ],
        &[0x19, 2],
        &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x1c, 1, 6, 2, b'n', b'o'],
        &[0x1d, 7, 2, b'"', b'\n'],
        &[0x1e],
        &[0x1f],
        &[0x31, 2, 1, 2],
        &[0x40, 0xaf, 1, 2, 3, 4],
        &[0x00, 0x00, 0x00],
        &[0x08, 0, 1, 2],
    ];

    #[test]
    fn every_frame_type_is_written_as_json() {
        let (json, _) = to_json(&EVERY_FRAME.concat(), 3);
        assert!(!json.contains("unknown"), "{json}");
        assert_eq!(json.matches("\"frame_type\"").count(), EVERY_FRAME.len());
        for part in [
            "{\"ack_delay\":0.2,\"acked_ranges\":[[4,5],[8,10]],\"frame_type\":\"ack\"}",
            "\"ect0\":1,\"ect1\":2,\"ce\":3",
            "{\"fin\":true,\"frame_type\":\"stream\",\"length\":2,\"offset\":3,\"stream_id\":4}",
            "\"frame_type\":\"connection_close\",\"raw_error_code\":7,\"reason\":\"\\\"\\u000a\"}",
            "\"error_space\":\"transport\"",
            "{\"frame_type\":\"padding\"}",
            "{\"fin\":false,\"frame_type\":\"stream\",\"length\":2,\"offset\":0,\"stream_id\":0}",
        ] {
            assert!(json.contains(part), "{part} in {json}");
        }
    }

    #[test]
    fn random_payloads_never_panic() {
        let payload = EVERY_FRAME.concat();
        for end in 0..payload.len() {
            for first in 0..=255 {
                let mut cut = payload[..end].to_vec();
                if let Some(byte) = cut.first_mut() {
                    *byte = first;
                }
                to_json(&cut, 20);
            }
        }
        assert!(to_json(&[0x21], 3).0.contains("unknown"));
    }

    #[test]
    fn the_number_of_listed_frames_is_bounded() {
        let (json, left_out) = to_json(&[0x01; 1200], 3);
        assert_eq!(json.matches("ping").count(), FRAMES_MAX);
        assert_eq!(left_out, 1200 - FRAMES_MAX);
    }

    /// Compares the list with the frames that the other parser, `wire::frame_iterator`, finds.
    #[test]
    fn both_parsers_find_the_same_frames_in_random_payloads() {
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for _ in 0..40_000 {
            let mut payload = Vec::new();
            for _ in 0..random(4) {
                payload.extend_from_slice(EVERY_FRAME[random(EVERY_FRAME.len())]);
            }
            for _ in 0..random(4) {
                let byte = [random(256) as u8, 0, 0xff, 0xc0][random(4)];
                match (random(3), payload.len()) {
                    (_, 0) | (0, _) => payload.push(byte),
                    (1, length) => payload[random(length)] = byte,
                    (_, length) => payload.truncate(random(length)),
                }
            }
            let (json, _) = to_json(&payload, random(64) as u32);
            let of = |name: &str| json.matches(&format!("\"frame_type\":\"{name}\"")).count();
            let named = json.matches("\"frame_type\"").count();
            let walked: Vec<_> = Frames::new(&payload).collect();
            for (start, end, frame) in &walked {
                assert!(start < end && *end <= payload.len(), "{payload:02x?}");
                if let Frame::Ack(ack) = frame {
                    let covered: Vec<_> = ack.ranges().take(64).collect();
                    assert!(covered.is_sorted_by(|a, b| a.start() > b.end()));
                    let has = |number: &u64| covered.iter().any(|range| range.contains(number));
                    for number in [ack.largest, 0, 1, 5, 8] {
                        assert_eq!(ack.covers(number), has(&number), "{payload:02x?}");
                    }
                }
            }
            // An error inside an ACK frame ends only one of the two lists.
            match of("unknown") {
                0 => assert_eq!(walked.len(), named - of("padding"), "{payload:02x?} {json}"),
                _ => assert!(walked.len() >= named - of("padding") - 1, "{payload:02x?}"),
            }
        }
    }
}
