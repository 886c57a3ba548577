//! The end of a connection: GOAWAY in two steps, faults of the client, and the loss of the connection.

use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::{Connection, Phase};
use crate::http2::error::{Code, Fault};
use crate::http2::frame_codec::{self, FrameHeader, STREAM_ID_MAX};
use crate::tcp_output::{Closing, LINGER_BYTES_MAX};

/// The steps of a graceful end (RFC 9113 section 6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GoingAway {
    No,
    /// The first request is answered by GOAWAY as well.
    AtFirstRequest {
        /// The time at which the connection ends without a request.
        until: Option<Instant>,
    },
    /// The client should send no more requests. Those that it has sent already are still served.
    Announced {
        since: Instant,
    },
    /// Requests after this stream are not served.
    Last(u32),
}

impl Connection {
    /// Handles the stop of the server: sends GOAWAY, and a PING whose answer shows that the client has got it. A connection
    /// without a request waits for its first one for [`ROUND_TRIP_TIME`].
    pub fn stop(&mut self, now: Instant) {
        self.announce_stop(now);
        if let GoingAway::AtFirstRequest { until } = &mut self.going_away {
            *until = until.or_else(|| now.checked_add(ROUND_TRIP_TIME));
        }
    }

    /// Handles that the server will stop: as [`stop`](Self::stop), but a connection without a request stays. A client that
    /// opens a connection for a request may not repeat it elsewhere: HAProxy fails it if GOAWAY comes before it.
    pub fn announce_stop(&mut self, now: Instant) {
        if self.requests > 0 {
            self.begin_going_away(now);
        } else if self.going_away == GoingAway::No {
            self.going_away = GoingAway::AtFirstRequest { until: None };
        }
    }

    /// Ends a connection on which nothing happens. A request that is on its way is still served.
    pub(super) fn end_idle(&mut self, now: Instant) {
        match self.phase {
            Phase::Preface | Phase::FirstSettings => self.close(Closing::Gracefully),
            _ => self.begin_going_away(now),
        }
    }

    /// Handles the begin of a request.
    pub(super) fn request_begun(&mut self, now: Instant) {
        self.requests += 1;
        if self.limits.requests.requests == Some(self.requests)
            || matches!(self.going_away, GoingAway::AtFirstRequest { .. })
        {
            self.begin_going_away(now);
        }
    }

    fn begin_going_away(&mut self, now: Instant) {
        let is_begun = matches!(
            self.going_away,
            GoingAway::Announced { .. } | GoingAway::Last(_)
        );
        if is_begun || self.is_over() {
            return;
        }
        self.going_away = GoingAway::Announced { since: now };
        self.put(|out| {
            frame_codec::put_goaway(out, STREAM_ID_MAX, Code::NoError, "");
            frame_codec::put_ping(out, false, GOING_AWAY_PING);
        });
    }

    pub(super) fn ping_acknowledged(&mut self, data: &[u8; 8]) {
        if data == GOING_AWAY_PING {
            self.go_away();
        }
    }

    /// Goes on with the end of the connection, if the client has not answered the PING or sent a request in time.
    pub(super) fn go_away_late(&mut self, now: Instant) {
        match self.going_away {
            GoingAway::AtFirstRequest { until: Some(until) } if now >= until => self.end_idle(now),
            GoingAway::Announced { since }
                if now.saturating_duration_since(since) >= ROUND_TRIP_TIME =>
            {
                self.go_away();
            }
            _ => {}
        }
    }

    /// Sends the last GOAWAY, after which no further request is served.
    fn go_away(&mut self) {
        if matches!(self.going_away, GoingAway::Announced { .. }) {
            let last = self.last_stream;
            self.going_away = GoingAway::Last(last);
            self.put(|out| frame_codec::put_goaway(out, last, Code::NoError, ""));
            if self.streams.is_empty() {
                // The last response was sent long ago, so no input of the client can make it lose one.
                self.close(Closing::Gracefully);
            }
        }
    }

