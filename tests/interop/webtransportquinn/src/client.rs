//! The client's end of each case.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use quinn::Endpoint;
use url::Url;
use web_transport_quinn::proto::ConnectRequest;
use web_transport_quinn::{
    Client, ReadError, ReadToEndError, RecvStream, SendStream, Session, SessionError,
    WebTransportError,
};

use crate::setup::{Failure, Options};
use crate::{PATH, gift};

const TIME: Duration = Duration::from_secs(30);
/// Below and above the first code that the mapping to HTTP/3's codes leaves out.
const CODES: [u32; 2] = [7, 300];
const DATAGRAMS: u32 = 100;
const DATAGRAM_BYTES: usize = 1000;

pub async fn run(options: &Options) -> Result<(), Failure> {
    let endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
    let request = options.requests.first().ok_or("REQUESTS is empty")?;
    let target = Target {
        client: Client::new(endpoint, options.client_config()?),
        base: Url::parse(request)?,
    };
    tokio::time::timeout(TIME, play(&options.case, &target)).await?
}

async fn play(case: &str, target: &Target) -> Result<(), Failure> {
    match case {
        "wt-echo" => echo(target).await,
        "wt-streams" => streams(target).await,
        "wt-datagrams" => datagrams(target).await,
        "wt-close" => server_closes(target).await,
        "wt-closed" => client_closes(target).await,
        "wt-codes" => codes(target).await,
        "wt-refusal" => refusal(target).await,
        "wt-protocol" => protocol(target).await,
        _ => Err(format!("no such case: {case}").into()),
    }
}

struct Target {
    client: Client,
    base: Url,
}

impl Target {
    fn request(&self, path: &str) -> Result<ConnectRequest, Failure> {
        Ok(ConnectRequest::new(self.base.join(path)?))
    }

    async fn session(&self) -> Result<Session, Failure> {
        Ok(self.client.connect(self.request(PATH)?).await?)
    }
}

async fn echo(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    let big = (0..=u8::MAX).cycle().take(1 << 20).collect();
    check_echo(session.clone(), big).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..20 {
        tasks.spawn(check_echo(session.clone(), vec![number; 50_000]));
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    leave(&session).await
}

async fn check_echo(session: Session, content: Vec<u8>) -> Result<(), Failure> {
    let line = [b"ECHO\n", content.as_slice()].concat();
    let back = told(&session, line).await?;
    expect("what comes back", back == content, true)
}

async fn streams(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    let mut own = session.open_uni().await?;
    own.write_all(&gift()).await?;
    own.finish()?;
    let back = session.accept_uni().await?.read_to_end(usize::MAX).await?;
    expect("what came on a unidirectional stream", back == gift(), true)?;
    let (_send, mut answer) = order(&session, b"OPEN\n".to_vec(), true).await?;
    let (mut send, mut receive) = session.accept_bi().await?;
    send.write_all(&receive.read_to_end(usize::MAX).await?)
        .await?;
    send.finish()?;
    let said = answer.read_to_end(64).await?;
    expect("what the server found", said.as_slice(), b"same")?;
    leave(&session).await
}

async fn datagrams(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    for number in 0..DATAGRAMS {
        let mut sent = vec![0; DATAGRAM_BYTES];
        sent[..4].copy_from_slice(&number.to_be_bytes());
        session.send_datagram(Bytes::from(sent.clone()))?;
        let back = session.read_datagram().await?;
        expect("a datagram", back == sent, true)?;
    }
    leave(&session).await
}

async fn server_closes(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    let _streams = order(&session, b"CLOSE 4321 as asked\n".to_vec(), true).await?;
    match session.closed().await {
        SessionError::WebTransportError(WebTransportError::Closed(code, reason)) => {
            expect("the close", (code, reason.as_str()), (4321, "as asked"))
        }
        other => Err(format!("the close: {other:?}").into()),
    }
}

async fn client_closes(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    // Once the server has sent data, it has a session that can be closed.
    check_echo(session.clone(), b"x".to_vec()).await?;
    session.close(1234, b"enough of it");
    session.closed().await;
    let session = target.session().await?;
    let said = told(&session, b"LAST\n".to_vec()).await?;
    expect("the close", said.as_slice(), b"1234 enough of it")?;
    leave(&session).await
}

async fn codes(target: &Target) -> Result<(), Failure> {
    let session = target.session().await?;
    for code in CODES {
        let (_send, mut receive) = order(&session, format!("RESET {code}\n").into(), true).await?;
        match receive.read_to_end(64).await {
            Err(ReadToEndError::ReadError(ReadError::Reset(found))) => {
                expect("the code of a reset", found, code)?;
            }
            other => return Err(format!("a reset with {code}: {other:?}").into()),
        }
        heard(&session, code).await?;
        let (send, _receive) = order(&session, format!("STOP {code}\n").into(), false).await?;
        expect("the code of a stop", send.stopped().await?, Some(code))?;
    }
    leave(&session).await
}

/// Resets a stream, and checks the code that the server then reports.
async fn heard(session: &Session, code: u32) -> Result<(), Failure> {
    let (mut send, mut receive) = order(session, b"HEAR\n".to_vec(), false).await?;
    receive.read_exact(&mut [0; 5]).await?;
    send.reset(code)?;
    let said = session.accept_uni().await?.read_to_end(64).await?;
    let wanted = code.to_string();
    expect(
        "the code that the server heard",
        said.as_slice(),
        wanted.as_bytes(),
    )
}

async fn refusal(target: &Target) -> Result<(), Failure> {
    match target.client.connect(target.request("/nothing")?).await {
        Ok(_) => Err("there is a session where none was to be".into()),
        Err(error) if error.to_string().contains(StatusCode::NOT_FOUND.as_str()) => Ok(()),
        Err(error) => Err(format!("refused otherwise than with 404: {error}").into()),
    }
}

async fn protocol(target: &Target) -> Result<(), Failure> {
    let request = target.request(PATH)?;
    let request = request.with_protocol("first").with_protocol("second");
    let session = target.client.connect(request).await?;
    expect("the protocol", session.protocol(), Some("second"))?;
    let said = told(&session, b"PROTOCOL\n".to_vec()).await?;
    expect("the server's", said.as_slice(), b"second")?;
    leave(&session).await
}

async fn order(
    session: &Session,
    line: Vec<u8>,
    end: bool,
) -> Result<(SendStream, RecvStream), Failure> {
    let (mut send, receive) = session.open_bi().await?;
    send.write_all(&line).await?;
    if end {
        send.finish()?;
    }
    Ok((send, receive))
}

/// Returns the server's answer. An echo begins before all data has been sent.
async fn told(session: &Session, line: Vec<u8>) -> Result<Vec<u8>, Failure> {
    let (mut send, mut receive) = session.open_bi().await?;
    let writing = tokio::spawn(async move {
        send.write_all(&line).await?;
        send.finish()?;
        Ok::<_, Failure>(())
    });
    let found = receive.read_to_end(usize::MAX).await?;
    writing.await??;
    Ok(found)
}

async fn leave(session: &Session) -> Result<(), Failure> {
    session.close(0, b"");
    session.closed().await;
    Ok(())
}

fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), Failure> {
    if found == wanted {
        return Ok(());
    }
    Err(format!("{what}: {found:?}, not {wanted:?}").into())
}
