//! Operations on files: opening, reading and writing without a copy, and changes of directories.
//!
//! A [`FileRequest`] is one operation and owns all memory that the kernel uses for it. With io_uring it is one
//! submission entry (`entry`), which the kernel executes asynchronously. epoll cannot wait for files, so that backend
//! executes the request at once (`carry_out`), which blocks. A host that must not block executes it on a thread
//! instead.
//!
//! [`read_now`] and [`describe`] need no driver, because they never wait.
//!
//! Not here: operations that io_uring lacks (reading directories, `readlink`, `access`).

use std::any::Any;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use bytes::Bytes;
use io_uring::opcode;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};

use crate::errno::Errno;

/// Memory that a read fills, and the object that owns the memory. The operation keeps the owner until its last
/// completion, because the kernel may write to the memory until then.
pub struct ReadTarget {
    start: NonNull<u8>,
    length: usize,
    owner: Box<dyn Any + Send>,
}

// SAFETY: the caller of `new` guarantees exclusive access to the memory while the owner lives, and the owner is `Send`.
unsafe impl Send for ReadTarget {}

impl ReadTarget {
    /// # Safety
    ///
    /// `start` points to `length` writable bytes that stay where they are, and that nothing else reads or writes,
    /// for as long as `owner` lives.
    pub unsafe fn new(start: NonNull<u8>, length: usize, owner: Box<dyn Any + Send>) -> ReadTarget {
        ReadTarget {
            start,
            length,
            owner,
        }
    }

    /// A target that owns newly allocated memory.
    pub fn allocate(length: usize) -> ReadTarget {
        let mut memory = vec![0; length];
        let start = NonNull::new(memory.as_mut_ptr()).unwrap_or(NonNull::dangling());
        ReadTarget {
            start,
            length,
            owner: Box::new(memory),
        }
    }

    /// Returns the owner of the memory. Called after the last completion.
    pub fn into_owner(self) -> Box<dyn Any + Send> {
        self.owner
    }
}

impl std::fmt::Debug for ReadTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ReadTarget({} bytes)", self.length)
    }
}

/// A path, and the directory that it is relative to (`AT_FDCWD` for the working directory).
pub struct At {
    pub directory: RawFd,
    pub path: CString,
}

/// One operation on a file or a directory.
pub enum FileRequest {
    /// `openat(2)`. With `wait` the open of a FIFO waits for a peer, as it does for a blocking caller. Without it a
    /// FIFO that has no peer opens at once for reading, and fails with ENXIO for writing.
    Open {
        at: At,
        flags: i32,
        mode: u32,
        wait: bool,
    },
    /// Reads once, at `offset` or at the file's position.
    Read {
        fd: RawFd,
        target: ReadTarget,
        offset: Option<u64>,
        /// True if a kernel thread copies the bytes. Otherwise a large read of cached data blocks the thread that
        /// submits it.
        kernel_thread: bool,
    },
    /// Writes once, at `offset` or at the file's position.
    Write {
        fd: RawFd,
        data: Bytes,
        offset: Option<u64>,
    },
    /// `fsync(2)` or `fdatasync(2)`.
    Sync { fd: RawFd, data_only: bool },
    /// `ftruncate(2)`. With io_uring, kernels before 6.9 return EINVAL.
    Truncate { fd: RawFd, length: u64 },
    /// `statx(2)` with all basic fields.
    Stat {
        at: At,
        flags: i32,
        out: Box<MaybeUninit<libc::statx>>,
    },
    /// `unlinkat(2)`.
    Unlink { at: At, flags: i32 },
    /// `renameat2(2)`.
    Rename { from: At, to: At, flags: u32 },
    /// `mkdirat(2)`.
    MakeDirectory { at: At, mode: u32 },
    /// `symlinkat(2)`.
    Symlink { target: CString, at: At },
    /// `linkat(2)`.
    Link { from: At, to: At, flags: i32 },
}

/// The result of a [`FileRequest`]. The request's kind determines the variant.
#[derive(Debug)]
pub enum FileOutcome {
    Opened(Result<OwnedFd, Errno>),
    /// `Read`: the number of bytes, or an error. The memory is returned in both cases.
    Read(Result<u32, Errno>, ReadTarget),
    Stat(Result<Box<libc::statx>, Errno>),
    /// `Write`: the number of bytes. All other requests: 0.
    Done(Result<u32, Errno>),
}

impl FileRequest {
    /// Makes a request for the attributes of a path.
    pub fn stat(at: At, flags: i32) -> FileRequest {
        FileRequest::Stat {
            at,
            flags,
            out: Box::new(MaybeUninit::zeroed()),
        }
    }

    /// The descriptor of the file that the operation uses; -1 if the operation uses paths. The directory of a relative
    /// path does not count, because closing it does not affect the operation.
    pub(crate) fn fd(&self) -> RawFd {
        match self {
            FileRequest::Read { fd, .. }
            | FileRequest::Write { fd, .. }
            | FileRequest::Sync { fd, .. }
            | FileRequest::Truncate { fd, .. } => *fd,
            _ => -1,
        }
    }

