//! Setting a ring up: flags with steps down, the feature probe, buffer rings.

use std::rc::Rc;
use std::{io, mem};

use io_uring::{IoUring, Probe, opcode};

use super::BufferRing;
use crate::config::DriverConfig;
use crate::datagram::HEADER_ROOM;
use crate::pool::Pool;
use crate::setup_error::SetupError;

/// Buffer group of streams.
pub(super) const STREAM_GROUP: u16 = 0;
/// Buffer group of datagrams.
pub(super) const DATAGRAM_GROUP: u16 = 1;

pub(super) struct Parts {
    pub(super) ring: IoUring,
    pub(super) stream: Rc<Pool>,
    pub(super) datagram: Rc<Pool>,
}

/// Creates a disabled ring with its buffers. Disabled, because the thread that enables it becomes
/// its only submitter (SINGLE_ISSUER), and that must be the thread that runs the loop, not the
/// one that created it.
pub(super) fn set_up(config: &DriverConfig) -> Result<Parts, SetupError> {
    let ring = build(config).map_err(|error| SetupError::uring("io_uring_setup", &error))?;
    probe(&ring).map_err(|error| SetupError::uring("the feature probe", &error))?;
    let (stream, datagram) = (config.stream_buffers, config.datagram_buffers);
    let datagram_size = config.datagram_buffer_size + HEADER_ROOM as u32;
    let pools = buffers(&ring, STREAM_GROUP, stream, config.stream_buffer_size).and_then(|stream| {
        Ok((stream, buffers(&ring, DATAGRAM_GROUP, datagram, datagram_size)?))
    });
    let (stream, datagram) =
        pools.map_err(|error| SetupError::uring("registering a buffer ring", &error))?;
    Ok(Parts { ring, stream, datagram })
}

fn build(config: &DriverConfig) -> io::Result<IoUring> {
    let mut refused = None;
    for step in [Step::All, Step::WithSqArray, Step::CoopOnly] {
        match build_step(config, step) {
            // An unknown flag; anything else is the final answer.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => refused = Some(error),
            result => return result,
        }
    }
    Err(refused.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)))
}

#[derive(Copy, Clone, PartialEq)]
enum Step {
    /// Linux 6.6.
    All,
    /// Linux 6.1: no NO_SQARRAY.
    WithSqArray,
    /// No DEFER_TASKRUN, for kernels with a multishot receive that somebody ported back.
    CoopOnly,
}

fn build_step(config: &DriverConfig, step: Step) -> io::Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(config.cq_entries.max(config.ring_entries))
        .setup_clamp()
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_r_disabled();
    if step != Step::CoopOnly {
        builder.setup_single_issuer().setup_defer_taskrun();
    }
    if step == Step::All {
        builder.setup_no_sqarray();
    }
    builder.build(config.ring_entries)
}

/// Multishot receive (6.0) and what the driver relies on have no feature bit of their own;
/// SENDMSG_ZC came with Linux 6.1, the oldest kernel we run on.
fn probe(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let parameters = ring.params();
    let complete = probe.is_supported(opcode::SendMsgZc::CODE)
        && parameters.is_feature_ext_arg()
        && parameters.is_feature_nodrop()
        && parameters.is_feature_submit_stable()
        && parameters.is_feature_skip_cqe_on_success();
    if complete { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

fn buffers(ring: &IoUring, group: u16, count: u16, size: u32) -> io::Result<Rc<Pool>> {
    let buffer_ring = BufferRing::new(count)?;
    // SAFETY: the address covers `entries` entries and stays mapped until `Uring` has unregistered
    // the group or leaked the memory.
    unsafe {
        ring.submitter().register_buf_ring_with_flags(
            buffer_ring.address(),
            buffer_ring.entries(),
            group,
            0,
        )
    }?;
    Pool::new(count, size, Some(buffer_ring))
}

/// Registers the ring's own descriptor with the calling thread, which spares `enter` a lookup.
/// `None` if the table is full (about 16 rings a thread, then EBUSY) or the kernel can't.
pub(super) fn register_ring_fd(fd: i32) -> Option<i32> {
    let mut update = ResourceUpdate { offset: u32::MAX, reserved: 0, data: fd as u64 };
    // SAFETY: one valid update structure; the kernel writes the index to `offset`.
    let result = unsafe {
        libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_RING_FDS, &raw mut update, 1)
    };
    (result == 1).then_some(update.offset as i32)
}

/// The reverse; must run on the same thread.
pub(super) fn unregister_ring_fd(fd: i32, index: i32) {
    let update = ResourceUpdate { offset: index as u32, reserved: 0, data: 0 };
    // SAFETY: one valid update structure. A failure costs a table entry until the thread ends.
    unsafe { libc::syscall(libc::SYS_io_uring_register, fd, UNREGISTER_RING_FDS, &raw const update, 1) };
}

/// `struct io_uring_rsrc_update`, which the io-uring crate keeps private.
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

const _: () = assert!(mem::size_of::<ResourceUpdate>() == 16);
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
