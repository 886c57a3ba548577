//! The server side of the extension permessage-deflate (RFC 7692), which compresses messages.

use std::fmt;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::close_codes;
use super::violation::Violation;

/// The parameters on which both sides have agreed (RFC 7692 section 7.1). `Display` writes the value of the response's
/// Sec-WebSocket-Extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// True if messages of the server do not refer to earlier ones.
    server_resets: bool,
    /// True if messages of the client do not refer to earlier ones.
    client_resets: bool,
    server_window_bits: u8,
    /// The limit of the client's window. `None` if the client did not permit a limit.
    client_window_bits: Option<u8>,
}

impl Agreed {
    /// Accepts the first acceptable offer among the values of a request's Sec-WebSocket-Extensions. Returns `None` if
    /// there is no such offer, so that messages are not compressed.
    pub fn to_offers<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let values = values.into_iter();
        let mut offers = values.flat_map(|value| value.split(|&byte| byte == b','));
        offers.find_map(Self::to_offer)
    }

    /// Accepts an offer. An offer with a parameter that is unknown, repeated or invalid is declined (RFC 7692 section
    /// 5.1).
    fn to_offer(offer: &[u8]) -> Option<Self> {
        let mut parts = offer.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
        if !parts.next()?.eq_ignore_ascii_case(b"permessage-deflate") {
            return None;
        }
        let mut agreed = Self {
            server_resets: false,
            client_resets: false,
            server_window_bits: WINDOW_BITS,
            client_window_bits: None,
        };
        let mut has_server_window = false;
        for parameter in parts {
            let (name, value) = name_and_value(parameter);
            match (name, value) {
                (b"server_no_context_takeover", None) if !agreed.server_resets => {
                    agreed.server_resets = true;
                }
                (b"client_no_context_takeover", None) if !agreed.client_resets => {
                    agreed.client_resets = true;
                }
                (b"server_max_window_bits", Some(value)) if !has_server_window => {
                    has_server_window = true;
                    // zlib cannot compress with a window of 256 bytes.
                    let most = window_bits(value).filter(|&bits| bits > 8)?;
                    agreed.server_window_bits = most.min(WINDOW_BITS);
                }
                (b"client_max_window_bits", value) if agreed.client_window_bits.is_none() => {
                    let most = value.map_or(Some(WINDOW_BITS), window_bits)?;
                    agreed.client_window_bits = Some(most.min(WINDOW_BITS));
                }
                _ => return None,
            }
        }
        Some(agreed)
    }

    pub(super) fn inflater(&self) -> Inflater {
        let bits = self.client_window_bits.unwrap_or(WINDOW_BITS_MAX).max(9);
        Inflater {
            stream: Decompress::new_with_window_bits(false, bits),
            resets: self.client_resets,
            bytes: INFLATE_BYTES + (1 << bits),
        }
    }

    pub(super) fn deflater(&self) -> Deflater {
        Deflater {
            stream: None,
            resets: self.server_resets,
            window_bits: self.server_window_bits,
        }
    }
}

impl fmt::Display for Agreed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.server_window_bits;
        write!(f, "permessage-deflate; server_max_window_bits={bits}")?;
        if let Some(bits) = self.client_window_bits {
            write!(f, "; client_max_window_bits={bits}")?;
        }
        if self.server_resets {
            f.write_str("; server_no_context_takeover")?;
        }
        if self.client_resets {
            f.write_str("; client_no_context_takeover")?;
        }
        Ok(())
    }
}

fn name_and_value(parameter: &[u8]) -> (&[u8], Option<&[u8]>) {
    match parameter.iter().position(|&byte| byte == b'=') {
        None => (parameter, None),
        Some(at) => {
            let value = parameter[at + 1..].trim_ascii();
            // A quoted value is equivalent to the token inside (RFC 6455 section 9.1).
            let value = value
                .strip_prefix(b"\"")
                .and_then(|value| value.strip_suffix(b"\""))
                .unwrap_or(value);
            (parameter[..at].trim_ascii(), Some(value))
        }
    }
}

/// Parses the bits of a window: 8 to 15, without leading zeros (RFC 7692 section 7.1.2).
fn window_bits(value: &[u8]) -> Option<u8> {
    match value {
        [digit @ b'8'..=b'9'] => Some(digit - b'0'),
        [b'1', digit @ b'0'..=b'5'] => Some(10 + digit - b'0'),
        _ => None,
    }
}

/// Decompresses the messages of the client.
#[derive(Debug)]
pub(super) struct Inflater {
    stream: Decompress,
    resets: bool,
    /// The approximate size of the decompressor's memory.
    bytes: usize,
}

