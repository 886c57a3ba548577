//! What a small response costs.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use uringcore_http::http3::Limits;

use super::{GET, OK, Site};

struct Counting;

thread_local!(static ALLOCATIONS: Cell<u64> = const { Cell::new(0) });

fn count() {
    ALLOCATIONS.with(|all| all.set(all.get() + 1));
}

// SAFETY: the system's allocator does all the work. The counter is a number of the thread, which needs no memory and
// no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn the_head_content_and_end_of_a_small_response_are_one_buffer() {
    let mut site = Site::new(Limits::default());
    for stream_id in (0..80).step_by(4) {
        site.ask(stream_id, GET, true);
        site.respond(stream_id, &[0; 200], true).unwrap();
        site.run();
        site.done(stream_id);
    }
    site.ask(80, GET, true);
    let content = Bytes::from(vec![0; 200]);
    let answer = |site: &mut Site| {
        site.command(|http, quic, now| http.respond(quic, 80, OK, content, true, now))
            .unwrap();
    };
    // The buffer, and its place in the stream's queue.
    assert_eq!(allocations(|| answer(&mut site)), 2);
    let pieces = site.command(|_, quic, _| quic.queued_data(80).to_vec());
    assert_eq!(pieces.len(), 1);
}
