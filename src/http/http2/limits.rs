//! The limits of one client connection of a server.

use crate::concurrent_requests;

/// The limits of one connection. The host checks that the values make sense.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// The limits that apply to HTTP/3 as well.
    pub requests: concurrent_requests::Limits,
    pub sections: SectionLimits,
}

/// The limits of a header section.
#[derive(Debug, Clone)]
pub struct SectionLimits {
    /// The maximum size in bytes, counted as for SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113 section 6.5.2).
    pub bytes: usize,
    /// The maximum number of fields.
    pub fields: usize,
}

impl Default for SectionLimits {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024,
            fields: 256,
        }
    }
}
