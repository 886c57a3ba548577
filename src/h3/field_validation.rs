//! Validates the field sections of received and sent messages, and so detects malformed ones (RFC 9114 sections 4.1.2,
//! 4.2 and 4.3).
//!
//! Not here: the grammar of a request's method and target (`request_target.rs`); the order of frames and the length of
//! content, which depend on a stream's state (`request/`).

use std::borrow::Cow;

use super::request_target;

/// The name and the value of a field line.
pub type Line<'a> = (&'a [u8], &'a [u8]);

/// A sentence that says why a field section is malformed.
pub type Reason = Cow<'static, str>;

/// The properties of a valid request header section that the state machine uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHead {
    pub method: Method,
    /// True for an extended CONNECT (RFC 9220).
    pub has_protocol: bool,
    pub content_length: Option<u64>,
}

/// The methods that affect the content of a message; all others are `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Head,
    Connect,
    Other,
}

impl Method {
    /// The method in a request's fields, which need not be valid.
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Self {
        let method = fields.iter().find(|(name, _)| name.as_ref() == b":method");
        method.map_or(Self::Other, |(_, value)| Self::named(value.as_ref()))
    }

    fn named(name: &[u8]) -> Self {
        match name {
            b"CONNECT" => Self::Connect,
            b"HEAD" => Self::Head,
            _ => Self::Other,
        }
    }
}

/// The properties of a valid response header section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    pub status: u16,
    pub content_length: Option<u64>,
}

impl ResponseHead {
    pub fn is_interim(&self) -> bool {
        self.status < 200
    }

    /// True for a final status other than 2xx, which refuses a CONNECT (RFC 9110 section 9.3.6).
    pub fn is_refusal(&self) -> bool {
        self.status >= 300
    }

    /// True if `content-length` must not be sent in a response with this status (RFC 9110 section 8.6). It may be sent
    /// in responses to HEAD and with 304, where it is the length of the content that is left out.
    pub fn is_without_content(&self, request: Method) -> bool {
        match self.status {
            100..=199 | 204 => true,
            200..=299 => request == Method::Connect,
            _ => false,
        }
    }
}

/// The rules by which the target of a request is validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetCheck {
    /// The rules of RFC 9114 sections 4.3.1 and 4.4.
    Strict,
    /// Validates as `Strict`, except that a CONNECT request may have `:scheme` and `:path`, which RFC 9114 section 4.4
    /// forbids. aioquic sends and accepts these, and programs for aioquic rely on that.
    LaxConnect,
    /// Nothing is validated, because the host validates targets itself.
    Off,
}

/// Validates a request header section (RFC 9114 section 4.3.1; RFC 9220 section 3 for `:protocol`).
pub fn validate_request<N, V>(fields: &[(N, V)]) -> Result<RequestHead, Reason>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    validate_request_to(fields, TargetCheck::Strict)
}

/// Validates a request as [`validate_request`] does, and the request's target by the rules of `target_check`.
pub fn validate_request_to<N, V>(
    fields: &[(N, V)],
    target_check: TargetCheck,
) -> Result<RequestHead, Reason>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    request_head(pairs(fields), target_check)
}

/// Validates the lines of a request header section.
pub fn request_head<'a>(
    lines: impl Iterator<Item = Line<'a>>,
    target_check: TargetCheck,
) -> Result<RequestHead, Reason> {
    let section = Section::read(lines, SectionKind::Request)?;
    let name = section.method.ok_or("pseudo-header :method is missing")?;
    request_target::check_method(name)?;
    let method = Method::named(name);
    if target_check == TargetCheck::Off {
        // The host validates the target.
    } else if method == Method::Connect && section.protocol.is_none() {
        // RFC 9114 section 4.4: a CONNECT request has no `:scheme` and no `:path`.
        let has_target = section.scheme.is_some() || section.path.is_some();
        if has_target && target_check == TargetCheck::Strict {
            return Err("a CONNECT request has neither :scheme nor :path".into());
        }
        if section.authority.is_none_or(<[u8]>::is_empty) {
            return Err("a CONNECT request needs :authority".into());
        }
        if let Some(authority) = section.agreed_authority()? {
            request_target::check_authority(authority, false)?;
            request_target::check_port(authority)?;
        }
    } else {
        if method != Method::Connect && section.protocol.is_some() {
            return Err("pseudo-header :protocol is only for CONNECT".into());
        }
        section.validate_target(name == b"OPTIONS")?;
    }
    Ok(RequestHead {
        method,
        has_protocol: section.protocol.is_some(),
        content_length: section.content_length,
    })
}

/// Validates a response header section (RFC 9114 section 4.3.2), interim or final.
pub fn validate_response<N, V>(fields: &[(N, V)]) -> Result<ResponseHead, Reason>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    response_head(pairs(fields))
}

