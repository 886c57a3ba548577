//! A folder whose files are opened by names below it. No name, symbolic link or rename reaches a file outside of it.
//!
//! The kernel resolves a name in one call that cannot leave the folder (`openat2` with `RESOLVE_BENEATH`, Linux 5.6).
//! Symbolic links that stay inside the folder are followed, others are not. Where the call is missing or a sandbox
//! forbids it, each part of the name is opened by itself, and no symbolic link is followed.
//!
//! Not here: the meaning of a name in a URL, which the host checks first.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::served_file::{FileStamp, SentFile, nanoseconds};

/// An open folder. The folder stays this one if its path later names another.
#[derive(Debug)]
pub struct ServedFolder {
    folder: OwnedFd,
    /// Device and inode.
    identity: (u64, u64),
    resolution: Resolution,
}

/// The way in which names are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resolution {
    /// By openat2(2) with RESOLVE_BENEATH, or with RESOLVE_CACHED (Linux 5.12) for a call that must not wait for the
    /// disk.
    Cached,
    /// By openat2(2) with RESOLVE_BENEATH, which may wait for the disk.
    Beneath,
    /// By one openat(2) for each part of the name, without openat2(2).
    ByParts,
}

impl ServedFolder {
    /// Opens a folder.
    ///
    /// # Errors
    ///
    /// Those of `open(2)`, such as `EMFILE`; `ENOTDIR` if it is not a folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let folder = open_at(libc::AT_FDCWD, &name, flags)?;
        let file = File::from(folder);
        let metadata = file.metadata()?;
        let folder = OwnedFd::from(file);
        Ok(Self {
            identity: (metadata.dev(), metadata.ino()),
            resolution: Resolution::of(&folder)?,
            folder,
        })
    }

    /// True if `path` names this folder now.
    #[must_use]
    pub fn is_at(&self, path: &Path) -> bool {
        let found = std::fs::metadata(path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    /// Opens a regular file. The parts of `name` are separated by one slash each; no part is empty, `.` or `..`.
    ///
    /// Without `may_wait`, the call does not wait for a disk where the kernel supports that.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if the call would have to wait; `EXDEV` or `ELOOP` for a symbolic link that is not followed; `EINVAL`
    /// for an invalid name; otherwise those of [`SentFile::open`].
    pub fn open_file(&self, name: &[u8], may_wait: bool) -> io::Result<SentFile> {
        let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..");
        if !name.split(|&byte| byte == b'/').all(is_plain) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        SentFile::from_descriptor(match self.resolution {
            Resolution::Cached if !may_wait => self.beneath(name, libc::RESOLVE_CACHED),
            Resolution::Cached | Resolution::Beneath => self.beneath(name, 0),
            Resolution::ByParts => self.by_parts(name),
        }?)
    }

    /// Returns the attributes of what the name leads to, which may be outside of the folder. They are for a comparison with
    /// those of a file that was opened.
    pub fn stamp(&self, name: &[u8]) -> io::Result<FileStamp> {
        let name = CString::new(name)?;
        let mut found = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the name ends with a zero byte, and both outlive the call.
        let result = unsafe {
            libc::fstatat(
                self.folder.as_raw_fd(),
                name.as_ptr(),
                found.as_mut_ptr(),
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has succeeded, so the kernel has filled the structure.
        let found = unsafe { found.assume_init() };
        Ok(FileStamp {
            device: found.st_dev,
            number: found.st_ino,
            size: u64::try_from(found.st_size).unwrap_or_default(),
            modified_ns: nanoseconds(found.st_mtime, found.st_mtime_nsec),
            changed_ns: nanoseconds(found.st_ctime, found.st_ctime_nsec),
        })
    }

    fn beneath(&self, name: &[u8], resolve: u64) -> io::Result<OwnedFd> {
        let name = CString::new(name)?;
        let mut left = ATTEMPTS_MAX;
        loop {
            match open_beneath(&self.folder, &name, FILE_FLAGS, resolve) {
                // A rename elsewhere in the system was under way, so that the kernel could not prove that the name
                // stays inside the folder.
                Err(error) if is_would_block(&error) && resolve == 0 && left > 0 => left -= 1,
                opened => return opened,
            }
        }
    }

    fn by_parts(&self, name: &[u8]) -> io::Result<OwnedFd> {
        let mut parts = name.split(|&byte| byte == b'/').peekable();
        let mut parent: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let flags = match parts.peek() {
                Some(_) => libc::O_PATH | libc::O_DIRECTORY,
                None => FILE_FLAGS,
            };
            let folder = parent.as_ref().unwrap_or(&self.folder).as_raw_fd();
            let opened = open_at(folder, &CString::new(part)?, flags | libc::O_NOFOLLOW)?;
            parent = Some(opened);
        }
        // An empty name has one part, which was refused.
        parent.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }
}

impl Resolution {
    /// Tries the calls on the folder itself.
    ///
    /// # Errors
    ///
    /// Those that say nothing about the kernel, for instance `EMFILE`: a later attempt may find the call there.
    fn of(folder: &OwnedFd) -> io::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let can = |resolve| match open_beneath(folder, c".", flags, resolve) {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(true),
                // The kernel has no such call, a sandbox forbids it, or the kernel has no such flag.
                Some(libc::ENOSYS | libc::EPERM | libc::EINVAL) => Ok(false),
                _ => Err(error),
            },
        };
        Ok(match (can(0)?, can(libc::RESOLVE_CACHED)?) {
            (true, true) => Self::Cached,
            (true, false) => Self::Beneath,
            (false, _) => Self::ByParts,
        })
    }
}

