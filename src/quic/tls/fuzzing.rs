//! Gives fuzz targets access to private functions of this module.

use rustls::SignatureScheme;

use super::{certificates::ed448::provider_with_ed448, versions::VersionInformation};

/// The chosen version and the available versions in transport parameters. An error if they are malformed.
pub fn version_information(parameters: &[u8]) -> Result<Option<(u32, Vec<u32>)>, String> {
    match VersionInformation::find(parameters) {
        Ok(found) => Ok(found.map(|found| (found.chosen, found.available))),
        Err(error) => Err(error.to_string()),
    }
}

/// Appends the version information of a side that has chosen the version `chosen`.
pub fn append_version_information(parameters: &mut Vec<u8>, chosen: u32, supported: &[u32]) {
    VersionInformation::append(parameters, chosen, supported);
}

/// True if `signature` is a valid Ed448 signature of `message`.
pub fn is_signed_with_ed448(key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let algorithms = provider_with_ed448().signature_verification_algorithms;
    let known = algorithms
        .mapping
        .iter()
        .filter(|(scheme, _)| *scheme == SignatureScheme::ED448);
    known
        .flat_map(|(_, algorithms)| algorithms.iter())
        .any(|algorithm| algorithm.verify_signature(key, message, signature).is_ok())
}
