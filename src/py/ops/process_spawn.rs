//! The start of a child process: prepared with the interpreter lock, executed on a thread without it.
//!
//! A fork and an exec take a millisecond or more, and CPython's own `fork_exec` holds the interpreter lock for most
//! of that time. Here the loop's thread only collects the arguments (`Spawn`). A thread that never uses Python starts
//! the child and then makes a descriptor readable.
//!
//! That thread is the child's parent in two respects. The child inherits properties of its parent thread (processors,
//! niceness, capabilities), so the loop's thread makes a new thread for each child. A child that requests a signal at
//! its parent's death (`PR_SET_PDEATHSIG`) gets it when the parent thread ends, so the thread stays until the child
//! has ended.
//!
//! `uringcore._child_processes` handles the Python arguments. `uringcore_io::process_spawn` has the code that runs in
//! the child.

use std::ffi::CString;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::mpsc::{self, Receiver};
use std::thread::Builder;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use uringcore_io::process_spawn::{
    Child, ChildFd, Command, SignalMask, SpawnError, Stage, await_end,
};

use crate::capi::bounded_arguments::{List, OwnedBytes};
use crate::capi::exception_conversion;
use crate::capi::gil_cell::GilCell;

type Outcome = Result<Child, SpawnError>;
type Finished = (i32, RawFd, Option<(&'static str, i32)>);

#[derive(Default)]
enum ChildState {
    Prepared(Box<Command>),
    Started(Started),
    #[default]
    Finished,
}

struct Started {
    /// The channel on which the thread that starts the child sends the outcome, once. The thread also sends its end of
    /// the pipe.
    outcome: Option<Receiver<(Outcome, PipeWriter)>>,
    /// The reading end of a pipe that becomes readable when the child was started or has failed. The loop watches the
    /// descriptor, so it is kept open here.
    _signal: PipeReader,
    /// The ID of the process in which the thread runs. A forked child of the program has no such thread.
    process: u32,
}

/// A child process that is being started.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Spawn {
    state: GilCell<ChildState>,
}

#[pymethods]
impl Spawn {
    /// Collects the arguments of the child. Descriptors are duplicated, so the caller may close its own afterwards.
    #[new]
    #[pyo3(signature = (executables, args, env, cwd, stdio, pass_fds, umask, restore_signals,
                        start_new_session, process_group))]
    #[expect(clippy::too_many_arguments, reason = "the options of subprocess.Popen")]
    fn new(
        executables: List<OwnedBytes>,
        args: List<OwnedBytes>,
        env: Option<List<OwnedBytes>>,
        cwd: Option<OwnedBytes>,
        stdio: [RawFd; 3],
        pass_fds: List<RawFd>,
        umask: i64,
        restore_signals: bool,
        start_new_session: bool,
        process_group: i32,
    ) -> PyResult<Self> {
        let stream = |fd: RawFd| match fd {
            -1 => Ok(None),
            fd => duplicate(fd).map(Some),
        };
        let passed = pass_fds
            .0
            .into_iter()
            .map(|fd| Ok((fd, duplicate(fd)?)))
            .collect::<PyResult<Vec<_>>>()?;
        let environment = match env {
            Some(env) => strings(env)?,
            None => inherited_environment()?,
        };
        let command = Command {
            executables: strings(executables)?,
            arguments: strings(args)?,
            environment,
            directory: cwd.map(|path| string(path.0)).transpose()?,
            stdio: [stream(stdio[0])?, stream(stdio[1])?, stream(stdio[2])?],
            passed,
            umask: u32::try_from(umask).ok(),
            restore_signals,
            new_session: start_new_session,
            process_group: (process_group >= 0).then_some(process_group),
            signal_mask: SignalMask::current(),
        };
        Ok(Self {
            state: GilCell::new(ChildState::Prepared(Box::new(command))),
        })
    }

    /// Starts the child on a new thread. Returns a descriptor, owned by this object, that becomes readable when
    /// `finish` may be called.
    fn start(&self, py: Python<'_>) -> PyResult<RawFd> {
        let ChildState::Prepared(command) = self.state.take(py) else {
            return Err(PyRuntimeError::new_err("the child was started already"));
        };
        let (signal, mut done) =
            std::io::pipe().map_err(|error| exception_conversion::io_error(&error))?;
        let fd = signal.as_raw_fd();
        let (tell, outcome) = mpsc::sync_channel(1);
        Builder::new()
            .name("uringcore-spawn".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                // Signals are blocked on this thread, so that the program's own threads handle them.
                SignalMask::block_all();
                let result = command.spawn();
                drop(command);
                let pid = result.as_ref().map_or(-1, |child| child.pid);
                // A byte is written, because closing this end would not suffice: a process that was forked in the
                // meantime may have a copy of the end.
                let _ = done.write_all(&[1]);
                // This end of the pipe is sent with the outcome, and the receiver closes it. If this thread closed it,
                // the descriptor would stay open for a moment after `finish`. The channel has room for one message, so
                // the send does not block.
                let _ = tell.send((result, done));
                drop(tell);
                if pid > 0 {
                    await_end(pid);
                }
            })
            .map_err(|error| exception_conversion::io_error(&error))?;
        let started = Started {
            outcome: Some(outcome),
            _signal: signal,
            process: std::process::id(),
        };
        self.state
            .with(py, |state| *state = ChildState::Started(started));
        Ok(fd)
    }

    /// Returns the child as `(pid, pidfd, None)`, which the caller owns; pidfd is -1 if the kernel does not support it.
    /// For a failure returns `(-1, -1, (stage, errno))`, with the stage "setup", "chdir" or "exec".
    fn finish(&self, py: Python<'_>) -> PyResult<Finished> {
        let ChildState::Started(mut started) = self.state.take(py) else {
            return Err(PyRuntimeError::new_err("the child was not started"));
        };
        // The thread writes the byte to the pipe first and sends the outcome a moment later.
        let outcome = started
            .outcome
            .take()
            .and_then(|outcome| py.detach(move || outcome.recv()).ok())
            .map(|(outcome, _done)| outcome)
            .ok_or_else(|| PyRuntimeError::new_err("the thread that starts a child failed"))?;
        Ok(match outcome {
            Ok(child) => {
                let pidfd = child.pidfd.map_or(-1, IntoRawFd::into_raw_fd);
                (child.pid, pidfd, None)
            }
            Err(error) => (-1, -1, Some((stage_name(error.stage), error.errno.0))),
        })
    }
}

impl Drop for Started {
    /// Kills a child that the program has not taken, so that it does not stay as a process or a zombie.
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        // In a forked child of the program that thread does not exist, and the started process is not its child.
        if self.process == std::process::id()
            && let Ok((Ok(child), _done)) = outcome.recv()
        {
            child.kill_and_reap();
        }
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::SetUp => "setup",
        Stage::ChangeDirectory => "chdir",
        Stage::Execute => "exec",
    }
}

fn duplicate(fd: RawFd) -> PyResult<ChildFd> {
    ChildFd::duplicate(fd).map_err(|error| exception_conversion::io_error(&error))
}

fn strings(list: List<OwnedBytes>) -> PyResult<Vec<CString>> {
    list.into_vecs().into_iter().map(string).collect()
}

fn string(bytes: Vec<u8>) -> PyResult<CString> {
    CString::new(bytes).map_err(|_| PyValueError::new_err("embedded null byte"))
}

fn inherited_environment() -> PyResult<Vec<CString>> {
    std::env::vars_os()
        .map(|(name, value)| {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend(value.into_vec());
            string(entry)
        })
        .collect()
}

/// The stack size in bytes of the thread, which runs a function with few frames.
const THREAD_STACK_BYTES: usize = 128 * 1024;
