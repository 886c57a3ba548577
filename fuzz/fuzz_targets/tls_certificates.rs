//! Invariant: no bytes in place of a certificate, a key or a signature make their readers panic.
//! The dates of a certificate are within the years of its encoding, and do not depend on bytes
//! after the certificate.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use uringcore_quic::fuzzing::tls::is_signed_with_ed448;
use uringcore_quic::tls::{Identity, validity};

fuzz_target!(|data: &[u8]| {
    let [options, script @ ..] = data else { return };
    let der = match options & 1 {
        0 => script.to_vec(),
        _ => mutated(certificate(), script),
    };
    if let Some((from, until)) = validity(&der) {
        assert!(from.max(until) < END_OF_YEAR_9999);
        let more = [&der[..], script].concat();
        assert_eq!(validity(&more), Some((from, until)));
    }
    let (key, rest) = script.split_at(script.len().min(57));
    let (signature, message) = rest.split_at(rest.len().min(114));
    // With a key of small order, which its owner must have chosen, many signatures verify.
    let _ = is_signed_with_ed448(key, message, signature);
    let _ = Identity::from_pem(&pem("CERTIFICATE", &der), &pem("PRIVATE KEY", script));
});

/// Each three bytes of `script` change one byte of `der`, or truncate it.
fn mutated(der: &[u8], script: &[u8]) -> Vec<u8> {
    let mut der = der.to_vec();
    for step in script.chunks_exact(3) {
        let at = usize::from(u16::from_be_bytes([step[0], step[1]]));
        if at < der.len() {
            der[at] = step[2];
        } else if at & 0xff == 0xff {
            der.truncate(usize::from(step[2]) * 4);
        }
    }
    der
}

fn certificate() -> &'static [u8] {
    static DER: OnceLock<Vec<u8>> = OnceLock::new();
    DER.get_or_init(|| {
        let params = rcgen::CertificateParams::new(vec!["localhost".into()]);
        let key = rcgen::KeyPair::generate().expect("keys can be made");
        let made = params.expect("it is a name").self_signed(&key);
        made.expect("it can be signed").der().to_vec()
    })
}

fn pem(label: &str, der: &[u8]) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = format!("-----BEGIN {label}-----\n").into_bytes();
    for group in der.chunks(3) {
        let bits = group
            .iter()
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for place in 0..4 {
            let digit = digits[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= group.len() { digit } else { b'=' });
        }
    }
    text.extend(format!("\n-----END {label}-----\n").into_bytes());
    text
}

/// Leaves room for hours, minutes and seconds of two digits, which are not range-checked.
const END_OF_YEAR_9999: u64 = 253_402_300_800 + 4 * 86_400;
