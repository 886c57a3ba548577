//! The header of the PROXY protocol, versions 1 and 2, with which a proxy begins a TCP connection to name its client
//! (<https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>).
//!
//! Not here: the decision whether a peer is a proxy that may send the header, and the time-out of the header.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A complete header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The number of bytes of the header. The bytes of the client follow.
    pub length: usize,
    /// The addresses of the client, and of the proxy's socket that the client has connected to. `None` if the
    /// connection is the proxy's own, or if the client has no IP address that the proxy can name.
    pub addresses: Option<(SocketAddr, SocketAddr)>,
    /// The proxy has opened the connection for itself, for instance for a health check (command LOCAL).
    pub is_local: bool,
}

/// The bytes are no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Malformed {}

impl ProxyHeader {
    /// Reads the header at the beginning of `bytes`. `None` if more bytes are needed.
    ///
    /// # Errors
    ///
    /// If no header begins like this.
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        if begins(bytes, SIGNATURE) {
            return version_2(bytes);
        }
        if begins(bytes, b"PROXY ") {
            return version_1(bytes);
        }
        Err(Malformed("there is no PROXY header"))
    }
}

/// True if `bytes` begin with `start`, as far as they go.
fn begins(bytes: &[u8], start: &[u8]) -> bool {
    let common = bytes.len().min(start.len());
    bytes[..common] == start[..common]
}

fn version_1(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let seen = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let Some(end) = seen.windows(2).position(|pair| pair == b"\r\n") else {
        return match seen.len() < LINE_BYTES_MAX {
            true => Ok(None),
            false => Err(Malformed("the line is too long")),
        };
    };
    let line = std::str::from_utf8(&seen[..end]).map_err(|_| Malformed("the line is not ASCII"))?;
    let length = end + 2;
    let mut parts = line.split(' ').skip(1);
    let family = parts.next();
    // The rest of the line must be ignored (section 2.1).
    if family == Some("UNKNOWN") {
        return Ok(Some(ProxyHeader {
            length,
            addresses: None,
            is_local: false,
        }));
    }
    let mut address = || parts.next().and_then(|text| text.parse::<IpAddr>().ok());
    let (source, destination) = (address(), address());
    let mut port = || parts.next().and_then(port_number);
    let (source_port, destination_port) = (port(), port());
    let is_family = |address: &IpAddr| match family {
        Some("TCP4") => address.is_ipv4(),
        Some("TCP6") => address.is_ipv6(),
        _ => false,
    };
    match (
        source,
        destination,
        source_port,
        destination_port,
        parts.next(),
    ) {
        (Some(source), Some(destination), Some(source_port), Some(destination_port), None)
            if is_family(&source) && is_family(&destination) =>
        {
            Ok(Some(ProxyHeader {
                length,
                addresses: Some((
                    SocketAddr::new(source, source_port),
                    SocketAddr::new(destination, destination_port),
                )),
                is_local: false,
            }))
        }
        _ => Err(Malformed("the line has no valid addresses")),
    }
}

/// A port has no leading zeros and no sign (section 2.1).
fn port_number(text: &str) -> Option<u16> {
    let is_plain = text == "0" || text.starts_with(|first: char| ('1'..='9').contains(&first));
    is_plain.then(|| text.parse().ok()).flatten()
}

