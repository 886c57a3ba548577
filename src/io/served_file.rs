//! A file whose content is sent to a peer. Data in the page cache is read at once; the rest is read on a thread of the
//! host, because the read blocks.
//!
//! Not here: files that programs read (`file_operations`), and the thread.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use crate::descriptor_limit_and_dup;
use crate::errno::Errno;
use crate::file_operations::read_now;

/// Device, inode and creation time, which tell a file from every other one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileIdentity {
    device: u64,
    number: u64,
    /// The creation time; `None` on file systems without it. A later file with this inode has another one.
    made: Option<SystemTime>,
}

impl FileIdentity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            number: metadata.ino(),
            made: metadata.created().ok(),
        }
    }
}

/// The attributes of a file that change with its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileVersion {
    pub identity: FileIdentity,
    pub size: u64,
    /// The time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// The attributes of a file that change with its content, even if a program sets the time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStamp {
    pub(crate) device: u64,
    pub(crate) number: u64,
    pub size: u64,
    /// The time of the last change of the content, in nanoseconds since 1970.
    pub modified_ns: i64,
    /// The time of the last change of content or attributes, which programs cannot set.
    pub(crate) changed_ns: i64,
}

/// Joins seconds and nanoseconds since 1970.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    let whole = seconds.saturating_mul(1_000_000_000);
    whole.saturating_add(nanoseconds)
}

/// A regular file that is open for reading. All reads have an offset, so the descriptor's position is not used.
#[derive(Debug)]
pub struct SentFile(File);

