//! The peer's transport parameters that quinn-proto does not expose (RFC 9000 section 18.2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quinn_proto::ConnectionId;
use uringcore_wire::{transport_parameters::Parameters, varint};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PeerParameters {
    pub disable_active_migration: bool,
    /// The initial limit on all streams' data, in bytes.
    pub initial_max_data: u64,
    pub preferred_v4: Option<SocketAddr>,
    pub preferred_v6: Option<SocketAddr>,
    /// The connection ID for packets to the preferred address.
    preferred_id: Option<ConnectionId>,
}

/// A server's preferred address (RFC 9000 section 9.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PreferredAddress {
    pub address: SocketAddr,
    pub id: ConnectionId,
}

impl PeerParameters {
    /// Parses transport parameters that quinn-proto has accepted. A malformed parameter counts as absent.
    pub fn read(encoded: &[u8]) -> Self {
        let mut found = Self::default();
        for (id, value) in Parameters::of(encoded) {
            match id {
                DISABLE_ACTIVE_MIGRATION => found.disable_active_migration = true,
                INITIAL_MAX_DATA => {
                    found.initial_max_data = varint::get(value).map_or(0, |(bytes, _)| bytes);
                }
                PREFERRED_ADDRESS => {
                    (found.preferred_v4, found.preferred_v6) = addresses(value).unwrap_or_default();
                    found.preferred_id = preferred_id(value);
                }
                _ => {}
            }
        }
        found
    }

    /// The preferred address of the same IP family as `remote`, in the form that the socket needs. `None` if a server
    /// at `remote` must not send its clients there.
    pub fn preferred_for(&self, remote: SocketAddr) -> Option<PreferredAddress> {
        let (address, id) = self.address_for(remote).zip(self.preferred_id)?;
        Some(PreferredAddress { address, id })
    }

    fn address_for(&self, remote: SocketAddr) -> Option<SocketAddr> {
        let is_mapped = remote.ip().to_canonical() != remote.ip();
        let address = match remote {
            SocketAddr::V6(_) if !is_mapped => self.preferred_v6,
            _ => self.preferred_v4,
        }
        .filter(|address| may_be_preferred(address.ip(), remote.ip().to_canonical()))?;
        match (is_mapped, address) {
            (true, SocketAddr::V4(v4)) => {
                Some(SocketAddr::from((v4.ip().to_ipv6_mapped(), v4.port())))
            }
            _ => Some(address),
        }
    }
}

/// True if a server at `remote` may send its clients to `preferred`. Not allowed are multicast and broadcast
/// addresses, and addresses with a smaller scope, such as the client's own machine (RFC 9000 section 21.5.6). An
/// IPv4-mapped IPv6 address counts as the IPv4 address.
fn may_be_preferred(preferred: IpAddr, remote: IpAddr) -> bool {
    let preferred = preferred.to_canonical();
    let is_group = match preferred {
        IpAddr::V4(ip) => ip.is_multicast() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_multicast(),
    };
    !is_group && !preferred.is_unspecified() && scope(preferred) >= scope(remote)
}

/// The scope of an address as a number: machine, link, site, global.
fn scope(ip: IpAddr) -> u8 {
    let (is_machine, is_link, is_site) = match ip.to_canonical() {
        IpAddr::V4(ip) => (ip.is_loopback(), ip.is_link_local(), ip.is_private()),
        IpAddr::V6(ip) => (
            ip.is_loopback(),
            ip.is_unicast_link_local(),
            ip.is_unique_local(),
        ),
    };
    match (is_machine, is_link, is_site) {
        (true, ..) => 0,
        (_, true, _) => 1,
        (.., true) => 2,
        _ => 3,
    }
}

/// RFC 9000 figure 22: the fields of `preferred_address`. A family whose address is all zeros is absent.
fn addresses(value: &[u8]) -> Option<(Option<SocketAddr>, Option<SocketAddr>)> {
    let (v4, rest) = value.split_first_chunk::<4>()?;
    let (v4_port, rest) = rest.split_first_chunk::<2>()?;
    let (v6, rest) = rest.split_first_chunk::<16>()?;
    let (v6_port, _) = rest.split_first_chunk::<2>()?;
    let address = |ip: std::net::IpAddr, port: [u8; 2]| {
        let port = u16::from_be_bytes(port);
        (port != 0 && !ip.is_unspecified()).then(|| SocketAddr::new(ip, port))
    };
    Some((
        address(Ipv4Addr::from(*v4).into(), *v4_port),
        address(Ipv6Addr::from(*v6).into(), *v6_port),
    ))
}

