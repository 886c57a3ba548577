//! Freed memory is returned to the system, and the thread that returns it ends.

#![cfg(target_env = "gnu")]

use std::fs;
use std::time::{Duration, Instant};

use uringcore_io::heap_trim;

const MIB: usize = 1 << 20;
const SIZE: usize = 4_000;
const COUNT: usize = 16_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// The private memory of this process in bytes.
fn own_bytes() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let lines = text.lines().filter(|line| line.starts_with("Private_"));
    let sizes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<usize>().ok());
    sizes.sum::<usize>() << 10
}

fn has_thread() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| {
        // The thread may end before its name is read. Such a thread counts as nameless.
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.trim() == "uringcore-trim"
    })
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn memory_freed_below_used_memory_is_returned_by_a_thread_that_ends() {
    let mut blocks: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![1; SIZE]).collect();
    let full = own_bytes();
    // One block in a hundred stays in use, so that the heap does not shrink by itself.
    let mut number = 0;
    blocks.retain(|_| {
        number += 1;
        number % 100 == 0
    });
    assert!(full - own_bytes().min(full) < 16 * MIB);
    heap_trim::trim_on_thread().unwrap();
    heap_trim::trim_on_thread().unwrap();
    wait_until("the memory", || own_bytes() + 40 * MIB < full);
    wait_until("the thread", || !has_thread());
    // A second trim starts a new thread.
    let again: Vec<Vec<u8>> = (0..COUNT).map(|_| vec![1; SIZE]).collect();
    let full = own_bytes();
    let kept = again.into_iter().skip(COUNT - 10).collect::<Vec<_>>();
    heap_trim::trim_on_thread().unwrap();
    wait_until("the memory of a second flood", || {
        own_bytes() + 40 * MIB < full
    });
    assert_eq!((blocks.len(), kept.len()), (COUNT / 100, 10));
}
