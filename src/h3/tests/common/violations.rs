//! Expected reactions of a connection whose peer breaks a rule. Each input is passed whole, and byte by byte.

use bytes::Bytes;
use uringcore_h3::{Code, Event, LocalError, Output, QueuedConnection, Role, Settings};

use super::*;

pub const FEEDS: [Feed; 2] = [Feed::Whole, Feed::ByteByByte];

pub fn peer_control(role: Role) -> u64 {
    if role == Role::Client { 3 } else { 2 }
}

/// A connection without any input. Its first outputs were taken.
pub fn fresh(role: Role, settings: Settings) -> QueuedConnection {
    let uni = match role {
        Role::Client => CLIENT_UNI,
        Role::Server => SERVER_UNI,
    };
    let mut connection = QueuedConnection::new(role, settings, uni);
    outputs(&mut connection);
    connection
}

/// A connection that has received the peer's empty SETTINGS.
pub fn ready(role: Role, settings: Settings) -> QueuedConnection {
    let mut connection = fresh(role, settings);
    let control = [&[0][..], &frame(0x4, b"")].concat();
    connection.handle_stream_data(peer_control(role), control.into(), false);
    assert_eq!(events(&mut connection), [Event::SettingsReceived]);
    connection
}

/// A client that has sent a request on stream 0.
fn with_request(mut connection: QueuedConnection) -> QueuedConnection {
    if connection.role() == Role::Client {
        connection.send_headers(0, &GET, false).unwrap();
        outputs(&mut connection);
    }
    connection
}

/// Expects that data on a stream closes the connection.
#[track_caller]
pub fn closes(role: Role, stream_id: u64, data: &[u8], code: Code) {
    expect_close(role, stream_id, data, false, code);
}

/// Expects that data and then the end of a stream close the connection.
#[track_caller]
pub fn closes_at_end(role: Role, stream_id: u64, data: &[u8], code: Code) {
    expect_close(role, stream_id, data, true, code);
}

#[track_caller]
fn expect_close(role: Role, stream_id: u64, data: &[u8], fin: bool, code: Code) {
    for feed in FEEDS {
        let mut connection = with_request(ready(role, Settings::default()));
        feed_stream(&mut connection, stream_id, data, fin, feed);
        assert_eq!(close_code(&mut connection), Some(code), "{feed:?}");
        assert!(connection.is_closed());
        // The connection is closed, so it must ignore further input.
        events(&mut connection);
        connection.handle_stream_data(8, headers_frame(&GET).into(), true);
        connection.handle_datagram(Bytes::new());
        let done = (outputs(&mut connection), events(&mut connection));
        assert_eq!(done, (vec![], vec![]));
        let sent = connection.send_headers(0, &GET, true);
        assert_eq!(sent, Err(LocalError::Closed));
    }
}

/// Expects that frames of the peer's control stream, from the first frame on, close the connection.
#[track_caller]
pub fn control_closes(role: Role, frames: &[Vec<u8>], code: Code) {
    for feed in FEEDS {
        let mut connection = fresh(role, Settings::default());
        let data = [&[0][..], &frames.concat()].concat();
        feed_stream(&mut connection, peer_control(role), &data, false, feed);
        assert_eq!(close_code(&mut connection), Some(code), "{feed:?}");
    }
}

/// Expects that frames after SETTINGS on the control stream close the connection.
#[track_caller]
pub fn control_frames_close(role: Role, frames: &[Vec<u8>], code: Code) {
    control_closes(role, &[&[frame(0x4, b"")], frames].concat(), code);
}

/// Expects that data on a request stream ends only that request. In strict mode it closes the connection.
#[track_caller]
pub fn refuses(role: Role, data: &[u8], code: Code) {
    expect_stream_error(role, data, false, code);
}

/// Checks that data and then the end of a request stream end only that request, with `code`. In strict mode they must
/// close the connection.
#[track_caller]
pub fn refuses_at_end(role: Role, data: &[u8], code: Code) {
    expect_stream_error(role, data, true, code);
}

#[track_caller]
fn expect_stream_error(role: Role, data: &[u8], fin: bool, code: Code) {
    for feed in FEEDS {
        let mut connection = with_request(ready(role, Settings::default()));
        feed_stream(&mut connection, 0, data, fin, feed);
        let done = outputs(&mut connection);
        let reset = Output::ResetStream { stream_id: 0, code };
        assert!(done.contains(&reset), "{feed:?}: {done:?}");
        assert!(!connection.is_closed());
        assert_eq!(connection.open_requests(), 0);
        if role == Role::Client {
            let last = events(&mut connection).pop();
            let expected = Event::Reset {
                stream_id: 0,
                code: code.0,
                local: true,
            };
            assert_eq!(last, Some(expected));
        }

        let mut strict = with_request(ready(role, Settings::default()));
        strict.set_strict(true);
        feed_stream(&mut strict, 0, data, fin, feed);
        // An incomplete request is never a connection error.
        let is_fault = code != Code::H3_REQUEST_INCOMPLETE;
        assert_eq!(close_code(&mut strict), is_fault.then_some(code), "strict");
    }
}

/// Expects that a request is malformed (RFC 9114 section 4.1.2).
#[track_caller]
pub fn malformed_request(fields: &[(&str, &str)]) {
    refuses(Role::Server, &headers_frame(fields), Code::H3_MESSAGE_ERROR);
}

/// Expects that a GET with these additional fields is malformed.
#[track_caller]
pub fn malformed_with(extra: &[(&str, &str)]) {
    malformed_request(&[&GET[..], extra].concat());
}

/// Expects that a GET without one of its fields is malformed.
#[track_caller]
pub fn malformed_without(name: &str) {
    let mut fields = GET.to_vec();
    fields.retain(|field| field.0 != name);
    malformed_request(&fields);
}

#[track_caller]
pub fn malformed_response(fields: &[(&str, &str)]) {
    refuses(Role::Client, &headers_frame(fields), Code::H3_MESSAGE_ERROR);
}