fn preferred_id(value: &[u8]) -> Option<ConnectionId> {
    let (&length, rest) = value.get(24..)?.split_first()?;
    let id = rest.get(..usize::from(length))?;
    (1..=20).contains(&length).then(|| ConnectionId::new(id))
}

const INITIAL_MAX_DATA: u64 = 0x04;
const DISABLE_ACTIVE_MIGRATION: u64 = 0x0c;
const PREFERRED_ADDRESS: u64 = 0x0d;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preferred_address_of_smaller_scope_is_ignored() {
        let like = |preferred: &str, remote: &str| {
            let preferred = Some(preferred.parse().unwrap());
            let found = PeerParameters {
                preferred_v4: preferred.filter(SocketAddr::is_ipv4),
                preferred_v6: preferred.filter(SocketAddr::is_ipv6),
                ..PeerParameters::default()
            };
            found.address_for(remote.parse().unwrap()).is_some()
        };
        for (preferred, remote, may_be_preferred) in [
            ("127.0.0.2:53", "127.0.0.1:443", true),
            ("127.0.0.1:53", "192.168.0.1:443", false),
            ("127.0.0.1:53", "[::ffff:192.0.2.1]:443", false),
            ("169.254.169.254:80", "10.0.0.1:443", false),
            ("192.168.0.1:53", "192.0.2.1:443", false),
            ("192.168.0.1:53", "10.0.0.1:443", true),
            ("192.0.2.2:53", "10.0.0.1:443", true),
            ("224.0.0.251:5353", "192.0.2.1:443", false),
            ("255.255.255.255:9", "10.0.0.1:443", false),
            ("[::1]:53", "[2001:db8::1]:443", false),
            ("[fe80::1]:53", "[fd00::1]:443", false),
            ("[fd00::1]:53", "[2001:db8::1]:443", false),
            ("[::ffff:127.0.0.1]:53", "[2001:db8::1]:443", false),
            ("[::ffff:239.255.0.1]:53", "[2001:db8::1]:443", false),
            ("[::ffff:255.255.255.255]:9", "[2001:db8::1]:443", false),
            ("[::ffff:0.0.0.0]:53", "[2001:db8::1]:443", false),
            ("[ff02::1]:53", "[fe80::1]:443", false),
            ("[2001:db8::2]:53", "[2001:db8::1]:443", true),
        ] {
            assert_eq!(
                like(preferred, remote),
                may_be_preferred,
                "{preferred} of {remote}"
            );
        }
    }

    #[test]
    fn transport_parameters_are_found_and_truncation_never_panics() {
        let mut bytes = vec![0x01, 0x02, 0x40, 0x64, 0x0c, 0x00, 0x0d, 0x2d];
        bytes.extend([192, 0, 2, 1, 0x11, 0x51]);
        bytes.extend([0; 18]);
        bytes.extend([4, 1, 2, 3, 4]);
        bytes.extend([7; 16]);
        let found = PeerParameters::read(&bytes);
        let v4: SocketAddr = "192.0.2.1:4433".parse().unwrap();
        assert!(found.disable_active_migration);
        assert_eq!((found.preferred_v4, found.preferred_v6), (Some(v4), None));
        assert_eq!(found.preferred_id, Some(ConnectionId::new(&[1, 2, 3, 4])));
        let like = |remote: &str| found.address_for(remote.parse().unwrap());
        assert_eq!(like("10.0.0.1:1"), Some(v4));
        assert_eq!(
            like("[::ffff:10.0.0.1]:1"),
            Some("[::ffff:192.0.2.1]:4433".parse().unwrap())
        );
        assert_eq!(like("[2001:db8::1]:1"), None);
        for cut in 0..bytes.len() {
            PeerParameters::read(&bytes[..cut]);
        }
    }
}
