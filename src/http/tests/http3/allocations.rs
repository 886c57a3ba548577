//! The allocations of a small response.

#[path = "../../../engine/tests/counting_allocator.rs"]
mod counting_allocator;

use bytes::Bytes;
use counting_allocator::allocations;
use uringcore_http::http3::Limits;

use super::{GET, OK, Site};

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
    // The stream's queue keeps a single piece without an allocation.
    assert_eq!(allocations(|| answer(&mut site)), 1);
    let pieces = site.command(|_, quic, _| quic.queued_data(80).to_vec());
    assert_eq!(pieces.len(), 1);
}
