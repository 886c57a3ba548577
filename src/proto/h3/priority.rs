//! Priorities of responses (RFC 9218): the value of the `priority` field and of PRIORITY_UPDATE
//! frames, a Dictionary of Structured Fields (RFC 9651).
//!
//! Not here: which frame may come where (`uni.rs`, `control.rs`), and who is served when, which is
//! QUIC's and the host's.

use super::qpack::Field;

/// How a response is to be served beside the others of its connection (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0, the most urgent, to 7.
    pub urgency: u8,
    /// Whether a part of it is of use, so that it may share with others.
    pub incremental: bool,
}

impl Default for Priority {
    /// RFC 9218 sections 4.1 and 4.2.
    fn default() -> Self {
        Self {
            urgency: 3,
            incremental: false,
        }
    }
}

impl Priority {
    /// What a priority field value says by itself.
    pub fn parse(value: &[u8]) -> Self {
        Signal::parse(value).over(Self::default())
    }

    /// What a message's `priority` field says by itself; the default if it has none.
    pub fn of(fields: &[Field]) -> Self {
        Signal::of(fields).unwrap_or_default().over(Self::default())
    }
}

/// What a priority field value says, and what it leaves open: to the defaults in a request, to the
/// request in a response (RFC 9218 section 8).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Signal {
    pub urgency: Option<u8>,
    pub incremental: Option<bool>,
}

impl Signal {
    /// Reads a priority field value. What is of another type or out of range is as if it were not
    /// there (RFC 9218 section 4), and a value that is no Dictionary is as if it were empty (RFC 9651
    /// section 4.2): nothing of it is an error.
    pub fn parse(value: &[u8]) -> Self {
        let mut signal = Self::default();
        let mut parser = Parser(value);
        let read = parser.dictionary(|key, value| signal.set(key, value));
        read.map_or_else(Self::default, |()| signal)
    }

    /// What a message's `priority` field says, if it has one. The lines of one field are one list (RFC
    /// 9110 section 5.3).
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(fields: &[(N, V)]) -> Option<Self> {
        let mut lines = fields
            .iter()
            .filter(|(name, _)| name.as_ref() == b"priority")
            .map(|(_, value)| value.as_ref());
        let first = lines.next()?;
        let Some(second) = lines.next() else {
            return Some(Self::parse(first));
        };
        let values: Vec<&[u8]> = [first, second].into_iter().chain(lines).collect();
        Some(Self::parse(&values.join(&b", "[..])))
    }

    /// What it says, and for the rest `base`.
    pub fn over(self, base: Priority) -> Priority {
        Priority {
            urgency: self.urgency.unwrap_or(base.urgency),
            incremental: self.incremental.unwrap_or(base.incremental),
        }
    }

    /// One member of the dictionary; of two with one key the later one counts, also where it says
    /// nothing that is understood.
    fn set(&mut self, key: &[u8], value: Value) {
        match key {
            b"u" => {
                self.urgency = match value {
                    Value::Integer(urgency @ 0..=7) => Some(urgency as u8),
                    _ => None,
                };
            }
            b"i" => {
                self.incremental = match value {
                    Value::Boolean(incremental) => Some(incremental),
                    _ => None,
                };
            }
            _ => {}
        }
    }
}

/// A member's value as far as anything here is made of it.
#[derive(Clone, Copy)]
enum Value {
    Integer(i64),
    Boolean(bool),
    Other,
}

/// What is left to be read. Each method reads one production of RFC 9651 section 4.2, named there
/// after what it reads, and gives `None` where the text is none of it.
struct Parser<'a>(&'a [u8]);

