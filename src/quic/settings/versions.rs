//! The QUIC versions that a host may set.
//!
//! Not here: the negotiation (`endpoint::version_negotiation`, `tls::versions`).

use uringcore_wire::header::{KNOWN_VERSIONS, VERSION_1, VERSION_2};

use crate::tls::ConfigError;

/// The default versions of both sides, the preferred one first.
pub(super) const DEFAULT_VERSIONS: [u32; 2] = [VERSION_1, VERSION_2];

/// The versions with known keys, in order. At least one.
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

/// The version of a client's state machine, and the version in its packets if that has no known keys: such a first
/// flight is answered with a Version Negotiation packet.
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
        // An unsupported version has the layout of version 1.
        first => Ok((VERSION_1, Some(first))),
    }
}
