//! Encodes header sections and chunks (RFC 9112 sections 4 to 7).

use super::message_body_length::trimmed;
use super::websocket_handshake::{self, Key};

/// Field lines of the host: names and values.
pub(super) type Fields<'a> = [(&'a [u8], &'a [u8])];

/// The lines that the connection adds to a final response.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub content_length: Option<u64>,
    pub is_chunked: bool,
    pub closes: bool,
    /// True if the client speaks HTTP/1.0 and has asked to keep the connection.
    pub keeps_alive: bool,
    /// True if the application's Content-Length is left out.
    pub hides_length: bool,
}

/// The reason for which an application's fields cannot be sent.
pub(super) type Invalid = String;

/// Encodes the header section of a final response.
pub(super) fn response(
    out: &mut Vec<u8>,
    status: u16,
    fields: &Fields<'_>,
    added: &Added,
) -> Result<(), Invalid> {
    status_line(out, status);
    let mut upgrades = false;
    for &(name, value) in fields {
        match name {
            b"content-length" if added.hides_length => continue,
            b"upgrade" => upgrades = true,
            _ if is_of_connection(name) => continue,
            _ => {}
        }
        line(out, name, value)?;
    }
    if let Some(length) = added.content_length {
        out.extend_from_slice(b"content-length: ");
        decimal(out, length);
        out.extend_from_slice(b"\r\n");
    }
    if added.is_chunked {
        out.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    out.extend_from_slice(match (added.closes, added.keeps_alive, upgrades) {
        (true, _, false) => b"connection: close\r\n",
        (true, _, true) => b"connection: close, upgrade\r\n",
        (false, true, false) => b"connection: keep-alive\r\n",
        (false, true, true) => b"connection: keep-alive, upgrade\r\n",
        // A sender of Upgrade names it in Connection (RFC 9110 section 7.8).
        (false, false, true) => b"connection: upgrade\r\n",
        (false, false, false) => b"",
    });
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Encodes the header section of an interim response (RFC 9110 section 15.2).
pub(super) fn interim(out: &mut Vec<u8>, status: u16, fields: &Fields<'_>) -> Result<(), Invalid> {
    status_line(out, status);
    for &(name, value) in fields {
        // An interim response has no Content-Length (RFC 9110 section 8.6).
        if name != b"content-length" && !is_of_connection(name) {
            line(out, name, value)?;
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Encodes the response that accepts a WebSocket (RFC 6455 section 4.2.2).
pub(super) fn switching(out: &mut Vec<u8>, key: &Key, fields: &Fields<'_>) -> Result<(), Invalid> {
    status_line(out, 101);
    for &(name, value) in fields {
        let is_ours = matches!(
            name,
            b"content-length" | b"upgrade" | b"sec-websocket-accept"
        );
        if !is_ours && !is_of_connection(name) {
            line(out, name, value)?;
        }
    }
    out.extend_from_slice(b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ");
    out.extend_from_slice(&websocket_handshake::accept(key));
    out.extend_from_slice(b"\r\n\r\n");
    Ok(())
}

/// Encodes the last chunk and the trailers behind it (RFC 9112 section 7.1.2).
pub(super) fn last_chunk(out: &mut Vec<u8>, trailers: &Fields<'_>) -> Result<(), Invalid> {
    out.extend_from_slice(b"0\r\n");
    for &(name, value) in trailers {
        // A trailer must not determine the framing or the target (RFC 9110 section 6.5.1).
        let is_forbidden = matches!(name, b"content-length" | b"host" | b"trailer");
        if !is_forbidden && !is_of_connection(name) {
            line(out, name, value)?;
        }
    }
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Encodes the line before a chunk's data.
pub(super) fn chunk_size(out: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for place in (0..digits).rev() {
        out.push(HEX[size >> (4 * place) & 15]);
    }
    out.extend_from_slice(b"\r\n");
}

fn status_line(out: &mut Vec<u8>, status: u16) {
    match status {
        // This status is the most frequent one.
        200 => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        status => {
            out.extend_from_slice(b"HTTP/1.1 ");
            decimal(out, status.into());
            out.push(b' ');
            out.extend_from_slice(reason(status).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Encodes a field of an application. A field that would end its own line is refused, because it would allow response
/// splitting.
fn line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), Invalid> {
    if name.is_empty() || !name.iter().all(|&byte| TOKEN[usize::from(byte)]) {
        let shown = &name[..name.len().min(64)];
        return Err(format!(
            "field name \"{}\" is invalid",
            shown.escape_ascii()
        ));
    }
    let value = trimmed(value);
    // The loop has no early exit, so that the compiler can vectorise it.
    let is_forbidden = |byte: u8| matches!(byte, 0 | b'\r' | b'\n');
    let has_forbidden = value
        .iter()
        .fold(false, |found, &byte| found | is_forbidden(byte));
    if has_forbidden {
        let shown = name.escape_ascii();
        return Err(format!(
            "the value of field \"{shown}\" has forbidden characters"
        ));
    }
    // One growth and four copies of known length: this is a hot path.
    let begin = out.len();
    out.resize(begin + name.len() + value.len() + 4, 0);
    let (name_part, rest) = out[begin..].split_at_mut(name.len());
    let (colon, rest) = rest.split_at_mut(2);
    let (value_part, end) = rest.split_at_mut(value.len());
    name_part.copy_from_slice(name);
    colon.copy_from_slice(b": ");
    value_part.copy_from_slice(value);
    end.copy_from_slice(b"\r\n");
    Ok(())
}

/// True if the connection sets this field itself (RFC 9110 section 7.6.1), so that the application's value is left out.
fn is_of_connection(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
    )
}

/// Encodes a decimal number.
pub(super) fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The reason phrase of a status in the IANA registry (RFC 9110 section 15, and later RFCs).
fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        101 => "Switching Protocols",
        102 => "Processing",
        103 => "Early Hints",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        203 => "Non-Authoritative Information",
        204 => "No Content",
        205 => "Reset Content",
        206 => "Partial Content",
        207 => "Multi-Status",
        208 => "Already Reported",
        226 => "IM Used",
        300 => "Multiple Choices",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        304 => "Not Modified",
        305 => "Use Proxy",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        402 => "Payment Required",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        411 => "Length Required",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        418 => "I'm a Teapot",
        421 => "Misdirected Request",
        422 => "Unprocessable Content",
        423 => "Locked",
        424 => "Failed Dependency",
        425 => "Too Early",
        426 => "Upgrade Required",
        428 => "Precondition Required",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        451 => "Unavailable For Legal Reasons",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        506 => "Variant Also Negotiates",
        507 => "Insufficient Storage",
        508 => "Loop Detected",
        510 => "Not Extended",
        511 => "Network Authentication Required",
        // The phrase may be empty (RFC 9112 section 4).
        _ => "",
    }
}

/// The characters of a token: `tchar` of RFC 9110 section 5.6.2.
static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'^'..=b'z' | b'|' | b'~'
        );
        byte += 1;
    }
    table
};
const HEX: &[u8; 16] = b"0123456789abcdef";

/// True if a token may contain this byte, so that a request line may begin with it.
pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), Invalid>) -> Result<String, Invalid> {
        let mut out = Vec::new();
        encode(&mut out).map(|()| String::from_utf8_lossy(&out).into_owned())
    }

    fn plain(fields: &Fields<'_>) -> Result<String, Invalid> {
        text(|out| response(out, 200, fields, &Added::default()))
    }

    #[test]
    fn a_section_is_lines_with_an_end() {
        let fields: &Fields<'_> = &[
            (b"a", b" b\t"),
            (b"set-cookie", b"c"),
            (b"set-cookie", b"\xe9"),
        ];
        assert_eq!(
            plain(fields).unwrap(),
            "HTTP/1.1 200 OK\r\na: b\r\nset-cookie: c\r\nset-cookie: \u{fffd}\r\n\r\n"
        );
        let added = Added {
            content_length: Some(1234567890),
            closes: true,
            ..Added::default()
        };
        let section = text(|out| response(out, 404, &[], &added)).unwrap();
        assert_eq!(
            section,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 1234567890\r\nconnection: close\r\n\r\n"
        );
        let unknown = text(|out| response(out, 299, &[], &Added::default())).unwrap();
        assert_eq!(unknown, "HTTP/1.1 299 \r\n\r\n");
    }

    #[test]
    fn no_field_of_an_application_ends_its_line() {
        for (name, value) in [
            (&b"a"[..], &b"b\r\nc: d"[..]),
            (b"a", b"b\rc"),
            (b"a", b"b\nc"),
            (b"a", b"b\0c"),
            (b"a: b\r\nc", b"d"),
            (b"", b"a"),
            (b"a b", b"c"),
            (b"a:", b"b"),
            (b"\xe9", b"a"),
        ] {
            let field = [(name, value)];
            assert!(plain(&field).is_err(), "{}", name.escape_ascii());
            assert!(text(|out| interim(out, 103, &field)).is_err());
            assert!(text(|out| last_chunk(out, &field)).is_err());
            assert!(text(|out| switching(out, b"dGhlIHNhbXBsZSBub25jZQ==", &field)).is_err());
        }
    }

    #[test]
    fn fields_of_the_connection_are_its_own() {
        let fields: &Fields<'_> = &[
            (b"connection", b"keep-alive"),
            (b"transfer-encoding", b"gzip"),
            (b"keep-alive", b"timeout=5"),
        ];
        assert_eq!(plain(fields).unwrap(), "HTTP/1.1 200 OK\r\n\r\n");
        let upgrade = plain(&[(b"upgrade", b"h2c")]).unwrap();
        assert_eq!(
            upgrade,
            "HTTP/1.1 200 OK\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n"
        );
        let trailers: &Fields<'_> = &[(b"content-length", b"5"), (b"grpc-status", b"0")];
        assert_eq!(
            text(|out| last_chunk(out, trailers)).unwrap(),
            "0\r\ngrpc-status: 0\r\n\r\n"
        );
    }

    #[test]
    fn sizes_are_hexadecimal() {
        for (size, expected) in [
            (0, "0\r\n"),
            (9, "9\r\n"),
            (16, "10\r\n"),
            (0xabcdef, "abcdef\r\n"),
        ] {
            let line = text(|out| {
                chunk_size(out, size);
                Ok(())
            });
            assert_eq!(line.unwrap(), expected);
        }
    }
}
