//! A file whose content is sent to a peer. Data in the page cache is read at once; the rest is read on a thread of the
//! host, because the read blocks.
//!
//! Not here: files that programs read (`file_operations`), and the thread.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
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
        let seconds = metadata.mtime().saturating_mul(1_000_000_000);
        Ok(FileVersion {
            identity: FileIdentity::of(&metadata),
            size: metadata.len(),
            modified_ns: seconds.saturating_add(metadata.mtime_nsec()),
        })
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