impl SentFile {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`; `EISDIR` and `EINVAL` if it is not a regular file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            // A FIFO without a writer would block the caller; a regular file ignores the flag.
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        Self::checked(file)
    }

    /// Duplicates a descriptor, so that its owner may close it.
    ///
    /// # Errors
    ///
    /// `EBADF` if it is not open; otherwise those of [`open`](Self::open).
    pub fn duplicate(fd: RawFd) -> io::Result<Self> {
        Self::checked(descriptor_limit_and_dup::duplicate(fd)?.into())
    }

    /// Takes a descriptor that is open for reading.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> io::Result<Self> {
        Self::checked(descriptor.into())
    }

    /// Returns the attributes that change when the file's content does.
    pub fn version(&self) -> io::Result<FileVersion> {
        let metadata = self.0.metadata()?;
        Ok(FileVersion {
            identity: FileIdentity::of(&metadata),
            size: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        })
    }

    /// Returns the attributes that change with every change of the file.
    pub fn stamp(&self) -> io::Result<FileStamp> {
        let metadata = self.0.metadata()?;
        Ok(FileStamp {
            device: metadata.dev(),
            number: metadata.ino(),
            size: metadata.len(),
            modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// True if the file is on a file system whose data and names are on this machine, so that a name that was used a
    /// moment ago is looked up again without waiting. Unknown file systems, and those of other processes (FUSE), do not
    /// count. What an overlay is made of is not known here: a container image that is fetched on demand may wait.
    pub fn is_on_local_file_system(&self) -> bool {
        let mut found = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: the file is open, and the structure outlives the call.
        let result = unsafe { libc::fstatfs(self.0.as_raw_fd(), found.as_mut_ptr()) };
        if result < 0 {
            return false;
        }
        // SAFETY: the call has succeeded, so the kernel has filled the structure.
        let found = unsafe { found.assume_init() };
        // The type of the field differs between architectures and C libraries.
        LOCAL_FILE_SYSTEMS.contains(&(found.f_type as u32))
    }

    fn checked(file: File) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        match (kind.is_file(), kind.is_dir()) {
            (true, _) => Ok(Self(file)),
            (false, true) => Err(io::Error::from_raw_os_error(libc::EISDIR)),
            (false, false) => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }

    /// Returns the file's identity, which writes to the file do not change. A later file with this inode number has
    /// another identity if the file system stores creation times.
    pub fn identity(&self) -> io::Result<FileIdentity> {
        Ok(FileIdentity::of(&self.0.metadata()?))
    }

    pub fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    /// Reads up to `length` bytes from `offset` on without waiting. Empty at the end of the file; `None` if the read
    /// would wait, or if the file system does not support such reads.
    pub fn read_now(&self, length: usize, offset: u64) -> io::Result<Option<Vec<u8>>> {
        let mut bytes = Vec::with_capacity(length);
        let room = &mut bytes.spare_capacity_mut()[..length];
        match read_now(self.0.as_raw_fd(), room, Some(offset)) {
            Ok(count) => {
                // SAFETY: the kernel has filled that many bytes of the vector's spare capacity.
                unsafe { bytes.set_len(count) };
                Ok(Some(bytes))
            }
            Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(None),
            Err(Errno(errno)) => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// Sends up to `length` bytes from `offset` on to a non-blocking stream socket, without a copy in this process
    /// (sendfile(2)). Returns the number of bytes. It is 0 if the bytes have to be read and sent: the socket is full, the
    /// file system does not support the call, the process does not ignore SIGPIPE (the call has no MSG_NOSIGNAL), or the
    /// first or the last byte is not in the page cache. If bytes between those two are not there, the call waits for the
    /// disk.
    ///
    /// # Errors
    ///
    /// Those of the socket, such as `EPIPE`.
    pub fn send_now(&self, socket: RawFd, offset: u64, length: usize) -> Result<usize, Errno> {
        let Some(last) = length.checked_sub(1).filter(|_| is_sigpipe_ignored()) else {
            return Ok(0);
        };
        let is_cached = |at| {
            let mut byte = [MaybeUninit::uninit()];
            read_now(self.0.as_raw_fd(), &mut byte, Some(at)) == Ok(1)
        };
        let position = libc::off_t::try_from(offset);
        let (Ok(mut position), true, true) =
            (position, is_cached(offset), is_cached(offset + last as u64))
        else {
            return Ok(0);
        };
        loop {
            // SAFETY: the file is open, and the kernel writes the new position to a variable that outlives the call. If
            // the socket is not open, the call returns EBADF.
            let count =
                unsafe { libc::sendfile(socket, self.0.as_raw_fd(), &raw mut position, length) };
            match usize::try_from(count) {
                Ok(count) => return Ok(count),
                Err(_) => match Errno::last() {
                    Errno(libc::EINTR) => {}
                    Errno(libc::EAGAIN | libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
                        return Ok(0);
                    }
                    error => return Err(error),
                },
            }
        }
    }

    /// Reads `length` bytes from `offset` on, or fewer at the end of the file. Blocks.
    pub fn read(&self, length: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.0.read_at(&mut bytes[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// The kernel's numbers of local file systems (`linux/magic.h`).
const LOCAL_FILE_SYSTEMS: [u32; 12] = [
    0xef53,      // ext2, ext3 and ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xca45_1a4e, // bcachefs
    0x2fc1_2fc1, // ZFS
    0xf2f5_2010, // F2FS
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x4d44,      // FAT
];

/// True if a write to a socket without a reader fails with `EPIPE` alone. Python ignores the signal from its start on, but
/// programs may change that.
fn is_sigpipe_ignored() -> bool {
    // SAFETY: `sigaction` is a structure of integers, for which zeros are valid values.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: without a new action, the call only fills the structure, which outlives it.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> std::path::PathBuf {
        let name = format!("uringcore-sent-file-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn a_part_of_a_file_is_sent_to_a_socket_until_the_socket_is_full() {
        let name = format!("uringcore-sent-to-socket-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let content: Vec<u8> = (0..1 << 20).map(|at: u32| (at >> 3) as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let file = SentFile::open(&path).unwrap();
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (mut offset, mut received) = (7, Vec::new());
        while offset < content.len() {
            let sent = file.send_now(ours.as_raw_fd(), offset as u64, content.len() - offset);
            let sent = sent.unwrap();
            if sent == 0 && received.is_empty() {
                // The file system has no reads without waiting.
                break;
            }
            let mut part = vec![0; sent];
            std::io::Read::read_exact(&mut theirs, &mut part).unwrap();
            received.extend(part);
            offset += sent;
        }
        assert!(content[7..].starts_with(&received));
        let send = |offset, length| file.send_now(ours.as_raw_fd(), offset, length);
        // Nothing is sent behind the end, and no part that the file does not have whole.
        assert_eq!(send(1 << 20, 10), Ok(0));
        assert_eq!(send((1 << 20) - 5, 10), Ok(0));
        assert_eq!(send(0, 0), Ok(0));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_is_read_from_any_offset_to_its_end_and_other_kinds_are_refused() {
        let folder = folder();
        let path = folder.join("some");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = SentFile::open(&path).unwrap();
        let other = SentFile::duplicate(file.0.as_raw_fd()).unwrap();
        for file in [file, other] {
            assert_eq!(file.size().unwrap(), 10);
            assert_eq!(
                file.identity().unwrap(),
                SentFile::open(&path).unwrap().identity().unwrap()
            );
            assert_eq!(file.read(4, 3).unwrap(), b"3456");
            assert_eq!(file.read(40, 8).unwrap(), b"89");
            assert_eq!(file.read(4, 10).unwrap(), b"");
            // The file was written a moment ago; a file system without support returns `None`.
            for (length, offset, expected) in [(4, 3, &b"3456"[..]), (40, 8, b"89"), (4, 10, b"")] {
                let read = file.read_now(length, offset).unwrap();
                assert!(read.is_none_or(|read| read == expected));
            }
        }
        let before = SentFile::open(&path).unwrap();
        std::fs::write(&path, b"more than that").unwrap();
        let known = SentFile::open(&path).unwrap().identity().unwrap();
        assert_eq!(known, before.identity().unwrap());
        let other = folder.join("another");
        std::fs::write(&other, b"0123456789").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let replaced = SentFile::open(&path).unwrap().identity().unwrap();
        assert_ne!(replaced, known);
        let refused = |path: &Path| SentFile::open(path).unwrap_err().raw_os_error();
        assert_eq!(refused(&folder), Some(libc::EISDIR));
        assert_eq!(refused(Path::new("/dev/null")), Some(libc::EINVAL));
        assert_eq!(refused(&folder.join("other")), Some(libc::ENOENT));
        let closed = SentFile::duplicate(-1).unwrap_err().raw_os_error();
        assert_eq!(closed, Some(libc::EBADF));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
