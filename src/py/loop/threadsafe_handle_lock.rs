//! [`RunningCallback`]: the thread that runs a callback, for other threads that wait for the callback's end.
//!
//! On CPython 3.14 `call_soon_threadsafe` returns a handle whose lock is held while its callback runs. Instead of a
//! lock, this file has a record of the running thread, and a condition variable on which other threads wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::event_loop::loop_core::current_thread_id;

/// The thread that runs the callback at present.
///
/// **Invariant.** No thread waits for the interpreter lock while it holds the mutex.
#[derive(Default)]
pub struct RunningCallback {
    thread: Mutex<Option<u64>>,
    over: Condvar,
}

impl RunningCallback {
    fn lock(&self) -> MutexGuard<'_, Option<u64>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread runs the callback. A signal handler that raises an exception ends the wait.
    pub fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let me = current_thread_id();
        while self.lock().is_some_and(|thread| thread != me) {
            py.detach(|| {
                let running = self.lock();
                let still = |thread: &mut Option<u64>| thread.is_some();
                drop(
                    self.over
                        .wait_timeout_while(running, SIGNALS_LOOKED_AT, still),
                );
            });
            py.check_signals()?;
        }
        Ok(())
    }
}

/// One run of a callback, from `begin` until this object is dropped.
pub struct CallbackRun(Arc<RunningCallback>);

impl CallbackRun {
    pub fn begin(running: Arc<RunningCallback>) -> Self {
        *running.lock() = Some(current_thread_id());
        Self(running)
    }
}

impl Drop for CallbackRun {
    fn drop(&mut self) {
        *self.0.lock() = None;
        self.0.over.notify_all();
    }
}

/// The interval at which a waiting thread checks for signals. Only the main thread handles them.
const SIGNALS_LOOKED_AT: Duration = Duration::from_millis(50);
