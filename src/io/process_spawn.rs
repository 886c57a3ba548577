//! Starts a child process without copying this process and without blocking its other threads.
//!
//! The child is cloned as with `vfork`: until it executes its program, it runs on the parent's memory with a stack of
//! its own, and only the *calling thread* of the parent waits. So the time does not depend on the size of the
//! process, and a host that calls [`Command::spawn`] on a separate thread continues meanwhile. That thread must
//! outlive the child ([`await_end`]), because the kernel regards it as the parent whose death may kill the child
//! (PR_SET_PDEATHSIG). The child's steps before its program follow CPython's `_posixsubprocess`, so that the options
//! have the same meaning.
//!
//! Not supported: a change of user or group, because the other user could read the parent's memory, and callbacks of
//! the caller between clone and exec. Not here: waiting for the child's end.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use crate::descriptor_limit_and_dup;
use crate::errno::Errno;
use crate::memory_mapping::Mapping;

/// A program to run and the properties of its process.
pub struct Command {
    /// Paths of the program. They are tried in order until one can be executed, as `execvp` does with `PATH`.
    pub executables: Vec<CString>,
    /// `argv`, beginning with the program's name.
    pub arguments: Vec<CString>,
    /// Environment variables as `NAME=value`.
    pub environment: Vec<CString>,
    /// The working directory; `None` is the parent's.
    pub directory: Option<CString>,
    /// The child's descriptors 0, 1 and 2; `None` inherits the parent's.
    pub stdio: [Option<ChildFd>; 3],
    /// The descriptors that the child gets: each descriptor, and its number in the child. All other numbers above 2 are
    /// closed in the child.
    pub passed: Vec<(RawFd, ChildFd)>,
    pub umask: Option<u32>,
    /// Restores the default action for the signals that Python ignores.
    pub restore_signals: bool,
    pub new_session: bool,
    pub process_group: Option<i32>,
    /// The child's initial signal mask.
    pub signal_mask: SignalMask,
}

/// A duplicate of a descriptor for a child. The caller may close or replace the original. Its number is above 2.
pub struct ChildFd(OwnedFd);

impl ChildFd {
    /// Duplicates `fd`. Fails with `EBADF` if `fd` is not open.
    pub fn duplicate(fd: RawFd) -> io::Result<ChildFd> {
        descriptor_limit_and_dup::duplicate(fd).map(ChildFd)
    }
}

