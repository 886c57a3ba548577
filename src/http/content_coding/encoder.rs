//! Compresses the content of a response as it is written.
//!
//! The windows are small (256 KiB with zstd and br, 32 KiB with gzip), because each response that is under way has
//! one. A larger window gains little for documents.

use std::io::{self, Write};

use brotli::CompressorWriter;
use flate2::Compression;
use flate2::write::GzEncoder;
use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, get_error_name};

use super::accept_encoding::Coding;

/// The encoder of one response.
pub struct Encoder(Format);

enum Format {
    Zstd(Box<CCtx<'static>>, Vec<u8>),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
}

impl Encoder {
    /// Makes an encoder. `level` is 1 (fast) to 9 (small).
    ///
    /// # Errors
    ///
    /// If there is no memory for it.
    pub fn new(coding: Coding, level: Option<u8>) -> io::Result<Self> {
        let level = level.unwrap_or(match coding {
            Coding::Zstd => ZSTD_LEVEL,
            Coding::Brotli => BROTLI_LEVEL,
            Coding::Gzip => GZIP_LEVEL,
        });
        Ok(Self(match coding {
            Coding::Zstd => {
                let mut context = CCtx::try_create().ok_or(io::ErrorKind::OutOfMemory)?;
                let parameters = [
                    CParameter::CompressionLevel(level.into()),
                    CParameter::WindowLog(WINDOW_BITS),
                ];
                for parameter in parameters {
                    context.set_parameter(parameter).map_err(zstd_error)?;
                }
                Format::Zstd(Box::new(context), Vec::new())
            }
            Coding::Brotli => Format::Brotli(Box::new(CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER_BYTES,
                level.min(BROTLI_LEVEL_MAX).into(),
                WINDOW_BITS,
            ))),
            Coding::Gzip => {
                let level = Compression::new(level.into());
                Format::Gzip(Box::new(GzEncoder::new(Vec::new(), level)))
            }
        }))
    }

    /// About the number of bytes that an encoder occupies.
    pub fn memory(coding: Coding, level: Option<u8>) -> usize {
        let is_high = level.is_some_and(|level| level > 3);
        match (coding, is_high) {
            (Coding::Zstd | Coding::Brotli, false) => 2 << 20,
            (Coding::Zstd | Coding::Brotli, true) => 5 << 20,
            (Coding::Gzip, _) => 300 << 10,
        }
    }

    /// Compresses content. With `flushes`, the returned bytes contain all content up to now.
    ///
    /// # Errors
    ///
    /// If there is no memory. The encoder is not usable then.
    pub fn write(&mut self, content: &[u8], flushes: bool) -> io::Result<Vec<u8>> {
        match &mut self.0 {
            Format::Zstd(context, output) => {
                let directive = match flushes {
                    true => ZSTD_EndDirective::ZSTD_e_flush,
                    false => ZSTD_EndDirective::ZSTD_e_continue,
                };
                compress(context, content, output, directive)?;
                Ok(std::mem::take(output))
            }
            Format::Brotli(writer) => {
                writer.write_all(content)?;
                if flushes {
                    writer.flush()?;
                }
                Ok(std::mem::take(writer.get_mut()))
            }
            Format::Gzip(writer) => {
                writer.write_all(content)?;
                if flushes {
                    writer.flush()?;
                }
                Ok(std::mem::take(writer.get_mut()))
            }
        }
    }

    /// Compresses the last content, and ends the coding.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write).
    pub fn finish(self, content: &[u8]) -> io::Result<Vec<u8>> {
        match self.0 {
            Format::Zstd(mut context, mut output) => {
                let directive = ZSTD_EndDirective::ZSTD_e_end;
                compress(&mut context, content, &mut output, directive)?;
                Ok(output)
            }
            Format::Brotli(mut writer) => {
                writer.write_all(content)?;
                Ok(writer.into_inner())
            }
            Format::Gzip(mut writer) => {
                writer.write_all(content)?;
                writer.finish()
            }
        }
    }
}

