//! Development certificates: a self-signed ECDSA P-256 certificate, with the hashes that browsers ask for.
//!
//! Names and lifetime are the caller's to choose (python/uringcore/devcert.py has the policy); writing files,
//! and serving with a certificate, are not done here.

use aws_lc_rs::digest::{SHA256, digest};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use time::{Duration, OffsetDateTime};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(make_dev_cert, module)?)
}

/// A self-signed certificate for `names` (DNS names or IP addresses), valid from now for `days` days.
///
/// Returns a list: the certificate and its PKCS #8 key as PEM, then the SHA-256 of the certificate's DER and the SHA-256
/// of its SubjectPublicKeyInfo. Raises ValueError for a bad name, no name, or fewer than 1 day.
#[pyfunction]
fn make_dev_cert<'py>(
    py: Python<'py>,
    names: Vec<String>,
    days: u32,
) -> PyResult<[Bound<'py, PyBytes>; 4]> {
    let params = params(names, days)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    let certificate_hash = digest(&SHA256, certificate.der());
    let public_key_hash = digest(&SHA256, &key.subject_public_key_info());
    Ok([
        PyBytes::new(py, certificate.pem().as_bytes()),
        PyBytes::new(py, key.serialize_pem().as_bytes()),
        PyBytes::new(py, certificate_hash.as_ref()),
        PyBytes::new(py, public_key_hash.as_ref()),
    ])
}

fn params(names: Vec<String>, days: u32) -> PyResult<CertificateParams> {
    if names.is_empty() {
        return Err(PyValueError::new_err("names: at least one name is needed"));
    }
    if let Some(bad) = names.iter().find(|name| !is_plausible_name(name)) {
        return Err(PyValueError::new_err(format!(
            "names: {bad:?} is neither a DNS name nor an IP address"
        )));
    }
    if days == 0 {
        return Err(PyValueError::new_err("days: must be at least 1"));
    }
    let mut params = CertificateParams::new(names)
        .map_err(|error| PyValueError::new_err(format!("names: {error}")))?;
    // Clients look at the names above only. The subject must differ from that of the many other self-signed
    // certificates called "localhost": a client that trusts one of those would complain of a bad signature.
    params
        .distinguished_name
        .push(DnType::CommonName, "uringcore development certificate");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // Clients whose clock runs a little behind must not see a certificate from the future. The end counts from the
    // start, since browsers limit the whole period (14 days for WebTransport's serverCertificateHashes).
    let not_before = OffsetDateTime::now_utc() - Duration::minutes(5);
    params.not_before = not_before;
    params.not_after = not_before + Duration::days(i64::from(days));
    Ok(params)
}

/// rcgen takes any ASCII for a DNS name; a certificate with a blank in it would match nothing.
fn is_plausible_name(name: &str) -> bool {
    let plausible = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:*_".contains(&byte);
    !name.is_empty() && name.bytes().all(plausible)
}

fn failed(error: rcgen::Error) -> PyErr {
    PyRuntimeError::new_err(format!("the certificate could not be made: {error}"))
}
