//! The transport parameter `version_information` (RFC 9368 section 3): encoding, decoding, and its comparison with
//! the versions in packets.

use bytes::{Buf, BufMut};
use quinn_proto::{FrameType, TransportError, TransportErrorCode, coding::Codec};
use uringcore_wire::{packet_header::VERSION_1, transport_parameters::Parameters, varint};

use super::{Beginning, Versions, preferred, reserved};

/// The version information of one side: the chosen version, and all versions that it supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tls) struct VersionInformation {
    pub chosen: u32,
    pub available: Vec<u32>,
}

impl VersionInformation {
    /// Appends the parameter to encoded transport parameters. The last of the available versions is a reserved one, so
    /// that peers are used to unknown versions.
    pub fn append(parameters: &mut Vec<u8>, chosen: u32, supported: &[u32]) {
        let length = 4 * (2 + supported.len());
        varint::put(parameters, ID);
        varint::put(parameters, length as u64);
        parameters.put_u32(chosen);
        supported
            .iter()
            .for_each(|version| parameters.put_u32(*version));
        parameters.put_u32(reserved());
    }

    /// Finds the parameter in encoded transport parameters.
    pub fn find(parameters: &[u8]) -> Result<Option<Self>, TransportError> {
        let mut found = None;
        let mut parameters = Parameters::of(parameters);
        for (id, value) in &mut parameters {
            if id == ID && found.replace(Self::read(value)?).is_some() {
                return Err(malformed("twice"));
            }
        }
        match parameters.is_cut_short() {
            true => Err(malformed("cut short")),
            false => Ok(found),
        }
    }

    fn read(mut value: &[u8]) -> Result<Self, TransportError> {
        if value.len() < 4 || !value.len().is_multiple_of(4) {
            return Err(malformed("of a wrong length"));
        }
        let chosen = value.get_u32();
        let mut available = Vec::with_capacity(value.len() / 4);
        while value.has_remaining() {
            available.push(value.get_u32());
        }
        match chosen == 0 || available.contains(&0) {
            true => Err(malformed("about version 0")),
            false => Ok(Self { chosen, available }),
        }
    }
}

impl Versions {
    /// On a server, chooses the version from the client's version information: the first of the client's versions that
    /// this side supports. Without version information it is the original version (RFC 9368 section 2.3).
    pub(in crate::tls) fn choose(
        &self,
        client: Option<&VersionInformation>,
    ) -> Result<u32, TransportError> {
        let Some(client) = client else {
            return Ok(self.original);
        };
        if !client.available.contains(&client.chosen) {
            return Err(malformed("without its chosen version"));
        }
        if client.chosen != self.original {
            return Err(negotiation_error("the client chose another version"));
        }
        let choice = client
            .available
            .iter()
            .copied()
            .find(|version| *version == self.original || self.is_supported(*version));
        Ok(choice.unwrap_or(self.original))
    }

    fn is_supported(&self, version: u32) -> bool {
        super::known(version).is_some() && self.supported.contains(&version)
    }

    /// On a client, checks the server's version information after TLS has authenticated it (RFC 9368 section 4).
    pub(in crate::tls) fn check(
        &self,
        server: Option<&VersionInformation>,
    ) -> Result<(), TransportError> {
        let negotiated = self.negotiated().unwrap_or(self.original);
        let Some(server) = server else {
            // RFC 9368 section 8: a server that supports only version 1 need not send the parameter.
            let is_plain = negotiated == self.original
                && (self.beginning == Beginning::Chosen || negotiated == VERSION_1);
            return match is_plain {
                true => Ok(()),
                false => Err(negotiation_error("the server says nothing of versions")),
            };
        };
        if server.chosen != negotiated {
            return Err(negotiation_error("the server chose another version"));
        }
        if self.beginning == Beginning::Reported {
            // The version that the client would have chosen from the authentic list.
            let honest = preferred(&self.supported, &server.available);
            if honest.is_none_or(|version| version != negotiated && version != self.original) {
                return Err(negotiation_error(
                    "an attacker has changed the negotiated version",
                ));
            }
        }
        Ok(())
    }

    /// Appends the version information of this side.
    pub(in crate::tls) fn append_information(&self, parameters: &mut Vec<u8>) {
        let chosen = self.negotiated().unwrap_or(self.original);
        VersionInformation::append(parameters, chosen, &self.supported);
    }
}

/// A VERSION_NEGOTIATION_ERROR (RFC 9368 section 10.2), which quinn-proto does not define.
pub(in crate::tls) fn negotiation_error(reason: &str) -> TransportError {
    let code = TransportErrorCode::decode(&mut &[NEGOTIATION_ERROR][..])
        .expect("one byte is a whole number");
    error(code, format!("version negotiation failed: {reason}"))
}

fn malformed(how: &str) -> TransportError {
    error(
        TransportErrorCode::TRANSPORT_PARAMETER_ERROR,
        format!("version information {how}"),
    )
}

fn error(code: TransportErrorCode, reason: String) -> TransportError {
    TransportError {
        code,
        frame: FrameType::decode(&mut &[FRAME_TYPE_CRYPTO][..]).ok(),
        reason,
    }
}

