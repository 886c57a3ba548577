//! A child process on its way: prepared with the interpreter lock, started on a thread without it.
//!
//! Making the process and executing its program takes a millisecond and more, most of which CPython's
//! own `fork_exec` spends holding the lock. Here the loop's thread only collects what the child needs
//! (`Spawn`), and a thread that never touches Python does the rest and then makes a descriptor readable.
//!
//! That thread is the child's parent in two ways that can be seen. The child inherits what belongs to
//! threads (processors, niceness, capabilities), so each has a thread of its own, made by the loop's. And
//! a child that asked to die with its parent (`PR_SET_PDEATHSIG`) gets that signal when the thread ends,
//! so the thread stays until the child has gone.
//!
//! Not here: what the arguments mean (`uringcore._processes`), what the child does (`uringcore_io::spawn`).

use std::ffi::CString;
use std::io::{PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::mpsc::{self, Receiver};
use std::thread::Builder;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use uringcore_io::spawn::{Child, ChildFd, Command, SignalMask, SpawnError, Stage, await_end};

use crate::capi::arguments::{List, OwnedBytes};
use crate::capi::cell::GilCell;
use crate::capi::error;

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
    /// What the thread tells, once, with its end of the pipe: by then it holds nothing.
    outcome: Option<Receiver<(Outcome, PipeWriter)>>,
    /// Held open for the loop that watches it.
    _signal: PipeReader,
    /// The process that has the thread: a forked child has only its memory.
    process: u32,
}

/// One child process that does not exist yet, or not for long.
#[pyclass(frozen, module = "uringcore._uringcore")]
pub struct Spawn {
    state: GilCell<ChildState>,
}

#[pymethods]
impl Spawn {
    /// Collects what the child needs. Descriptors are duplicated, so what happens to the caller's
    /// afterwards does not matter.
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

    /// Starts the child on a thread. Returns a descriptor that becomes readable when `finish` may be
    /// called; it is this object's.
    fn start(&self, py: Python<'_>) -> PyResult<RawFd> {
        let ChildState::Prepared(command) = self.state.take(py) else {
            return Err(PyRuntimeError::new_err("the child was started already"));
        };
        let (signal, mut done) = std::io::pipe().map_err(|error| error::io_error(&error))?;
        let fd = signal.as_raw_fd();
        let (tell, outcome) = mpsc::sync_channel(1);
        Builder::new()
            .name("uringcore-spawn".to_owned())
            .stack_size(THREAD_STACK_BYTES)
            .spawn(move || {
                // Signals are for threads that somebody knows of.
                SignalMask::block_all();
                let result = command.spawn();
                drop(command);
                let pid = result.as_ref().map_or(-1, |child| child.pid);
                // Not by closing alone: a process forked meanwhile may hold a copy of this end.
                let _ = done.write_all(&[1]);
                // The end itself goes along, to be closed by whoever hears: here it would be open for
                // a moment longer. There is room for one, and `Started` hears it in any case.
                let _ = tell.send((result, done));
                drop(tell);
                if pid > 0 {
                    await_end(pid);
                }
            })
            .map_err(|error| error::io_error(&error))?;
        let started = Started {
            outcome: Some(outcome),
            _signal: signal,
            process: std::process::id(),
        };
        self.state
            .with(py, |state| *state = ChildState::Started(started));
        Ok(fd)
    }

    /// The child: `(pid, pidfd, None)`, with -1 where the kernel has no pidfd, and both the caller's from
    /// now on. Or why there is none: `(-1, -1, (stage, errno))`, the stage "setup", "chdir" or "exec".
    fn finish(&self, py: Python<'_>) -> PyResult<Finished> {
        let ChildState::Started(mut started) = self.state.take(py) else {
            return Err(PyRuntimeError::new_err("the child was not started"));
        };
        // The thread may still be on its way from the byte to the outcome.
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
    /// Nobody asked for the child: it must neither run on nor stay as a zombie.
    fn drop(&mut self) {
        let Some(outcome) = self.outcome.take() else {
            return;
        };
        // In a forked child there is no such thread, and the process is not its own.
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
    ChildFd::duplicate(fd).map_err(|error| error::io_error(&error))
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

/// The thread runs one function of a few frames.
const THREAD_STACK_BYTES: usize = 128 * 1024;
