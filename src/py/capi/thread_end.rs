//! A thread that the interpreter ends while it is in our turn.
//!
//! Once the interpreter finalises, a daemon thread that wants the interpreter lock gets it no more. From
//! CPython 3.14 on it hangs there until the process is gone. Older versions call `pthread_exit` wherever
//! it is, which unwinds the stack by force. On its way stand frames of Rust, and the `catch_unwind` that
//! PyO3 has around every method takes the unwinding for a panic; glibc then aborts the process. PyO3
//! guards its own ways to the lock; Python code that a callback runs goes its own.
//!
//! So while a thread is in our turn, it hangs on the older versions too. A cleanup handler does it, the
//! old kind that is a record in a list: glibc runs one when the unwinding has passed the record's address
//! on the stack, and a record that is not on this stack at all counts as passed before the first frame is
//! unwound. musl runs the list and unwinds nothing.
//!
//! Not here: the end of a thread that only uses our objects, on a loop of another make.

use std::marker::PhantomData;

/// While it lives, the interpreter cannot unwind this thread.
pub struct Stays(PhantomData<*const ()>);

impl Stays {
    pub fn here() -> Self {
        #[cfg(not(Py_3_14))]
        hook::enter();
        Self(PhantomData)
    }
}

#[cfg(not(Py_3_14))]
impl Drop for Stays {
    fn drop(&mut self) {
        hook::leave();
    }
}

#[cfg(not(Py_3_14))]
mod hook {
    use std::cell::{Cell, UnsafeCell};
    use std::ffi::{c_int, c_void};
    use std::ptr::null_mut;

    /// `_pthread_cleanup_buffer` of glibc, `__ptcb` of musl: a routine, its argument, the C library's own.
    #[repr(C)]
    struct Record([*mut c_void; 4]);

    /// One a thread, however deep its turns are nested: records would have to be taken back in the order
    /// in which they were added, which programs that switch stacks do not keep.
    struct Hook {
        /// Boxed, so that it is not on the stack; the C library has its address while `depth` is not 0.
        record: Box<UnsafeCell<Record>>,
        depth: Cell<usize>,
    }

    thread_local! {
        static HOOK: Hook = Hook {
            record: Box::new(UnsafeCell::new(Record([null_mut(); 4]))),
            depth: Cell::new(0),
        };
    }

    pub(super) fn enter() {
        HOOK.with(|hook| {
            if hook.depth.replace(hook.depth.get() + 1) == 0 {
                // SAFETY: the record is this thread's, at an address of its own until the thread's end,
                // and in no list: it is added at depth 0 alone.
                unsafe { _pthread_cleanup_push(hook.record.get(), hang_if_finalising, null_mut()) };
            }
        });
    }

    pub(super) fn leave() {
        HOOK.with(|hook| {
            hook.depth.set(hook.depth.get() - 1);
            if hook.depth.get() == 0 {
                // SAFETY: `enter` added this record on this thread (`Stays` is not `Send`); what other
                // code has added since, it has taken back when it returned to us.
                unsafe { _pthread_cleanup_pop(hook.record.get(), 0) };
            }
        });
    }

    /// Called by `pthread_exit` before anything is unwound. The thread does not have the interpreter
    /// lock, and nobody waits for its end: `exit` ends it with the process.
    extern "C" fn hang_if_finalising(_: *mut c_void) {
        // SAFETY: it reads an atomic variable of the runtime, and needs no lock.
        while unsafe { is_finalising() } != 0 {
            // SAFETY: sleeps until a signal was handled.
            unsafe { libc::pause() };
        }
    }

    unsafe extern "C" {
        // In the C library under these names for as long as there are binaries that have the macros of
        // old; they are no longer in its headers.
        fn _pthread_cleanup_push(
            record: *mut Record,
            routine: extern "C" fn(*mut c_void),
            argument: *mut c_void,
        );
        fn _pthread_cleanup_pop(record: *mut Record, execute: c_int);
        /// Public as `Py_IsFinalizing` since 3.13.
        #[cfg_attr(Py_3_13, link_name = "Py_IsFinalizing")]
        #[cfg_attr(not(Py_3_13), link_name = "_Py_IsFinalizing")]
        fn is_finalising() -> c_int;
    }
}
