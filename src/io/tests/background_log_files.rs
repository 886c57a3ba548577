//! Files that are written in the background: their content, size and ownership.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uringcore_io::background_log_files::{
    Append, BackgroundFile, BackgroundFiles, LAST_RECORD_MAX, Limits,
};

const LIMITS: Limits = Limits {
    file_bytes: 1 << 20,
    total_bytes: 1 << 30,
    files: 100,
    open: 10,
};
const PATIENCE: Duration = Duration::from_secs(60);

/// A temporary folder, which is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("files-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn background(&self, limits: Limits) -> BackgroundFiles {
        BackgroundFiles::new(self.0.clone(), ".log", limits)
    }

    /// The paths of the files, sorted by name.
    fn files(&self) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(&self.0)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        found.sort();
        found
    }

    /// Makes a file as an earlier run would have left it. Lower numbers are older.
    fn old(&self, number: u64, bytes: usize) -> PathBuf {
        let path = self.0.join(format!("trace-{number:013}-{number:016x}.log"));
        fs::write(&path, vec![b'x'; bytes]).unwrap();
        let file = fs::File::options().append(true).open(&path).unwrap();
        let at = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 + number);
        file.set_modified(at).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn begin(background: &BackgroundFiles) -> BackgroundFile {
    background.begin().unwrap().unwrap()
}

fn flush(background: &BackgroundFiles) {
    assert!(background.flush(PATIENCE), "nothing was written");
}

/// Appends records until the file rejects one, and returns that result.
fn fill(background: &BackgroundFiles, file: &BackgroundFile, record: &[u8]) -> Append {
    loop {
        match file.append(record) {
            Append::Taken => {}
            Append::NoRoom => flush(background),
            other => return other,
        }
    }
}