/// Validates the lines of a response header section.
pub fn response_head<'a>(lines: impl Iterator<Item = Line<'a>>) -> Result<ResponseHead, Reason> {
    let section = Section::read(lines, SectionKind::Response)?;
    let status = section.status.ok_or("pseudo-header :status is missing")?;
    // RFC 9110 section 15: a status is an integer of three digits.
    let status = match *status {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0')
        }
        _ => return Err("pseudo-header :status is not a three-digit integer".into()),
    };
    // RFC 9114 section 4.5: HTTP/3 has no 101 (Switching Protocols).
    if status == 101 {
        return Err("status 101 exists only in HTTP/1.1".into());
    }
    Ok(ResponseHead {
        status,
        content_length: section.content_length,
    })
}

/// Validates a trailer section, which has no pseudo-header fields (RFC 9114 section 4.3).
pub fn validate_trailers<N, V>(fields: &[(N, V)]) -> Result<(), Reason>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    trailers(pairs(fields))
}

/// Validates the lines of a trailer section.
pub fn trailers<'a>(lines: impl Iterator<Item = Line<'a>>) -> Result<(), Reason> {
    Section::read(lines, SectionKind::Trailers).map(|_| ())
}

fn pairs<N, V>(fields: &[(N, V)]) -> impl Iterator<Item = Line<'_>>
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    let lines = fields.iter();
    lines.map(|(name, value)| (name.as_ref(), value.as_ref()))
}

/// The field lines in the form in which they are sent. White space around the values of regular fields is removed,
/// because it is not part of the value (RFC 9110 section 5.5). Connection-specific fields are removed too, because
/// HTTP/3 forbids them (RFC 9114 section 4.2) and many applications send `connection: close` with any HTTP version. A
/// received message with either is malformed.
pub fn trimmed<N, V>(fields: &[(N, V)]) -> impl Iterator<Item = Line<'_>> + Clone
where
    N: AsRef<[u8]>,
    V: AsRef<[u8]>,
{
    fields.iter().filter_map(|(name, value)| {
        let (name, mut value) = (name.as_ref(), value.as_ref());
        if is_connection_specific(name) {
            return None;
        }
        if name.first() != Some(&b':') {
            while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
                value = rest;
            }
        }
        Some((name, value))
    })
}

