//! The key log: TLS secrets on their way to a file of the program's.
//!
//! The TLS library writes to it while no Python code may run: lines are kept until `KeyLog::flush`. Not
//! here: which setups have one (`setup`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;

/// TLS secrets in NSS key log format, on their way to a Python text file.
///
/// Connections and setups share it, so no one of them may show the file to the garbage collector: it
/// would count one reference several times.
#[derive(Debug)]
pub struct KeyLog {
    file: Py<PyAny>,
    lines: Mutex<String>,
    waiting: AtomicBool,
}

impl KeyLog {
    pub fn new(file: &Py<PyAny>) -> Self {
        let file = Python::attach(|py| file.clone_ref(py));
        Self {
            file,
            lines: Mutex::default(),
            waiting: AtomicBool::new(false),
        }
    }

    /// Writes what has gathered. No lock is held while Python runs.
    pub fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if !self.waiting.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        let file = self.file.bind(py);
        file.call_method1(intern!(py, "write"), (lines,))?;
        file.call_method0(intern!(py, "flush"))?;
        Ok(())
    }
}

impl rustls::KeyLog for KeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_str(label);
        for part in [client_random, secret] {
            lines.push(' ');
            part.iter()
                .for_each(|byte| lines.push_str(&format!("{byte:02x}")));
        }
        lines.push('\n');
        drop(lines);
        self.waiting.store(true, Ordering::Release);
    }
}
