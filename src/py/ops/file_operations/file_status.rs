//! The status of a file as Python objects. Not here: calls that may block.

use std::os::fd::RawFd;

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use uringcore_io::describe;

use crate::capi::exception_conversion;

/// The 19 fields of `os.stat_result` on Linux, in the order of that class.
pub fn stat_fields<'py>(py: Python<'py>, stat: &libc::statx) -> PyResult<Bound<'py, PyTuple>> {
    let seconds = |at: &libc::statx_timestamp| at.tv_sec;
    let float = |at: &libc::statx_timestamp| at.tv_sec as f64 + 1e-9 * f64::from(at.tv_nsec);
    let nanoseconds =
        |at: &libc::statx_timestamp| i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec);
    let device = |major: u32, minor: u32| libc::makedev(major, minor);
    let (atime, mtime, ctime) = (&stat.stx_atime, &stat.stx_mtime, &stat.stx_ctime);
    let first = (
        stat.stx_mode,
        stat.stx_ino,
        device(stat.stx_dev_major, stat.stx_dev_minor),
        stat.stx_nlink,
        stat.stx_uid,
        stat.stx_gid,
        stat.stx_size,
        seconds(atime),
        seconds(mtime),
        seconds(ctime),
    )
        .into_pyobject(py)?;
    let rest = (
        float(atime),
        float(mtime),
        float(ctime),
        nanoseconds(atime),
        nanoseconds(mtime),
        nanoseconds(ctime),
        stat.stx_blksize,
        stat.stx_blocks,
        device(stat.stx_rdev_major, stat.stx_rdev_minor),
    )
        .into_pyobject(py)?;
    Ok(first
        .as_sequence()
        .concat(rest.as_sequence())?
        .cast_into::<PyTuple>()?)
}

/// ``(mode, size, block_size, position)`` of an open file, as far as the kernel has these values without a request to
/// a disk or a server. ``position`` is None for files without a position.
#[pyfunction]
pub fn file_describe(fd: RawFd) -> PyResult<(u32, u64, u32, Option<u64>)> {
    let known = describe(fd).map_err(|error| exception_conversion::io_error(&error))?;
    Ok((known.mode, known.size, known.block_size, known.position))
}
