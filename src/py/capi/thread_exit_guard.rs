//! [`UnwindGuard`]: keeps the interpreter from ending a thread that runs an iteration of the loop.
//!
//! Once the interpreter finalises, a daemon thread that requests the interpreter lock never gets it. From CPython
//! 3.14 on the thread hangs at that point until the process ends. Older versions call `pthread_exit` there, which
//! unwinds the stack by force. The stack has Rust frames, and the `catch_unwind` that PyO3 has around every method
//! takes the forced unwinding for a panic; glibc then aborts the process. PyO3 protects its own requests for the
//! lock, but Python code in a callback makes requests too.
//!
//! So on the older versions, a thread that is inside a loop iteration hangs as well. A cleanup handler of the old kind,
//! a record in a linked list of the C library, does this. glibc runs the handler when the unwinding has passed the
//! record's address on the stack. A record that is not on this stack counts as passed before the first frame is
//! unwound. musl runs the list and unwinds no frame.
//!
//! Not here: the end of a thread that only uses our objects, on a loop of another implementation.

use std::marker::PhantomData;

/// While this value lives, the interpreter cannot unwind the stack of the current thread.
pub struct UnwindGuard(PhantomData<*const ()>);

impl UnwindGuard {
    pub fn enter() -> Self {
        #[cfg(not(Py_3_14))]
        hook::enter();
        Self(PhantomData)
    }
}

#[cfg(not(Py_3_14))]
impl Drop for UnwindGuard {
    fn drop(&mut self) {
        hook::leave();
    }
}

#[cfg(not(Py_3_14))]
mod hook {
    use std::cell::{Cell, UnsafeCell};
    use std::ffi::{c_int, c_void};
    use std::ptr::null_mut;

    /// A cleanup record of the C library: `_pthread_cleanup_buffer` of glibc, `__ptcb` of musl. It has a routine, its
    /// argument, and private fields.
    #[repr(C)]
    struct Record([*mut c_void; 4]);

    /// The cleanup record of a thread. There is one for all nested loop iterations: several records would have to be
    /// removed in the reverse order of their addition, and programs that switch stacks (greenlet) do not keep that
    /// order.
    struct Hook {
        /// The record is boxed, because the C library uses its address while `depth` is not 0, so it must not move.
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
                // SAFETY: the record belongs to this thread, at an address of its own until the thread's end, and is in
                // no list: it is added at depth 0 alone.
                unsafe { _pthread_cleanup_push(hook.record.get(), hang_if_finalising, null_mut()) };
            }
        });
    }

    pub(super) fn leave() {
        HOOK.with(|hook| {
            hook.depth.set(hook.depth.get() - 1);
            if hook.depth.get() == 0 {
                // SAFETY: `enter` added this record on this thread (`UnwindGuard` is not `Send`). Other code has
                // removed the records that it added since, before it returned to us.
                unsafe { _pthread_cleanup_pop(hook.record.get(), 0) };
            }
        });
    }

    /// Called by `pthread_exit` before any frame is unwound. The thread does not have the interpreter lock and never
    /// returns; no thread joins it, and `exit` ends it with the process.
    extern "C" fn hang_if_finalising(_: *mut c_void) {
        // SAFETY: it reads an atomic variable of the runtime, and needs no lock.
        while unsafe { is_finalising() } != 0 {
            // SAFETY: the call sleeps until a signal was handled.
            unsafe { libc::pause() };
        }
    }

    unsafe extern "C" {
        // glibc keeps these functions for binaries that were compiled with older headers. Current headers do not
        // declare them.
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
