//! Python's C API where PyO3 has no wrapper, and the conversions that every room needs: buffers, addresses, errors.
//! Nothing here depends on a loop.
//!
//! | file | noun |
//! | --- | --- |
//! | `call` | a callback and its arguments |
//! | `awaited` | the futures that coroutines of our own wait for |
//! | `fastcall` | methods that take their arguments as the interpreter passes them |
//! | `context` | `contextvars` contexts entered through the C API |
//! | `arguments` | arguments of unknown size, read with a bound |
//! | `buffer` | Python buffers held as `Bytes`: the only file that does |
//! | `view` | a Python buffer held for the length of a call |
//! | `fresh_bytes` | `bytes` objects that are filled after they are made |
//! | `heap` | thresholds of the C library's heap |
//! | `lend` | memory lent to C code for one call |
//! | `class_version` | the version of a class, which detects its changes |
//! | `cell` | state that a Python object owns |
//! | `code` | integers of a given number of bits among the arguments of a call |
//! | `coroutine` | the methods and attributes of coroutines of our own |
//! | `steps` | a coroutine whose work is in Rust |
//! | `open_class` | the transports' classes as Python sees them, whose instances take attributes |
//! | `thread_end` | a thread that the interpreter ends during one of our turns |
//! | `address` | socket addresses to and from Python tuples |
//! | `error` | Rust errors into Python exceptions: the only file that does |

pub mod address;
pub mod arguments;
pub mod awaited;
pub mod buffer;
pub mod call;
pub mod cell;
pub mod class_version;
pub mod code;
pub mod context;
pub mod coroutine;
pub mod error;
pub mod fastcall;
pub mod fresh_bytes;
pub mod heap;
pub mod lend;
pub mod open_class;
pub mod steps;
pub mod thread_end;
pub mod view;
