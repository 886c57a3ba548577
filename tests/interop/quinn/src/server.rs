//! The server: files, HTTP/3 or probes, depending on the case.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use quinn::{Connection, Endpoint, Incoming};
use tokio::signal::unix::{SignalKind, signal};

use crate::setup::{Failure, Options};
use crate::{files, probe};

pub async fn run(options: &Options) -> Result<(), Failure> {
    let address = SocketAddr::new(options.host.parse()?, options.port);
    let endpoint = Endpoint::server(options.server_config()?, address)?;
    println!("READY {}", endpoint.local_addr()?.port());
    let mut stopped = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = stopped.recv() => break,
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { break };
                if options.case == "retry" && !incoming.remote_address_validated() {
                    incoming.retry()?;
                    continue;
                }
                let (alpn, www) = (options.alpn(), options.www.clone());
                let early = options.case == "zerortt";
                tokio::spawn(async move {
                    if let Err(failure) = serve(incoming, alpn, www, early).await {
                        eprintln!("quinn_interop: {failure}");
                    }
                });
            }
        }
    }
    endpoint.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}

async fn serve(incoming: Incoming, alpn: &[u8], www: PathBuf, early: bool) -> Result<(), Failure> {
    let connection = match incoming.accept()? {
        // On a server this always succeeds; the client decides about 0-RTT.
        connecting if early => match connecting.into_0rtt() {
            Ok((connection, _)) => connection,
            Err(connecting) => connecting.await?,
        },
        connecting => connecting.await?,
    };
    match alpn {
        b"h3" => http3(connection, &www).await,
        b"probe" => {
            probe::answer_all(connection).await;
            Ok(())
        }
        _ => {
            files::answer_all(connection, www).await;
            Ok(())
        }
    }
}

async fn http3(connection: Connection, www: &Path) -> Result<(), Failure> {
    let quic = h3_quinn::Connection::new(connection);
    let mut http = h3::server::Connection::<_, Bytes>::new(quic).await?;
    while let Ok(Some(resolver)) = http.accept().await {
        let www = www.to_owned();
        tokio::spawn(async move {
            let done: Result<(), Failure> = async {
                let (request, mut stream) = resolver.resolve_request().await?;
                let content = tokio::fs::read(files::resolve(&www, request.uri().path())?).await?;
                stream.send_response(http::Response::new(())).await?;
                stream.send_data(content.into()).await?;
                Ok(stream.finish().await?)
            }
            .await;
            if let Err(failure) = done {
                eprintln!("quinn_interop: {failure}");
            }
        });
    }
    Ok(())
}
