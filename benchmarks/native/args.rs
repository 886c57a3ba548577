//! Parser of `--name value` command lines and nothing more: `run.py` starts the programs, not a
//! person.

use std::collections::HashMap;
use std::str::FromStr;

use crate::Failure;

pub struct Args {
    values: HashMap<String, String>,
}

impl Args {
    /// Reads the process's arguments; every option takes exactly one value.
    pub fn from_env() -> Result<Args, Failure> {
        let mut values = HashMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .ok_or_else(|| format!("expected --option, found {word:?}"))?;
            let value = words
                .next()
                .ok_or_else(|| format!("--{name} needs a value"))?;
            values.insert(name.to_owned(), value);
        }
        Ok(Args { values })
    }

    pub fn required<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        self.optional(name)?
            .ok_or_else(|| format!("--{name} is missing").into())
    }

    pub fn or<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        Ok(self.optional(name)?.unwrap_or(default))
    }

    pub fn optional<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        match self.values.get(name) {
            None => Ok(None),
            Some(text) => match text.parse() {
                Ok(value) => Ok(Some(value)),
                Err(_) => Err(format!("--{name}: cannot read {text:?}").into()),
            },
        }
    }
}
