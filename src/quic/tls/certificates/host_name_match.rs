//! The host names that a certificate is for.

use rustls::pki_types::{CertificateDer, ServerName};
use webpki::EndEntityCert;

/// True if a DER certificate is for this DNS name or IP address (RFC 6125, RFC 9525). False if either is malformed.
pub fn is_for_host(certificate: &[u8], host: &str) -> bool {
    let der = CertificateDer::from(certificate);
    let Ok(name) = ServerName::try_from(host) else {
        return false;
    };
    let parsed = EndEntityCert::try_from(&der);
    parsed.is_ok_and(|found| found.verify_is_valid_for_subject_name(&name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_a_certificate_are_its_hosts() {
        let names = ["example.org", "*.example.net", "192.0.2.1", "2001:db8::1"];
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names.map(str::to_owned).to_vec()).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let is_for = |host| is_for_host(certificate.der(), host);
        for host in [
            "example.org",
            "EXAMPLE.org",
            "a.example.net",
            "192.0.2.1",
            "2001:db8::1",
        ] {
            assert!(is_for(host), "{host}");
        }
        for host in [
            "example.com",
            "a.example.org",
            "a.b.example.net",
            "192.0.2.2",
            "",
            "a b",
            "evil/",
        ] {
            assert!(!is_for(host), "{host}");
        }
        assert!(!is_for_host(b"no certificate", "example.org"));
    }
}
