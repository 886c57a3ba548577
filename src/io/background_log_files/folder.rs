//! The folder of background files: their names, their total size, and the removal of old files.
//!
//! Several processes may write to one folder. Each process locks the files that it writes, and lists the folder to
//! count the files of all processes. Between two listings the bounds may be exceeded by the bytes that other
//! processes write. A file is removed if its name has the form of these files, this user owns it, and no process has
//! locked it.

use std::{
    collections::HashSet,
    fs,
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::PathBuf,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::Limits;

pub(super) struct Folder {
    path: PathBuf,
    suffix: &'static str,
    limits: Limits,
    /// The bytes of all files in the folder, as the last listing has counted them, plus those that this process has
    /// written since.
    bytes: u64,
    /// The number of files in the folder, as the last listing has counted them, plus those that this process has
    /// created since.
    files: usize,
    /// Bytes that this process has written since the last listing.
    grown: u64,
    listed_at: Option<Instant>,
}

/// A background file in the folder, of any process.
struct ListedFile {
    name: String,
    modified: (i64, i64),
    bytes: u64,
}

impl Folder {
    pub fn new(path: PathBuf, suffix: &'static str, limits: Limits) -> Self {
        Self {
            path,
            suffix,
            limits,
            bytes: 0,
            files: 0,
            grown: 0,
            listed_at: None,
        }
    }

    /// Creates a file, and returns it with its name. `open` yields the names of the files that this process is writing
    /// at present.
    pub fn create<'a>(
        &mut self,
        open: impl Iterator<Item = &'a str>,
    ) -> io::Result<(String, fs::File)> {
        let is_stale = self
            .listed_at
            .is_none_or(|at| at.elapsed() >= LISTING_AGE_MAX);
        if is_stale || self.files >= self.limits.files || self.bytes >= self.limits.total_bytes {
            self.remove_oldest(open)?;
        }
        if self.files >= self.limits.files || self.bytes >= self.limits.total_bytes {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the folder is full of traces that are being written",
            ));
        }
        let (name, file) = self.create_new()?;
        // On a file system without locks this fails, and another process may remove the file: then its trace is lost.
        is_locked_elsewhere(&file);
        self.files += 1;
        Ok((name, file))
    }

    /// Adds `bytes` that were written to the count. False if the folder has no room for more.
    pub fn has_grown<'a>(&mut self, bytes: u64, open: impl Iterator<Item = &'a str>) -> bool {
        self.bytes += bytes;
        self.grown += bytes;
        let is_stale = self.grown >= self.limits.total_bytes / SHARE;
        if is_stale || self.bytes >= self.limits.total_bytes {
            // A folder that cannot be listed counts as full, because its bounds cannot be checked.
            return self.remove_oldest(open).is_ok() && self.bytes < self.limits.total_bytes;
        }
        true
    }

    fn create_new(&self) -> io::Result<(String, fs::File)> {
        let mut options = fs::OpenOptions::new();
        // `create_new` is O_EXCL: it neither opens an existing file nor follows a link.
        options.append(true).create_new(true).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let mut tries = 0;
        loop {
            let name = self.new_name();
            match options.open(self.path.join(&name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tries < TRIES => {
                    tries += 1;
                }
                result => return result.map(|file| (name, file)),
            }
        }
    }

    /// Returns a name that begins with the time, so that names sort by age. A random number follows, so that processes
    /// that share the folder choose different names.
    fn new_name(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let milliseconds = since.map_or(0, |it| it.as_millis());
        // The hasher has a random key from the system, so its result for no input is a random number.
        let random = RandomState::new().build_hasher().finish();
        format!("{PREFIX}{milliseconds:013}-{random:016x}{}", self.suffix)
    }

    fn has_our_form(&self, name: &str) -> bool {
        let digits = name
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_suffix(self.suffix))
            .and_then(|rest| rest.split_once('-'));
        digits.is_some_and(|(time, random)| {
            time.len() >= 13
                && time.bytes().all(|byte| byte.is_ascii_digit())
                && random.len() == 16
                && random.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    }

    /// Counts the files. If their number or size reaches its bound, removes the oldest files until both are below it by
    /// one part in [`SHARE`].
    fn remove_oldest<'a>(&mut self, open: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut found = self.list()?;
        self.bytes = found.iter().map(|file| file.bytes).sum();
        self.files = found.len();
        self.grown = 0;
        self.listed_at = Some(Instant::now());
        let Limits {
            total_bytes, files, ..
        } = self.limits;
        if self.bytes < total_bytes && self.files < files {
            return Ok(());
        }
        let bytes_left = total_bytes - total_bytes / SHARE;
        let files_left = files - (files / SHARE as usize).max(1);
        found.sort_by_key(|file| file.modified);
        let open: HashSet<&str> = open.collect();
        for file in &found {
            if self.bytes < bytes_left.max(1) && self.files <= files_left {
                break;
            }
            if !open.contains(file.name.as_str()) && self.remove(&file.name) {
                self.bytes -= file.bytes;
                self.files -= 1;
            }
        }
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<ListedFile>> {
        // SAFETY: has no preconditions.
        let user = unsafe { libc::geteuid() };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if !self.has_our_form(&name) {
                continue;
            }
            // The metadata is that of the directory entry itself, not of a link's target. It is missing if the entry
            // was removed in the meantime.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file() && metadata.uid() == user {
                found.push(ListedFile {
                    name,
                    modified: (metadata.mtime(), metadata.mtime_nsec()),
                    bytes: metadata.len(),
                });
            }
        }
        Ok(found)
    }

    /// Removes a file. False if another process has locked it, or if it cannot be removed.
    fn remove(&self, name: &str) -> bool {
        let path = self.path.join(name);
        let mut options = fs::OpenOptions::new();
        options.read(true);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
        match options.open(&path) {
            Ok(file) => !is_locked_elsewhere(&file) && fs::remove_file(&path).is_ok(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

/// Locks a file until this process closes it, unless another process has locked it. The lock marks a file that is being
/// written.
fn is_locked_elsewhere(file: &fs::File) -> bool {
    // SAFETY: the descriptor is open, and the call touches no memory.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    locked != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

const PREFIX: &str = "trace-";
/// The number of attempts to find an unused name. Random names exist already only if somebody creates them on purpose.
const TRIES: usize = 8;
/// Before a file is created, the folder is listed again if the last listing is older than this.
const LISTING_AGE_MAX: Duration = Duration::from_secs(1);
/// A process lists the folder after it has written one part in `SHARE` of the size limit, and it clears a full folder
/// to one part in `SHARE` below the limits. So the folder is not listed for each file.
const SHARE: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_these_files_are_recognised() {
        let limits = Limits {
            file_bytes: 1,
            total_bytes: 1,
            files: 1,
            open: 1,
        };
        let folder = Folder::new(PathBuf::new(), ".sqlog", limits);
        let name = folder.new_name();
        assert!(folder.has_our_form(&name), "{name}");
        assert_ne!(folder.new_name(), name);
        for other in [
            "trace-.sqlog",
            "trace-1764108000123-00.sqlog",
            "trace-1764108000123-0123456789abcdef.qlog",
            "trace-176410800012x-0123456789abcdef.sqlog",
            "1764108000123-0123456789abcdef.sqlog",
            "trace-1764108000123-0123456789abcdef.sqlog.part",
        ] {
            assert!(!folder.has_our_form(other), "{other}");
        }
    }
}
