//! Streams that end early, by either side: RESET_STREAM and STOP_SENDING (RFC 9000 sections 3.4 and 3.5).
//!
//! A reset must not overtake the *head* of a stream, its first bytes that the peer needs in any case. So the reset
//! waits until these bytes are acknowledged (`workarounds::acked_stream_prefix`), which has the effect of
//! RESET_STREAM_AT. RESET_STREAM_AT itself is never sent. Support of receiving it is announced if `TransportSettings`
//! enable it.
//!
//! Not here: the frames, which quinn-proto writes, and the handling of RESET_STREAM_AT in packets
//! (`workarounds::reset_stream_at`).

use quinn_proto::{self as quinn, Dir, VarInt};
use uringcore_wire::frame_iterator::ResetAt;

use super::stream::{SendState, dir, index, stream_id};
use super::{StreamError, Streams};
use crate::workarounds::received_offsets::Arrived;

impl Streams {
    pub fn reset(
        &mut self,
        conn: &mut quinn::Connection,
        id: u64,
        code: u64,
    ) -> Result<(), StreamError> {
        let error_code = VarInt::from_u64(code).map_err(|_| StreamError::OutOfRange)?;
        let is_early = self.is_early;
        let send = &mut self.for_sending(id)?.send;
        match send.state {
            SendState::Absent => return Err(StreamError::Finished),
            // A STOP_SENDING of the peer may have arrived first, which has reset the stream already.
            SendState::Reset | SendState::ResetDeferred => return Ok(()),
            SendState::Waiting => send.reset_when_opened = Some(code),
            SendState::Open | SendState::Finished if send.has_unacked_head() && !is_early => {
                self.deferred_resets.push((id, error_code));
                self.abandon_sending(id, SendState::ResetDeferred);
                return Ok(());
            }
            SendState::Open | SendState::Finished => {
                send.reset_when_opened = is_early.then_some(code);
                // The reset fails if the peer has just acknowledged everything. Then the stream is closed, so the error
                // does not matter.
                let _ = conn.send_stream(stream_id(id)).reset(error_code);
            }
        }
        self.abandon_sending(id, SendState::Reset);
        Ok(())
    }

    /// Sends resets that have waited until the peer acknowledged the heads of their streams.
    pub fn send_deferred_resets(&mut self, conn: &mut quinn::Connection) -> bool {
        if self.deferred_resets.is_empty() {
            return false;
        }
        for (id, error_code) in std::mem::take(&mut self.deferred_resets) {
            match self.table.get_mut(&id).map(|stream| &mut stream.send) {
                Some(send) if send.state == SendState::ResetDeferred && send.has_unacked_head() => {
                    self.deferred_resets.push((id, error_code));
                }
                Some(send) if send.state == SendState::ResetDeferred => {
                    send.state = SendState::Reset;
                    let _ = conn.send_stream(stream_id(id)).reset(error_code);
                    self.forget_if_over(id);
                }
                // The stream has ended in another way since the reset was deferred.
                _ => {}
            }
        }
        true
    }

    pub fn stop(
        &mut self,
        conn: &mut quinn::Connection,
        id: u64,
        code: u64,
    ) -> Result<(), StreamError> {
        let error_code = VarInt::from_u64(code).map_err(|_| StreamError::OutOfRange)?;
        if self.is_local(id) && dir(id) == Dir::Uni {
            return Err(StreamError::WrongDirection);
        }
        let waiting = self.is_local(id) && index(id) >= self.local_ids[dir(id) as usize].opened;
        let Some(stream) = self.table.get_mut(&id) else {
            return Err(self.missing(id));
        };
        if !stream.receive.open {
            return Err(StreamError::Over);
        }
        self.unread.stop(id, &mut stream.receive);
        let reported = stream.receive.reset_at.take();
        match waiting {
            true => stream.receive.stop_when_opened = Some(code),
            false => {
                stream.receive.stop_when_opened = self.is_early.then_some(code);
                let _ = conn.recv_stream(stream_id(id)).stop(error_code);
            }
        }
        match reported {
            Some(reset) => self.resets_due.push(reset),
            None if self.accepts_reset_at => self.note_stopped(conn, id),
            None => {}
        }
        self.forget_if_over(id);
        Ok(())
    }

    fn note_stopped(&mut self, conn: &mut quinn::Connection, id: u64) {
        self.awaited.insert(id);
        let streams = conn.streams();
        let open = [Dir::Bi, Dir::Uni].map(|dir| streams.remote_open_streams(dir));
        let max = usize::try_from(open[0] + open[1]).unwrap_or(usize::MAX);
        while self.awaited.len() > max.saturating_add(STOPPED_MAX) {
            self.awaited.pop_first();
        }
    }

    /// Handles a RESET_STREAM_AT. Returns true if the application may need an event.
    pub fn reset_at(&mut self, reset: ResetAt) -> bool {
        // quinn-proto grants credit for the whole stream when it gets the RESET_STREAM, so all bytes up to the final
        // size count as arrived.
        self.arrived(Arrived::new(reset.stream_id, reset.final_size, true, 0));
        let stream = self.table.get_mut(&reset.stream_id);
        match stream.filter(|stream| stream.receive.open) {
            Some(stream) => {
                // RESET_STREAM_AT may be repeated, but only with a smaller reliable size.
                let known = stream.receive.reset_at.get_or_insert(reset);
                known.reliable_size = known.reliable_size.min(reset.reliable_size);
                true
            }
            // The stream is not read any more. quinn-proto needs a RESET_STREAM for it only if it was stopped.
            None => {
                let is_awaited = self.awaited.remove(&reset.stream_id);
                self.resets_due.extend(is_awaited.then_some(reset));
                false
            }
        }
    }

