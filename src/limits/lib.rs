//! Limits for the clients of a process: the bytes that it holds for them, and scarce resources that they use.
//!
//! | module | content |
//! | --- | --- |
//! | [`memory_budget`] | bytes that a process holds for its clients, in total and by address |
//! | [`semaphore`] | a semaphore that limits one client's use of an expensive resource |
//! | [`connection_limits`] | connections of a server, in total and by address |
//! | [`fair_permits`] | permits for a scarce resource, shared fairly among clients |
//! | [`token_bucket`] | a limit of events a second, with a burst after an idle time |
//!
//! The QUIC and HTTP crates and applications share these types. Not here: the reaction to an exceeded limit.
//!
//! In the comments, the *host* is the program that uses these types: a server, or an endpoint of QUIC.

#![forbid(unsafe_code)]

pub mod connection_limits;
pub mod fair_permits;
pub mod memory_budget;
pub mod semaphore;
pub mod token_bucket;
