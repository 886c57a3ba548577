//! The bulk server on native quinn: the limit of the machine and the protocol without Python.
//!
//! `quic_load.rs` describes the protocol.

use std::process::ExitCode;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream};
use tokio::signal::unix::{SignalKind, signal};

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, exit_with, pattern, quinn_setup};

/// Bytes in a write of the mode `d`.
const SMALL: usize = 1024;

fn main() -> ExitCode {
    exit_with(
        "quinn_server",
        quinn_setup::runtime().and_then(|rt| rt.block_on(run())),
    )
}

async fn run() -> Result<(), Failure> {
    let endpoint = quinn_setup::server(&Args::from_env()?, b"bulk")?;
    let mut stopped = signal(SignalKind::terminate())?;
    let block = Bytes::from(pattern::block());
    loop {
        tokio::select! {
            _ = stopped.recv() => return Ok(()),
            incoming = endpoint.accept() => {
                let Some(incoming) = incoming else { return Ok(()) };
                tokio::spawn(serve(incoming, block.clone()));
            }
        }
    }
}

async fn serve(incoming: quinn::Incoming, block: Bytes) {
    match incoming.await {
        Ok(connection) => streams(connection, block).await,
        Err(error) => eprintln!("handshake: {error}"),
    }
}

async fn streams(connection: Connection, block: Bytes) {
    let datagrams = connection.clone();
    tokio::spawn(async move {
        while let Ok(data) = datagrams.read_datagram().await {
            if datagrams.send_datagram(data).is_err() {
                return;
            }
        }
    });
    // The client's close ends the loop.
    while let Ok((send, receive)) = connection.accept_bi().await {
        let block = block.clone();
        tokio::spawn(async move {
            if let Err(error) = stream(send, receive, block).await {
                eprintln!("stream: {error}");
            }
        });
    }
}

async fn stream(send: SendStream, mut receive: RecvStream, block: Bytes) -> Result<(), Failure> {
    let mut mode = [0];
    receive.read_exact(&mut mode).await?;
    match &mode {
        b"D" => download(send, receive, block, pattern::BLOCK).await,
        b"d" => download(send, receive, block, SMALL).await,
        b"E" => echo(send, receive).await,
        b"U" | b"V" => upload(send, receive, &mode == b"V").await,
        other => Err(format!("mode {other:?}").into()),
    }
}

async fn upload(mut send: SendStream, mut receive: RecvStream, hash: bool) -> Result<(), Failure> {
    let mut context = hash.then(|| Context::new(&SHA256));
    let mut count = 0_u64;
    while let Some(chunk) = receive.read_chunk(1 << 20, true).await? {
        count += chunk.bytes.len() as u64;
        if let Some(context) = &mut context {
            context.update(&chunk.bytes);
        }
    }
    send.write_all(&count.to_be_bytes()).await?;
    if let Some(context) = context {
        send.write_all(context.finish().as_ref()).await?;
    }
    Ok(send.finish()?)
}

async fn download(
    mut send: SendStream,
    receive: RecvStream,
    block: Bytes,
    write: usize,
) -> Result<(), Failure> {
    let ended = until_fin(receive);
    tokio::pin!(ended);
    let mut at = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut ended => return Ok(send.finish()?),
            written = send.write_chunk(block.slice(at..at + write)) => written?,
        }
        at = (at + write) % block.len();
    }
}

async fn echo(mut send: SendStream, mut receive: RecvStream) -> Result<(), Failure> {
    while let Some(chunk) = receive.read_chunk(1 << 16, true).await? {
        send.write_chunk(chunk.bytes).await?;
    }
    Ok(send.finish()?)
}

async fn until_fin(mut receive: RecvStream) {
    while let Ok(Some(_)) = receive.read_chunk(1024, true).await {}
}