impl Inflater {
    /// Decompresses a piece of a message and appends it to `content`, which may have up to `max` bytes.
    pub fn push(
        &mut self,
        mut input: &[u8],
        content: &mut Vec<u8>,
        max: usize,
    ) -> Result<(), Violation> {
        loop {
            if content.len() == content.capacity() {
                // The capacity at most doubles, or grows by twice the input, so that it grows only with real content, and it
                // has an upper limit.
                let space = content
                    .len()
                    .max(2 * input.len())
                    .max(SPACE_MIN)
                    .min(max.saturating_add(1) - content.len());
                content.reserve_exact(space);
            }
            let (read, written) = (self.stream.total_in(), content.len());
            let inflated = self
                .stream
                .decompress_vec(input, content, FlushDecompress::None);
            let used = (self.stream.total_in() - read) as usize;
            input = &input[used..];
            if content.len() > max {
                return Err(Violation::new(
                    close_codes::TOO_BIG,
                    "the message is too big",
                ));
            }
            match inflated {
                // Other blocks may follow a block with the bit BFINAL (RFC 7692 section 7.2.3.5).
                Ok(Status::StreamEnd) => self.stream.reset(false),
                Ok(Status::Ok | Status::BufError) => {
                    let has_space = content.len() < content.capacity();
                    if input.is_empty() && has_space {
                        return Ok(());
                    }
                    if used == 0 && content.len() == written && has_space {
                        return Err(NOT_DEFLATE);
                    }
                }
                Err(_) => return Err(NOT_DEFLATE),
            }
        }
    }

    /// Ends a message (RFC 7692 section 7.2.2).
    pub fn finish(&mut self, content: &mut Vec<u8>, max: usize) -> Result<(), Violation> {
        self.push(&TAIL, content, max)?;
        if self.resets {
            self.stream.reset(false);
        }
        Ok(())
    }

    pub fn held_bytes(&self) -> usize {
        self.bytes
    }
}

/// Compresses messages for the client.
#[derive(Debug)]
pub(super) struct Deflater {
    /// The compressor. `None` before the first message, and after [`free`](Self::free).
    stream: Option<Compress>,
    resets: bool,
    window_bits: u8,
}

impl Deflater {
    /// Compresses the payload of a message (RFC 7692 section 7.2.1).
    pub fn compress(&mut self, mut input: &[u8]) -> Vec<u8> {
        let new = || Compress::new_with_window_bits(LEVEL, false, self.window_bits);
        let stream = self.stream.get_or_insert_with(new);
        let mut out = Vec::with_capacity(input.len() / 2 + SPACE_MIN);
        loop {
            let (read, written) = (stream.total_in(), out.len());
            // The stream is valid, so an error only means that no progress was possible.
            let _ = stream.compress_vec(input, &mut out, FlushCompress::Sync);
            input = &input[(stream.total_in() - read) as usize..];
            let has_space = out.len() < out.capacity();
            let is_stuck = stream.total_in() == read && out.len() == written;
            if has_space && (input.is_empty() || is_stuck) {
                break;
            }
            out.reserve(out.len().max(SPACE_MIN));
        }
        if out.ends_with(&TAIL) {
            out.truncate(out.len() - TAIL.len());
        }
        if out.is_empty() {
            // zlib returns no bytes for an empty message after another flush. RFC 7692 section 7.2.3.6 defines this
            // form for it.
            out.push(0);
        }
        if self.resets {
            stream.reset();
        }
        out
    }

    /// Frees the memory of an idle connection. The next message does not refer to earlier ones, which makes no
    /// difference for the client's decompressor.
    pub fn free(&mut self) {
        self.stream = None;
    }

    pub fn held_bytes(&self) -> usize {
        // The formula is in zlib's documentation of deflateInit2, here with the default memLevel of 8.
        let bytes = (1 << (self.window_bits + 2)) + (1 << 17);
        self.stream.as_ref().map_or(0, |_| bytes)
    }
}

