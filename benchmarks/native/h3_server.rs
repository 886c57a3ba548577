//! The applications of `applications/` on native quinn and the h3 crate: the upper limit without
//! Python.

use std::process::ExitCode;
use std::rc::Rc;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::{Buf, Bytes};
use h3::server::{RequestResolver, RequestStream};
use h3_quinn::BidiStream;
use http::{Response, StatusCode};
use tokio::signal::unix::{SignalKind, signal};

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, exit_with, pattern, quinn_setup};

const HELLO: &[u8] = b"Hello, world!";
const LARGE: usize = 100 * 1024;

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

/// The response bodies, made once.
struct Bodies {
    large: Bytes,
    block: Bytes,
}

fn main() -> ExitCode {
    exit_with("h3_server", start())
}

fn start() -> Result<(), Failure> {
    let runtime = quinn_setup::runtime()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run())
}

async fn run() -> Result<(), Failure> {
    let endpoint = quinn_setup::server(&Args::from_env()?, b"h3")?;
    let bodies = Rc::new(Bodies {
        large: pattern::repeated(LARGE),
        block: Bytes::from(pattern::block()),
    });
    let mut stopped = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            _ = stopped.recv() => return Ok(()),
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { return Ok(()) };
                let bodies = bodies.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = serve(incoming, bodies).await {
                        eprintln!("connection: {error}");
                    }
                });
            }
        }
    }
}

async fn serve(incoming: quinn::Incoming, bodies: Rc<Bodies>) -> Result<(), Failure> {
    let connection = incoming.await?;
    let mut connection =
        h3::server::Connection::<_, Bytes>::new(h3_quinn::Connection::new(connection)).await?;
    // The client's close, orderly or not, ends the loop.
    while let Ok(Some(resolver)) = connection.accept().await {
        let bodies = bodies.clone();
        tokio::task::spawn_local(async move {
            if let Err(error) = answer(resolver, &bodies).await {
                eprintln!("request: {error}");
            }
        });
    }
    Ok(())
}

async fn answer(
    resolver: RequestResolver<h3_quinn::Connection, Bytes>,
    bodies: &Bodies,
) -> Result<(), Failure> {
    let (request, mut stream) = resolver.resolve_request().await?;
    match request.uri().path() {
        "/" => whole(stream, "text/plain", Bytes::from_static(HELLO)).await,
        "/100k" => whole(stream, BINARY, bodies.large.clone()).await,
        path @ ("/upload" | "/verify") => {
            let answer = take(&mut stream, path == "/verify").await?;
            whole(stream, BINARY, Bytes::from(answer)).await
        }
        path => {
            let length = path
                .strip_prefix("/download/")
                .ok_or_else(|| format!("no path {path}"))?;
            give(stream, length.parse()?, &bodies.block).await
        }
    }
}

const BINARY: &str = "application/octet-stream";

async fn start_response(stream: &mut Stream, kind: &str, length: usize) -> Result<(), Failure> {
    let response = Response::builder()
        .status(StatusCode::OK)
        .header("content-type", kind)
        .header("content-length", length)
        .body(())?;
    Ok(stream.send_response(response).await?)
}

async fn whole(mut stream: Stream, kind: &str, body: Bytes) -> Result<(), Failure> {
    start_response(&mut stream, kind, body.len()).await?;
    stream.send_data(body).await?;
    Ok(stream.finish().await?)
}

/// Reads the content; returns its count, followed by its SHA-256 if `hashed`.
async fn take(stream: &mut Stream, hashed: bool) -> Result<Vec<u8>, Failure> {
    let mut context = hashed.then(|| Context::new(&SHA256));
    let mut count = 0_u64;
    while let Some(mut piece) = stream.recv_data().await? {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            let length = chunk.len();
            if let Some(context) = &mut context {
                context.update(chunk);
            }
            count += length as u64;
            piece.advance(length);
        }
    }
    let mut answer = count.to_be_bytes().to_vec();
    if let Some(context) = context {
        answer.extend_from_slice(context.finish().as_ref());
    }
    Ok(answer)
}

/// Responds with `length` bytes of the repeated block.
async fn give(mut stream: Stream, length: usize, block: &Bytes) -> Result<(), Failure> {
    start_response(&mut stream, BINARY, length).await?;
    let mut left = length;
    while left > 0 {
        let piece = block.slice(..left.min(block.len()));
        left -= piece.len();
        stream.send_data(piece).await?;
    }
    Ok(stream.finish().await?)
}
