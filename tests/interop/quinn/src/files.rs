//! HTTP/0.9: a line with the method and path, then the file until the stream's end.

use std::path::{Component, Path, PathBuf};

use quinn::{Connection, RecvStream, SendStream};
use tokio::io::AsyncWriteExt;

use crate::setup::Failure;

const REQUEST_MAX: usize = 8192;

pub async fn answer_all(connection: Connection, www: PathBuf) {
    // The client's close ends the loop.
    while let Ok((send, receive)) = connection.accept_bi().await {
        let www = www.clone();
        tokio::spawn(async move {
            if let Err(failure) = answer(send, receive, &www).await {
                eprintln!("quinn_interop: {failure}");
            }
        });
    }
}

async fn answer(mut send: SendStream, mut receive: RecvStream, www: &Path) -> Result<(), Failure> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < REQUEST_MAX {
        match receive.read_chunk(1024, true).await? {
            Some(chunk) => line.extend_from_slice(&chunk.bytes),
            None => break,
        }
    }
    let line = String::from_utf8(line)?;
    let path = line.trim().strip_prefix("GET ").ok_or("not a request")?;
    let mut file = tokio::fs::File::open(resolve(www, path)?).await?;
    tokio::io::copy(&mut file, &mut send).await?;
    Ok(send.finish()?)
}

pub fn resolve(www: &Path, path: &str) -> Result<PathBuf, Failure> {
    let relative = Path::new(path.trim_start_matches('/'));
    match relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        true => Ok(www.join(relative)),
        false => Err(format!("not a file: {path}").into()),
    }
}

pub async fn fetch(connection: &Connection, path: &str, downloads: &Path) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(format!("GET {path}\r\n").as_bytes()).await?;
    send.finish()?;
    let mut file = tokio::fs::File::create(target(downloads, path)).await?;
    while let Some(chunk) = receive.read_chunk(1 << 16, true).await? {
        file.write_all(&chunk.bytes).await?;
    }
    Ok(file.flush().await?)
}

pub fn target(downloads: &Path, path: &str) -> PathBuf {
    downloads.join(path.rsplit('/').next().unwrap_or("index"))
}