    /// The readiness (`POLLIN`, `POLLOUT`) to wait for if the operation returns EAGAIN; `None` if EAGAIN is its result.
    pub(crate) fn readiness(&self) -> Option<libc::c_short> {
        match self {
            FileRequest::Read { .. } => Some(libc::POLLIN),
            FileRequest::Write { .. } => Some(libc::POLLOUT),
            _ => None,
        }
    }

    /// True if the operation may be repeated after EINTR, because it did nothing or because a repetition has the same
    /// effect. A change of a directory must not be repeated: on a network file system it may have taken effect although
    /// its answer was lost.
    pub(crate) fn may_repeat(&self) -> bool {
        matches!(
            self,
            FileRequest::Open { .. }
                | FileRequest::Read { .. }
                | FileRequest::Write { .. }
                | FileRequest::Sync { .. }
                | FileRequest::Truncate { .. }
                | FileRequest::Stat { .. }
        )
    }

    /// The submission entry. The pointers in it belong to the request, which the slot owns.
    pub(crate) fn entry(&mut self) -> Entry {
        match self {
            FileRequest::Open {
                at,
                flags,
                mode,
                wait,
            } => on_kernel_thread(
                *wait,
                opcode::OpenAt::new(Fd(at.directory), at.path.as_ptr())
                    .flags(*flags | libc::O_CLOEXEC)
                    .mode(*mode)
                    .build(),
            ),
            FileRequest::Read {
                fd,
                target,
                offset,
                kernel_thread,
            } => on_kernel_thread(
                *kernel_thread,
                opcode::Read::new(Fd(*fd), target.start.as_ptr(), length(target.length))
                    .offset(offset.unwrap_or(CURRENT_POSITION))
                    .build(),
            ),
            FileRequest::Write { fd, data, offset } => {
                opcode::Write::new(Fd(*fd), data.as_ptr(), length(data.len()))
                    .offset(offset.unwrap_or(CURRENT_POSITION))
                    .build()
            }
            FileRequest::Sync { fd, data_only } => opcode::Fsync::new(Fd(*fd))
                .flags(if *data_only {
                    FsyncFlags::DATASYNC
                } else {
                    FsyncFlags::empty()
                })
                .build(),
            FileRequest::Truncate { fd, length } => {
                opcode::Ftruncate::new(Fd(*fd), *length).build()
            }
            FileRequest::Stat { at, flags, out } => {
                opcode::Statx::new(Fd(at.directory), at.path.as_ptr(), out.as_mut_ptr().cast())
                    .flags(*flags)
                    .mask(libc::STATX_BASIC_STATS)
                    .build()
            }
            FileRequest::Unlink { at, flags } => {
                opcode::UnlinkAt::new(Fd(at.directory), at.path.as_ptr())
                    .flags(*flags)
                    .build()
            }
            FileRequest::Rename { from, to, flags } => opcode::RenameAt::new(
                Fd(from.directory),
                from.path.as_ptr(),
                Fd(to.directory),
                to.path.as_ptr(),
            )
            .flags(*flags)
            .build(),
            FileRequest::MakeDirectory { at, mode } => {
                opcode::MkDirAt::new(Fd(at.directory), at.path.as_ptr())
                    .mode(*mode)
                    .build()
            }
            FileRequest::Symlink { target, at } => {
                opcode::SymlinkAt::new(Fd(at.directory), target.as_ptr(), at.path.as_ptr()).build()
            }
            FileRequest::Link { from, to, flags } => opcode::LinkAt::new(
                Fd(from.directory),
                from.path.as_ptr(),
                Fd(to.directory),
                to.path.as_ptr(),
            )
            .flags(*flags)
            .build(),
        }
    }

    /// Executes the request with a blocking system call. Returns a count or a negative errno, as io_uring does.
    pub(crate) fn carry_out(&mut self) -> i32 {
        loop {
            let result = self.call();
            if result >= 0 {
                return i32::try_from(result).unwrap_or(i32::MAX);
            }
            let errno = Errno::last().0;
            if errno != libc::EINTR {
                return -errno;
            }
        }
    }

