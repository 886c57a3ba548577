//! The transport of an echo or an upload: TCP, TLS over TCP, or UDP, with non-blocking reads and
//! writes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mio::event::Source;
use mio::net::{TcpStream, UdpSocket};
use mio::{Interest, Registry, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use crate::Failure;
use crate::args::Args;
use crate::quinn_setup::{self, SERVER_NAME};

pub enum Channel {
    Tcp(TcpStream),
    Tls(Box<ClientConnection>, TcpStream),
    Udp(UdpSocket),
}

/// Opens `count` channels of the kind in `--transport`, each connected within `limit`.
pub fn open(
    args: &Args,
    address: SocketAddr,
    count: usize,
    limit: Duration,
) -> Result<Vec<Channel>, Failure> {
    let transport: String = args.required("transport")?;
    match transport.as_str() {
        "tcp" => (0..count).map(|_| Channel::tcp(address, limit)).collect(),
        "udp" => (0..count).map(|_| Channel::udp(address)).collect(),
        "tls" => {
            let config = Arc::new(quinn_setup::client_tls(args)?);
            (0..count)
                .map(|_| Channel::tls(address, limit, &config))
                .collect()
        }
        other => Err(format!("--transport: {other:?} is none of tcp, tls, udp").into()),
    }
}

impl Channel {
    /// Connects within `limit`. The call blocks: the window has not begun, and an error shows where
    /// it happened.
    pub fn tcp(address: SocketAddr, limit: Duration) -> Result<Channel, Failure> {
        let stream = std::net::TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Channel::Tcp(TcpStream::from_std(stream)))
    }

    /// [`tcp`](Channel::tcp), followed by the handshake.
    pub fn tls(
        address: SocketAddr,
        limit: Duration,
        config: &Arc<ClientConfig>,
    ) -> Result<Channel, Failure> {
        let mut stream = std::net::TcpStream::connect_timeout(&address, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        let name = ServerName::try_from(SERVER_NAME)?;
        let mut session = ClientConnection::new(Arc::clone(config), name)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Channel::Tls(Box::new(session), TcpStream::from_std(stream)))
    }

    pub fn udp(address: SocketAddr) -> Result<Channel, Failure> {
        let socket = UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        socket.connect(address)?;
        Ok(Channel::Udp(socket))
    }

    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let source: &mut dyn Source = match self {
            Channel::Tcp(stream) | Channel::Tls(_, stream) => stream,
            Channel::Udp(socket) => socket,
        };
        registry.register(source, token, interest)
    }

    /// Returns the number of bytes of `data` that were accepted; `WouldBlock` if none were.
    pub fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Channel::Tcp(stream) => stream.write(data),
            Channel::Udp(socket) => socket.send(data),
            Channel::Tls(session, stream) => {
                // This push comes first. If the session is full afterwards, the socket is the
                // cause, and only then an event reports that it accepts more.
                push(session, stream)?;
                let taken = session.writer().write(data)?;
                if taken == 0 && !data.is_empty() {
                    return Err(ErrorKind::WouldBlock.into());
                }
                push(session, stream)?;
                Ok(taken)
            }
        }
    }

    /// Sends the rest of an earlier write. Only TLS keeps one.
    pub fn push(&mut self) -> io::Result<()> {
        match self {
            Channel::Tls(session, stream) => push(session, stream),
            _ => Ok(()),
        }
    }

    /// Returns the number of bytes read; 0 at the end, `WouldBlock` if nothing has arrived.
    pub fn read(&mut self, data: &mut [u8]) -> io::Result<usize> {
        match self {
            Channel::Tcp(stream) => stream.read(data),
            Channel::Udp(socket) => socket.recv(data),
            Channel::Tls(session, stream) => loop {
                match session.reader().read(data) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    result => return result,
                }
                if session.read_tls(stream)? == 0 {
                    return Ok(0);
                }
                session
                    .process_new_packets()
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            },
        }
    }
}

fn push(session: &mut ClientConnection, stream: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        match session.write_tls(stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
