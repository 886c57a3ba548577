//! The client: fetches the files of `$REQUESTS` as the case requires.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytes::Buf;
use quinn::{Connection, Endpoint};
use tokio::io::AsyncWriteExt;

use crate::setup::{Failure, Options};
use crate::{files, probe};

pub async fn run(options: &Options) -> Result<(), Failure> {
    let first = options.requests.first().ok_or("REQUESTS is empty")?;
    let (server, _) = split(first)?;
    let mut client = Client::new(options, server)?;
    match options.case.as_str() {
        "multiconnect" | "handshakeloss" | "handshakecorruption" => {
            for request in &options.requests {
                client.session(std::slice::from_ref(request), false).await?;
            }
            Ok(())
        }
        "resumption" | "zerortt" => {
            client.session(&options.requests[..1], false).await?;
            client.session(&options.requests[1..], true).await
        }
        "http3" => client.http3().await,
        "datagram" | "closecodes" => {
            let connection = client.connect().await?;
            probe::run(&options.case, &connection).await?;
            client.close(connection).await;
            Ok(())
        }
        _ => client.session(&options.requests, false).await,
    }
}

/// The address and path of a URL, whose host is an IP address.
fn split(url: &str) -> Result<(SocketAddr, &str), Failure> {
    let rest = url.strip_prefix("https://").ok_or("not an https URL")?;
    let at = rest.find('/').ok_or("a URL without a path")?;
    Ok((rest[..at].parse()?, &rest[at..]))
}

struct Client<'a> {
    options: &'a Options,
    config: quinn::ClientConfig,
    server: SocketAddr,
    endpoints: Vec<Endpoint>,
}

impl<'a> Client<'a> {
    fn new(options: &'a Options, server: SocketAddr) -> Result<Self, Failure> {
        let config = options.client_config()?;
        Ok(Self {
            options,
            config,
            server,
            endpoints: Vec::new(),
        })
    }

    /// A socket for each connection, so that the network can distinguish them.
    fn endpoint(&mut self) -> Result<Endpoint, Failure> {
        let any: IpAddr = match self.server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let mut endpoint = Endpoint::client(SocketAddr::new(any, 0))?;
        endpoint.set_default_client_config(self.config.clone());
        self.endpoints.push(endpoint.clone());
        Ok(endpoint)
    }

    async fn connect(&mut self) -> Result<Connection, Failure> {
        Ok(self.endpoint()?.connect(self.server, "localhost")?.await?)
    }

    async fn session(&mut self, requests: &[String], second: bool) -> Result<(), Failure> {
        let connecting = self.endpoint()?.connect(self.server, "localhost")?;
        let early = second && self.options.case == "zerortt";
        let (connection, accepted) = match early {
            true => match connecting.into_0rtt() {
                Ok((connection, accepted)) => (connection, Some(accepted)),
                Err(_) => return Err("no ticket that allows 0-RTT".into()),
            },
            false => (connecting.await?, None),
        };
        let mut fetches = tokio::task::JoinSet::new();
        for request in requests {
            let (connection, request) = (connection.clone(), request.clone());
            let downloads = self.options.downloads.clone();
            fetches.spawn(async move {
                let (_, path) = split(&request)?;
                files::fetch(&connection, path, &downloads).await
            });
        }
        if self.options.case == "keyupdate" {
            connection.force_key_update();
        }
        if self.options.case == "migrate" {
            // The handshake has to be confirmed, and connection IDs have to be available.
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            let socket = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            for endpoint in &self.endpoints {
                endpoint.rebind(socket.try_clone()?)?;
            }
        }
        while let Some(done) = fetches.join_next().await {
            done??;
        }
        if let Some(accepted) = accepted
            && !accepted.await
        {
            return Err("the server did not accept 0-RTT".into());
        }
        self.close(connection).await;
        Ok(())
    }

    async fn close(&mut self, connection: Connection) {
        connection.close(0_u32.into(), b"");
        drop(connection);
        for endpoint in self.endpoints.drain(..) {
            endpoint.wait_idle().await;
        }
    }

    async fn http3(&mut self) -> Result<(), Failure> {
        let connection = self.connect().await?;
        let quic = h3_quinn::Connection::new(connection.clone());
        let (mut driver, mut http) = h3::client::new(quic).await?;
        let driving =
            tokio::spawn(async move { poll_fn(|context| driver.poll_close(context)).await });
        for url in &self.options.requests {
            let mut stream = http.send_request(http::Request::get(url).body(())?).await?;
            stream.finish().await?;
            let response = stream.recv_response().await?;
            if response.status() != http::StatusCode::OK {
                return Err(format!("{url}: {}", response.status()).into());
            }
            let target = files::target(&self.options.downloads, split(url)?.1);
            let mut file = tokio::fs::File::create(target).await?;
            while let Some(mut data) = stream.recv_data().await? {
                let chunk = data.copy_to_bytes(data.remaining());
                file.write_all(&chunk).await?;
            }
            file.flush().await?;
        }
        driving.abort();
        self.close(connection).await;
        Ok(())
    }
}
