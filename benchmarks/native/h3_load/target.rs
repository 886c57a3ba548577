//! The server under load: connections to it, and one request with its response checked.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3_quinn::{BidiStream, OpenStreams};
use http::{Method, Request, StatusCode, Uri};
use quinn::{Connection, Endpoint, TransportConfig, VarInt};

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, quinn_setup};

/// RFC 9114 section 8.1.
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);
/// A server that neither sends nor accepts a byte for this long has failed.
const STALL: Duration = Duration::from_secs(20);

pub type Requests = SendRequest<OpenStreams, Bytes>;
pub type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

pub struct Target {
    pub pid: u32,
    address: SocketAddr,
    endpoint: Endpoint,
}

impl Target {
    pub fn new(args: &Args, transport: TransportConfig) -> Result<Target, Failure> {
        Ok(Target {
            pid: args.required("pid")?,
            address: args.required("addr")?,
            endpoint: quinn_setup::client_with(args, b"h3", transport)?,
        })
    }

    /// A connection with its driver, which lives as long as the connection; the requests report a
    /// failure.
    pub async fn connect(&self) -> Result<(Connection, Requests), Failure> {
        let connection = within(quinn_setup::connect(&self.endpoint, self.address)).await?;
        let h3 = h3_quinn::Connection::new(connection.clone());
        let (mut driver, requests) = h3::client::new(h3).await?;
        tokio::task::spawn_local(async move { driver.wait_idle().await });
        Ok((connection, requests))
    }

    pub fn uri(&self, path: &str) -> Result<Uri, Failure> {
        let port = self.address.port();
        Ok(format!("https://{}:{port}{path}", quinn_setup::SERVER_NAME).parse()?)
    }

    /// Closes in order: a measured server must not wait for clients that vanished.
    pub async fn close(self) {
        self.endpoint.close(H3_NO_ERROR, b"done");
        self.endpoint.wait_idle().await;
    }
}

pub fn close(connection: &Connection) {
    connection.close(H3_NO_ERROR, b"done");
}

/// A request and the response that it must get.
pub struct Ask {
    pub uri: Uri,
    /// The content. A request with content is a POST, any other a GET.
    pub content: Bytes,
    pub answer: Bytes,
}

impl Ask {
    /// Sends the request and compares status and body.
    pub async fn exchange(&self, requests: &mut Requests) -> Result<(), Failure> {
        within(self.fetch(requests)).await
    }

    async fn fetch(&self, requests: &mut Requests) -> Result<(), Failure> {
        let method = if self.content.is_empty() {
            Method::GET
        } else {
            Method::POST
        };
        let mut stream = open(requests, method, &self.uri, self.content.len() as u64).await?;
        if !self.content.is_empty() {
            stream.send_data(self.content.clone()).await?;
        }
        stream.finish().await?;
        accepted(&mut stream).await?;
        let mut at = 0;
        while let Some(mut piece) = stream.recv_data().await? {
            while piece.has_remaining() {
                let chunk = piece.chunk();
                let length = chunk.len();
                if self.answer.get(at..at + length) != Some(chunk) {
                    return Err(format!("a wrong byte or one too many after {at}").into());
                }
                at += length;
                piece.advance(length);
            }
        }
        if at != self.answer.len() {
            return Err(format!("{at} bytes of {} came", self.answer.len()).into());
        }
        Ok(())
    }
}

/// Sends a request's head.
pub async fn open(
    requests: &mut Requests,
    method: Method,
    uri: &Uri,
    content: u64,
) -> Result<Stream, Failure> {
    let mut request = Request::builder().method(method).uri(uri.clone());
    if content > 0 {
        request = request.header("content-length", content);
    }
    Ok(requests.send_request(request.body(())?).await?)
}

/// Waits for the response's head, whose status must be 200.
pub async fn accepted(stream: &mut Stream) -> Result<(), Failure> {
    let response = stream.recv_response().await?;
    if response.status() != StatusCode::OK {
        return Err(format!("status {}", response.status()).into());
    }
    Ok(())
}

pub async fn within<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::time::timeout(STALL, work)
        .await
        .map_err(|_| format!("nothing moved for {STALL:?}"))?
}
