//! Python's C API where PyO3 has no word for it, and what crosses the boundary everywhere: buffers,
//! addresses, errors. Nothing here knows a loop.
//!
//! | file | noun |
//! | --- | --- |
//! | `call` | a callback and its arguments |
//! | `awaited` | awaitables of our own, and the futures that they wait for |
//! | `fastcall` | methods that take their arguments as the interpreter hands them over |
//! | `context` | `contextvars` contexts entered through the C API |
//! | `arguments` | arguments of unknown size, read with a bound |
//! | `buffer` | Python buffers held as `Bytes`: the only file that does |
//! | `view` | one of them, held for as long as a call lasts |
//! | `fresh_bytes` | `bytes` objects that are filled after they are made |
//! | `heap` | what the C library learns of our blocks |
//! | `lend` | memory shown to C code for one call |
//! | `class_version` | by what a change of a class is noticed |
//! | `cell` | state that a Python object owns |
//! | `code` | integers of so many bits among the arguments of a call |
//! | `coroutine` | what coroutines of ours show to who looks at them |
//! | `open_class` | the transports' classes as Python sees them, whose instances take attributes |
//! | `thread_end` | a thread that the interpreter ends while it is in our turn |
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
pub mod thread_end;
pub mod view;