/// The end of a flush, which is not sent (RFC 7692 section 7.2.1).
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// Messages are 5 to 8 % larger than with zlib's default of 6, in about half of the processor time.
const LEVEL: Compression = Compression::new(2);
/// Windows of 4 KiB. Larger windows cost memory for each connection, and make messages hardly smaller.
const WINDOW_BITS: u8 = 12;
const WINDOW_BITS_MAX: u8 = 15;
/// The minimum space in bytes that is allocated for output.
const SPACE_MIN: usize = 256;
/// The approximate number of bytes that a decompressor needs besides its window.
const INFLATE_BYTES: usize = 12 << 10;
const NOT_DEFLATE: Violation = Violation::new(
    close_codes::INVALID_PAYLOAD,
    "a message that is not compressed",
);

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(offers: &[&str]) -> Option<String> {
        let values = offers.iter().map(|offer| offer.as_bytes());
        Agreed::to_offers(values).map(|agreed| agreed.to_string())
    }

    #[test]
    fn the_first_acceptable_offer_is_accepted() {
        let plain = "permessage-deflate; server_max_window_bits=12";
        for (offers, expected) in [
            (&["permessage-deflate"][..], plain),
            (&["x-other", "Permessage-Deflate"], plain),
            (
                &["x-other; a=\"b\", permessage-deflate; server_max_window_bits=15"],
                plain,
            ),
            (
                &["permessage-deflate; server_max_window_bits=8, permessage-deflate"],
                plain,
            ),
            (
                &["permessage-deflate; server_max_window_bits = \"10\"; client_max_window_bits"],
                "permessage-deflate; server_max_window_bits=10; client_max_window_bits=12",
            ),
            (
                &["permessage-deflate; client_max_window_bits=9; server_no_context_takeover"],
                "permessage-deflate; server_max_window_bits=12; client_max_window_bits=9; server_no_context_takeover",
            ),
            (
                &["permessage-deflate; client_no_context_takeover"],
                "permessage-deflate; server_max_window_bits=12; client_no_context_takeover",
            ),
        ] {
            assert_eq!(agreed(offers).as_deref(), Some(expected), "{offers:?}");
        }
        for declined in [
            "",
            "permessage-deflat",
            "permessage-deflate; unknown",
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; client_max_window_bits=7",
            "permessage-deflate; client_max_window_bits=",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate;",
        ] {
            assert_eq!(agreed(&[declined]), None, "{declined:?}");
        }
    }

    fn pair(offer: &str) -> (Deflater, Inflater) {
        let agreed = Agreed::to_offers([offer.as_bytes()]).unwrap();
        (agreed.deflater(), agreed.inflater())
    }

    fn inflate(inflater: &mut Inflater, payload: &[u8], piece: usize) -> Result<Vec<u8>, u16> {
        let mut content = Vec::new();
        for piece in payload.chunks(piece.max(1)) {
            inflater
                .push(piece, &mut content, MAX)
                .map_err(|violation| violation.code)?;
        }
        inflater
            .finish(&mut content, MAX)
            .map_err(|violation| violation.code)?;
        Ok(content)
    }

    const MAX: usize = 1 << 20;

    #[test]
    fn messages_come_back_with_and_without_those_before_them() {
        for offer in [
            "permessage-deflate; client_max_window_bits",
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
            "permessage-deflate; server_max_window_bits=9; client_max_window_bits=9",
        ] {
            let (mut deflater, mut inflater) = pair(offer);
            let mixed: Vec<u8> = (0..200_000u32)
                .map(|n| (n.wrapping_mul(n) >> 7) as u8)
                .collect();
            let mut sizes = Vec::new();
            for message in [
                &b"Hello"[..],
                b"Hello",
                b"",
                &mixed,
                &[7; 300_000],
                b"Hello",
            ] {
                let payload = deflater.compress(message);
                sizes.push(payload.len());
                for (size, rests) in [(usize::MAX, false), (1, true)] {
                    // A second decoder with the client's context would need all messages. So one decoder gets them,
                    // alternately in one piece and in several.
                    if rests != (sizes.len() % 2 == 0) {
                        continue;
                    }
                    let found = inflate(&mut inflater, &payload, size.min(payload.len()));
                    assert!(
                        found.as_deref() == Ok(message),
                        "{offer} {:?}",
                        found.map(|it| it.len())
                    );
                }
            }
            let refers = !offer.contains("takeover");
            assert_eq!(sizes[1] < sizes[0], refers, "{offer}: {sizes:?}");
            deflater.free();
            assert_eq!(deflater.held_bytes(), 0);
            let payload = deflater.compress(b"Hello");
            assert_eq!(payload.len(), sizes[0]);
            assert_eq!(
                inflate(&mut inflater, &payload, 9).as_deref(),
                Ok(&b"Hello"[..])
            );
        }
    }

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // RFC 7692 sections 7.2.3.1 to 7.2.3.6.
        for payload in [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00][..],
            &[
                0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00,
            ],
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            &[
                0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00,
            ],
        ] {
            for size in [1, 2, payload.len()] {
                let (_, mut inflater) = pair("permessage-deflate");
                for _ in 0..2 {
                    let found = inflate(&mut inflater, payload, size);
                    assert_eq!(found.as_deref(), Ok(&b"Hello"[..]));
                }
            }
        }
        let (_, mut inflater) = pair("permessage-deflate");
        assert_eq!(
            inflate(
                &mut inflater,
                &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
                9
            )
            .as_deref(),
            Ok(&b"Hello"[..])
        );
        let referring = [0xf2, 0x00, 0x11, 0x00, 0x00];
        assert_eq!(
            inflate(&mut inflater, &referring, 9).as_deref(),
            Ok(&b"Hello"[..])
        );
    }

    #[test]
    fn what_inflates_beyond_the_bound_or_is_no_deflate_is_refused() {
        let (mut deflater, mut inflater) = pair("permessage-deflate");
        let exact = deflater.compress(&[0; MAX]);
        assert_eq!(
            inflate(&mut inflater, &exact, exact.len()).map(|it| it.len()),
            Ok(MAX)
        );
        let bomb = deflater.compress(&vec![0; 100 * MAX]);
        let mut content = Vec::new();
        let violation = inflater.push(&bomb, &mut content, MAX).unwrap_err();
        assert_eq!(violation.code, close_codes::TOO_BIG);
        assert!(content.capacity() <= MAX + 1);
        for bad in [&[0xff; 8][..], &[0x06], &[0x00, 0x05, 0x00, 0x00, 0x00]] {
            let (_, mut inflater) = pair("permessage-deflate");
            assert_eq!(
                inflate(&mut inflater, bad, 1),
                Err(close_codes::INVALID_PAYLOAD),
                "{bad:?}"
            );
        }
    }
}
