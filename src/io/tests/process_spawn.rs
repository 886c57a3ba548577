//! Child processes: their descriptors and options, and the report of failures.

use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};

use uringcore_io::process_spawn::{
    Child, ChildFd, Command, SignalMask, SpawnError, Stage, await_end,
};

fn shell(script: &str) -> Command {
    Command {
        executables: vec![c("/bin/sh")],
        arguments: vec![c("sh"), c("-c"), c(script)],
        environment: vec![c("GREETING=hello"), c("PATH=/usr/bin:/bin")],
        directory: None,
        stdio: [None, None, None],
        passed: Vec::new(),
        umask: None,
        restore_signals: true,
        new_session: false,
        process_group: None,
        signal_mask: SignalMask::current(),
    }
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

fn dup(fd: &impl AsRawFd) -> ChildFd {
    ChildFd::duplicate(fd.as_raw_fd()).unwrap()
}

/// Runs a command to its end. Returns its output and its wait status.
fn output(mut command: Command) -> (String, i32) {
    let (mut reader, writer) = pipe().unwrap();
    command.stdio[1] = Some(dup(&writer));
    let child = command.spawn().unwrap();
    drop((command, writer));
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    (text, wait(&child))
}

fn wait(child: &Child) -> i32 {
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer.
    let pid = unsafe { libc::waitpid(child.pid, &mut status, 0) };
    assert_eq!(pid, child.pid);
    status
}

fn error(command: &Command) -> SpawnError {
    command.spawn().expect_err("there is nothing to run")
}

#[test]
fn a_child_has_its_arguments_environment_and_streams() {
    let (mut reader, mut writer) = pipe().unwrap();
    let mut command = shell("read line; echo $GREETING $line; exit 3");
    command.stdio[0] = Some(dup(&reader));
    writer.write_all(b"world\n").unwrap();
    let (text, status) = output(command);
    assert_eq!(text, "hello world\n");
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 3);
    drop(writer);
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).unwrap();
    assert!(rest.is_empty());
}

#[test]
fn a_child_has_only_the_descriptors_passed_to_it() {
    let kept = File::open("/dev/null").unwrap();
    // The duplicate is not close-on-exec, so the child has it unless it closes it.
    // SAFETY: duplicates a descriptor that is open.
    let leaked: RawFd = unsafe { libc::dup(kept.as_raw_fd()) };
    let number = 77;
    let mut command = shell("for fd in /proc/self/fd/*; do echo ${fd##*/}; done");
    command.passed = vec![(number, dup(&kept))];
    let (text, _) = output(command);
    // SAFETY: this test's own descriptor.
    unsafe { libc::close(leaked) };
    let found: Vec<RawFd> = text.lines().map(|line| line.parse().unwrap()).collect();
    // The shell has one more descriptor: that of the directory whose entries it lists. The number of that descriptor is
    // below 77.
    assert!(found.contains(&number), "{found:?}");
    let others = found.iter().filter(|&&fd| fd > 2 && fd != number).count();
    assert!(others <= 1, "{found:?}");
}

/// Makes `close_range` fail on the calling thread and its children.
fn forbid_close_range() {
    let statement = |code: u32, jump_false, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: jump_false,
        k,
    };
    let answer = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0), // the call's number
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            1,
            libc::SYS_close_range as u32,
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, answer),
        statement(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program and its statements live during the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
        let result = libc::syscall(libc::SYS_close_range, 1_000_000, 1_000_000, 0);
        assert_eq!(result, -1);
    }
}

#[test]
fn descriptors_are_closed_without_close_range() {
    // The list of so many descriptors does not fit into the child's buffer, so it reads the list in pieces.
    let file = File::open("/dev/null").unwrap();
    // SAFETY: a plain descriptor that this test owns; the copy is not close-on-exec.
    let leaked: Vec<RawFd> = (0..400)
        .map(|_| unsafe { libc::dup(file.as_raw_fd()) })
        .collect();
    let number = leaked[200];
    let mut command = shell("for fd in /proc/self/fd/*; do echo ${fd##*/}; done");
    command.passed = vec![(number, dup(&file))];
    let (text, _) = std::thread::spawn(move || {
        forbid_close_range();
        output(command)
    })
    .join()
    .unwrap();
    for fd in leaked {
        // SAFETY: this test's own descriptors.
        unsafe { libc::close(fd) };
    }
    let found: Vec<RawFd> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert!(found.contains(&number), "{found:?}");
    let others = found.iter().filter(|&&fd| fd > 2 && fd != number).count();
    assert!(others <= 1, "{found:?}");
}

