//! `TraceFolder` and `TraceFile`: qlog traces in files, as JSON text sequences (RFC 7464,
//! draft-ietf-quic-qlog-main-schema section "qlog to JSON Text Sequences mapping").
//!
//! An event is written into its file's buffer as it happens, without Python, and a thread writes the buffers to the
//! disk (`uringcore_io::background_log_files`). An event that does not fit into the buffer is dropped and counted; a
//! `loglevel:warning` with the number precedes the next event. Not here: the contents of events, which the recorder
//! makes, and the first record of a file, which Python makes.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use uringcore_io::background_log_files::{Append, BackgroundFile, BackgroundFiles, Limits};
use uringcore_quic::qlog::{Recorded, Sink};

use super::clock_conversion::WallTime;

/// A folder of traces, with limits: the bytes of a trace, the bytes and the number of all traces in the folder, and
/// the number of open traces. Several processes may share a folder. Files have the mode 0600 and a name
/// `trace-<time>-<random number>.sqlog`, so no part of the name is chosen by a peer.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TraceFolder(BackgroundFiles);

#[pymethods]
impl TraceFolder {
    #[new]
    #[pyo3(signature = (path, *, trace_bytes, total_bytes, traces, open_traces))]
    fn new(
        path: PathBuf,
        trace_bytes: u64,
        total_bytes: u64,
        traces: usize,
        open_traces: usize,
    ) -> PyResult<Self> {
        if trace_bytes < TRACE_BYTES_MIN
            || total_bytes < trace_bytes
            || traces < 1
            || open_traces < 1
        {
            return Err(PyValueError::new_err("the bounds of traces are too small"));
        }
        let limits = Limits {
            file_bytes: trace_bytes,
            total_bytes,
            files: traces,
            open: open_traces,
        };
        Ok(Self(BackgroundFiles::new(path, SUFFIX, limits)))
    }

    /// Starts a trace with the record `header`, a JSON object. Returns None if the limit of open traces is reached or
    /// all buffers are full.
    fn begin(&self, header: &str) -> PyResult<Option<TraceFile>> {
        let Some(entry) = self.0.begin().map_err(PyOSError::new_err)? else {
            return Ok(None);
        };
        let mut records = Records {
            entry: Some(entry),
            dropped: 0,
            text: format!("\x1e{header}\n"),
        };
        let is_begun = records.write() == Some(Append::Taken);
        Ok(is_begun.then(|| TraceFile(Arc::new(Mutex::new(records)))))
    }

    /// Waits until all records are in the files, for at most `seconds`. Returns False after that time.
    fn flush(&self, py: Python<'_>, seconds: f64) -> bool {
        let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        py.detach(|| self.0.flush(patience))
    }

    /// The reason for which traces could not be written. Each failure is returned once.
    fn take_error(&self) -> Option<String> {
        self.0.take_error().map(|error| error.to_string())
    }
}

/// One qlog trace in a file. The trace is complete when it is ended or dropped.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct TraceFile(Arc<Mutex<Records>>);

#[pymethods]
impl TraceFile {
    /// Adds an event. `seconds` is its time since 1970, `data` is JSON.
    fn write(&self, seconds: f64, name: &str, data: &str) {
        lock(&self.0).event(seconds, name, data);
    }

    /// Ends the trace.
    fn end(&self) {
        lock(&self.0).end(None);
    }
}

impl TraceFile {
    /// A destination for the events of a connection's recorder.
    pub fn sink(&self, clock: WallTime) -> Box<dyn Sink> {
        let records = self.0.clone();
        Box::new(Output { records, clock })
    }
}

struct Output {
    records: Arc<Mutex<Records>>,
    clock: WallTime,
}

impl Sink for Output {
    fn event(&mut self, event: &Recorded) -> bool {
        let seconds = self.clock.seconds(event.at);
        lock(&self.records).event(seconds, &event.name, &event.data)
    }
}

/// The records of one file.
struct Records {
    /// The open file. `None` after the end of the trace.
    entry: Option<BackgroundFile>,
    /// The number of events that were dropped since the last one that fitted into the buffer.
    dropped: u64,
    /// The buffer in which the text of a record is built.
    text: String,
}

impl Records {
    /// Writes an event. Returns false if the file has reached its limit.
    fn event(&mut self, seconds: f64, name: &str, data: &str) -> bool {
        self.text.clear();
        if self.dropped > 0 {
            let text = format!("{} events were dropped here", self.dropped);
            self.put_warning(seconds, &text);
        }
        self.put(seconds, name, data);
        match self.write() {
            Some(Append::Taken) => self.dropped = 0,
            Some(Append::NoRoom) => self.dropped += 1,
            Some(Append::Full) => {
                self.dropped += 1;
                self.end(Some(seconds));
            }
            Some(Append::Failed) | None => self.entry = None,
        }
        self.entry.is_some()
    }

    /// Ends the trace. If an event did not fit into the file, `cut_at` is the time of that event.
    fn end(&mut self, cut_at: Option<f64>) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        self.text.clear();
        match cut_at {
            Some(seconds) => {
                self.put_warning(
                    seconds,
                    "the trace ends here: the limit of its file is reached",
                );
            }
            None if self.dropped > 0 => {
                let text = format!("{} events were dropped here", self.dropped);
                let now = WallTime::now();
                self.put_warning(now.seconds(None), &text);
            }
            None => {}
        }
        entry.finish(self.text.as_bytes());
        self.text = String::new();
    }

    fn put_warning(&mut self, seconds: f64, text: &str) {
        self.put(
            seconds,
            "loglevel:warning",
            &format!("{{\"message\":\"{text}\"}}"),
        );
    }

    /// Appends a record: record separator, JSON text, line feed (RFC 7464 section 2.2). Times in records are
    /// milliseconds.
    fn put(&mut self, seconds: f64, name: &str, data: &str) {
        let milliseconds = seconds * 1000.0;
        let _ = write!(self.text, "\x1e{{\"time\":{milliseconds:.3},\"name\":\"");
        self.put_escaped(name);
        let _ = writeln!(self.text, "\",\"data\":{data}}}");
    }

    /// Appends a JSON string. Its text may be a name from the program, so it is escaped (RFC 8259 section 7).
    fn put_escaped(&mut self, text: &str) {
        for character in text.chars() {
            match character {
                '"' | '\\' => self.text.extend(['\\', character]),
                '\0'..='\x1f' => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(character));
                }
                _ => self.text.push(character),
            }
        }
    }

    fn write(&mut self) -> Option<Append> {
        let entry = self.entry.as_ref()?;
        let appended = entry.append(self.text.as_bytes());
        // Shrinks the buffer, so that a connection does not keep a large one.
        self.text.shrink_to(TEXT_KEPT);
        Some(appended)
    }
}

fn lock(records: &Mutex<Records>) -> MutexGuard<'_, Records> {
    records.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The draft's suffix for traces that are written as text sequences ("streaming" qlog).
const SUFFIX: &str = ".sqlog";
const TRACE_BYTES_MIN: u64 = 64 << 10;
const TEXT_KEPT: usize = 4 << 10;
