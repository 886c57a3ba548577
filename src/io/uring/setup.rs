//! Sets up a ring: the flags that this kernel supports, the check of its features, the buffer rings.

use std::rc::Rc;
use std::{io, mem};

use io_uring::{Builder, IoUring, Probe, opcode};

use super::self_test;
use crate::backend_setup_error::SetupError;
use crate::driver_config::DriverConfig;
use crate::provided_buffer_ring::BufferRing;
use crate::receive_buffer_pool::BufferPool;
use crate::received_datagram::HEADER_ROOM;

/// The ID of the group of stream buffers.
pub(super) const STREAM_GROUP: u16 = 0;
/// The ID of the group of datagram buffers.
pub(super) const DATAGRAM_GROUP: u16 = 1;

pub(super) struct Parts {
    pub(super) ring: IoUring,
    pub(super) stream: Rc<BufferPool>,
    pub(super) datagram: Rc<BufferPool>,
    /// The flags of the stream buffers' registration.
    pub(super) stream_flags: u16,
}

/// Creates a disabled ring with its buffers. Only the thread that enables a ring may submit to it (SINGLE_ISSUER). The
/// thread that runs the loop enables it later, because another thread may create it.
pub(super) fn set_up(config: &DriverConfig) -> Result<Parts, SetupError> {
    let (ring, step) =
        build(config).map_err(|error| SetupError::uring("io_uring_setup", &error))?;
    probe(&ring).map_err(|error| SetupError::uring("the feature probe", &error))?;
    self_test::run(step).map_err(|error| SetupError::uring("a trial receive", &error))?;
    let pools = stream_buffers(&ring, config).and_then(|(stream, flags)| {
        let size = config.datagram_buffer_size + HEADER_ROOM as u32;
        // Flags 0: each datagram gets a buffer of its own. If several datagrams shared a buffer, multishot `recvmsg`
        // would truncate the last one at the end of the buffer.
        let datagram = buffers(&ring, DATAGRAM_GROUP, config.datagram_buffers, size, 0)?;
        Ok((stream, datagram, flags))
    });
    let (stream, datagram, stream_flags) =
        pools.map_err(|error| SetupError::uring("registering a buffer ring", &error))?;
    Ok(Parts {
        ring,
        stream,
        datagram,
        stream_flags,
    })
}

/// Creates a ring that uses the existing buffers, for another thread that takes over an idle driver, or for a forked
/// child.
pub(super) fn set_up_again(
    config: &DriverConfig,
    stream: &BufferPool,
    datagram: &BufferPool,
    stream_flags: u16,
) -> io::Result<IoUring> {
    let (ring, _) = build(config)?;
    let stream_ring = register(&ring, STREAM_GROUP, stream.len() as u16, stream_flags)?;
    let datagram_ring = register(&ring, DATAGRAM_GROUP, datagram.len() as u16, 0)?;
    stream.attach(stream_ring);
    datagram.attach(datagram_ring);
    Ok(ring)
}

fn build(config: &DriverConfig) -> io::Result<(IoUring, Step)> {
    for step in [Step::All, Step::WithSqArray] {
        match build_step(config, step) {
            Ok(ring) => return Ok((ring, step)),
            // EINVAL means that the kernel does not support a flag. Any other error is final.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((build_step(config, Step::CoopOnly)?, Step::CoopOnly))
}

/// A set of ring flags. The sets are tried in order until the kernel accepts one.
#[derive(Copy, Clone, PartialEq)]
pub(super) enum Step {
    /// All flags, for Linux 6.6 and later.
    All,
    /// All flags except NO_SQARRAY, for Linux 6.1 and later.
    WithSqArray,
    /// Neither NO_SQARRAY nor DEFER_TASKRUN, for older kernels with a backported multishot receive.
    CoopOnly,
}

fn build_step(config: &DriverConfig, step: Step) -> io::Result<IoUring> {
    let mut builder = builder(step);
    builder
        .setup_cqsize(config.cq_entries.max(config.ring_entries))
        .setup_r_disabled();
    builder.build(config.ring_entries)
}

/// Makes a builder with the flags of `step`. The sizes of the queues are not set.
pub(super) fn builder(step: Step) -> Builder {
    let mut builder = IoUring::builder();
    builder
        .setup_clamp()
        .setup_submit_all()
        .setup_coop_taskrun()
        .setup_taskrun_flag();
    if step != Step::CoopOnly {
        builder.setup_single_issuer().setup_defer_taskrun();
    }
    if step == Step::All {
        builder.setup_no_sqarray();
    }
    builder
}

/// Fails if the kernel is older than Linux 6.1. Multishot receive (6.0) and DEFER_TASKRUN (6.1) have no feature bit, so
/// the kernel is asked for SENDMSG_ZC, which came with 6.1.
fn probe(ring: &IoUring) -> io::Result<()> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let parameters = ring.params();
    let complete = probe.is_supported(opcode::SendMsgZc::CODE)
        && parameters.is_feature_ext_arg()
        && parameters.is_feature_nodrop()
        && parameters.is_feature_submit_stable()
        && parameters.is_feature_skip_cqe_on_success();
    if complete {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EINVAL))
    }
}

