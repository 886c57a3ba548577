//! The JSON line that a load generator prints: flat, with numbers only.

use std::fmt::Write;

#[derive(Default)]
pub struct Report {
    text: String,
}

impl Report {
    #[must_use]
    pub fn field(mut self, name: &str, value: f64) -> Report {
        let comma = if self.text.is_empty() { "" } else { ", " };
        // A write to a String cannot fail.
        let _ = write!(self.text, "{comma}\"{name}\": {value}");
        self
    }

    pub fn print(self) {
        println!("{{{}}}", self.text);
    }
}
