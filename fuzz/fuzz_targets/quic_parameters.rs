//! Invariant: a peer's transport parameters are read without a panic. A preferred address never
//! sends a client to a multicast group, to a zero address or port, or to an address of the server's
//! machine, link or site only, unless the server itself is there. Version information that was
//! appended is found.

#![no_main]

use std::net::{IpAddr, SocketAddr};

use libfuzzer_sys::fuzz_target;
use uringcore_quic::fuzzing::preferred_address;
use uringcore_quic::fuzzing::tls::{append_version_information, version_information};
use uringcore_wire::transport_parameters::Parameters;

fuzz_target!(|data: &[u8]| {
    for remote in REMOTES {
        let remote: SocketAddr = remote.parse().expect("it is an address");
        if let Some(preferred) = preferred_address(data, remote) {
            check_preferred(preferred, remote);
        }
    }
    let found = version_information(data);
    if let Ok(Some((chosen, available))) = &found {
        assert!(*chosen != 0 && !available.contains(&0));
        assert!(4 * available.len() <= data.len());
    }
    let mut parameters = Parameters::of(data);
    parameters.by_ref().for_each(drop);
    assert!(found.is_err() || !parameters.is_cut_short());
    if found == Ok(None) {
        let mut more = data.to_vec();
        append_version_information(&mut more, 1, &[2, 1]);
        let Ok(Some((1, available))) = version_information(&more) else {
            panic!("what was appended is not found");
        };
        assert_eq!(available[..2], [2, 1]);
        // RFC 9000 section 15: the last one is reserved.
        assert_eq!(available[2] & 0x0f0f_0f0f, 0x0a0a_0a0a);
    }
});

fn check_preferred(preferred: SocketAddr, remote: SocketAddr) {
    assert_eq!(preferred.is_ipv4(), remote.is_ipv4());
    let (ip, server) = (preferred.ip().to_canonical(), remote.ip().to_canonical());
    assert!(preferred.port() != 0 && !ip.is_unspecified() && !ip.is_multicast());
    assert!(!ip.is_loopback() || server.is_loopback());
    let is_link = |ip| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    assert!(!is_link(ip) || is_link(server) || server.is_loopback());
}

const REMOTES: [&str; 6] = [
    "127.0.0.1:443",
    "192.168.0.1:443",
    "192.0.2.1:443",
    "[::ffff:192.0.2.1]:443",
    "[fe80::1]:443",
    "[2001:db8::1]:443",
];
