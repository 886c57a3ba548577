//! Limits for the clients of a process: bytes that it holds for them, and scarce things that they use.
//!
//! | module | content |
//! | --- | --- |
//! | [`memory_budget`] | bytes that clients make a process hold, in total and by address |
//! | [`semaphore`] | a semaphore for expensive things of one client |
//! | [`fair_permits`] | permits for something scarce, shared fairly among clients |
//! | [`token_bucket`] | events at a rate, with a burst after a quiet time |
//!
//! QUIC, HTTP and applications share them. Not here: the reaction to a limit that is reached.

#![forbid(unsafe_code)]

pub mod memory_budget;
pub mod semaphore;
pub mod fair_permits;
pub mod token_bucket;
