//! Sets up a ring: flags with fallbacks, the feature probe, buffer rings.

use std::rc::Rc;
use std::{io, mem};

use io_uring::{Builder, IoUring, Probe, opcode};

use super::self_test;
use crate::buffer_pool::BufferPool;
use crate::buffer_ring::BufferRing;
use crate::config::DriverConfig;
use crate::received_datagram::HEADER_ROOM;
use crate::setup_error::SetupError;

/// Buffer group of streams.
pub(super) const STREAM_GROUP: u16 = 0;
/// Buffer group of datagrams.
pub(super) const DATAGRAM_GROUP: u16 = 1;

pub(super) struct Parts {
    pub(super) ring: IoUring,
    pub(super) stream: Rc<BufferPool>,
    pub(super) datagram: Rc<BufferPool>,
    /// The flags of the stream buffers' registration.
    pub(super) stream_flags: u16,
}

/// Creates a disabled ring with its buffers. Disabled, because the thread that enables it becomes its only
/// submitter (SINGLE_ISSUER), and that must be the thread that runs the loop, not the one that created it.
pub(super) fn set_up(config: &DriverConfig) -> Result<Parts, SetupError> {
    let (ring, step) =
        build(config).map_err(|error| SetupError::uring("io_uring_setup", &error))?;
    probe(&ring).map_err(|error| SetupError::uring("the feature probe", &error))?;
    self_test::run(step).map_err(|error| SetupError::uring("a trial receive", &error))?;
    let pools = stream_buffers(&ring, config).and_then(|(stream, flags)| {
        let size = config.datagram_buffer_size + HEADER_ROOM as u32;
        // Never shared: multishot `recvmsg` would cut a datagram at the buffer's end.
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

/// A second ring for the same buffers, when another thread takes over an idle driver.
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
            // An unknown flag; any other error is final.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
    }
    Ok((build_step(config, Step::CoopOnly)?, Step::CoopOnly))
}

/// The flags that a kernel supports.
#[derive(Copy, Clone, PartialEq)]
pub(super) enum Step {
    /// Linux 6.6.
    All,
    /// Linux 6.1: no NO_SQARRAY.
    WithSqArray,
    /// No DEFER_TASKRUN, for kernels with a backported multishot receive.
    CoopOnly,
}

fn build_step(config: &DriverConfig, step: Step) -> io::Result<IoUring> {
    let mut builder = builder(step);
    builder
        .setup_cqsize(config.cq_entries.max(config.ring_entries))
        .setup_r_disabled();
    builder.build(config.ring_entries)
}

/// The flags of a step, without sizes.
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

/// Multishot receive (6.0) and DEFER_TASKRUN (6.1) have no feature bit of their own; SENDMSG_ZC came with Linux
/// 6.1, the oldest supported kernel.
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

/// Shared buffers if the kernel supports them (INC, Linux 6.12), otherwise more and smaller ones.
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
    // SAFETY: the address covers `entries` entries. The kernel pins the pages, so even a ring that
    // outlives this memory on its side reads no foreign page.
    unsafe {
        ring.submitter()
            .register_buf_ring_with_flags(address, entries, group, flags)
    }?;
    Ok(buffer_ring)
}

/// Registers the ring's own descriptor with the calling thread, which saves `enter` a lookup. `None` if the table
/// is full (about 16 rings a thread, then EBUSY) or the kernel does not support it.
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

/// Unregisters the ring's descriptor; must run on the same thread.
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

/// `struct io_uring_rsrc_update`, which the io-uring crate keeps private.
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

const _: () = assert!(mem::size_of::<ResourceUpdate>() == 16);
/// The range of buffer counts and sizes that are split in four.
const SPLIT_COUNT_MAX: u16 = 1 << 13;
const SPLIT_SIZE_MIN: u32 = 16 * 1024;
/// `IOU_PBUF_RING_INC`.
const PBUF_RING_INC: u16 = 2;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;