    /// True if a new request comes after the last one that is served.
    pub(super) fn is_refusing(&self, stream_id: u32) -> bool {
        matches!(self.going_away, GoingAway::Last(last) if stream_id > last)
    }

    /// True if frames on a stream without state are ignored.
    pub(super) fn is_ignored(&self, stream_id: u32) -> bool {
        self.is_refusing(stream_id) || self.reset_streams.has(stream_id)
    }

    /// Closes the connection after the last GOAWAY, when all responses were sent.
    pub(super) fn close_if_drained(&mut self) {
        if matches!(self.going_away, GoingAway::Last(_))
            && self.streams.is_empty()
            && !self.is_over()
        {
            self.close(Closing::Sending);
        }
    }

    /// The client's GOAWAY (RFC 9113 section 6.8). Its open requests are still answered.
    pub(super) fn goaway_received(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), Fault> {
        if header.stream_id != 0 {
            return Err(Fault::protocol("a GOAWAY on a stream"));
        }
        if payload.len() < 8 {
            return Err(Fault::frame_size("a GOAWAY has 8 bytes at least"));
        }
        self.useless_frames.take(1)
    }

    /// Handles an error of the client.
    pub(super) fn handle_fault(&mut self, fault: Fault, now: Instant) {
        match fault {
            Fault::Stream(stream_id, code) => {
                // A client must not start applications without end by faults of their streams (CVE-2025-8671,
                // "MadeYouReset").
                let is_early = self.exchanges.is_unanswered(u64::from(stream_id));
                self.reset(stream_id, code);
                self.abort(stream_id);
                self.start_idle_timer(now);
                let counted = match is_early {
                    true => self.count_abandoned(now),
                    false => self.useless_frames.take(1),
                };
                if let Err(fault) = counted {
                    self.handle_fault(fault, now);
                }
            }
            Fault::Connection(code, reason) => {
                self.is_closed_for_abuse = code == Code::EnhanceYourCalm;
                self.fail(code, reason);
            }
        }
    }

    /// Ends the connection with an error code.
    pub(super) fn fail(&mut self, code: Code, reason: &'static str) {
        let last = self.last_stream;
        self.put(|out| frame_codec::put_goaway(out, last, code, reason));
        self.close(Closing::Sending);
        self.abort_all();
    }

    /// Ends the connection, because the client has closed its sending direction or the connection is lost. As over
    /// HTTP/1.1, a client that has closed only its sending direction counts as gone.
    pub fn end(&mut self) {
        self.close(Closing::Gracefully);
        self.abort_all();
    }

    /// Ends the connection and drops unsent output, because the server has no memory for its client.
    pub fn shed(&mut self) {
        self.close(Closing::AtOnce);
        self.abort_all();
    }

    fn abort_all(&mut self) {
        let mut streams = Vec::from_iter(self.streams.keys().copied());
        streams.sort_unstable();
        for stream_id in streams {
            self.remove(stream_id);
            self.abort(stream_id);
        }
    }

    /// True if the connection has ended, so that it drops further input.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over | Phase::Linger { .. })
    }

    /// Ends the connection in the given way. `AtOnce` is never replaced by another way.
    pub(super) fn close(&mut self, closing: Closing) {
        self.input = BytesMut::new();
        self.block = None;
        self.incomplete_since = None;
        self.phase = match closing {
            Closing::Sending => Phase::Linger {
                left: LINGER_BYTES_MAX,
                since: None,
            },
            Closing::Gracefully | Closing::AtOnce => Phase::Over,
        };
        self.closing = match self.closing {
            Some(Closing::AtOnce) => self.closing,
            _ => Some(closing),
        };
    }
}

/// The data of the PING between the two GOAWAY frames.
const GOING_AWAY_PING: &[u8; 8] = b"goawayed";
/// The time after which the last GOAWAY is sent if the client does not answer the PING.
const ROUND_TRIP_TIME: Duration = Duration::from_millis(500);