/// A thread's set of blocked signals.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// The signal mask of the calling thread.
    pub fn current() -> SignalMask {
        let mut mask = MaybeUninit::uninit();
        // SAFETY: without a new set the call only writes the current one to `mask`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
            SignalMask(mask.assume_init())
        }
    }

    /// Blocks every signal in the calling thread; returns the previous mask.
    pub fn block_all() -> SignalMask {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: sigfillset writes `all` before pthread_sigmask reads it, which writes `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            SignalMask(before.assume_init())
        }
    }

    /// Makes this set the calling thread's mask.
    pub fn restore(&self) {
        // SAFETY: reads an initialised set.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// A child process that was started and not reaped.
#[derive(Debug)]
pub struct Child {
    pub pid: i32,
    /// A descriptor that becomes readable when the child has ended. `None` if the kernel does not support it.
    pub pidfd: Option<OwnedFd>,
}

impl Child {
    /// Kills the child and waits for its end.
    pub fn kill_and_reap(self) {
        match &self.pidfd {
            // The signal goes through the pidfd, because another process may have the child's ID by now: if SIGCHLD is
            // ignored, the kernel reaps children at once.
            Some(pidfd) => {
                let (fd, info) = (pidfd.as_raw_fd(), ptr::null::<libc::siginfo_t>());
                // SAFETY: the descriptor is the child's, alive or not, and no further information is given.
                unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, libc::SIGKILL, info, 0) };
            }
            // SAFETY: signals a process of this number; no memory is involved.
            None => drop(unsafe { libc::kill(self.pid, libc::SIGKILL) }),
        }
        reap(self.pid);
    }
}

/// The child's step that failed.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Stage {
    /// The process could not be created, or an option could not be applied.
    SetUp,
    /// Changing to [`Command::directory`].
    ChangeDirectory,
    Execute,
}

/// The failure of a start.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct SpawnError {
    pub stage: Stage,
    pub errno: Errno,
}

impl SpawnError {
    fn last(stage: Stage) -> SpawnError {
        SpawnError {
            stage,
            errno: Errno::last(),
        }
    }
}

impl Command {
    /// Starts the child. The call returns when the child's program runs, or failed to start.
    pub fn spawn(&self) -> Result<Child, SpawnError> {
        let stack = Mapping::new(STACK_BYTES).map_err(|error| SpawnError {
            stage: Stage::SetUp,
            errno: Errno(error.raw_os_error().unwrap_or(libc::ENOMEM)),
        })?;
        let mut keep: Vec<RawFd> = self.passed.iter().map(|(number, _)| *number).collect();
        keep.sort_unstable();
        let plan = Plan {
            command: self,
            executables: self.executables.iter().map(|path| path.as_ptr()).collect(),
            arguments: null_terminated(&self.arguments),
            environment: null_terminated(&self.environment),
            keep,
            descriptors_max: descriptors_max(),
            failure: Cell::new(None),
        };
        let mut pidfd: c_int = -1;
        // Signals stay blocked until the child has reset the handlers: a handler would run on the parent's memory.
        let mask = SignalMask::block_all();
        let pidfd_place = &raw mut pidfd;
        // SAFETY: the child runs `run_child` on `stack`, whose top is page-aligned, and the parent's thread is
        // suspended (CLONE_VFORK) until the child has executed or exited, so `plan`, `stack` and `pidfd` outlive
        // every use. `run_child` calls only wrappers of system calls in the C library, which take none of its
        // locks: locks are in the shared memory, and one that a killed child holds would never be released. It
        // never returns.
        let clone = |flags| unsafe {
            let top = stack.base().add(STACK_BYTES).cast::<c_void>();
            let plan = ptr::from_ref(&plan).cast_mut().cast::<c_void>();
            libc::clone(run_child, top, flags, plan, pidfd_place)
        };
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let mut pid = clone(flags | libc::CLONE_PIDFD);
        if pid < 0 && Errno::last().0 == libc::EINVAL {
            pid = clone(flags); // a sandbox's kernel without this flag
        }
        let failed_to_clone = (pid < 0).then(|| SpawnError::last(Stage::SetUp));
        mask.restore();
        if let Some(error) = failed_to_clone {
            return Err(error);
        }
        // SAFETY: the kernel made the descriptor for this call; nothing else owns it.
        let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
        match plan.failure.get() {
            None => Ok(Child { pid, pidfd }),
            Some(error) => {
                reap(pid);
                Err(error)
            }
        }
    }
}

/// The data that the child needs. They are prepared before the clone, because the child must not allocate memory.
struct Plan<'a> {
    command: &'a Command,
    executables: Vec<*const c_char>,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// The numbers of the passed descriptors, ascending.
    keep: Vec<RawFd>,
    descriptors_max: RawFd,
    /// The error of a failed child, in memory that both processes share. The child writes it before it exits, and the
    /// parent reads it afterwards.
    failure: Cell<Option<SpawnError>>,
}

fn null_terminated(strings: &[CString]) -> Vec<*const c_char> {
    strings
        .iter()
        .map(|string| string.as_ptr())
        .chain([ptr::null()])
        .collect()
}

extern "C" fn run_child(plan: *mut c_void) -> c_int {
    // SAFETY: the parent passed a pointer to its plan and is suspended while this child uses it.
    let plan = unsafe { &*plan.cast::<Plan<'_>>() };
    let error = match plan.prepare() {
        Ok(()) => plan.execute(),
        Err(error) => error,
    };
    plan.failure.set(Some(error));
    // SAFETY: ends the child without running the parent's exit handlers.
    unsafe { libc::_exit(255) }
}

/// The steps of the child. They make only async-signal-safe calls, because another thread of the parent may hold any
/// lock.
impl Plan<'_> {
    fn prepare(&self) -> Result<(), SpawnError> {
        let command = self.command;
        for (number, fd) in &command.passed {
            duplicate_to(fd, *number)?;
        }
        for (number, fd) in (0..).zip(&command.stdio) {
            if let Some(fd) = fd {
                duplicate_to(fd, number)?;
            }
        }
        if let Some(directory) = &command.directory {
            change_directory(directory)?;
        }
        if let Some(mask) = command.umask {
            // SAFETY: sets a number of this process.
            unsafe { libc::umask(mask as libc::mode_t) };
        }
        if command.restore_signals {
            set_default(libc::SIGPIPE);
            set_default(libc::SIGXFSZ);
        }
        reset_handlers();
        if command.new_session {
            // SAFETY: no memory is involved.
            check(unsafe { libc::setsid() })?;
        }
        if let Some(group) = command.process_group {
            // SAFETY: no memory is involved.
            check(unsafe { libc::setpgid(0, group) })?;
        }
        self.close_others();
        Ok(())
    }

    /// Closes all descriptors above the standard streams, except those that the child shall have.
    fn close_others(&self) {
        let mut first = 3;
        for &keep in self.keep.iter().filter(|&&number| number >= 3) {
            close_from_to(first, keep - 1, self.descriptors_max);
            first = keep + 1;
        }
        close_from_to(first, RawFd::MAX, self.descriptors_max);
    }

    /// Executes the first of the paths that works. Returns only if none works, with the first error that is not about a
    /// missing file.
    fn execute(&self) -> SpawnError {
        self.command.signal_mask.restore();
        let mut telling = None;
        let mut last = Errno(libc::ENOENT);
        for &path in &self.executables {
            // SAFETY: `path` and both lists are NUL-terminated strings and NULL-terminated lists that
            // live in the suspended parent.
            unsafe { libc::execve(path, self.arguments.as_ptr(), self.environment.as_ptr()) };
            last = Errno::last();
            if !matches!(last.0, libc::ENOENT | libc::ENOTDIR) {
                telling = telling.or(Some(last));
            }
        }
        SpawnError {
            stage: Stage::Execute,
            errno: telling.unwrap_or(last),
        }
    }
}

fn duplicate_to(fd: &ChildFd, number: RawFd) -> Result<(), SpawnError> {
    // SAFETY: changes only the child's own descriptor table; the copy is not close-on-exec.
    check(unsafe { libc::dup2(fd.0.as_raw_fd(), number) })
}

fn change_directory(directory: &CStr) -> Result<(), SpawnError> {
    // SAFETY: a NUL-terminated string in the suspended parent's memory.
    if unsafe { libc::chdir(directory.as_ptr()) } < 0 {
        return Err(SpawnError::last(Stage::ChangeDirectory));
    }
    Ok(())
}

/// Resets all signal handlers of the child. Once it has unblocked signals, no handler of the parent must run, because
/// parent and child share memory. The child has its own table of handlers, so the parent's stay. Executing a program
/// would reset all handlers too, including those of signals that the C library uses itself.
fn reset_handlers() {
    for signal in 1..=SIGNALS {
        let mut action = KernelAction::default();
        let size = SIGNALS as usize / 8;
        // SAFETY: the kernel writes an action, which is no larger than `action`, or fails.
        let failed = unsafe {
            let place = &raw mut action;
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                ptr::null::<()>(),
                place,
                size,
            )
        };
        let handler = action.0[HANDLER_WORD];
        if failed == 0 && handler != libc::SIG_DFL && handler != libc::SIG_IGN {
            set_default(signal);
        }
    }
}

/// Sets the default action with the system call, because the C library's `sigaction` takes a lock for SIGABRT (glibc
/// from 2.41 on).
fn set_default(signal: c_int) {
    let action = KernelAction::default();
    // SAFETY: all zero is the default action, without flags, in every architecture's layout.
    unsafe {
        let place = &raw const action;
        let size = SIGNALS as usize / 8;
        libc::syscall(
            libc::SYS_rt_sigaction,
            signal,
            place,
            ptr::null_mut::<()>(),
            size,
        );
    }
}

/// Memory for the kernel's `struct sigaction`, which differs from the C library's: a handler, flags, on some
/// architectures a restorer, and a mask.
#[derive(Default)]
#[repr(C)]
struct KernelAction([usize; 8]);

/// The position of the handler in the kernel's `sigaction`.
const HANDLER_WORD: usize = if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
    1
} else {
    0
};

/// The number of the kernel's signals; its mask has a bit for each.
const SIGNALS: c_int = if cfg!(any(target_arch = "mips", target_arch = "mips64")) {
    128
} else {
    64
};

fn close_from_to(first: RawFd, last: RawFd, descriptors_max: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the descriptor table is the child's own copy.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    if closed != 0 && !close_listed(first, last) {
        // The kernel is older than 5.9 or a filter rejects close_range, and /proc is not mounted.
        for number in first..=last.min(descriptors_max) {
            // SAFETY: as above; a number that is not open is EBADF.
            unsafe { libc::close(number) };
        }
    }
}

/// Closes the descriptors that `/proc/self/fd` lists. In some containers the limit of descriptors is a thousand
/// million, so trying every number would take too long. False if there is no such list.
fn close_listed(first: RawFd, last: RawFd) -> bool {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path.
    let list = unsafe { libc::open(c"/proc/self/fd".as_ptr(), flags) };
    if list < 0 {
        return false;
    }
    let mut entries = DirectoryEntries([0; 4096]);
    let complete = loop {
        // SAFETY: the kernel writes no more than the length of `entries`. opendir() would allocate.
        let count = unsafe {
            let start = entries.0.as_mut_ptr();
            libc::syscall(libc::SYS_getdents64, list, start, entries.0.len())
        };
        let Ok(count @ 1..) = usize::try_from(count) else {
            break count == 0;
        };
        // The directory listing continues behind the last number that it has returned, so closing descriptors between
        // two calls skips none.
        entries.each_number(count, |number| {
            if (first..=last).contains(&number) && number != list {
                // SAFETY: as in close_from_to().
                unsafe { libc::close(number) };
            }
        });
    };
    // SAFETY: opened above.
    unsafe { libc::close(list) };
    complete
}

/// Memory for the result of `getdents64`: a sequence of `linux_dirent64`.
#[repr(align(8))]
struct DirectoryEntries([u8; 4096]);

impl DirectoryEntries {
    /// Calls `each` with each entry of the listing whose name is a number. The listing is in the first `count` bytes.
    fn each_number(&self, count: usize, mut each: impl FnMut(RawFd)) {
        const LENGTH_AT: usize = std::mem::offset_of!(libc::dirent64, d_reclen);
        const NAME_AT: usize = std::mem::offset_of!(libc::dirent64, d_name);
        let mut rest = self.0.get(..count).unwrap_or_default();
        while let Some(&[low, high]) = rest.get(LENGTH_AT..LENGTH_AT + 2) {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let name = rest.get(NAME_AT..length).unwrap_or_default();
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit());
            let number = digits.fold(None, |number: Option<RawFd>, digit| {
                let digit = RawFd::from(digit - b'0');
                Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit))
            });
            if let Some(number) = number {
                each(number);
            }
            rest = rest.get(length.max(1)..).unwrap_or_default();
        }
    }
}

fn check(result: c_int) -> Result<(), SpawnError> {
    if result < 0 {
        return Err(SpawnError::last(Stage::SetUp));
    }
    Ok(())
}

fn reap(pid: i32) {
    loop {
        // SAFETY: the status is not asked for.
        let reaped = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if reaped >= 0 || Errno::last().0 != libc::EINTR {
            return;
        }
    }
}

/// Waits until a child of this process has ended, without reaping it. Returns at once if it was reaped already.
pub fn await_end(pid: i32) {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::uninit();
        // SAFETY: the call writes at most `info`, which is not read.
        let ended = unsafe {
            let flags = libc::WEXITED | libc::WNOWAIT;
            libc::waitid(libc::P_PID, pid as libc::id_t, info.as_mut_ptr(), flags)
        };
        if ended == 0 || Errno::last().0 != libc::EINTR {
            return;
        }
    }
}

fn descriptors_max() -> RawFd {
    // SAFETY: reads a limit.
    let open_max = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    RawFd::try_from(open_max).unwrap_or(RawFd::MAX)
}

/// Bytes of the child's stack. Its deepest call has a few frames of this file and of the C library's wrappers.
const STACK_BYTES: usize = 64 * 1024;
