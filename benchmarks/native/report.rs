//! The JSON line that a load generator prints: flat, numbers only.

use std::fmt::Write;

#[derive(Default)]
pub struct Report {
    text: String,
}

impl Report {
    #[must_use]
    pub fn field(mut self, name: &str, value: f64) -> Report {
        let comma = if self.text.is_empty() { "" } else { ", " };
        // A String cannot fail to be written to.
        let _ = write!(self.text, "{comma}\"{name}\": {value}");
        self
    }

    pub fn print(self) {
        println!("{{{}}}", self.text);
    }
}
