//! Addresses of a path as JSON.

use std::net::{IpAddr, SocketAddr};

use super::{ConnectionIds, json_writer::Object};

/// The addresses and connection IDs at the beginning of a connection.
pub(crate) struct Started<'a> {
    pub remote: SocketAddr,
    /// This side's address. `None` if it is unknown.
    pub local: Option<IpAddr>,
    pub ids: &'a ConnectionIds,
}

impl Started<'_> {
    /// The event's data. `src` is this side, `dst` is the peer.
    pub fn data(&self, is_client: bool) -> String {
        let mut data = Object::new();
        let remote = self.remote.ip().to_canonical();
        data.unescaped("ip_version", if remote.is_ipv4() { "v4" } else { "v6" });
        if let Some(local) = self.local {
            data.text("src_ip", &local.to_canonical().to_string());
        }
        data.text("dst_ip", &remote.to_string());
        data.unescaped("protocol", "QUIC");
        data.number("dst_port", self.remote.port().into());
        if let Some(host) = &self.ids.host {
            data.hex("src_cid", host);
        }
        if let Some(original) = self.ids.original.as_ref().filter(|_| is_client) {
            data.hex("dst_cid", original);
        }
        data.finish()
    }
}

/// The data of a migration event. `state` is a name of draft-ietf-quic-qlog-quic-events-08 section 4.10.
pub(super) fn migration(state: &'static str, remote: SocketAddr) -> String {
    let mut path = Object::new();
    let ip = remote.ip().to_canonical();
    let (ip_name, port_name) = match ip.is_ipv4() {
        true => ("ip_v4", "port_v4"),
        false => ("ip_v6", "port_v6"),
    };
    path.text(ip_name, &ip.to_string());
    path.number(port_name, remote.port().into());
    let mut data = Object::new();
    data.unescaped("new", state);
    data.raw("path_remote", &path.finish());
    data.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_json() {
        let ids = ConnectionIds {
            original: Some(vec![0xaa]),
            host: Some(vec![0xbb]),
            retry: None,
        };
        let started = Started {
            remote: "[::ffff:192.0.2.1]:4433".parse().unwrap(),
            local: Some("192.0.2.7".parse().unwrap()),
            ids: &ids,
        };
        assert_eq!(
            started.data(true),
            "{\"ip_version\":\"v4\",\"src_ip\":\"192.0.2.7\",\"dst_ip\":\"192.0.2.1\",\
             \"protocol\":\"QUIC\",\"dst_port\":4433,\"src_cid\":\"bb\",\"dst_cid\":\"aa\"}"
        );
        assert!(!started.data(false).contains("dst_cid"));
        let v6 = "[2001:db8::1]:1".parse().unwrap();
        assert_eq!(
            migration("migration_started", v6),
            "{\"new\":\"migration_started\",\"path_remote\":{\"ip_v6\":\"2001:db8::1\",\
             \"port_v6\":1}}"
        );
    }
}
