//! Python's C API where PyO3 has no wrapper, and the conversions that every room needs: buffers, addresses, errors.
//! Nothing here depends on a loop.
//!
//! | file | noun |
//! | --- | --- |
//! | `callback` | a callback and its arguments |
//! | `future_wakeup` | the futures that coroutines of our own wait for |
//! | `fastcall` | methods that take their arguments as the interpreter passes them |
//! | `context` | `contextvars` contexts entered through the C API |
//! | `bounded_arguments` | arguments of unknown size, read with a bound |
//! | `buffer` | Python buffers held as `Bytes`: the only file that does |
//! | `buffer_view` | a Python buffer held for the length of a call |
//! | `fresh_bytes` | `bytes` objects that are filled after they are made |
//! | `malloc_thresholds` | thresholds of the C library's heap |
//! | `lent_memory` | memory lent to C code for one call |
//! | `class_version` | the version of a class, which detects its changes |
//! | `gil_cell` | state that a Python object owns |
//! | `integer_arguments` | integers of a given number of bits among the arguments of a call |
//! | `coroutine` | the methods and attributes of coroutines of our own |
//! | `rust_coroutine` | a coroutine whose work is in Rust |
//! | `class_with_dict` | the transports' classes as Python sees them, whose instances take attributes |
//! | `unwind_guard` | a thread that the interpreter ends during one of our turns |
//! | `address` | socket addresses to and from Python tuples |
//! | `error` | Rust errors into Python exceptions: the only file that does |

pub mod address;
pub mod bounded_arguments;
pub mod buffer;
pub mod buffer_view;
pub mod callback;
pub mod class_version;
pub mod class_with_dict;
pub mod context;
pub mod coroutine;
pub mod error;
pub mod fastcall;
pub mod fresh_bytes;
pub mod future_wakeup;
pub mod gil_cell;
pub mod integer_arguments;
pub mod lent_memory;
pub mod malloc_thresholds;
pub mod rust_coroutine;
pub mod unwind_guard;
