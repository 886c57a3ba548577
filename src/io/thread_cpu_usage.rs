//! The processor time of the calling thread, and the number of its voluntary waits.

use std::mem;
use std::time::Duration;

/// The processor time and the waits of a thread since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ThreadUsage {
    /// The thread's processor time, in the program and in the kernel.
    pub processor: Duration,
    /// The number of times that the thread released its processor to wait: for a lock, a file, a sleep. A stop by the
    /// scheduler, for a quota or for another thread, does not count.
    pub waits: u64,
}

/// Returns the usage of the calling thread. `None` if a filter of system calls refuses the calls.
pub fn thread_usage() -> Option<ThreadUsage> {
    // getrusage(2) returns times too, but only as of the scheduler's last tick.
    let mut time = mem::MaybeUninit::<libc::timespec>::uninit();
    let mut usage = mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: room for one structure each, which is read only if the call has filled it.
    let (time, usage) = unsafe {
        if libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, time.as_mut_ptr()) != 0
            || libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) != 0
        {
            return None;
        }
        (time.assume_init(), usage.assume_init())
    };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    Some(ThreadUsage {
        processor: Duration::from_secs(seconds) + Duration::from_nanos(nanoseconds),
        waits: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn computing_uses_the_processor_and_a_sleep_is_a_wait() {
        let before = thread_usage().expect("the system says it");
        while thread_usage().expect("as before").processor < before.processor + LEAST {}
        let computed = thread_usage().expect("as before");
        thread::sleep(LEAST);
        let slept = thread_usage().expect("as before");
        assert!(slept.waits > computed.waits);
    }

    const LEAST: Duration = Duration::from_millis(5);
}
