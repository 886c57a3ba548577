//! Structured fields of HTTP (RFC 9651): parses dictionaries and lists, with the types that this crate's users need.
//!
//! Not here: the meaning of a field's members.

/// The value of a bare item. Types that no user of this crate needs are `Other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value<'a> {
    Integer(i64),
    Boolean(bool),
    /// The text between the quotes, with its escapes. [`unescaped`] removes them.
    String(&'a [u8]),
    Other,
}

/// Removes the backslashes that escape characters of a string.
pub fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut bytes = text.iter();
    let mut plain = Vec::with_capacity(text.len());
    while let Some(&byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        plain.push(*escaped.unwrap_or(&byte));
    }
    plain
}

/// A parser over the unread input. Each method parses one production of RFC 9651 section 4.2, and returns `None` if
/// the input does not match it.
pub struct Parser<'a>(pub &'a [u8]);

impl<'a> Parser<'a> {
    /// Parses a dictionary (RFC 9651 section 4.2.2). Calls `member` with the key and the value of each member.
    pub fn dictionary(&mut self, mut member: impl FnMut(&[u8], Value<'a>)) -> Option<()> {
        self.skip(|byte| byte == b' ');
        while !self.0.is_empty() {
            let key = self.key()?;
            let value = match self.accept(b'=') {
                true => self.member()?,
                false => Value::Boolean(true),
            };
            self.parameters()?;
            member(key, value);
            self.next_member()?;
        }
        Some(())
    }

    /// Parses a list (RFC 9651 section 4.2.1). Calls `member` with each value; an inner list is [`Value::Other`].
    pub fn list(&mut self, mut member: impl FnMut(Value<'a>)) -> Option<()> {
        self.skip(|byte| byte == b' ');
        while !self.0.is_empty() {
            let value = self.member()?;
            self.parameters()?;
            member(value);
            self.next_member()?;
        }
        Some(())
    }

    fn member(&mut self) -> Option<Value<'a>> {
        match self.0.first() {
            Some(&b'(') => self.inner_list(),
            _ => self.bare_item(),
        }
    }

    /// Skips the comma between a member and the next one. `None` if the list is malformed. At the end of the input no
    /// comma is needed.
    fn next_member(&mut self) -> Option<()> {
        self.skip(is_optional_space);
        if self.0.is_empty() {
            return Some(());
        }
        self.accept(b',').then_some(())?;
        self.skip(is_optional_space);
        // A comma at the end of the input is an error.
        self.0.first().map(|_| ())
    }

    /// Parses an item that extends to the end of the input (RFC 9651 section 4.2.3).
    pub fn item(&mut self) -> Option<Value<'a>> {
        self.skip(|byte| byte == b' ');
        let value = self.bare_item()?;
        self.parameters()?;
        self.skip(|byte| byte == b' ');
        self.0.is_empty().then_some(value)
    }

    /// Skips an inner list (RFC 9651 section 4.2.1.2).
    fn inner_list(&mut self) -> Option<Value<'a>> {
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

    /// Skips parameters (RFC 9651 section 4.2.3.2): no field that is read here defines any.
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

    /// Parses the key of a dictionary member or parameter (RFC 9651 section 4.2.3.3).
    fn key(&mut self) -> Option<&'a [u8]> {
        matches!(self.0.first(), Some(b'a'..=b'z' | b'*')).then_some(())?;
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    /// Parses an item without its parameters (RFC 9651 section 4.2.3.1).
    fn bare_item(&mut self) -> Option<Value<'a>> {
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

    /// Parses an integer or decimal (RFC 9651 section 4.2.4): at most 15 digits, or at most 12 before and 3 after a
    /// decimal point.
    fn number(&mut self) -> Option<Value<'a>> {
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

    /// Parses a string (RFC 9651 section 4.2.5).
    fn string(&mut self) -> Option<Value<'a>> {
        self.accept(b'"').then_some(())?;
        let text = self.0;
        loop {
            match self.next()? {
                b'\\' => matches!(self.next()?, b'"' | b'\\').then_some(())?,
                b'"' => {
                    let length = text.len() - self.0.len() - 1;
                    return Some(Value::String(&text[..length]));
                }
                b' '..=b'~' => {}
                _ => return None,
            }
        }
    }

    /// Skips a byte sequence (RFC 9651 section 4.2.7). Base64 padding is optional, because senders may omit it.
    fn byte_sequence(&mut self) -> Option<Value<'a>> {
        self.accept(b':').then_some(())?;
        self.take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        self.skip(|byte| byte == b'=');
        self.accept(b':').then_some(Value::Other)
    }

    /// Parses a boolean (RFC 9651 section 4.2.8).
    fn boolean(&mut self) -> Option<Value<'a>> {
        self.accept(b'?').then_some(())?;
        match self.next()? {
            b'1' => Some(Value::Boolean(true)),
            b'0' => Some(Value::Boolean(false)),
            _ => None,
        }
    }

    /// Skips a date (RFC 9651 section 4.2.9).
    fn date(&mut self) -> Option<Value<'a>> {
        self.accept(b'@').then_some(())?;
        match self.number()? {
            Value::Integer(_) => Some(Value::Other),
            _ => None,
        }
    }

    /// Skips a display string (RFC 9651 section 4.2.10). Its text is not decoded.
    fn display_string(&mut self) -> Option<Value<'a>> {
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

/// True for optional white space, OWS (RFC 9110 section 5.6.3).
fn is_optional_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// True for the characters of a token after its first one (RFC 9651 section 4.2.6).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}
