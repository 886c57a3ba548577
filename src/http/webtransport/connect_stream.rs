//! Data on the CONNECT stream of a session, which carries capsules in both directions.

use bytes::Bytes;
use uringcore_h3::Code;
use uringcore_quic as quic;

use super::error_code;
use super::event::EventKind;
use super::session::Closing;
use super::session_capsule::{self, Capsule};
use super::sessions::{LowerLayers, Sessions};

impl Sessions {
    /// Handles data on the CONNECT stream of a session that waits for its response, is open, or is closing.
    pub(super) fn on_connect_data(
        &mut self,
        below: &mut LowerLayers<'_>,
        id: u64,
        mut data: Bytes,
        fin: bool,
    ) {
        if self.closing.contains_key(&id) {
            self.on_data_after_end(below, id, &data, fin);
            return;
        }
        let is_open = self.table.get(&id).is_some_and(|session| session.is_open);
        if !is_open {
            self.on_data_before_response(below, id, &data, fin);
            return;
        }
        while let Some(session) = self.table.get_mut(&id) {
            match session.capsules.next(&mut data, session_capsule::longest) {
                Ok(None) => break,
                Ok(Some((kind, value))) => match session_capsule::read(kind, value) {
                    Ok(Capsule::Close { code, reason }) => {
                        let is_ended = fin && data.is_empty();
                        self.closed_by_peer(below, id, code, &reason, is_ended);
                        if !data.is_empty() {
                            self.on_data_after_end(below, id, &data, fin);
                        }
                        return;
                    }
                    Ok(capsule) => self.handle_capsule(below, id, capsule),
                    Err(session_capsule::Malformed) => self.malformed(below, id),
                },
                // RFC 9297 section 3.3: a malformed capsule makes the message malformed.
                Err(_) => self.malformed(below, id),
            }
        }
        if !fin {
            return;
        }
        // RFC 9297 section 3.3: a stream that ends inside a capsule is malformed.
        match self.table.get(&id) {
            Some(session) if session.capsules.is_at_boundary() => {
                // WebTransport draft section 6: the end of the stream closes the session with code 0 and an empty
                // reason.
                self.closed_by_peer(below, id, 0, "", true);
            }
            Some(_) => self.malformed(below, id),
            None => {}
        }
    }

    fn malformed(&mut self, below: &mut LowerLayers<'_>, id: u64) {
        let reason = "a malformed capsule";
        self.abort(below, id, Code::H3_MESSAGE_ERROR, reason);
    }

    /// Stores data that arrives before the response; its capsules are read when the session is open (draft section
    /// 3.2).
    fn on_data_before_response(
        &mut self,
        below: &mut LowerLayers<'_>,
        id: u64,
        data: &[u8],
        fin: bool,
    ) {
        let max = self.limits.early_capsule_bytes;
        let Some(session) = self.table.get_mut(&id) else {
            return;
        };
        // The data is copied, because a slice would keep its whole packet alive.
        session.unread.extend_from_slice(data);
        if session.unread.len() > max {
            let reason = "too much data before the response";
            self.abort(below, id, Code::H3_EXCESSIVE_LOAD, reason);
        } else if fin {
            self.aborted_by_peer(below, id);
        }
    }

    /// Ends a session that the peer has closed with a capsule, or by ending its direction of the stream.
    fn closed_by_peer(
        &mut self,
        below: &mut LowerLayers<'_>,
        id: u64,
        code: u32,
        reason: &str,
        is_ended: bool,
    ) {
        // WebTransport draft section 6: when an endpoint receives WT_CLOSE_SESSION, it also ends its own direction of
        // the CONNECT stream.
        let is_said = below.send_data(id, Bytes::new(), true).is_ok();
        let closing = Closing {
            expects_end: true,
            is_ended,
            is_acknowledged: !is_said || self.has_stopped_reading(id),
            ..Closing::new(below.now)
        };
        self.closing.insert(id, closing);
        self.end(below, id, code, reason, true);
        self.update_closing(id, |_| {});
    }

    fn on_data_after_end(&mut self, below: &mut LowerLayers<'_>, id: u64, data: &Bytes, fin: bool) {
        let expects_end = |closing: &Closing| closing.expects_end;
        if !data.is_empty() && self.closing.get(&id).is_some_and(expects_end) {
            // WebTransport draft section 6: data after WT_CLOSE_SESSION is an error.
            below.cancel_request(id, Code::H3_MESSAGE_ERROR);
            self.drop_closing(id);
        } else if fin {
            self.update_closing(id, |closing| closing.is_ended = true);
        }
    }

    fn handle_capsule(&mut self, below: &mut LowerLayers<'_>, id: u64, capsule: Capsule) {
        if capsule == Capsule::Drain {
            self.drain_requested(id);
            return;
        }
        let Some(session) = self.table.get_mut(&id) else {
            return;
        };
        // WebTransport draft section 5.1: without flow control these capsules are ignored.
        let Some(flow) = &mut session.flow else {
            return;
        };
        let obeyed = match capsule {
            Capsule::MaxData(limit) => flow.allow_data(limit),
            Capsule::MaxStreams {
                unidirectional,
                limit,
            } => {
                let obeyed = flow.allow_streams(unidirectional, limit);
                let wants = &mut session.wants_stream[usize::from(unidirectional)];
                if std::mem::take(wants) {
                    let available = quic::Event::StreamsAvailable { unidirectional };
                    self.report(id, EventKind::Quic(available));
                }
                obeyed
            }
            Capsule::Blocked { streams } => super::flow_control::check_blocked(streams),
            // WebTransport draft section 5.4: capsules of WebTransport over HTTP/2 are an error.
            Capsule::Forbidden => Err(super::flow_control::Violation),
            Capsule::Close { .. } | Capsule::Drain => Ok(()),
        };
        match obeyed {
            Ok(()) => self.credit_granted(below, id),
            Err(_) => {
                let reason = "a flow control limit was exceeded or is invalid";
                self.abort(below, id, error_code::FLOW_CONTROL_ERROR, reason);
            }
        }
    }

    /// Sends WT_DRAIN_SESSION, by which an endpoint asks its peer to end a session.
    pub(super) fn drain(&mut self, below: &mut LowerLayers<'_>, id: u64) {
        let session = self.table.get_mut(&id).filter(|session| session.is_open);
        if session.is_some_and(|session| !std::mem::replace(&mut session.has_sent_drain, true)) {
            // An error means that the stream has ended.
            let _ = below.send_data(id, session_capsule::drain(), false);
        }
    }
}