#[test]
fn records_are_written_in_order_into_files_of_the_user_alone() {
    let folder = Folder::new("order");
    let background = folder.background(LIMITS);
    let opened = [begin(&background), begin(&background)];
    for number in 0..1000 {
        for (index, file) in opened.iter().enumerate() {
            let record = format!("{index} {number}\n");
            assert_eq!(file.append(record.as_bytes()), Append::Taken);
        }
    }
    flush(&background);
    let files = folder.files();
    assert_eq!(files.len(), 2);
    let mut texts: Vec<String> = files
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    texts.sort();
    for (index, text) in texts.iter().enumerate() {
        let wanted: String = (0..1000)
            .map(|number| format!("{index} {number}\n"))
            .collect();
        assert_eq!(*text, wanted);
    }
    for path in &files {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let [first, second] = opened;
    first.finish(b"last\n");
    drop(second);
    flush(&background);
    let ends = files
        .iter()
        .filter(|path| fs::read_to_string(path).unwrap().ends_with("last\n"));
    assert_eq!(ends.count(), 1);
}

#[test]
fn a_record_without_room_is_refused_whole() {
    let folder = Folder::new("room");
    let background = folder.background(LIMITS);
    let file = begin(&background);
    assert_eq!(file.append(b"first"), Append::Taken);
    assert_eq!(file.append(&vec![0; 300 << 10]), Append::NoRoom);
    assert_eq!(file.append(b" second"), Append::Taken);
    drop(file);
    flush(&background);
    assert_eq!(fs::read(&folder.files()[0]).unwrap(), b"first second");
}

#[test]
fn a_full_file_still_takes_its_last_record() {
    let folder = Folder::new("size");
    let limits = Limits {
        file_bytes: 10_000,
        ..LIMITS
    };
    let background = folder.background(limits);
    let file = begin(&background);
    assert_eq!(fill(&background, &file, &[b'x'; 100]), Append::Full);
    file.finish(&[b'y'; LAST_RECORD_MAX]);
    flush(&background);
    let text = fs::read(&folder.files()[0]).unwrap();
    assert!(text.len() <= 10_000 && text.len() > 9_000, "{}", text.len());
    assert!(text.ends_with(&[b'y'; LAST_RECORD_MAX]));
}

#[test]
fn the_oldest_files_are_removed_for_new_ones() {
    let folder = Folder::new("oldest");
    let old: Vec<PathBuf> = (0..10).map(|number| folder.old(number, 100_000)).collect();
    let foreign = folder.0.join("trace-of-another-program.log");
    fs::write(&foreign, b"stays").unwrap();
    let limits = Limits {
        total_bytes: 1_000_000,
        ..LIMITS
    };
    let background = folder.background(limits);
    let file = begin(&background);
    fill(&background, &file, &[b'x'; 1000]);
    drop(file);
    flush(&background);
    let total: u64 = folder
        .files()
        .iter()
        .map(|path| fs::metadata(path).unwrap().len())
        .sum();
    assert!(total < 1_100_000, "{total}");
    assert!(!old[0].exists() && !old[1].exists());
    assert!(foreign.exists());
}

#[test]
fn the_number_of_files_is_bounded() {
    let folder = Folder::new("count");
    let limits = Limits { files: 8, ..LIMITS };
    let background = folder.background(limits);
    for number in 0..40 {
        let file = begin(&background);
        assert_eq!(file.append(format!("{number}").as_bytes()), Append::Taken);
        drop(file);
        flush(&background);
        assert!(folder.files().len() <= 8);
    }
    let texts: Vec<String> = folder
        .files()
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert!(texts.contains(&"39".to_owned()), "{texts:?}");
    assert!(!texts.contains(&"0".to_owned()), "{texts:?}");
}

#[test]
fn a_file_in_use_is_not_removed() {
    let folder = Folder::new("locked");
    let path = folder.old(1, 2_000);
    let other = fs::File::open(&path).unwrap();
    // SAFETY: the descriptor is open.
    let locked = unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    assert_eq!(locked, 0);
    let limits = Limits {
        total_bytes: 1_000,
        ..LIMITS
    };
    let background = folder.background(limits);
    let file = begin(&background);
    assert_eq!(file.append(b"record"), Append::Taken);
    flush(&background);
    assert!(path.exists());
    assert_eq!(folder.files(), [path]);
    // The folder has no room for a new file.
    assert_eq!(file.append(b"record"), Append::Failed);
    assert!(
        background
            .take_error()
            .unwrap()
            .to_string()
            .contains("full")
    );
    assert!(background.take_error().is_none());
}

#[test]
fn links_are_neither_followed_nor_counted() {
    let folder = Folder::new("links");
    let target = folder.0.join("target");
    fs::write(&target, vec![0; 5_000]).unwrap();
    let link = folder.0.join("trace-0000000000001-0000000000000001.log");
    symlink(&target, &link).unwrap();
    let limits = Limits {
        total_bytes: 4_000,
        ..LIMITS
    };
    let background = folder.background(limits);
    let file = begin(&background);
    fill(&background, &file, &[b'x'; 100]);
    drop(file);
    flush(&background);
    assert!(is_link(&link));
    assert_eq!(fs::read(&target).unwrap(), vec![0; 5_000]);
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

#[test]
fn the_number_of_open_files_is_bounded() {
    let folder = Folder::new("open");
    let background = folder.background(Limits { open: 2, ..LIMITS });
    let first = begin(&background);
    let second = begin(&background);
    assert_eq!(first.append(b"1"), Append::Taken);
    assert!(background.begin().unwrap().is_none());
    drop(first);
    flush(&background);
    let third = begin(&background);
    assert_eq!(third.append(b"3"), Append::Taken);
    drop((second, third));
    flush(&background);
    // The third file had no records, so it was not created.
    assert_eq!(folder.files().len(), 2);
}

#[test]
fn a_removed_folder_is_an_error_without_a_crash() {
    let background = BackgroundFiles::new("/nonexistent/folder".into(), ".log", LIMITS);
    let file = begin(&background);
    assert_eq!(file.append(b"1"), Append::Taken);
    flush(&background);
    assert_eq!(file.append(b"2"), Append::Failed);
    let error = background.take_error().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    file.finish(b"3");
    flush(&background);
}

#[test]
fn a_forked_child_has_its_own_writer_thread() {
    let folder = Folder::new("fork");
    let background = folder.background(LIMITS);
    let file = begin(&background);
    assert_eq!(file.append(b"parent\n"), Append::Taken);
    flush(&background);
    // SAFETY: the child ends by _exit. It uses no lock that another thread of this process may hold, except the
    // allocator's, which glibc releases in a forked child.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = file.append(b"child\n") == Append::Failed;
        file.finish(b"child\n");
        let own = begin(&background);
        let taken = own.append(b"own\n") == Append::Taken;
        drop(own);
        let status = i32::from(!(refused && taken && background.flush(PATIENCE)));
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above and writes to a local.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    assert_eq!(file.append(b"more\n"), Append::Taken);
    drop(file);
    flush(&background);
    let mut texts: Vec<String> = folder
        .files()
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    texts.sort();
    assert_eq!(texts, ["own\n", "parent\nmore\n"]);
}