/// Compresses all of `content` and appends to `output`.
fn compress(
    context: &mut CCtx<'_>,
    content: &[u8],
    output: &mut Vec<u8>,
    directive: ZSTD_EndDirective,
) -> io::Result<()> {
    let mut input = InBuffer::around(content);
    loop {
        output.reserve(content.len() / 4 + ZSTD_ROOM_BYTES);
        let filled = output.len();
        let mut room = OutBuffer::around_pos(output, filled);
        let left = context
            .compress_stream2(&mut room, &mut input, directive)
            .map_err(zstd_error)?;
        let is_done = match directive {
            ZSTD_EndDirective::ZSTD_e_continue => input.pos() == content.len(),
            _ => left == 0,
        };
        if is_done {
            return Ok(());
        }
    }
}

fn zstd_error(code: usize) -> io::Error {
    io::Error::other(get_error_name(code))
}

const WINDOW_BITS: u32 = 18;

/// The levels of the settings' `None`: the best ratio at a speed of about 50 MB a second or more.
const ZSTD_LEVEL: u8 = 3;
const BROTLI_LEVEL: u8 = 4;
const GZIP_LEVEL: u8 = 6;
/// With each further level the encoder's tables double, to 32 MiB with level 9.
const BROTLI_LEVEL_MAX: u8 = 6;

const BROTLI_BUFFER_BYTES: usize = 4096;
const ZSTD_ROOM_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const CODINGS: [Coding; 3] = [Coding::Zstd, Coding::Brotli, Coding::Gzip];

    /// Decodes the beginning of coded content, as far as it goes.
    fn decoded(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Coding::Gzip => drop(flate2::read::GzDecoder::new(bytes).read_to_end(&mut content)),
            Coding::Brotli => {
                drop(brotli::Decompressor::new(bytes, 4096).read_to_end(&mut content))
            }
            Coding::Zstd => {
                let mut context = zstd_safe::DCtx::create();
                content.reserve(1 << 22);
                let mut input = InBuffer::around(bytes);
                let mut output = OutBuffer::around(&mut content);
                while input.pos() < bytes.len() {
                    context.decompress_stream(&mut output, &mut input).unwrap();
                }
            }
        }
        content
    }

    fn content(bytes: usize) -> Vec<u8> {
        let mut state = 1_u32;
        let mut line = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            format!("line {} of a document\n", state >> 8).into_bytes()
        };
        std::iter::repeat_with(&mut line)
            .flatten()
            .take(bytes)
            .collect()
    }

    #[test]
    fn content_in_pieces_is_what_a_decoder_returns() {
        let content = content(1 << 20);
        for coding in CODINGS {
            for level in [None, Some(1), Some(9)] {
                for piece in [1 << 10, 128 << 10, 1 << 20] {
                    let mut encoder = Encoder::new(coding, level).unwrap();
                    let mut coded = Vec::new();
                    for part in content.chunks(piece) {
                        coded.extend(encoder.write(part, false).unwrap());
                    }
                    coded.extend(encoder.finish(b"the end").unwrap());
                    assert!(coded.len() < content.len() / 2);
                    let expected = [&content[..], b"the end"].concat();
                    assert!(
                        decoded(coding, &coded) == expected,
                        "{coding:?} {level:?} {piece}"
                    );
                }
            }
        }
    }

    #[test]
    fn flushed_content_is_readable_before_the_end() {
        for coding in CODINGS {
            let mut encoder = Encoder::new(coding, None).unwrap();
            let mut coded = Vec::new();
            for (at, message) in ["data: one\n\n", "data: two\n\n"].iter().enumerate() {
                coded.extend(encoder.write(message.as_bytes(), true).unwrap());
                let expected = &b"data: one\n\ndata: two\n\n"[..11 * (at + 1)];
                assert_eq!(decoded(coding, &coded), expected, "{coding:?}");
            }
        }
    }

    #[test]
    fn empty_content_has_a_valid_coding() {
        for coding in CODINGS {
            let coded = Encoder::new(coding, None).unwrap().finish(b"").unwrap();
            assert!(!coded.is_empty());
            assert_eq!(decoded(coding, &coded), b"");
        }
    }

    #[test]
    fn an_encoder_takes_about_the_memory_that_is_charged() {
        let content = content(1 << 20);
        for level in [None, Some(1), Some(4)] {
            let mut encoder = Encoder::new(Coding::Zstd, level).unwrap();
            encoder.write(&content, true).unwrap();
            let Format::Zstd(context, _) = &encoder.0 else {
                panic!("another format");
            };
            let charged = Encoder::memory(Coding::Zstd, level);
            let taken = context.sizeof();
            assert!(
                (charged / 4..=charged).contains(&taken),
                "{level:?} {taken}"
            );
        }
    }
}