fn version_2(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
    let Some((head, rest)) = bytes.split_at_checked(HEAD_BYTES) else {
        return Ok(None);
    };
    let (command, family) = (head[12], head[13]);
    let length = usize::from(u16::from_be_bytes([head[14], head[15]]));
    if !matches!(command, LOCAL | PROXY) {
        return Err(Malformed("the version or command is unknown"));
    }
    if length > REST_BYTES_MAX {
        return Err(Malformed("the header is too long"));
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(None);
    };
    let (addresses, extensions) = match family {
        // Addresses of a Unix socket, or of an unknown family (section 2.2).
        UNSPECIFIED => (None, &[][..]),
        UNIX_STREAM => (None, rest.get(UNIX_BYTES..).ok_or(TOO_SHORT)?),
        TCP_4 => {
            let (block, extensions) = rest.split_first_chunk::<12>().ok_or(TOO_SHORT)?;
            let [a, b, c, d, e, f, g, h, ports @ ..] = *block;
            let (source, destination) = (Ipv4Addr::new(a, b, c, d), Ipv4Addr::new(e, f, g, h));
            (
                Some(pair(source.into(), destination.into(), ports)),
                extensions,
            )
        }
        TCP_6 => {
            let (source, others) = rest.split_first_chunk::<16>().ok_or(TOO_SHORT)?;
            let (destination, others) = others.split_first_chunk::<16>().ok_or(TOO_SHORT)?;
            let (ports, extensions) = others.split_first_chunk::<4>().ok_or(TOO_SHORT)?;
            let (source, destination) = (Ipv6Addr::from(*source), Ipv6Addr::from(*destination));
            (
                Some(pair(source.into(), destination.into(), *ports)),
                extensions,
            )
        }
        _ => {
            return Err(Malformed(
                "the address family or protocol is not one of TCP",
            ));
        }
    };
    check_extensions(extensions)?;
    Ok(Some(ProxyHeader {
        length: HEAD_BYTES + length,
        // The proxy has opened the connection for itself, so the addresses have no meaning.
        addresses: addresses.filter(|_| command == PROXY),
        is_local: command == LOCAL,
    }))
}

fn pair(source: IpAddr, destination: IpAddr, ports: [u8; 4]) -> (SocketAddr, SocketAddr) {
    let [a, b, c, d] = ports;
    (
        SocketAddr::new(source, u16::from_be_bytes([a, b])),
        SocketAddr::new(destination, u16::from_be_bytes([c, d])),
    )
}

/// Checks that the extensions (type, length, value) fill the rest of the header. Their values are not used.
fn check_extensions(mut rest: &[u8]) -> Result<(), Malformed> {
    while !rest.is_empty() {
        let (head, others) = rest.split_first_chunk::<3>().ok_or(TOO_SHORT)?;
        let length = usize::from(u16::from_be_bytes([head[1], head[2]]));
        rest = others.get(length..).ok_or(TOO_SHORT)?;
    }
    Ok(())
}

const TOO_SHORT: Malformed = Malformed("the header is shorter than its content");

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The signature, and four bytes with command, family and length.
const HEAD_BYTES: usize = 16;
/// The commands, with version 2.
const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
/// Address families, with the protocol STREAM.
const UNSPECIFIED: u8 = 0x00;
const TCP_4: u8 = 0x11;
const TCP_6: u8 = 0x21;
const UNIX_STREAM: u8 = 0x31;
const UNIX_BYTES: usize = 216;

