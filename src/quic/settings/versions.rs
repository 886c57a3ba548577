//! The QUIC versions that an application may set.
//!
//! Not here: the negotiation (`endpoint::version_negotiation`, `tls::versions`).

use uringcore_wire::packet_header::{KNOWN_VERSIONS, VERSION_1, VERSION_2};

use crate::tls::ConfigError;

/// The versions of both sides by default, the preferred one first.
pub(super) const DEFAULT_VERSIONS: [u32; 2] = [VERSION_1, VERSION_2];

/// The versions among `supported` that this crate implements, in their order. An error if there are none.
pub(super) fn known_versions(supported: &[u32]) -> Result<Vec<u32>, ConfigError> {
    let known: Vec<u32> = supported
        .iter()
        .copied()
        .filter(|version| KNOWN_VERSIONS.contains(version))
        .collect();
    match known.is_empty() {
        true => Err(ConfigError::new(
            "supported_versions",
            "must hold QUIC version 1 (0x00000001) or 2 (0x6b3343cf)",
        )),
        false => Ok(known),
    }
}

/// The version of quinn-proto's connection, and the version in its first packets if this crate does not implement
/// that one. Such packets are answered with a Version Negotiation packet.
pub(super) fn first_version(
    supported: &[u32],
    original: Option<u32>,
) -> Result<(u32, Option<u32>), ConfigError> {
    let known = known_versions(supported)?;
    let first = original.or(supported.first().copied()).unwrap_or(known[0]);
    match first {
        0 => Err(ConfigError::new(
            "original_version",
            "0 is that of Version Negotiation packets",
        )),
        first if KNOWN_VERSIONS.contains(&first) => Ok((first, None)),
        // The packets have the layout of version 1.
        first => Ok((VERSION_1, Some(first))),
    }
}
