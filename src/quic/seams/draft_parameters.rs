//! Transport parameters in the extension number of drafts of RFC 9001.
//!
//! rustls accepts that number in every version of QUIC. RFC 9001 section 8.2 defines another number, and requires that
//! a hello without it is rejected.
//!
//! Assumed of rustls: a server rejects a hello that has neither extension, and no other. Not here: the same check for
//! clients, because rustls reads the server's extension before it is visible to us.

use rustls::{AlertDescription, Error, PeerMisbehaved};
use uringcore_wire::tls::client_hello::ClientHello;

/// The error of rustls for a hello without transport parameters, if the draft's are the only ones.
pub fn fault(hello: &ClientHello<'_>) -> Option<(Error, AlertDescription)> {
    let are_alone =
        hello.has_draft_transport_parameters() && hello.transport_parameters().is_none();
    are_alone.then(|| {
        let error = PeerMisbehaved::MissingQuicTransportParameters.into();
        (error, AlertDescription::MissingExtension)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{crypto::aws_lc_rs as provider, pki_types::ServerName, quic};
    use uringcore_wire::tls::message;

    use super::*;
    use crate::seams::bare;

    /// The verdicts of a bare rustls server and of `fault` on a hello whose extension has this number.
    fn said_of(number: u16) -> (Option<(Error, Option<AlertDescription>)>, bool) {
        let suite = provider::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let (client, server) = bare::tls(vec![suite]);
        let version = quic::Version::V1;
        let name = ServerName::try_from("localhost").unwrap();
        let params = vec![0x01, 0x04, 0x80, 0, 0xea, 0x60];
        let client = quic::ClientConnection::new(Arc::new(client), version, name, params.clone());
        let mut hello = Vec::new();
        client.unwrap().write_hs(&mut hello);
        let extension = [&[0, 0x39, 0, 6], &params[..]].concat();
        let at = hello
            .windows(extension.len())
            .position(|part| part == extension);
        let at = at.expect("the hello contains the extension written above");
        hello[at..at + 2].copy_from_slice(&number.to_be_bytes());

        let server = quic::ServerConnection::new(Arc::new(server), version, params.clone());
        let mut server = server.unwrap();
        let complaint = server.read_hs(&hello).err();
        if complaint.is_none() {
            assert_eq!(server.quic_transport_parameters(), Some(&params[..]));
        }
        let (_, content, _) = message(&hello).unwrap();
        let hello = ClientHello::read(content).unwrap();
        let fault = fault(&hello);
        (
            complaint.map(|error| (error, server.alert())),
            fault.is_some(),
        )
    }

    #[test]
    fn bare_rustls_takes_the_number_of_the_drafts_in_version_1() {
        assert_eq!(said_of(0x39), (None, false));
        assert_eq!(said_of(0xffa5), (None, true));
        let missing = Error::from(PeerMisbehaved::MissingQuicTransportParameters);
        let alert = Some(AlertDescription::MissingExtension);
        assert_eq!(said_of(0xffa6), (Some((missing, alert)), false));
    }
}
