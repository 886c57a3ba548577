//! A connection with HTTP/1.1: one request at a time; responses have a Content-Length.

use std::time::Instant;

use uringcore_bench::Failure;
use uringcore_bench::latency::Latencies;

use crate::exchange::Exchange;
use crate::load::Protocol;

const HEAD_BYTES_MAX: usize = 16 * 1024;
const END: &[u8] = b"\r\n\r\n";

pub struct Connection {
    request: Vec<u8>,
    since: Option<Instant>,
    /// The part of a head that has arrived.
    partial: Vec<u8>,
    /// The last whole head: most differ from the one before by nothing.
    head: Vec<u8>,
    length: usize,
    /// Bytes of the body that have arrived; none while a head is due.
    at: Option<usize>,
}

impl Protocol for Connection {
    fn new(exchange: &Exchange, streams: usize, _out: &mut Vec<u8>) -> Result<Self, Failure> {
        if streams != 1 {
            return Err("HTTP/1.1 has one request at a time".into());
        }
        let mut request = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: http_load\r\nAccept: */*\r\n",
            exchange.method(),
            exchange.path,
            exchange.authority,
        );
        if !exchange.content.is_empty() {
            let length = exchange.content.len();
            let fields = format!("Content-Type: application/json\r\nContent-Length: {length}\r\n");
            request.push_str(&fields);
        }
        request.push_str("\r\n");
        let mut request = request.into_bytes();
        request.extend_from_slice(&exchange.content);
        Ok(Connection {
            request,
            since: None,
            partial: Vec::new(),
            head: Vec::new(),
            length: 0,
            at: None,
        })
    }

    fn in_flight(&self) -> usize {
        usize::from(self.since.is_some())
    }

    fn ask(&mut self, _: &Exchange, limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.since.is_none() && limit > 0 {
            out.extend_from_slice(&self.request);
            self.since = Some(Instant::now());
        }
        Ok(())
    }

    fn receive(
        &mut self,
        exchange: &Exchange,
        data: &[u8],
        _out: &mut Vec<u8>,
        done: &mut Latencies,
    ) -> Result<u64, Failure> {
        let joined;
        let mut data = data;
        if !self.partial.is_empty() {
            self.partial.extend_from_slice(data);
            joined = std::mem::take(&mut self.partial);
            data = &joined;
        }
        if self.at.is_none() {
            let Some(end) = data.windows(END.len()).position(|part| part == END) else {
                if data.len() > HEAD_BYTES_MAX {
                    return Err("a head without an end".into());
                }
                self.partial.extend_from_slice(data);
                return Ok(0);
            };
            let (head, body) = data.split_at(end + END.len());
            if head != self.head {
                self.length = length_of(head)?;
                self.head = head.to_vec();
            }
            exchange.check_end(self.length)?;
            self.at = Some(0);
            data = body;
        }
        let at = self.at.unwrap_or(0);
        exchange.check(at, data)?;
        if at + data.len() < self.length {
            self.at = Some(at + data.len());
            return Ok(0);
        }
        self.at = None;
        let since = self.since.take().ok_or("a response without a request")?;
        done.add(since.elapsed());
        Ok(1)
    }
}

fn length_of(head: &[u8]) -> Result<usize, Failure> {
    let text = std::str::from_utf8(head)?;
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    if !status.starts_with("HTTP/1.1 200") {
        return Err(format!("a wrong status: {status}").into());
    }
    for line in lines {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            return Ok(value.trim().parse()?);
        }
    }
    Err(format!("no Content-Length in {text:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_read_and_another_status_refused() {
        assert_eq!(
            length_of(b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 13\r\n\r\n").unwrap(),
            13
        );
        assert!(length_of(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(length_of(b"HTTP/1.1 500 Internal\r\ncontent-length: 13\r\n\r\n").is_err());
    }
}