fn is_would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

fn open_beneath(
    folder: &OwnedFd,
    name: &CStr,
    flags: libc::c_int,
    resolve: u64,
) -> io::Result<OwnedFd> {
    // SAFETY: `open_how` is a plain structure of integers, for which zeros are valid values.
    let mut how: libc::open_how = unsafe { MaybeUninit::zeroed().assume_init() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | resolve;
    // SAFETY: the name ends with a zero byte, and the structure has the size that is passed. Both outlive the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_openat2,
            folder.as_raw_fd(),
            name.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        )
    };
    owned(fd as RawFd)
}

fn open_at(folder: RawFd, name: &CStr, flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with a zero byte and outlives the call.
    owned(unsafe { libc::openat(folder, name.as_ptr(), flags | libc::O_CLOEXEC) })
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A FIFO without a writer would block the caller without `O_NONBLOCK`, and a terminal must not become the process's
/// own.
const FILE_FLAGS: libc::c_int = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;

/// The number of further attempts after a rename elsewhere.
const ATTEMPTS_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    struct Tree(std::path::PathBuf);

    impl Tree {
        fn new(name: &str) -> Self {
            let name = format!("uringcore-served-folder-{}-{name}", std::process::id());
            let tree = Self(std::env::temp_dir().join(name));
            std::fs::create_dir_all(tree.0.join("served/sub")).unwrap();
            std::fs::write(tree.0.join("secret"), b"secret").unwrap();
            std::fs::write(tree.0.join("served/one"), b"one").unwrap();
            std::fs::write(tree.0.join("served/sub/two"), b"two").unwrap();
            tree
        }

        fn served(&self) -> std::path::PathBuf {
            self.0.join("served")
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    fn both(path: &Path) -> [ServedFolder; 2] {
        let native = ServedFolder::open(path).unwrap();
        let mut by_parts = ServedFolder::open(path).unwrap();
        by_parts.resolution = Resolution::ByParts;
        [native, by_parts]
    }

    fn content(folder: &ServedFolder, name: &str) -> Result<Vec<u8>, i32> {
        let file = folder.open_file(name.as_bytes(), true);
        match file {
            Ok(file) => Ok(file.read(100, 0).unwrap()),
            Err(error) => Err(error.raw_os_error().unwrap_or(0)),
        }
    }

    #[test]
    fn files_below_the_folder_are_opened_and_nothing_else() {
        let tree = Tree::new("below");
        let served = tree.served();
        symlink("../secret", served.join("up")).unwrap();
        symlink(tree.0.join("secret"), served.join("absolute")).unwrap();
        symlink("/proc/self/root", served.join("magic")).unwrap();
        symlink("one", served.join("inside")).unwrap();
        symlink("sub", served.join("folder")).unwrap();
        for folder in both(&served) {
            let content = |name| content(&folder, name);
            assert_eq!(content("one"), Ok(b"one".to_vec()));
            assert_eq!(content("sub/two"), Ok(b"two".to_vec()));
            assert_eq!(content("none"), Err(libc::ENOENT));
            assert_eq!(content("one/two"), Err(libc::ENOTDIR));
            assert_eq!(content("sub"), Err(libc::EISDIR));
            for name in [
                "",
                ".",
                "..",
                "../secret",
                "sub/../../secret",
                "/etc/passwd",
                "sub//two",
                "sub/",
                "./one",
            ] {
                assert_eq!(content(name), Err(libc::EINVAL), "{name}");
            }
            assert!(content("nul\0").is_err());
            for name in ["up", "absolute", "magic/etc/passwd"] {
                let refused = content(name).unwrap_err();
                assert!(
                    [libc::EXDEV, libc::ELOOP, libc::ENOTDIR].contains(&refused),
                    "{name}"
                );
            }
        }
        let [native, by_parts] = both(&served);
        if native.resolution != Resolution::ByParts {
            assert_eq!(content(&native, "inside"), Ok(b"one".to_vec()));
            assert_eq!(content(&native, "folder/two"), Ok(b"two".to_vec()));
        }
        assert_eq!(content(&by_parts, "inside"), Err(libc::ELOOP));
        assert_eq!(content(&by_parts, "folder/two"), Err(libc::ENOTDIR));
    }

    #[test]
    fn special_files_are_refused_without_a_wait() {
        let tree = Tree::new("special");
        let served = tree.served();
        let fifo = CString::new(served.join("fifo").as_os_str().as_bytes()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let _listener = UnixListener::bind(served.join("socket")).unwrap();
        for folder in both(&served) {
            assert_eq!(content(&folder, "fifo"), Err(libc::EINVAL));
            assert_eq!(content(&folder, "socket"), Err(libc::ENXIO));
        }
        for folder in both(Path::new("/dev")) {
            assert_eq!(content(&folder, "null"), Err(libc::EINVAL));
        }
    }

    #[test]
    fn a_name_in_memory_is_opened_without_waiting() {
        let tree = Tree::new("cached");
        let folder = ServedFolder::open(&tree.served()).unwrap();
        folder.open_file(b"one", true).unwrap();
        let file = folder.open_file(b"one", false).unwrap();
        assert_eq!(file.read(100, 0).unwrap(), b"one");
    }

    #[test]
    fn a_folder_that_was_replaced_is_noticed() {
        let tree = Tree::new("replaced");
        let path = tree.served();
        let folder = ServedFolder::open(&path).unwrap();
        assert!(folder.is_at(&path));
        std::fs::rename(&path, tree.0.join("former")).unwrap();
        assert!(!folder.is_at(&path));
        std::fs::create_dir(&path).unwrap();
        assert!(!folder.is_at(&path));
        assert_eq!(content(&folder, "one"), Ok(b"one".to_vec()));
    }

    #[test]
    fn only_folders_are_served() {
        let tree = Tree::new("kinds");
        let refused = |path: &Path| ServedFolder::open(path).unwrap_err().raw_os_error();
        assert_eq!(refused(&tree.served().join("one")), Some(libc::ENOTDIR));
        assert_eq!(refused(&tree.served().join("none")), Some(libc::ENOENT));
    }
}
