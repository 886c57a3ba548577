//! Python's C API where PyO3 has no wrapper, and conversions that every room needs: buffers, addresses, errors. No
//! file here depends on a loop.
//!
//! | file | content |
//! | --- | --- |
//! | `callback` | a callback and its arguments |
//! | `future_wakeup` | sets the results of futures for which coroutines of ours wait |
//! | `fastcall` | methods that take their arguments as the interpreter passes them |
//! | `contextvars_context` | `contextvars` contexts entered through the C API |
//! | `bounded_arguments` | arguments of unknown size, read with a bound |
//! | `bytes_like_objects` | Python buffers held as `Bytes` |
//! | `py_buffer` | a Python buffer held for the length of a call |
//! | `fresh_bytes` | a `bytes` object that is filled after it is made |
//! | `malloc_thresholds` | thresholds of glibc's malloc |
//! | `buffer_exporter` | memory lent to C code for one call |
//! | `class_version` | the version number of a class, which changes with the class |
//! | `gil_cell` | the mutable state of a Python object: a `RefCell`, or a mutex without an interpreter lock |
//! | `integer_arguments` | integer arguments of a given number of bits |
//! | `coroutine_methods` | the methods and attributes of a coroutine class written in Rust |
//! | `rust_coroutine` | a coroutine whose work is Rust code |
//! | `class_with_dict` | classes of transports and events, whose instances have a `__dict__` |
//! | `thread_exit_guard` | keeps the interpreter from ending a thread inside an iteration of the loop |
//! | `address` | socket addresses to and from Python tuples |
//! | `exception_conversion` | Rust errors to Python exceptions |

pub mod address;
pub mod bounded_arguments;
pub mod buffer_exporter;
pub mod bytes_like_objects;
pub mod callback;
pub mod class_version;
pub mod class_with_dict;
pub mod contextvars_context;
pub mod coroutine_methods;
pub mod exception_conversion;
pub mod fastcall;
pub mod fresh_bytes;
pub mod future_wakeup;
pub mod gil_cell;
pub mod integer_arguments;
pub mod malloc_thresholds;
pub mod py_buffer;
pub mod rust_coroutine;
pub mod thread_exit_guard;
