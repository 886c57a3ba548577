//! The server's end: executes the command of each stream.

use std::net::SocketAddr;
use std::sync::Arc;

use http::StatusCode;
use quinn::Endpoint;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use web_transport_quinn::proto::ConnectResponse;
use web_transport_quinn::{
    ReadError, RecvStream, Request, SendStream, Server, Session, SessionError, WebTransportError,
};

use crate::setup::{Failure, Options};
use crate::{PATH, gift};

const PROTOCOL: &str = "second";
const PIECE: usize = 1 << 16;

/// The last session's close.
type Last = Arc<watch::Sender<Option<String>>>;

pub async fn run(options: &Options) -> Result<(), Failure> {
    let address = SocketAddr::new(options.host.parse()?, options.port);
    let endpoint = Endpoint::server(options.server_config()?, address)?;
    println!("READY {}", endpoint.local_addr()?.port());
    let mut server = Server::new(endpoint);
    let mut stopped = signal(SignalKind::terminate())?;
    let last: Last = Arc::new(watch::Sender::new(None));
    loop {
        tokio::select! {
            request = server.accept() => {
                let request = request.ok_or("the endpoint is closed")?;
                tokio::spawn(complain(answer(request, last.clone())));
            }
            _ = stopped.recv() => return Ok(()),
        }
    }
}

async fn complain(work: impl Future<Output = Result<(), Failure>>) {
    if let Err(failure) = work.await {
        eprintln!("webtransportquinn: {failure}");
    }
}

async fn answer(request: Request, last: Last) -> Result<(), Failure> {
    if request.url.path() != PATH {
        request.reject(StatusCode::NOT_FOUND).await?;
        return Ok(());
    }
    let mut response = ConnectResponse::OK;
    if request.protocols.iter().any(|offered| offered == PROTOCOL) {
        response = response.with_protocol(PROTOCOL);
    }
    let session = request.respond(response).await?;
    tokio::spawn(complain(datagrams(session.clone())));
    tokio::spawn(complain(repeats(session.clone())));
    tokio::spawn(complain(orders(session.clone(), last.clone())));
    if let SessionError::WebTransportError(WebTransportError::Closed(code, reason)) =
        session.closed().await
    {
        last.send_replace(Some(format!("{code} {reason}")));
    }
    Ok(())
}

async fn datagrams(session: Session) -> Result<(), Failure> {
    while let Ok(data) = session.read_datagram().await {
        session.send_datagram(data)?;
    }
    Ok(())
}

async fn repeats(session: Session) -> Result<(), Failure> {
    while let Ok(mut stream) = session.accept_uni().await {
        let content = stream.read_to_end(usize::MAX).await?;
        say(&session, &content).await?;
    }
    Ok(())
}

/// Sends content on a unidirectional stream.
async fn say(session: &Session, content: &[u8]) -> Result<(), Failure> {
    let mut stream = session.open_uni().await?;
    stream.write_all(content).await?;
    stream.finish()?;
    Ok(())
}

async fn orders(session: Session, last: Last) -> Result<(), Failure> {
    while let Ok((send, receive)) = session.accept_bi().await {
        tokio::spawn(complain(obey(session.clone(), send, receive, last.clone())));
    }
    Ok(())
}

async fn obey(
    session: Session,
    mut send: SendStream,
    mut receive: RecvStream,
    last: Last,
) -> Result<(), Failure> {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        receive.read_exact(&mut byte).await?;
        line.push(byte[0]);
    }
    let line = String::from_utf8(line)?;
    let mut words = line.trim_end().splitn(3, ' ');
    let order = words.next().unwrap_or_default();
    let code = words.next().unwrap_or("0").parse()?;
    let reason = words.next().unwrap_or_default();
    match order {
        "ECHO" => {
            while let Some(piece) = receive.read_chunk(PIECE, true).await? {
                send.write_all(&piece.bytes).await?;
            }
        }
        "OPEN" => {
            let same = open(&session).await?;
            let said: &[u8] = if same { b"same" } else { b"different" };
            send.write_all(said).await?;
        }
        "CLOSE" => {
            session.close(code, reason.as_bytes());
            session.closed().await;
            return Ok(());
        }
        "RESET" => return Ok(send.reset(code)?),
        "STOP" => {
            receive.stop(code)?;
            // If dropped earlier, it would be ended.
            session.closed().await;
            return Ok(());
        }
        "HEAR" => {
            send.write_all(b"ready").await?;
            let said = hear(&mut receive).await?;
            say(&session, said.as_bytes()).await?;
        }
        "LAST" => {
            let said = last.subscribe().wait_for(Option::is_some).await?.clone();
            send.write_all(said.unwrap_or_default().as_bytes()).await?;
        }
        "PROTOCOL" => {
            send.write_all(session.protocol().unwrap_or_default().as_bytes())
                .await?;
        }
        _ => return Err(format!("no such order: {line:?}").into()),
    }
    Ok(send.finish()?)
}

/// Returns true if the echo of the sent data is correct.
async fn open(session: &Session) -> Result<bool, Failure> {
    let (mut send, mut receive) = session.open_bi().await?;
    let writing = tokio::spawn(async move {
        send.write_all(&gift()).await?;
        send.finish()?;
        Ok::<_, Failure>(())
    });
    let back = receive.read_to_end(usize::MAX).await?;
    writing.await??;
    Ok(back == gift())
}

async fn hear(receive: &mut RecvStream) -> Result<String, Failure> {
    loop {
        match receive.read_chunk(PIECE, true).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok("the end".into()),
            Err(ReadError::Reset(code)) => return Ok(code.to_string()),
            Err(error) => return Err(error.into()),
        }
    }
}
