//! Generates the key of a development certificate, and signs with it.
//!
//! `python/uringcore/devcert.py` assembles the certificate itself, once per run. Python's standard library has no
//! ECDSA; the crypto library that QUIC uses has it.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(make_p256_key, module)?)?;
    module.add_function(wrap_pyfunction!(sign_p256, module)?)
}

/// Makes a P-256 key. Returns it in PKCS #8 (DER), with its public point in the uncompressed form (RFC 5480 section
/// 2.2).
#[pyfunction]
fn make_p256_key(py: Python<'_>) -> PyResult<(Bound<'_, PyBytes>, Bound<'_, PyBytes>)> {
    let algorithm = &ECDSA_P256_SHA256_ASN1_SIGNING;
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &SystemRandom::new()).map_err(failed)?;
    let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).map_err(failed)?;
    Ok((
        PyBytes::new(py, document.as_ref()),
        PyBytes::new(py, key.public_key().as_ref()),
    ))
}

/// Signs with ECDSA and SHA-256. Returns the signature in DER. Raises RuntimeError if `key` is not a key of
/// `make_p256_key`.
#[pyfunction]
fn sign_p256<'py>(py: Python<'py>, key: &[u8], message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, key).map_err(failed)?;
    let signature = key.sign(&SystemRandom::new(), message).map_err(failed)?;
    Ok(PyBytes::new(py, signature.as_ref()))
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(format!("the key cannot be used: {error}"))
}
