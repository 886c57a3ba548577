//! The hello server on native quinn and the h3 crate: the case's limit without Python.

use std::process::ExitCode;

use bytes::Bytes;
use h3::server::RequestResolver;
use http::{Response, StatusCode};
use tokio::signal::unix::{SignalKind, signal};

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, exit_with, quic};

const BODY: &[u8] = b"Hello, world!";

fn main() -> ExitCode {
    exit_with(
        "h3_server",
        quic::runtime().and_then(|rt| rt.block_on(run())),
    )
}

async fn run() -> Result<(), Failure> {
    let endpoint = quic::server(&Args::from_env()?, b"h3")?;
    let mut stopped = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = stopped.recv() => return Ok(()),
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { return Ok(()) };
                tokio::spawn(async move {
                    if let Err(error) = serve(incoming).await {
                        eprintln!("connection: {error}");
                    }
                });
            }
        }
    }
}

async fn serve(incoming: quinn::Incoming) -> Result<(), Failure> {
    let connection = incoming.await?;
    let mut connection =
        h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    // The client's close, orderly or not, ends the loop.
    while let Ok(Some(resolver)) = connection.accept().await {
        tokio::spawn(async move {
            if let Err(error) = answer(resolver).await {
                eprintln!("request: {error}");
            }
        });
    }
    Ok(())
}

async fn answer(resolver: RequestResolver<h3_quinn::Connection, Bytes>) -> Result<(), Failure> {
    let (_, mut stream) = resolver.resolve_request().await?;
    let response = Response::builder()
        .status(StatusCode::OK)
        .header("content-type", "text/plain")
        .header("content-length", BODY.len())
        .body(())?;
    stream.send_response(response).await?;
    stream.send_data(Bytes::from_static(BODY)).await?;
    Ok(stream.finish().await?)
}