/// The longest line of version 1, with its end (section 2.1).
const LINE_BYTES_MAX: usize = 107;
/// The longest accepted rest of a header of version 2: addresses and extensions, such as a client's certificate.
const REST_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn header(addresses: Option<(&str, &str)>, length: usize) -> Option<ProxyHeader> {
        let parsed = addresses.map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
        Some(ProxyHeader {
            length,
            addresses: parsed,
            is_local: false,
        })
    }

    /// Reads `bytes` whole, and each of their prefixes, which must need more bytes.
    fn read(bytes: &[u8]) -> Result<Option<ProxyHeader>, Malformed> {
        let whole = ProxyHeader::read(bytes);
        if let Ok(Some(found)) = whole {
            for end in 0..found.length {
                assert_eq!(ProxyHeader::read(&bytes[..end]), Ok(None), "{end}");
            }
            let longer = [bytes, b"GET / HTTP/1.1"].concat();
            assert_eq!(ProxyHeader::read(&longer), whole);
        }
        whole
    }

    fn version_2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    const IPV4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 2, 0xc0, 0x00, 0x01, 0xbb];

    #[test]
    fn lines_of_version_1_are_read() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 49152 443\r\n";
        let addresses = Some(("192.0.2.1:49152", "198.51.100.2:443"));
        assert_eq!(read(line), Ok(header(addresses, line.len())));
        let line = b"PROXY TCP6 2001:db8::1 ::1 65535 0\r\n";
        let addresses = Some(("[2001:db8::1]:65535", "[::1]:0"));
        assert_eq!(read(line), Ok(header(addresses, line.len())));
        assert_eq!(read(b"PROXY UNKNOWN\r\n"), Ok(header(None, 15)));
        assert_eq!(read(b"PROXY UNKNOWN ffff:f 1 2\r\n"), Ok(header(None, 26)));
    }

    #[test]
    fn other_lines_are_malformed() {
        for line in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\x16\x03\x01",
            b"PROXY\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 49152\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 49152 443 1\r\n",
            b"PROXY TCP4  192.0.2.1 198.51.100.2 49152 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 049152 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 +1 443\r\n",
            b"PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
            b"PROXY TCP4 192.0.2.256 198.51.100.2 1 443\r\n",
            b"PROXY TCP4 ::1 ::1 1 443\r\n",
            b"PROXY TCP6 192.0.2.1 198.51.100.2 1 443\r\n",
            b"PROXY UDP4 192.0.2.1 198.51.100.2 1 443\r\n",
            b"PROXY \xff\r\n",
        ] {
            assert!(ProxyHeader::read(line).is_err(), "{}", line.escape_ascii());
        }
        let long = [&b"PROXY UNKNOWN "[..], &[b'x'; 100]].concat();
        assert_eq!(ProxyHeader::read(&long[..106]), Ok(None));
        assert!(ProxyHeader::read(&long).is_err());
    }

    #[test]
    fn headers_of_version_2_are_read() {
        let addresses = Some(("192.0.2.1:49152", "198.51.100.2:443"));
        assert_eq!(
            read(&version_2(PROXY, TCP_4, IPV4)),
            Ok(header(addresses, 28))
        );
        let extended = [IPV4, &[1, 0, 2, b'h', b'2', 4, 0, 0]].concat();
        assert_eq!(
            read(&version_2(PROXY, TCP_4, &extended)),
            Ok(header(addresses, 36))
        );
        let mut six = [0; 36];
        (six[15], six[31], six[33], six[35]) = (1, 2, 80, 90);
        let addresses = Some(("[::1]:80", "[::2]:90"));
        assert_eq!(
            read(&version_2(PROXY, TCP_6, &six)),
            Ok(header(addresses, 52))
        );
        for bytes in [
            version_2(LOCAL, TCP_4, IPV4),
            version_2(LOCAL, UNSPECIFIED, b""),
            version_2(PROXY, UNSPECIFIED, b"anything"),
            version_2(PROXY, UNIX_STREAM, &[0; 216]),
        ] {
            let expected = header(None, bytes.len()).map(|header| ProxyHeader {
                is_local: bytes[SIGNATURE.len()] == LOCAL,
                ..header
            });
            assert_eq!(read(&bytes), Ok(expected));
        }
    }

    #[test]
    fn other_headers_of_version_2_are_malformed() {
        for bytes in [
            version_2(0x11, TCP_4, IPV4),
            version_2(0x22, TCP_4, IPV4),
            version_2(PROXY, 0x12, IPV4),
            version_2(PROXY, 0x41, IPV4),
            version_2(PROXY, TCP_4, &IPV4[..11]),
            version_2(PROXY, TCP_6, IPV4),
            version_2(PROXY, UNIX_STREAM, IPV4),
            version_2(PROXY, TCP_4, &[IPV4, &[4, 0]].concat()),
            version_2(PROXY, TCP_4, &[IPV4, &[4, 0, 1]].concat()),
            version_2(PROXY, TCP_4, &vec![0; REST_BYTES_MAX + 1]),
        ] {
            assert!(ProxyHeader::read(&bytes).is_err(), "{bytes:?}");
        }
    }
}