    fn call(&mut self) -> i64 {
        // SAFETY: paths are nul-terminated and owned by the request; buffers are owned by it and have the given
        // lengths; descriptors are plain numbers to the kernel; and no call keeps a pointer.
        unsafe {
            match self {
                FileRequest::Open {
                    at, flags, mode, ..
                } => {
                    let flags = *flags | libc::O_CLOEXEC;
                    libc::openat(at.directory, at.path.as_ptr(), flags, *mode).into()
                }
                FileRequest::Read {
                    fd, target, offset, ..
                } => {
                    let (start, length) =
                        (target.start.as_ptr().cast(), length(target.length) as _);
                    (match offset {
                        Some(offset) => libc::pread64(*fd, start, length, *offset as i64),
                        None => libc::read(*fd, start, length),
                    }) as i64
                }
                FileRequest::Write { fd, data, offset } => {
                    let (start, length) = (data.as_ptr().cast(), length(data.len()) as _);
                    (match offset {
                        Some(offset) => libc::pwrite64(*fd, start, length, *offset as i64),
                        None => libc::write(*fd, start, length),
                    }) as i64
                }
                FileRequest::Sync {
                    fd,
                    data_only: true,
                } => libc::fdatasync(*fd).into(),
                FileRequest::Sync { fd, .. } => libc::fsync(*fd).into(),
                FileRequest::Truncate { fd, length } => {
                    libc::ftruncate64(*fd, *length as i64).into()
                }
                FileRequest::Stat { at, flags, out } => {
                    let (path, mask) = (at.path.as_ptr(), libc::STATX_BASIC_STATS);
                    libc::statx(at.directory, path, *flags, mask, out.as_mut_ptr()).into()
                }
                FileRequest::Unlink { at, flags } => {
                    libc::unlinkat(at.directory, at.path.as_ptr(), *flags).into()
                }
                FileRequest::Rename { from, to, flags } => {
                    let (old, new) = (from.path.as_ptr(), to.path.as_ptr());
                    libc::renameat2(from.directory, old, to.directory, new, *flags).into()
                }
                FileRequest::MakeDirectory { at, mode } => {
                    libc::mkdirat(at.directory, at.path.as_ptr(), *mode).into()
                }
                FileRequest::Symlink { target, at } => {
                    libc::symlinkat(target.as_ptr(), at.directory, at.path.as_ptr()).into()
                }
                FileRequest::Link { from, to, flags } => {
                    let (old, new) = (from.path.as_ptr(), to.path.as_ptr());
                    libc::linkat(from.directory, old, to.directory, new, *flags).into()
                }
            }
        }
    }

    /// Converts the kernel's result to the request's outcome.
    pub(crate) fn outcome(self, result: Result<u32, Errno>) -> FileOutcome {
        match self {
            FileRequest::Open { .. } => FileOutcome::Opened(result.map(|fd| {
                // SAFETY: the kernel has just created this descriptor for us.
                unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
            })),
            FileRequest::Read { target, .. } => FileOutcome::Read(result, target),
            FileRequest::Stat { out, .. } => FileOutcome::Stat(result.map(|_| {
                // SAFETY: zeroed when made, which is valid for this structure of integers, and
                // filled by the kernel since.
                unsafe { out.assume_init() }
            })),
            _ => FileOutcome::Done(result),
        }
    }
}

/// Reads bytes that are available without waiting, in the page cache or in a pipe.
///
/// Returns the number of bytes of `into` that were filled; 0 at the end of the file.
///
/// # Errors
///
/// `EAGAIN` if no bytes are available, `EOPNOTSUPP` if the file does not support such reads, and those of `preadv2(2)`.
pub fn read_now(
    fd: RawFd,
    into: &mut [MaybeUninit<u8>],
    offset: Option<u64>,
) -> Result<usize, Errno> {
    let vector = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: length(into.len()) as usize,
    };
    let offset = offset.map_or(-1, |offset| offset as i64);
    loop {
        // SAFETY: one vector that describes `into`; the kernel keeps nothing after the call.
        let count = unsafe { libc::preadv2(fd, &raw const vector, 1, offset, libc::RWF_NOWAIT) };
        match usize::try_from(count) {
            Ok(count) => return Ok(count),
            Err(_) => match Errno::last() {
                Errno(libc::EINTR) => {}
                errno => return Err(errno),
            },
        }
    }
}

/// Attributes of an open file that the kernel has in memory.
#[derive(Copy, Clone, Debug)]
pub struct Description {
    /// `st_mode`.
    pub mode: u32,
    /// The size in bytes.
    pub size: u64,
    /// The preferred size of reads and writes, in bytes.
    pub block_size: u32,
    /// The position in bytes; `None` if the file has none, as a pipe.
    pub position: Option<u64>,
}

/// Returns the attributes of an open file that the kernel has in memory, without asking a disk or a server.
///
/// # Errors
///
/// Those of `statx(2)`, mainly `EBADF`.
pub fn describe(fd: RawFd) -> io::Result<Description> {
    let mut out = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    let mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_SIZE;
    // SAFETY: an empty path and a structure to fill, both alive during the call.
    let result = unsafe { libc::statx(fd, c"".as_ptr(), flags, mask, out.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed, which is valid for this structure of integers, and filled by the kernel.
    let out = unsafe { out.assume_init() };
    // SAFETY: plain numbers.
    let position = unsafe { libc::lseek64(fd, 0, libc::SEEK_CUR) };
    Ok(Description {
        mode: u32::from(out.stx_mode),
        size: out.stx_size,
        block_size: out.stx_blksize,
        position: u64::try_from(position).ok(),
    })
}

fn on_kernel_thread(yes: bool, entry: Entry) -> Entry {
    if yes {
        entry.flags(Flags::ASYNC)
    } else {
        entry
    }
}

/// Limits the length of one transfer to the kernel's limit (MAX_RW_COUNT). A longer transfer completes short.
fn length(bytes: usize) -> u32 {
    bytes.min(0x7fff_f000) as u32
}

/// The offset by which io_uring uses the file's position. It is also valid for files without a position.
const CURRENT_POSITION: u64 = u64::MAX;
