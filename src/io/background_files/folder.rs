//! The folder of the files: their names, their size, and removal of old ones.
//!
//! Several processes may share a folder. Each process locks the files that it writes, and lists the folder to count
//! the files of all processes. The bounds therefore hold up to the bytes that other processes wrote since the last
//! listing. A file is removed if its name has the form of these files, this user owns it, and no process has locked it.

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
    /// Bytes of all files: from the last listing, and written by this process since.
    bytes: u64,
    files: usize,
    /// Bytes written by this process since the last listing.
    grown: u64,
    looked_at: Option<Instant>,
}

/// A file of the listing.
struct Found {
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
            looked_at: None,
        }
    }

    /// Creates a file and returns it with its name. `open` are the names of the files that this process is writing.
    pub fn create<'a>(
        &mut self,
        open: impl Iterator<Item = &'a str>,
    ) -> io::Result<(String, fs::File)> {
        let is_stale = self.looked_at.is_none_or(|at| at.elapsed() >= LOOKS_AFTER);
        if is_stale || self.files >= self.limits.files || self.bytes >= self.limits.total_bytes {
            self.make_room(open)?;
        }
        if self.files >= self.limits.files || self.bytes >= self.limits.total_bytes {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the folder is full of traces that are being written",
            ));
        }
        let (name, file) = self.create_new()?;
        // Without a lock, on a file system that has none, another process may remove the file, and a trace is lost.
        is_locked_elsewhere(&file);
        self.files += 1;
        Ok((name, file))
    }

    /// Counts `bytes` written bytes. False if there is no room for more.
    pub fn has_grown<'a>(&mut self, bytes: u64, open: impl Iterator<Item = &'a str>) -> bool {
        self.bytes += bytes;
        self.grown += bytes;
        let is_stale = self.grown >= self.limits.total_bytes / SHARE;
        if is_stale || self.bytes >= self.limits.total_bytes {
            // If the folder cannot be read its bounds cannot be kept.
            return self.make_room(open).is_ok() && self.bytes < self.limits.total_bytes;
        }
        true
    }

    fn create_new(&self) -> io::Result<(String, fs::File)> {
        let mut options = fs::OpenOptions::new();
        // O_EXCL, which does not follow links either.
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

    /// The name sorts by time and is otherwise random: no peer can choose a part of it.
    fn new_name(&self) -> String {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let milliseconds = since.map_or(0, |it| it.as_millis());
        // Keyed by the system's random numbers.
        let random = RandomState::new().build_hasher().finish();
        format!("{PREFIX}{milliseconds:013}-{random:016x}{}", self.suffix)
    }

    fn is_ours(&self, name: &str) -> bool {
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

    /// Counts the files. If they reach a bound, removes the oldest until they are a share below it.
    fn make_room<'a>(&mut self, open: impl Iterator<Item = &'a str>) -> io::Result<()> {
        let mut found = self.look()?;
        self.bytes = found.iter().map(|file| file.bytes).sum();
        self.files = found.len();
        self.grown = 0;
        self.looked_at = Some(Instant::now());
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

    fn look(&self) -> io::Result<Vec<Found>> {
        // SAFETY: has no preconditions.
        let user = unsafe { libc::geteuid() };
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if !self.is_ours(&name) {
                continue;
            }
            // The metadata of the entry itself, not of a link's target. It may have been removed meanwhile.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file() && metadata.uid() == user {
                found.push(Found {
                    name,
                    modified: (metadata.mtime(), metadata.mtime_nsec()),
                    bytes: metadata.len(),
                });
            }
        }
        Ok(found)
    }

    /// False if another process has locked it, or if it cannot be removed.
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

/// Locks a file as long as it is open here, unless it is locked already. The lock marks a file that is being written.
fn is_locked_elsewhere(file: &fs::File) -> bool {
    // SAFETY: the descriptor is open, and the call touches no memory.
    let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    locked != 0 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

const PREFIX: &str = "trace-";
/// Limit of existing names in a row. Random names collide only if an attacker creates them.
const TRIES: usize = 8;
/// The age of a listing from which on it is repeated before a file is created.
const LOOKS_AFTER: Duration = Duration::from_secs(1);
/// The divisor of the bounds: a process writes this share of them between two listings, and a full folder is
/// cleared to this share below them. So the folder is not listed for each file.
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
        assert!(folder.is_ours(&name), "{name}");
        assert_ne!(folder.new_name(), name);
        for other in [
            "trace-.sqlog",
            "trace-1764108000123-00.sqlog",
            "trace-1764108000123-0123456789abcdef.qlog",
            "trace-176410800012x-0123456789abcdef.sqlog",
            "1764108000123-0123456789abcdef.sqlog",
            "trace-1764108000123-0123456789abcdef.sqlog.part",
        ] {
            assert!(!folder.is_ours(other), "{other}");
        }
    }
}