    /// True if [`take_resets_due`](Self::take_resets_due) has resets.
    pub fn has_resets_due(&self) -> bool {
        !self.resets_due.is_empty()
    }

    /// Removes and returns the resets for which quinn-proto must get a RESET_STREAM.
    pub fn take_resets_due(&mut self) -> Vec<ResetAt> {
        std::mem::take(&mut self.resets_due)
    }

    /// Handles STOP_SENDING. RFC 9000 section 3.5: the answer is a RESET_STREAM, with the peer's code. Returns true if
    /// the application must be notified.
    pub fn stopped(&mut self, conn: &mut quinn::Connection, id: u64, error_code: VarInt) -> bool {
        let _ = conn.send_stream(stream_id(id)).reset(error_code);
        let Some(stream) = self.table.get(&id) else {
            return false;
        };
        let state = stream.send.state;
        let was_sending = matches!(state, SendState::Open | SendState::Finished);
        if was_sending || state == SendState::ResetDeferred {
            self.abandon_sending(id, SendState::Reset);
        }
        was_sending
    }

    /// Drops queued data. `state` is the new state of the sending part.
    fn abandon_sending(&mut self, id: u64, state: SendState) {
        let Some(stream) = self.table.get_mut(&id) else {
            return;
        };
        self.queued_bytes -= stream.send.queue.len();
        stream.send.queue.clear();
        stream.send.state = state;
        if std::mem::take(&mut stream.send.above_high_water) {
            self.abandoned.push(id);
        }
        self.forget_if_over(id);
    }

    /// The streams that were reset while a `StreamWritable` was due, each once.
    pub fn take_abandoned(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.abandoned)
    }
}

/// The number of stopped streams that are remembered besides those that the peer has open. The peer answers a
/// STOP_SENDING within one or two round trips, and cannot open so many other streams in that time.
const STOPPED_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quinn_proto::Side;

    use super::*;
    use crate::StreamEnd;
    use crate::workarounds::bare_quinn::BareQuinn;

    fn server() -> (BareQuinn, Streams) {
        let bare = BareQuinn::connected(quinn::TransportConfig::default());
        let mut streams = Streams::new(Side::Server, 1 << 20);
        streams.accept_reset_at();
        (bare, streams)
    }

    /// Opens a hundred streams on the client, and accepts them on the server.
    fn opened(bare: &mut BareQuinn, streams: &mut Streams, fin: bool) -> Vec<u64> {
        let client = bare.client.connection();
        for _ in 0..100 {
            let id = client.streams().open(Dir::Uni).unwrap();
            let mut stream = client.send_stream(id);
            stream.write(b"x").unwrap();
            if fin {
                stream.finish().unwrap();
            }
        }
        bare.exchange();
        let server = bare.server.connection();
        let ids = std::iter::from_fn(|| server.streams().accept(Dir::Uni));
        let ids: Vec<u64> = ids.map(u64::from).collect();
        ids.iter().for_each(|&id| streams.accepted(id));
        ids
    }

    fn reset(stream_id: u64) -> ResetAt {
        ResetAt {
            stream_id,
            code: 7,
            final_size: 1,
            reliable_size: 1,
        }
    }

    #[test]
    fn resets_of_ended_streams_are_not_stored() {
        let (mut bare, mut streams) = server();
        for _ in 0..10 {
            for id in opened(&mut bare, &mut streams, true) {
                let received = streams.take(bare.server.connection(), id, usize::MAX);
                assert_eq!(received.end, Some(StreamEnd::Finished));
                assert!(!streams.reset_at(reset(id)));
            }
            bare.exchange();
        }
        assert_eq!(streams.take_resets_due(), []);
        assert!(streams.awaited.is_empty());
    }

    #[test]
    fn the_reset_of_a_stopped_stream_is_stored_once() {
        let (mut bare, mut streams) = server();
        let ids = opened(&mut bare, &mut streams, false);
        for &id in &ids {
            streams.stop(bare.server.connection(), id, 7).unwrap();
        }
        for _ in 0..3 {
            ids.iter()
                .for_each(|&id| assert!(!streams.reset_at(reset(id))));
        }
        let expected: Vec<ResetAt> = ids.into_iter().map(reset).collect();
        assert_eq!(streams.take_resets_due(), expected);
        assert!(streams.awaited.is_empty());
    }

    #[test]
    fn stopped_streams_that_end_otherwise_are_forgotten() {
        let (mut bare, mut streams) = server();
        for _ in 0..15 {
            for id in opened(&mut bare, &mut streams, true) {
                streams.stop(bare.server.connection(), id, 7).unwrap();
            }
            bare.exchange();
            bare.sleep(Duration::from_millis(30));
            bare.exchange();
        }
        assert!((STOPPED_MAX..=STOPPED_MAX + 100).contains(&streams.awaited.len()));
    }
}