/// True for the names of connection-specific fields (RFC 9114 section 4.2), except `te`, which is allowed with one
/// value.
fn is_connection_specific(name: &[u8]) -> bool {
    matches!(
        name,
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade"
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionKind {
    Request,
    Response,
    Trailers,
}

/// The result of one pass over a field section, in which each field was validated: the fields that are validated
/// together afterwards.
#[derive(Default)]
struct Section<'a> {
    method: Option<&'a [u8]>,
    scheme: Option<&'a [u8]>,
    authority: Option<&'a [u8]>,
    path: Option<&'a [u8]>,
    protocol: Option<&'a [u8]>,
    status: Option<&'a [u8]>,
    host: Option<&'a [u8]>,
    content_length: Option<u64>,
}

impl<'a> Section<'a> {
    fn read(lines: impl Iterator<Item = Line<'a>>, kind: SectionKind) -> Result<Self, Reason> {
        let mut section = Self::default();
        let mut regular = false;
        for (name, value) in lines {
            validate_value(name, value)?;
            if name.first() == Some(&b':') {
                if regular {
                    // RFC 9114 section 4.3: all pseudo-header fields come before regular fields.
                    return Err(named("pseudo-header", name, "comes after regular fields"));
                }
                section.read_pseudo_header(name, value, kind)?;
            } else {
                regular = true;
                validate_name(name)?;
                section.read_field(name, value, kind)?;
            }
        }
        Ok(section)
    }

    fn read_pseudo_header(
        &mut self,
        name: &[u8],
        value: &'a [u8],
        kind: SectionKind,
    ) -> Result<(), Reason> {
        let slot = match (kind, name) {
            (SectionKind::Request, b":method") => &mut self.method,
            (SectionKind::Request, b":scheme") => &mut self.scheme,
            (SectionKind::Request, b":authority") => &mut self.authority,
            (SectionKind::Request, b":path") => &mut self.path,
            (SectionKind::Request, b":protocol") => &mut self.protocol,
            (SectionKind::Response, b":status") => &mut self.status,
            _ => return Err(named("pseudo-header", name, "is not allowed here")),
        };
        if slot.replace(value).is_some() {
            return Err(named("pseudo-header", name, "is included twice"));
        }
        Ok(())
    }

    fn read_field(
        &mut self,
        name: &[u8],
        value: &'a [u8],
        kind: SectionKind,
    ) -> Result<(), Reason> {
        match name {
            b"content-length" => {
                let length = parse_content_length(value)
                    .ok_or("content-length is not a non-negative integer")?;
                // RFC 9110 section 8.6: different values of content-length are an error or an attack. Equal ones are
                // permitted only if one of them is removed, and an application may forward all fields of a request.
                let previous = self.content_length.replace(length);
                if previous.is_some_and(|it| it != length || kind == SectionKind::Request) {
                    return Err("content-length is included twice".into());
                }
            }
            // RFC 9110 section 7.2: a request has one Host field. In a response it has no meaning.
            b"host" if kind == SectionKind::Request => {
                let previous = self.host.replace(value);
                if previous.is_some() {
                    return Err("field host is included twice".into());
                }
            }
            // RFC 9114 section 4.2: in a request, `te` may only be "trailers".
            b"te" if kind == SectionKind::Request && value.eq_ignore_ascii_case(b"trailers") => {}
            b"te" if kind == SectionKind::Request => {
                return Err("field te may only be \"trailers\"".into());
            }
            _ if name == b"te" || is_connection_specific(name) => {
                return Err(named("field", name, "is connection-specific"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the fields that a request with a target URI must have (RFC 9114 section 4.3.1).
    fn validate_target(&self, is_options: bool) -> Result<(), Reason> {
        let scheme = self.scheme.ok_or("pseudo-header :scheme is missing")?;
        let path = self.path.ok_or("pseudo-header :path is missing")?;
        request_target::check_scheme(scheme)?;
        if let Some(protocol) = self.protocol {
            request_target::check_protocol(protocol)?;
            if self.authority.is_none() {
                return Err("an extended CONNECT request needs :authority".into());
            }
        }
        let authority = self.agreed_authority()?;
        if request_target::has_mandatory_authority(scheme) {
            let authority = authority.ok_or("neither :authority nor host is present")?;
            if authority.is_empty() {
                return Err("the authority is empty".into());
            }
            request_target::check_authority(authority, false)?;
            request_target::check_absolute_path(path, is_options)
        } else {
            request_target::check_authority(authority.unwrap_or_default(), true)?;
            request_target::check_path(path)
        }
    }

    /// Returns `:authority`, or `host` if there is no `:authority`. If a request has both, they must be equal byte for
    /// byte (RFC 9114 section 4.3.1), so that code that reads either gets the same value.
    fn agreed_authority(&self) -> Result<Option<&'a [u8]>, Reason> {
        match (self.authority, self.host) {
            (Some(authority), Some(host)) if authority != host => {
                Err(":authority and host differ".into())
            }
            (authority, host) => Ok(authority.or(host)),
        }
    }
}

/// Checks that a field name is a token in lower case (RFC 9110 section 5.6.2, RFC 9114 section 4.2).
fn validate_name(name: &[u8]) -> Result<(), Reason> {
    if name.is_empty() {
        return Err("a field name is empty".into());
    }
    if !name.iter().all(|&byte| NAME_BYTES[usize::from(byte)]) {
        let reason = if name.iter().any(u8::is_ascii_uppercase) {
            "is not in lower case"
        } else {
            "has invalid characters"
        };
        return Err(named("field name", name, reason));
    }
    Ok(())
}

/// Checks that a field value contains no NUL, CR or LF, and neither begins nor ends with white space (RFC 9110 section
/// 5.5, RFC 9114 section 10.3).
fn validate_value(name: &[u8], value: &[u8]) -> Result<(), Reason> {
    // The loop has no early exit, so that the compiler can vectorize it.
    let is_forbidden = |byte: u8| matches!(byte, 0 | b'\r' | b'\n');
    if value
        .iter()
        .fold(false, |found, &byte| found | is_forbidden(byte))
    {
        return Err(named(
            "the value of field",
            name,
            "has forbidden characters",
        ));
    }
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(value.first()) || is_space(value.last()) {
        return Err(named(
            "the value of field",
            name,
            "begins or ends with white space",
        ));
    }
    Ok(())
}

fn parse_content_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0u64, |length, &byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        length.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Makes a reason that contains a field's name. The name is escaped and truncated, because the peer chose it and the
/// reason is logged and sent in CONNECTION_CLOSE.
#[cold]
fn named(what: &str, name: &[u8], reason: &str) -> Reason {
    let shown = &name[..name.len().min(64)];
    format!("{what} \"{}\" {reason}", shown.escape_ascii()).into()
}

/// For each byte, true if it may occur in a field name: a `tchar` (RFC 9110 section 5.6.2) that is not an upper-case
/// letter.
pub(super) static NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(
            byte as u8,
            b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'0'..=b'9' | b'^'..=b'z' | b'|' | b'~'
        );
        byte += 1;
    }
    table
};
