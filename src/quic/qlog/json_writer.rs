//! Writes JSON objects and lists from front to back.

use std::{fmt::Write, time::Duration};

/// A JSON object that is being written.
pub(super) struct Object(String);

impl Object {
    pub fn new() -> Self {
        Self(String::from("{"))
    }

    /// Adds a member whose value is JSON already.
    pub fn raw(&mut self, name: &str, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        let _ = write!(self.0, "\"{name}\":{value}");
    }

    pub fn number(&mut self, name: &str, value: u64) {
        self.raw(name, &value.to_string());
    }

    pub fn flag(&mut self, name: &str, value: bool) {
        self.raw(name, if value { "true" } else { "false" });
    }

    /// Adds a string that needs no escaping.
    pub fn unescaped(&mut self, name: &str, value: &str) {
        self.raw(name, &format!("\"{value}\""));
    }

    pub fn hex(&mut self, name: &str, value: &[u8]) {
        let mut text = String::with_capacity(2 * value.len() + 2);
        text.push('"');
        for byte in value {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('"');
        self.raw(name, &text);
    }

    /// Adds a string that may need escaping.
    pub fn text(&mut self, name: &str, value: &str) {
        let mut text = String::with_capacity(value.len() + 2);
        text.push('"');
        for character in value.chars() {
            match character {
                '"' | '\\' => {
                    text.push('\\');
                    text.push(character);
                }
                '\0'..='\x1f' => {
                    let _ = write!(text, "\\u{:04x}", u32::from(character));
                }
                _ => text.push(character),
            }
        }
        text.push('"');
        self.raw(name, &text);
    }

    pub fn milliseconds(&mut self, name: &str, value: Duration) {
        self.raw(name, &format!("{}", value.as_secs_f64() * 1000.0));
    }

    pub fn finish(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// A JSON list that is being written.
pub(super) struct List(String);

impl List {
    pub fn new() -> Self {
        Self(String::from("["))
    }

    pub fn raw(&mut self, value: &str) {
        if self.0.len() > 1 {
            self.0.push(',');
        }
        self.0.push_str(value);
    }

    pub fn finish(mut self) -> String {
        self.0.push(']');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_json() {
        let mut object = Object::new();
        object.number("n", u64::MAX);
        object.flag("f", true);
        object.unescaped("w", "unescaped");
        object.hex("h", &[0, 0xff]);
        object.text("t", "a\"b\\c\n\u{e9}");
        object.milliseconds("m", Duration::from_micros(1_500));
        let mut list = List::new();
        list.raw("1");
        list.raw("2");
        object.raw("l", &list.finish());
        assert_eq!(
            object.finish(),
            "{\"n\":18446744073709551615,\"f\":true,\"w\":\"unescaped\",\"h\":\"00ff\",\
             \"t\":\"a\\\"b\\\\c\\u000a\u{e9}\",\"m\":1.5,\"l\":[1,2]}"
        );
        assert_eq!(Object::new().finish(), "{}");
    }
}