const ID: u64 = 0x11;
const NEGOTIATION_ERROR: u8 = 0x11;
const FRAME_TYPE_CRYPTO: u8 = 0x06;

#[cfg(test)]
mod tests {
    use uringcore_wire::packet_header::VERSION_2;

    use super::*;

    fn code(result: Result<impl std::fmt::Debug, TransportError>) -> u64 {
        result.unwrap_err().code.into()
    }

    fn information(chosen: u32, available: &[u32]) -> VersionInformation {
        VersionInformation {
            chosen,
            available: available.to_vec(),
        }
    }

    #[test]
    fn version_information_is_read_as_written() {
        let mut parameters = vec![0x01, 0x02, 0x40, 0x64];
        VersionInformation::append(&mut parameters, VERSION_2, &[VERSION_2, VERSION_1]);
        parameters.extend([0x30, 0x00]);
        let found = VersionInformation::find(&parameters).unwrap().unwrap();
        assert_eq!(found.chosen, VERSION_2);
        assert_eq!(found.available[..2], [VERSION_2, VERSION_1]);
        assert_eq!(found.available[2] & 0x0f0f_0f0f, 0x0a0a_0a0a);
        assert_eq!(VersionInformation::find(&parameters[..4]).unwrap(), None);
        for cut in 5..parameters.len() - 2 {
            assert_eq!(
                code(VersionInformation::find(&parameters[..cut])),
                0x8,
                "{cut}"
            );
        }
        assert_eq!(code(VersionInformation::find(&[0x11, 0])), 0x8);
        assert_eq!(
            code(VersionInformation::find(&[0x11, 5, 0, 0, 0, 1, 0])),
            0x8
        );
        assert_eq!(code(VersionInformation::find(&[0x11, 4, 0, 0, 0, 0])), 0x8);
        let twice = [0x11, 4, 0, 0, 0, 1].repeat(2);
        assert_eq!(code(VersionInformation::find(&twice)), 0x8);
    }

    #[test]
    fn a_server_chooses_the_clients_preferred_version() {
        let server = Versions::server(VERSION_1, &[VERSION_1, VERSION_2]);
        let choice = |available: &[u32]| server.choose(Some(&information(VERSION_1, available)));
        assert_eq!(choice(&[VERSION_2, VERSION_1]).unwrap(), VERSION_2);
        assert_eq!(
            choice(&[0x1a2a_3a4a, VERSION_2, VERSION_1]).unwrap(),
            VERSION_2
        );
        assert_eq!(choice(&[VERSION_1, VERSION_2]).unwrap(), VERSION_1);
        assert_eq!(server.choose(None).unwrap(), VERSION_1);
        assert_eq!(code(choice(&[VERSION_2])), 0x8);
        let other = information(VERSION_2, &[VERSION_1, VERSION_2]);
        assert_eq!(code(server.choose(Some(&other))), 0x11);
        let plain = Versions::server(VERSION_1, &[VERSION_1]);
        let both = information(VERSION_1, &[VERSION_2, VERSION_1]);
        assert_eq!(plain.choose(Some(&both)).unwrap(), VERSION_1);
    }

    #[test]
    fn a_client_rejects_a_forged_choice() {
        let both = [VERSION_1, VERSION_2];
        let client = |original, negotiated, supported: &[u32], beginning| {
            let versions = Versions::client(original, original, supported, beginning);
            versions.decide(negotiated);
            versions
        };
        let plain = client(VERSION_1, VERSION_1, &both, Beginning::Chosen);
        assert!(plain.check(None).is_ok());
        assert!(plain.check(Some(&information(VERSION_1, &[]))).is_ok());
        assert_eq!(
            code(plain.check(Some(&information(VERSION_2, &both)))),
            0x11
        );
        let switched = client(VERSION_1, VERSION_2, &both, Beginning::Chosen);
        assert!(switched.check(Some(&information(VERSION_2, &both))).is_ok());
        assert_eq!(code(switched.check(None)), 0x11);
        assert_eq!(
            code(switched.check(Some(&information(VERSION_1, &both)))),
            0x11
        );
        // The client has begun again after a Version Negotiation packet.
        let reported = client(
            VERSION_1,
            VERSION_1,
            &[VERSION_2, VERSION_1],
            Beginning::Reported,
        );
        assert!(
            reported
                .check(Some(&information(VERSION_1, &[VERSION_1])))
                .is_ok()
        );
        assert!(reported.check(None).is_ok(), "RFC 9368 section 8");
        let downgraded = reported.check(Some(&information(VERSION_1, &both)));
        assert_eq!(code(downgraded), 0x11, "the server supports version 2");
        assert_eq!(
            code(reported.check(Some(&information(VERSION_1, &[])))),
            0x11
        );
        let reported = client(VERSION_2, VERSION_2, &both, Beginning::Reported);
        assert_eq!(code(reported.check(None)), 0x11);
        assert!(
            reported
                .check(Some(&information(VERSION_2, &[VERSION_2])))
                .is_ok()
        );
    }
}
