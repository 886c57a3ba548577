//! A request and the response that it must get.

use uringcore_bench::args::Args;
use uringcore_bench::{Failure, pattern};

/// The response to `GET /`.
const HELLO: &str = "Hello, world!";

pub struct Exchange {
    pub path: String,
    /// The server's address, as the request names it.
    pub authority: String,
    pub address: std::net::SocketAddr,
    /// The content, JSON. A request with content is a POST, any other a GET.
    pub content: Vec<u8>,
    pub answer: Vec<u8>,
}

impl Exchange {
    /// `--path` returns `--size` bytes of the pattern, or the text `--answer`, or the hello;
    /// `--content` is the request's content.
    pub fn new(args: &Args) -> Result<Exchange, Failure> {
        let address: std::net::SocketAddr = args.required("addr")?;
        let answer = match args.optional("size")? {
            Some(size) => pattern::repeated(size).to_vec(),
            None => args.or("answer", HELLO.to_owned())?.into_bytes(),
        };
        Ok(Exchange {
            path: args.or("path", "/".to_owned())?,
            authority: address.to_string(),
            address,
            content: args.or("content", String::new())?.into_bytes(),
            answer,
        })
    }

    pub fn method(&self) -> &'static str {
        if self.content.is_empty() {
            "GET"
        } else {
            "POST"
        }
    }

    /// Bytes of content, both ways.
    pub fn bytes(&self) -> usize {
        self.content.len() + self.answer.len()
    }

    /// Compares a piece of the answer, which begins at `at`.
    pub fn check(&self, at: usize, piece: &[u8]) -> Result<(), Failure> {
        if self.answer.get(at..at + piece.len()) == Some(piece) {
            return Ok(());
        }
        let shown = String::from_utf8_lossy(&piece[..piece.len().min(200)]);
        Err(format!("a wrong byte or one too many after {at}: {shown:?}").into())
    }

    /// Compares the length of a whole answer.
    pub fn check_end(&self, at: usize) -> Result<(), Failure> {
        if at == self.answer.len() {
            return Ok(());
        }
        Err(format!("{at} bytes of {} came", self.answer.len()).into())
    }
}
