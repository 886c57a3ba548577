//! The error of a backend that could not be set up: its cause, and a remedy for the operator.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;

use crate::driver_config::Backend;
use crate::errno::Errno;
use crate::memory_mapping::Mapping;
use crate::waker::Waker;

/// A failure to set up a driver. `Display` prints the cause and the remedy.
#[derive(Clone, Debug)]
pub struct SetupError {
    backend: Backend,
    step: &'static str,
    errno: Errno,
    /// The cause and the remedy, which the errno alone does not show.
    explanation: String,
}

impl SetupError {
    /// The backend that failed.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The errno of the failure.
    pub fn errno(&self) -> Errno {
        self.errno
    }

    pub(crate) fn config(backend: Backend, problem: &'static str) -> SetupError {
        let errno = Errno(libc::EINVAL);
        SetupError {
            backend,
            step: "checking the settings",
            errno,
            explanation: problem.to_owned(),
        }
    }

    /// Makes the error of a failed step while `backend` was set up.
    pub(crate) fn of(backend: Backend, step: &'static str, error: &io::Error) -> SetupError {
        let errno = errno_of(error);
        let refused = match errno.0 {
            libc::EPERM | libc::EACCES | libc::ENOSYS => refused_everywhere(),
            _ => None,
        };
        let explanation = match (errno.0, refused, backend) {
            (_, Some(call), _) => format!(
                "a seccomp filter or container profile blocks {call}, which an event loop needs with either \
                 backend: allow it in the profile"
            ),
            (libc::EMFILE | libc::ENFILE, ..) => {
                "too many open files: raise RLIMIT_NOFILE".to_owned()
            }
            (_, _, Backend::Uring) => explain(errno, &Host::read()),
            (_, _, Backend::Epoll) => String::new(),
        };
        SetupError {
            backend,
            step,
            errno,
            explanation,
        }
    }

    pub(crate) fn epoll(step: &'static str, error: &io::Error) -> SetupError {
        Self::of(Backend::Epoll, step, error)
    }

    pub(crate) fn uring(step: &'static str, error: &io::Error) -> SetupError {
        Self::of(Backend::Uring, step, error)
    }
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = match self.backend {
            Backend::Uring => "io_uring",
            Backend::Epoll => "epoll",
        };
        write!(
            f,
            "{backend} is not available: {} failed: {}",
            self.step, self.errno
        )?;
        if !self.explanation.is_empty() {
            write!(f, "; {}", self.explanation)?;
        }
        Ok(())
    }
}

impl std::error::Error for SetupError {}

/// Properties of the machine that explain a failure.
struct Host {
    /// `uname -r`.
    release: String,
    /// `kernel.io_uring_disabled`, which exists since Linux 6.6.
    disabled: Option<u32>,
}

impl Host {
    fn read() -> Host {
        let read = |path| std::fs::read_to_string(path).ok();
        Host {
            release: read("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            disabled: read("/proc/sys/kernel/io_uring_disabled")
                .and_then(|text| text.trim().parse().ok()),
        }
    }

    fn is_old(&self) -> bool {
        let mut numbers = self
            .release
            .split(['.', '-'])
            .map_while(|part| part.parse::<u32>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => (major, minor) < MINIMUM,
            _ => false,
        }
    }
}

/// Explains a failure of io_uring. The errno alone is misleading: container profiles return EPERM, ENOSYS or
/// EOPNOTSUPP, the sysctl returns EPERM, an old kernel EINVAL or ENOSYS, and a small limit of locked memory ENOMEM.
fn explain(errno: Errno, host: &Host) -> String {
    let Host { release, disabled } = host;
    if host.is_old() {
        let (major, minor) = MINIMUM;
        return format!(
            "Linux {major}.{minor} or later is needed and this is {release}: use the epoll backend"
        );
    }
    match (errno.0, disabled) {
        (libc::EPERM, Some(2)) => "kernel.io_uring_disabled=2 forbids it to everybody: \
             set it to 0 (sysctl kernel.io_uring_disabled=0) or use the epoll backend"
            .to_owned(),
        (libc::EPERM, Some(1)) => "kernel.io_uring_disabled=1 allows it to the group in \
             kernel.io_uring_group and to CAP_SYS_ADMIN only: join that group, set the sysctl to 0 or use \
             the epoll backend"
            .to_owned(),
        (libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EOPNOTSUPP, _) => format!(
            "on Linux {release} this means that a seccomp filter or container profile blocks io_uring \
             (Docker's and Kubernetes' default profiles do): allow io_uring_setup, io_uring_enter and \
             io_uring_register in the profile or use the epoll backend"
        ),
        (libc::ENOMEM, _) => "the kernel has no memory left for the ring: each loop takes some 90 KiB of \
             RLIMIT_MEMLOCK, which all processes of a user share (ulimit -l, LimitMEMLOCK= of a systemd unit); \
             raise it, or the memory limit of the container, or use the epoll backend"
            .to_owned(),
        (libc::EINVAL, _) => format!("Linux {release} lacks a needed feature: use the epoll backend"),
        _ => String::new(),
    }
}

/// The system call of those that both backends need that a filter rejects; `None` if none is rejected. A filter may
/// reject such a call and allow io_uring. The failed step does not show this: setting up a ring maps memory too.
fn refused_everywhere() -> Option<&'static str> {
    let is_refused = |error: &io::Error| {
        let code = error.raw_os_error();
        matches!(code, Some(libc::EPERM | libc::EACCES | libc::ENOSYS))
    };
    type Attempt = fn() -> io::Result<()>;
    let calls: [(&str, Attempt); 4] = [
        ("eventfd2", || Waker::new().map(drop)),
        ("mmap", || Mapping::new(1).map(drop)),
        ("madvise", || Mapping::new(1)?.wipe_on_fork()),
        ("socketpair", || UnixStream::pair().map(drop)),
    ];
    let refused = calls
        .into_iter()
        .find(|(_, call)| call().is_err_and(|error| is_refused(&error)));
    refused.map(|(name, _)| name)
}

fn errno_of(error: &io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// The first kernel version with multishot receive, buffer rings and DEFER_TASKRUN.
const MINIMUM: (u32, u32) = (6, 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn host(release: &str, disabled: Option<u32>) -> Host {
        Host {
            release: release.to_owned(),
            disabled,
        }
    }

    #[test]
    fn each_cause_has_its_explanation() {
        let cases = [
            (
                libc::EPERM,
                host("6.12.0", Some(2)),
                "kernel.io_uring_disabled=2",
            ),
            (
                libc::EPERM,
                host("6.12.0", Some(1)),
                "kernel.io_uring_disabled=1",
            ),
            (libc::EPERM, host("6.12.0", Some(0)), "seccomp"),
            (
                libc::ENOSYS,
                host("6.12.0-generic", None),
                "container profile",
            ),
            (
                libc::EINVAL,
                host("5.15.0-91-generic", None),
                "6.1 or later",
            ),
            (libc::ENOSYS, host("6.0.19", None), "6.1 or later"),
            (libc::ENOMEM, host("6.1.0", None), "RLIMIT_MEMLOCK"),
        ];
        for (errno, host, words) in cases {
            let text = explain(Errno(errno), &host);
            assert!(
                text.contains(words),
                "{errno} on {}: {text:?}",
                host.release
            );
        }
    }

    #[test]
    fn the_kernel_version_is_compared_as_numbers() {
        assert!(host("5.19.17-foo", None).is_old());
        assert!(!host("6.1.0", None).is_old());
        assert!(!host("6.10.3", None).is_old());
        assert!(!host("10.0", None).is_old());
        assert!(!host("", None).is_old());
    }
}