#[test]
fn await_end_leaves_the_child_to_be_reaped() {
    let child = shell("exit 9").spawn().unwrap();
    await_end(child.pid);
    assert_eq!(libc::WEXITSTATUS(wait(&child)), 9);
    await_end(child.pid); // returns at once, because the child was reaped
}

#[test]
fn a_path_search_reports_its_first_specific_error() {
    let mut command = shell("");
    command.executables = vec![c("/nonexistent/a"), c("/etc/passwd"), c("/nonexistent/b")];
    let failed = error(&command);
    assert_eq!(
        (failed.stage, failed.errno.0),
        (Stage::Execute, libc::EACCES)
    );
    command.executables = vec![c("/nonexistent/a"), c("/etc/passwd/b")];
    let failed = error(&command);
    assert_eq!(
        (failed.stage, failed.errno.0),
        (Stage::Execute, libc::ENOTDIR)
    );
}

#[test]
fn a_missing_working_directory_and_a_missing_program_differ() {
    let mut command = shell("pwd");
    command.directory = Some(c("/nonexistent"));
    let failed = error(&command);
    assert_eq!(
        (failed.stage, failed.errno.0),
        (Stage::ChangeDirectory, libc::ENOENT)
    );
    command.directory = Some(c("/usr"));
    assert_eq!(output(command).0, "/usr\n");
}

#[test]
fn a_child_can_have_its_own_session_and_process_group() {
    let field = |text: &str, at: usize| text.split(' ').nth(at).unwrap().parse::<i32>().unwrap();
    let mut command = shell("cat /proc/$$/stat");
    command.new_session = true;
    let (text, _) = output(command);
    assert_eq!(field(&text, 0), field(&text, 5), "session of {text}");
    let mut command = shell("cat /proc/$$/stat");
    command.process_group = Some(0);
    let (text, _) = output(command);
    assert_eq!(field(&text, 0), field(&text, 4), "group of {text}");
    let mut command = shell("");
    command.process_group = Some(i32::MAX);
    assert_eq!(error(&command).stage, Stage::SetUp);
}

#[test]
fn a_child_does_not_inherit_handlers_and_masks() {
    extern "C" fn handler(_: libc::c_int) {}
    // SAFETY: the handler does nothing; SIGUSR1 is used by no other test of this file.
    unsafe {
        libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    let (text, _) = output(shell("grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"));
    let set = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    };
    let bit = |signal: libc::c_int| 1_u64 << (signal - 1);
    assert_eq!(set("SigBlk:"), 0);
    assert_eq!(set("SigIgn:") & bit(libc::SIGPIPE), 0);
    assert_eq!(set("SigCgt:") & bit(libc::SIGUSR1), 0);
    let mut ignoring = shell("grep SigIgn /proc/self/status");
    ignoring.restore_signals = false;
    let (text, _) = output(ignoring);
    let ignored = u64::from_str_radix(text.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_ne!(ignored & bit(libc::SIGPIPE), 0);
}

#[test]
fn a_pidfd_reports_the_end() {
    let child = shell("exit 0").spawn().unwrap();
    let pidfd = child.pidfd.as_ref().expect("a kernel since 5.2");
    let mut poll = libc::pollfd {
        fd: pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 20_000) }, 1);
    wait(&child);
}

#[test]
fn many_threads_start_children_at_once() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                for round in 0..20 {
                    let child = shell(&format!("exit {round}")).spawn().unwrap();
                    assert_eq!(libc::WEXITSTATUS(wait(&child)), round);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn a_killed_child_leaves_no_zombie() {
    let child = shell("sleep 60").spawn().unwrap();
    let pid = child.pid;
    child.kill_and_reap();
    // SAFETY: signal 0 only checks if the process exists.
    assert_eq!(unsafe { libc::kill(pid, 0) }, -1);
}

#[test]
fn a_closed_descriptor_is_refused() {
    let error = ChildFd::duplicate(1_000_000).err().unwrap();
    assert_eq!(error.raw_os_error(), Some(libc::EBADF));
    assert!(ChildFd::duplicate(-1).is_err());
}
