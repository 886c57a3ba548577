//! The key log: writes the TLS secrets of connections to a file object of the program, for tools that decrypt
//! captures.
//!
//! The TLS library logs secrets while no Python code may run, so the lines are queued until `KeyLogFile::flush`. Not
//! here: the setups that have a key log (`client_and_server_config`).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::{PyTraverseError, PyVisit};

/// Lines in NSS key log format that wait to be written to the program's file. Connections and setups share this object.
#[derive(Debug, Default)]
pub struct KeyLog {
    lines: Mutex<String>,
    waiting: AtomicBool,
}

/// The Python text file of a key log. Each setup and endpoint has its own reference to this object, which the garbage
/// collector visits. So a file that refers back to its setup is freed together with the setup.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct KeyLogFile {
    file: Py<PyAny>,
    pub log: Arc<KeyLog>,
}

#[pymethods]
impl KeyLogFile {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.file)
    }
}

impl KeyLogFile {
    pub fn new(py: Python<'_>, file: &Py<PyAny>) -> PyResult<Py<Self>> {
        let file = file.clone_ref(py);
        let log = Arc::default();
        Py::new(py, Self { file, log })
    }

    /// Writes the waiting lines to the file. No lock is held while Python code runs.
    pub fn flush(&self, py: Python<'_>) -> PyResult<()> {
        if !self.log.waiting.swap(false, Ordering::Acquire) {
            return Ok(());
        }
        let lines = std::mem::take(
            &mut *self
                .log
                .lines
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
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
