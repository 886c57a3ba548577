//! Invariant: TLS messages are read without a panic. An incomplete ClientHello gives no result; a
//! complete one gives a result that does not depend on the bytes after it. A NewSessionTicket
//! survives a round trip of reading and writing. Record boundaries do not depend on the splitting
//! of the stream.

#![no_main]

use libfuzzer_sys::fuzz_target;
use uringcore_wire::tls::client_hello_extensions::{ClientHello, HELLO_BYTES_MAX, shown_tickets};
use uringcore_wire::tls::record_boundaries::RecordBoundaries;
use uringcore_wire::tls::session_ticket::NewSessionTicket;
use uringcore_wire::tls::{CLIENT_HELLO, NEW_SESSION_TICKET, message};

fuzz_target!(|data: &[u8]| {
    check_hello(data);
    check_ticket(data);
    check_records(data);
    // Most inputs are no message: retry them after a fitting message header.
    if data.len() <= HELLO_BYTES_MAX {
        let mut whole = (data.len() as u32).to_be_bytes().to_vec();
        whole[0] = CLIENT_HELLO;
        whole.extend(data);
        assert!(shown_tickets(&whole).is_some());
        check_hello(&whole);
    }
});

fn check_hello(data: &[u8]) {
    let Some((kind, content, rest)) = message(data) else {
        return;
    };
    let length = data.len() - rest.len();
    assert_eq!(length, 4 + content.len());
    assert!(message(&data[..length - 1]).is_none());
    let shown = shown_tickets(data);
    assert_eq!(shown, shown_tickets(&data[..length]));
    let tickets = shown.expect("it is whole");
    assert!(tickets.len() <= 4);
    let is_read = kind == CLIENT_HELLO && content.len() <= HELLO_BYTES_MAX;
    if let Some(hello) = ClientHello::read(content).filter(|_| is_read) {
        assert_eq!(hello.tickets().unwrap_or_default(), tickets);
        let parameters = hello.transport_parameters().unwrap_or_default();
        assert!(parameters.len() <= content.len());
    } else {
        assert!(tickets.is_empty());
    }
}

fn check_ticket(data: &[u8]) {
    let Some(ticket) = NewSessionTicket::read(data) else {
        return;
    };
    let written = ticket
        .write()
        .expect("each part was counted when it was read");
    let (kind, content, rest) = message(&written).expect("it is whole");
    assert_eq!((kind, rest), (NEW_SESSION_TICKET, &[][..]));
    assert_eq!(NewSessionTicket::read(content), Some(ticket));
}

fn check_records(data: &[u8]) {
    let (mut whole, mut cut) = (RecordBoundaries::default(), RecordBoundaries::default());
    whole.push(data);
    data.chunks(1).for_each(|byte| cut.push(byte));
    for left in 0..=data.len() {
        assert_eq!(whole.whole_bytes(left), cut.whole_bytes(left));
        assert_eq!(whole.is_inside_record(left), cut.is_inside_record(left));
        assert!(whole.whole_bytes(left) <= left);
        assert_eq!(whole.has_whole_record(left), whole.whole_bytes(left) > 0);
    }
}