/// Makes the stream buffers. Receives share them if the kernel supports this (INC, Linux 6.12); otherwise there are
/// more and smaller ones.
fn stream_buffers(ring: &IoUring, config: &DriverConfig) -> io::Result<(Rc<BufferPool>, u16)> {
    let (count, size) = (config.stream_buffers, config.stream_buffer_size);
    if config.share_stream_buffers {
        match buffers(ring, STREAM_GROUP, count, size, PBUF_RING_INC) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            result => return result.map(|pool| (pool, PBUF_RING_INC)),
        }
    }
    let split = count <= SPLIT_COUNT_MAX && size >= SPLIT_SIZE_MIN;
    let (count, size) = if split {
        (count * 4, size / 4)
    } else {
        (count, size)
    };
    buffers(ring, STREAM_GROUP, count, size, 0).map(|pool| (pool, 0))
}

pub(super) fn buffers(
    ring: &IoUring,
    group: u16,
    count: u16,
    size: u32,
    flags: u16,
) -> io::Result<Rc<BufferPool>> {
    let pool = BufferPool::new(count, size)?;
    pool.attach(register(ring, group, count, flags)?);
    Ok(pool)
}

fn register(ring: &IoUring, group: u16, count: u16, flags: u16) -> io::Result<BufferRing> {
    let buffer_ring = BufferRing::new(count)?;
    let (address, entries) = (buffer_ring.address(), buffer_ring.entries());
    // SAFETY: the memory has `entries` entries. The kernel pins its pages, so even if the kernel's ring outlives this
    // mapping, the kernel reads no other memory.
    unsafe {
        ring.submitter()
            .register_buf_ring_with_flags(address, entries, group, flags)
    }?;
    Ok(buffer_ring)
}

/// Registers the ring's descriptor with the calling thread, which saves each `enter` a look-up of the descriptor.
/// Returns its index. `None` if the thread's table is full (16 rings) or the kernel does not support registration.
pub(super) fn register_ring_fd(fd: i32) -> Option<i32> {
    let mut update = ResourceUpdate {
        offset: u32::MAX,
        reserved: 0,
        data: fd as u64,
    };
    // SAFETY: one valid update structure; the kernel writes the index to `offset`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            REGISTER_RING_FDS,
            &raw mut update,
            1,
        )
    };
    (result == 1).then_some(update.offset as i32)
}

/// Unregisters the ring's descriptor. The caller is the thread that registered it.
pub(super) fn unregister_ring_fd(fd: i32, index: i32) {
    let update = ResourceUpdate {
        offset: index as u32,
        reserved: 0,
        data: 0,
    };
    // SAFETY: one valid update structure. A failure costs a table entry until the thread ends.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            UNREGISTER_RING_FDS,
            &raw const update,
            1,
        )
    };
}

/// The kernel's `struct io_uring_rsrc_update`, which the io-uring crate does not export.
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

const _: () = assert!(mem::size_of::<ResourceUpdate>() == 16);
/// If receives cannot share buffers, buffers are made a quarter as large and four times as many, unless there are more
/// than this or they are smaller than `SPLIT_SIZE_MIN` bytes.
const SPLIT_COUNT_MAX: u16 = 1 << 13;
const SPLIT_SIZE_MIN: u32 = 16 * 1024;
/// `IOU_PBUF_RING_INC`.
const PBUF_RING_INC: u16 = 2;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
