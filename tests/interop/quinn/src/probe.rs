//! The cases `datagram` and `closecodes`, as tests/interop/peers/probe.py describes them.

use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt};

use crate::setup::Failure;

const DATAGRAMS: u32 = 100;
const DATAGRAM_BYTES: usize = 1000;
const RESET: u32 = 0x2a;
const STOP: u32 = 0x3fff;
const CLOSE: u32 = 0x0123_4567;
const REASON: &[u8] = b"as asked";
const LIMIT: Duration = Duration::from_secs(20);

pub async fn answer_all(connection: Connection) {
    let datagrams = connection.clone();
    tokio::spawn(async move {
        while let Ok(data) = datagrams.read_datagram().await {
            if datagrams.send_datagram(data).is_err() {
                return;
            }
        }
    });
    while let Ok((send, receive)) = connection.accept_bi().await {
        let connection = connection.clone();
        tokio::spawn(async move {
            if let Err(failure) = answer(&connection, send, receive).await {
                eprintln!("quinn_interop: {failure}");
            }
        });
    }
}

async fn answer(
    connection: &Connection,
    mut send: SendStream,
    mut receive: RecvStream,
) -> Result<(), Failure> {
    let mut heard = Vec::new();
    // A command ends with its stream, or with a line feed if the stream stays open.
    while !(heard.starts_with(b"STOP ") && heard.ends_with(b"\n")) {
        match receive.read_chunk(1024, true).await? {
            Some(chunk) => heard.extend_from_slice(&chunk.bytes),
            None => break,
        }
    }
    let text = String::from_utf8_lossy(&heard);
    let (order, argument) = text.trim().split_once(' ').ok_or("no order")?;
    if order == "ECHO" {
        send.write_all(argument.as_bytes()).await?;
        return Ok(send.finish()?);
    }
    let code = VarInt::from_u32(argument.parse()?);
    match order {
        "RESET" => send.reset(code)?,
        "STOP" => receive.stop(code)?,
        "CLOSE" => connection.close(code, REASON),
        _ => return Err(format!("no such order: {order}").into()),
    }
    Ok(())
}

pub async fn run(case: &str, connection: &Connection) -> Result<(), Failure> {
    let probe = async {
        match case {
            "datagram" => datagrams(connection).await,
            _ => close_codes(connection).await,
        }
    };
    tokio::time::timeout(LIMIT, probe).await?
}

async fn datagrams(connection: &Connection) -> Result<(), Failure> {
    for number in 0..DATAGRAMS {
        let mut data = vec![0; DATAGRAM_BYTES];
        data[..4].copy_from_slice(&number.to_be_bytes());
        let data = Bytes::from(data);
        connection.send_datagram(data.clone())?;
        if connection.read_datagram().await? != data {
            return Err(format!("datagram {number} came back changed").into());
        }
    }
    Ok(())
}

async fn close_codes(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = order(connection, &format!("RESET {RESET}")).await?;
    send.finish()?;
    match receive.read_chunk(1024, true).await {
        Err(ReadError::Reset(code)) if code == VarInt::from_u32(RESET) => {}
        other => return Err(format!("RESET_STREAM: {other:?}").into()),
    }
    let (send, _receive) = order(connection, &format!("STOP {STOP}\n")).await?;
    let stopped = send.stopped().await?;
    if stopped != Some(VarInt::from_u32(STOP)) {
        return Err(format!("STOP_SENDING: {stopped:?}").into());
    }
    let (mut send, _receive) = order(connection, &format!("CLOSE {CLOSE}")).await?;
    send.finish()?;
    match connection.closed().await {
        ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(CLOSE) && close.reason == REASON =>
        {
            Ok(())
        }
        other => Err(format!("CONNECTION_CLOSE: {other:?}").into()),
    }
}

async fn order(connection: &Connection, line: &str) -> Result<(SendStream, RecvStream), Failure> {
    let (mut send, receive) = connection.open_bi().await?;
    send.write_all(line.as_bytes()).await?;
    Ok((send, receive))
}