impl<'a> Parser<'a> {
    /// Section 4.2.2.
    fn dictionary(&mut self, mut member: impl FnMut(&[u8], Value)) -> Option<()> {
        self.skip(|byte| byte == b' ');
        while !self.0.is_empty() {
            let key = self.key()?;
            let value = match self.accept(b'=') {
                true if self.0.first() == Some(&b'(') => self.inner_list()?,
                true => self.bare_item()?,
                false => Value::Boolean(true),
            };
            self.parameters()?;
            member(key, value);
            self.skip(is_optional_space);
            if self.0.is_empty() {
                return Some(());
            }
            self.accept(b',').then_some(())?;
            self.skip(is_optional_space);
            // Nothing may end in a comma.
            self.0.first()?;
        }
        Some(())
    }

    /// Section 4.2.1.2.
    fn inner_list(&mut self) -> Option<Value> {
        self.accept(b'(').then_some(())?;
        loop {
            self.skip(|byte| byte == b' ');
            if self.accept(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            matches!(self.0.first(), Some(b' ' | b')')).then_some(())?;
        }
    }

    /// Section 4.2.3.2. Nothing is known that has any that mean something.
    fn parameters(&mut self) -> Option<()> {
        while self.accept(b';') {
            self.skip(|byte| byte == b' ');
            self.key()?;
            if self.accept(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    /// Section 4.2.3.3.
    fn key(&mut self) -> Option<&'a [u8]> {
        matches!(self.0.first(), Some(b'a'..=b'z' | b'*')).then_some(())?;
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    /// Section 4.2.3.1.
    fn bare_item(&mut self) -> Option<Value> {
        match *self.0.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.take_while(is_token_byte);
                Some(Value::Other)
            }
            b':' => self.byte_sequence(),
            b'?' => self.boolean(),
            b'@' => self.date(),
            b'%' => self.display_string(),
            _ => None,
        }
    }

    /// Section 4.2.4: at most fifteen digits, or twelve and up to three behind a point.
    fn number(&mut self) -> Option<Value> {
        let is_negative = self.accept(b'-');
        let digits = self.take_while(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return None;
        }
        if self.accept(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let is_valid = digits.len() <= 12 && (1..=3).contains(&fraction.len());
            return is_valid.then_some(Value::Other);
        }
        let value = digits
            .iter()
            .fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if is_negative { -value } else { value }))
    }

    /// Section 4.2.5.
    fn string(&mut self) -> Option<Value> {
        self.accept(b'"').then_some(())?;
        loop {
            match self.next()? {
                b'\\' => matches!(self.next()?, b'"' | b'\\').then_some(())?,
                b'"' => return Some(Value::Other),
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    /// Section 4.2.7. Padding may be missing there, so none of it is asked for.
    fn byte_sequence(&mut self) -> Option<Value> {
        self.accept(b':').then_some(())?;
        self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        self.skip(|byte| byte == b'=');
        self.accept(b':').then_some(Value::Other)
    }

    /// Section 4.2.8.
    fn boolean(&mut self) -> Option<Value> {
        self.accept(b'?').then_some(())?;
        match self.next()? {
            b'1' => Some(Value::Boolean(true)),
            b'0' => Some(Value::Boolean(false)),
            _ => None,
        }
    }

    /// Section 4.2.9.
    fn date(&mut self) -> Option<Value> {
        self.accept(b'@').then_some(())?;
        match self.number()? {
            Value::Integer(_) => Some(Value::Other),
            _ => None,
        }
    }

    /// Section 4.2.10, the text it stands for aside.
    fn display_string(&mut self) -> Option<Value> {
        self.accept(b'%').then_some(())?;
        self.accept(b'"').then_some(())?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        loop {
            match self.next()? {
                b'%' => (is_hex(self.next()?) && is_hex(self.next()?)).then_some(())?,
                b'"' => return Some(Value::Other),
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn accept(&mut self, byte: u8) -> bool {
        let is_next = self.0.first() == Some(&byte);
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.0.iter().position(|&byte| !belongs(byte));
        let (taken, rest) = self.0.split_at(end.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    fn skip(&mut self, belongs: impl Fn(u8) -> bool) {
        self.take_while(belongs);
    }
}

/// RFC 9110 section 5.6.3.
fn is_optional_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// RFC 9651 section 4.2.6.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}
