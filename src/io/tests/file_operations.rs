//! File operations: their results, their errors, their cancelling, and the lifetime of their memory. One test runs at a
//! time, because some count the descriptors of the process.

mod common;

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::*;
use uringcore_io::{
    At, Backend, Errno, FileOutcome, FileRequest, OpId, ReadTarget, describe, read_now,
};

both_backends!(
    a_file_is_made_written_synced_read_and_resized,
    a_directory_changes,
    errors_are_those_of_the_kernel,
    a_discarded_open_leaves_no_descriptor,
    memory_of_a_read_lives_until_its_completion,
    a_read_of_an_empty_pipe_waits_and_can_be_cancelled,
);

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A temporary directory, which is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("uringcore-file-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn at(path: &Path) -> At {
    At {
        directory: libc::AT_FDCWD,
        path: CString::new(path.as_os_str().as_bytes()).unwrap(),
    }
}

fn start(rig: &mut Rig, request: FileRequest) -> OpId {
    rig.driver.file(Box::new(request), FILE_TOKEN)
}

fn done(rig: &mut Rig, request: FileRequest) -> Result<u32, Errno> {
    let op = start(rig, request);
    match rig.file_outcome(op) {
        FileOutcome::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

fn open(rig: &mut Rig, path: &Path, flags: i32) -> Result<OwnedFd, Errno> {
    let op = start(
        rig,
        FileRequest::Open {
            at: at(path),
            flags,
            mode: 0o640,
            wait: false,
        },
    );
    match rig.file_outcome(op) {
        FileOutcome::Opened(result) => result,
        other => panic!("{other:?}"),
    }
}

fn read(
    rig: &mut Rig,
    fd: &OwnedFd,
    length: usize,
    offset: Option<u64>,
    kernel_thread: bool,
) -> Vec<u8> {
    let op = start(
        rig,
        FileRequest::Read {
            fd: fd.as_raw_fd(),
            target: ReadTarget::allocate(length),
            offset,
            kernel_thread,
        },
    );
    rig.bytes_of(op).unwrap()
}

fn size(rig: &mut Rig, request: FileRequest) -> Result<u64, Errno> {
    let op = start(rig, request);
    match rig.file_outcome(op) {
        FileOutcome::Stat(result) => result.map(|stat| stat.stx_size),
        other => panic!("{other:?}"),
    }
}

fn a_file_is_made_written_synced_read_and_resized(backend: Backend) {
    let _alone = alone();
    let folder = Folder::new();
    let mut rig = Rig::new(backend);
    let path = folder.path("file");
    let file = open(&mut rig, &path, libc::O_RDWR | libc::O_CREAT).unwrap();
    let raw = file.as_raw_fd();
    // SAFETY: a plain number.
    assert_eq!(unsafe { libc::fcntl(raw, libc::F_GETFD) }, libc::FD_CLOEXEC);
    let data = pattern(1_000_000);
    let write = |data: Bytes, offset| FileRequest::Write {
        fd: raw,
        data,
        offset,
    };
    let all = Bytes::from(data.clone());
    assert_eq!(done(&mut rig, write(all, None)), Ok(1_000_000));
    // A write without an offset moves the file's position; reads and writes with offsets do not.
    assert_eq!(read(&mut rig, &file, 10, None, false), b"");
    assert_eq!(
        done(&mut rig, write(Bytes::from_static(b"xyz"), Some(5))),
        Ok(3)
    );
    assert_eq!(read(&mut rig, &file, 3, Some(5), false), b"xyz");
    assert_eq!(
        read(&mut rig, &file, 999_000, Some(1000), true),
        &data[1000..]
    );
    assert_eq!(read(&mut rig, &file, 10, None, false), b"");
    for data_only in [false, true] {
        assert_eq!(
            done(&mut rig, FileRequest::Sync { fd: raw, data_only }),
            Ok(0)
        );
    }
    let itself = At {
        directory: raw,
        path: CString::default(),
    };
    assert_eq!(
        size(&mut rig, FileRequest::stat(itself, libc::AT_EMPTY_PATH)),
        Ok(1_000_000)
    );
    assert_eq!(
        done(&mut rig, FileRequest::Truncate { fd: raw, length: 6 }),
        Ok(0)
    );
    assert_eq!(size(&mut rig, FileRequest::stat(at(&path), 0)), Ok(6));
    assert_eq!(describe(raw).unwrap().size, 6);
    assert_eq!(describe(raw).unwrap().position, Some(1_000_000));
    let mut into = [const { std::mem::MaybeUninit::uninit() }; 10];
    match read_now(raw, &mut into, Some(0)) {
        Ok(count) => assert_eq!(count, 6),
        // The file system does not support reads that never wait.
        Err(errno) => assert_eq!(errno, Errno(libc::EOPNOTSUPP)),
    }
    rig.close(file);
    assert!(!is_open(raw));
    rig.assert_idle();
}

fn a_directory_changes(backend: Backend) {
    let _alone = alone();
    let folder = Folder::new();
    let mut rig = Rig::new(backend);
    let (one, two, three) = (folder.path("one"), folder.path("two"), folder.path("three"));
    let make = FileRequest::MakeDirectory {
        at: at(&one),
        mode: 0o700,
    };
    assert_eq!(done(&mut rig, make), Ok(0));
    let rename = FileRequest::Rename {
        from: at(&one),
        to: at(&two),
        flags: 0,
    };
    assert_eq!(done(&mut rig, rename), Ok(0));
    assert!(two.is_dir() && !one.exists());
    let symlink = FileRequest::Symlink {
        target: CString::new("two").unwrap(),
        at: at(&three),
    };
    assert_eq!(done(&mut rig, symlink), Ok(0));
    assert_eq!(fs::read_link(&three).unwrap(), Path::new("two"));
    let link = FileRequest::Link {
        from: at(&three),
        to: at(&one),
        flags: 0,
    };
    assert_eq!(done(&mut rig, link), Ok(0));
    assert_eq!(fs::read_link(&one).unwrap(), Path::new("two"));
    for (path, flags) in [(&one, 0), (&three, 0), (&two, libc::AT_REMOVEDIR)] {
        let unlink = FileRequest::Unlink {
            at: at(path),
            flags,
        };
        assert_eq!(done(&mut rig, unlink), Ok(0));
    }
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    rig.assert_idle();
}

fn errors_are_those_of_the_kernel(backend: Backend) {
    let _alone = alone();
    let folder = Folder::new();
    let mut rig = Rig::new(backend);
    let missing = folder.path("missing");
    assert_eq!(
        open(&mut rig, &missing, libc::O_RDONLY).unwrap_err(),
        Errno(libc::ENOENT)
    );
    assert_eq!(
        open(&mut rig, &folder.0, libc::O_WRONLY).unwrap_err(),
        Errno(libc::EISDIR)
    );
    assert_eq!(
        size(&mut rig, FileRequest::stat(at(&missing), 0)),
        Err(Errno(libc::ENOENT))
    );
    for fd in [-1, 1_000_000] {
        let sync = FileRequest::Sync {
            fd,
            data_only: false,
        };
        assert_eq!(done(&mut rig, sync), Err(Errno(libc::EBADF)));
    }
    let unlink = FileRequest::Unlink {
        at: at(&folder.0),
        flags: 0,
    };
    assert_eq!(done(&mut rig, unlink), Err(Errno(libc::EISDIR)));
    rig.assert_idle();
}

fn a_discarded_open_leaves_no_descriptor(backend: Backend) {
    let _alone = alone();
    let folder = Folder::new();
    let path = folder.path("file");
    fs::write(&path, b"").unwrap();
    let mut rig = Rig::new(backend);
    let before = open_descriptors();
    for round in 0..200 {
        let request = FileRequest::Open {
            at: at(&path),
            flags: libc::O_RDONLY,
            mode: 0,
            wait: round % 2 == 0,
        };
        let op = start(&mut rig, request);
        if round % 3 == 0 {
            rig.iterate(Duration::ZERO);
        }
        rig.driver.discard(op);
    }
    rig.assert_idle();
    assert_eq!(open_descriptors(), before);
    // Some of these opens complete, and others are dropped with the driver.
    for _ in 0..50 {
        let request = FileRequest::Open {
            at: at(&path),
            flags: libc::O_RDONLY,
            mode: 0,
            wait: false,
        };
        start(&mut rig, request);
    }
    rig.driver.enter(Some(Duration::ZERO)).unwrap();
    drop(rig);
    assert!(open_descriptors() <= before);
}

/// Owns the memory of a read, and counts when it is dropped.
struct Owner {
    memory: Vec<u8>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

fn target(length: usize, dropped: &Arc<AtomicUsize>) -> ReadTarget {
    let mut owner = Box::new(Owner {
        memory: vec![0; length],
        dropped: Arc::clone(dropped),
    });
    let start = NonNull::new(owner.memory.as_mut_ptr()).unwrap();
    // SAFETY: the vector's memory does not move, and nothing else uses it, while the owner lives.
    unsafe { ReadTarget::new(start, length, owner) }
}

fn memory_of_a_read_lives_until_its_completion(backend: Backend) {
    let _alone = alone();
    let folder = Folder::new();
    let path = folder.path("file");
    fs::write(&path, pattern(4_000_000)).unwrap();
    let mut rig = Rig::new(backend);
    let file = open(&mut rig, &path, libc::O_RDONLY).unwrap();
    let dropped = Arc::new(AtomicUsize::new(0));
    for round in 0..40 {
        let request = FileRequest::Read {
            fd: file.as_raw_fd(),
            target: target(2_000_000, &dropped),
            offset: Some(round * 1000),
            kernel_thread: true,
        };
        let op = start(&mut rig, request);
        rig.iterate(Duration::ZERO);
        rig.driver.discard(op);
        // The slot owns the memory until the completion, which owns it afterwards. It is freed with the completion.
        let alive = round as usize + 1 - dropped.load(Ordering::Relaxed);
        assert!(alive <= rig.driver.stats().in_flight as usize + rig.done.len());
    }
    rig.assert_idle();
    assert_eq!(dropped.load(Ordering::Relaxed), 40);
}

fn a_read_of_an_empty_pipe_waits_and_can_be_cancelled(backend: Backend) {
    let _alone = alone();
    let mut rig = Rig::new(backend);
    let (reader, mut writer) = pipe();
    let dropped = Arc::new(AtomicUsize::new(0));
    let request = |dropped| FileRequest::Read {
        fd: reader.as_raw_fd(),
        target: target(16, dropped),
        offset: None,
        kernel_thread: false,
    };
    let cancelled = start(&mut rig, request(&dropped));
    rig.iterate(Duration::from_millis(20));
    assert!(rig.take(cancelled).is_none());
    rig.driver.cancel(cancelled);
    assert!(matches!(
        rig.file_outcome(cancelled),
        FileOutcome::Read(Err(Errno::CANCELED), _)
    ));
    let waiting = start(&mut rig, request(&dropped));
    rig.iterate(Duration::from_millis(20));
    assert!(rig.take(waiting).is_none());
    std::io::Write::write_all(&mut writer, b"bytes").unwrap();
    match rig.file_outcome(waiting) {
        FileOutcome::Read(Ok(5), target) => {
            let owner = target.into_owner().downcast::<Owner>().unwrap();
            assert_eq!(&owner.memory[..5], b"bytes");
        }
        other => panic!("{other:?}"),
    }
    rig.assert_idle();
    assert_eq!(dropped.load(Ordering::Relaxed), 2);
}
