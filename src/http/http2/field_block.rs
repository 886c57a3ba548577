//! A field block that consists of several frames: HEADERS and CONTINUATION (RFC 9113 section 4.3).

use super::error::Fault;
use super::frame_codec::PAYLOAD_MAX;

/// An incomplete field block.
#[derive(Debug)]
pub(super) struct HeaderBlock {
    pub stream_id: u32,
    /// True if the HEADERS frame has END_STREAM.
    pub ended: bool,
    pub fragments: Vec<u8>,
    /// The number of CONTINUATION frames so far.
    frames: usize,
}

impl HeaderBlock {
    pub fn new(stream_id: u32, ended: bool, fragment: &[u8]) -> Self {
        Self {
            stream_id,
            ended,
            fragments: fragment.to_vec(),
            frames: 0,
        }
    }

    /// Adds the payload of a CONTINUATION frame. `section_bytes` is the maximum size of a header section. A block may
    /// exceed it within bounds, because its request is then answered with 431.
    ///
    /// The number of frames is limited as well, because frames may be empty (CVE-2024-27316 and others).
    pub fn add(&mut self, fragment: &[u8], section_bytes: usize) -> Result<(), Fault> {
        let bytes_max = section_bytes.saturating_mul(2).saturating_add(PAYLOAD_MAX);
        let frames_max = 2 * (bytes_max / PAYLOAD_MAX) + FEW_FRAMES;
        self.frames += 1;
        if self.fragments.len() + fragment.len() > bytes_max || self.frames > frames_max {
            return Err(Fault::abuse("a header section is too large"));
        }
        self.fragments.extend_from_slice(fragment);
        Ok(())
    }
}

/// The number of CONTINUATION frames that a block may have even if it is short.
const FEW_FRAMES: usize = 16;
