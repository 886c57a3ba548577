"""Illegal frames and transport parameters close the connection with the RFC's code.

The peer is aioquic with one changed frame or parameter; the test checks the CONNECTION_CLOSE that it
receives.
"""

from __future__ import annotations

import importlib

import pytest

from uringcore.buffer import Buffer, encode_uint_var
from uringcore.quic.configuration import QuicConfiguration
from uringcore.quic.connection import QuicConnection
from uringcore.quic.packet import QuicErrorCode as Code

theirs = pytest.importorskip("aioquic.quic.connection")
if int(importlib.import_module("aioquic").__version__.split(".")[1]) < 7:
    pytest.skip("the faulty peer uses private names of aioquic 1.7", allow_module_level=True)
their_configuration = pytest.importorskip("aioquic.quic.configuration").QuicConfiguration

CLIENT, SERVER = ("192.0.2.1", 40000), ("192.0.2.2", 4433)


class Wrong(theirs.QuicConnection):
    """Subclasses aioquic's connection: its next PING is replaced by `frame`, and its parameters by
    `changed`.
    """

    frame: bytes | None = None

    def _write_ping_frame(self, builder, uids=(), comment=""):
        if self.frame is None:
            super()._write_ping_frame(builder, list(uids), comment)
            return
        head = Buffer(data=self.frame)
        kind = head.pull_uint_var()
        rest = self.frame[head.tell() :]
        frame, self.frame = self.frame, None
        # The builder reserves the capacity, so that the frame does not share its packet with an earlier one.
        builder.start_frame(kind, capacity=len(frame)).push_bytes(rest)

    def _serialize_transport_parameters(self):
        return self.changed(super()._serialize_transport_parameters())

    @staticmethod
    def changed(parameters):
        return parameters


def play(pki, ours_is_client, change=None, frame=None):
    """Returns the code that the faulty side receives. Checks that the program of our side gets the end
    once.
    """

    def configuration(kind, is_client):
        made = kind(is_client=is_client, alpn_protocols=["test"])
        if is_client:
            made.server_name = "localhost"
            made.load_verify_locations(cafile=str(pki.authority.certfile))
        else:
            made.load_cert_chain(str(pki.server.certfile), str(pki.server.keyfile))
        return made

    ours = QuicConnection(configuration=configuration(QuicConfiguration, ours_is_client))
    odcid = {}
    now = 1.0
    if ours_is_client:
        ours.connect(SERVER, now)
        first = ours.datagrams_to_send(now)
        odcid = {"original_destination_connection_id": ours.original_destination_connection_id}
    wrong = Wrong(configuration=configuration(their_configuration, not ours_is_client), **odcid)
    if change is not None:
        wrong.changed = change
    if ours_is_client:
        for data, _ in first:
            wrong.receive_datagram(data, CLIENT, now)
        to_ours, to_wrong = SERVER, CLIENT
    else:
        wrong.connect(SERVER, now)
        to_ours, to_wrong = CLIENT, SERVER

    told = {"ours": [], "wrong": []}
    sent = frame is None
    for _ in range(400):
        now += 0.01
        for data, _ in wrong.datagrams_to_send(now):
            ours.receive_datagram(data, to_ours, now)
        for data, _ in ours.datagrams_to_send(now):
            wrong.receive_datagram(data, to_wrong, now)
        for name, side in (("ours", ours), ("wrong", wrong)):
            due = side.get_timer()
            if due is not None and due <= now:
                side.handle_timer(now)
            while (event := side.next_event()) is not None:
                told[name].append(event)
        if all(is_over(events) for events in told.values()):
            break
        if not sent and wrong._handshake_confirmed and ours.is_established:
            wrong.frame, sent = frame, True
            wrong.send_ping(1)
    assert sent, "the handshake failed"
    end = told["wrong"][-1]
    assert type(end).__name__ == "ConnectionTerminated", told
    own = [event for event in told["ours"] if type(event).__name__ == "ConnectionTerminated"]
    assert [event.error_code for event in own] == [end.error_code]
    return end.error_code


def is_over(events):
    return any(type(event).__name__ == "ConnectionTerminated" for event in events)


def varints(*values):
    return b"".join(v if isinstance(v, bytes) else encode_uint_var(v) for v in values)


ID, TOKEN = bytes(8), bytes(16)
HUGE = 1 << 61
# Section numbers are RFC 9000's.
FRAMES = {
    "unknown type, 12.4": (varints(0x3E), Code.FRAME_ENCODING_ERROR),
    "truncated, 12.4": (varints(0x10), Code.FRAME_ENCODING_ERROR),
    "stream beyond the limit, 4.6": (varints(0x0A, 4 * 5000, 1, b"x"), Code.STREAM_LIMIT_ERROR),
    "data beyond the credit, 4.1": (varints(0x0E, 0, 1 << 40, 1, b"x"), Code.FLOW_CONTROL_ERROR),
    "data beyond 2^62, 19.8": (varints(0x0E, 0, (1 << 62) - 1, 1, b"x"), Code.FLOW_CONTROL_ERROR),
    "final size changes, 4.5": (
        varints(0x0B, 0, 1, b"x", 0x0E, 0, 4, 1, b"x"),
        Code.FINAL_SIZE_ERROR,
    ),
    "reset below what came, 4.5": (
        varints(0x0A, 0, 3, b"xyz", 0x04, 0, 0, 1),
        Code.FINAL_SIZE_ERROR,
    ),
    "data on our own one-way stream, 19.8": (varints(0x0A, 3, 1, b"x"), Code.STREAM_STATE_ERROR),
    "data on a stream that we have not opened, 19.8": (
        varints(0x0A, 1, 1, b"x"),
        Code.STREAM_STATE_ERROR,
    ),
    "stop of a stream that we have not opened, 19.5": (
        varints(0x05, 1, 0),
        Code.STREAM_STATE_ERROR,
    ),
    "stop of the peer's one-way stream, 19.5": (varints(0x05, 2, 0), Code.STREAM_STATE_ERROR),
    "credit for the peer's one-way stream, 19.10": (
        varints(0x11, 2, 1000),
        Code.STREAM_STATE_ERROR,
    ),
    "blocked on our own one-way stream, 19.13": (varints(0x15, 3, 1), Code.STREAM_STATE_ERROR),
    "more than 2^60 streams, 19.11": (varints(0x12, HUGE), Code.FRAME_ENCODING_ERROR),
    "blocked at more than 2^60 streams, 19.14": (varints(0x16, HUGE), Code.FRAME_ENCODING_ERROR),
    "ack of what was not sent, 13.1": (varints(0x02, 5000, 0, 0, 0), Code.PROTOCOL_VIOLATION),
    "ack of negative numbers, 19.3.1": (varints(0x02, 0, 0, 0, 5), Code.FRAME_ENCODING_ERROR),
    "id retired before it is there, 19.15": (
        varints(0x18, 9, 10, b"\x08" + ID, TOKEN),
        Code.FRAME_ENCODING_ERROR,
    ),
    "id of no bytes, 19.15": (varints(0x18, 20, 0, b"\x00", TOKEN), Code.FRAME_ENCODING_ERROR),
    "id of 21 bytes, 19.15": (
        varints(0x18, 20, 0, b"\x15" + bytes(21), TOKEN),
        Code.FRAME_ENCODING_ERROR,
    ),
    "too many ids, 5.1.1": (
        b"".join(varints(0x18, 100 + n, 0, b"\x08" + bytes([n]) * 8, TOKEN) for n in range(16)),
        Code.CONNECTION_ID_LIMIT_ERROR,
    ),
    "id retired that we have not given, 19.16": (varints(0x19, 5000), Code.PROTOCOL_VIOLATION),
    "datagram that was not agreed, RFC 9221 3": (varints(0x31, 1, b"x"), Code.PROTOCOL_VIOLATION),
    "crypto far ahead, 7.5": (
        varints(0x06, 1 << 30, 1, b"x"),
        Code.CRYPTO_BUFFER_EXCEEDED,
    ),
    "TLS message out of turn, RFC 8446 4": (
        varints(0x06, 0, 4, b"\x14\x00\x00\x00"),
        Code.CRYPTO_ERROR + 10,
    ),
    "TLS key update, RFC 9001 6": (
        varints(0x06, 0, 5, b"\x18\x00\x00\x01\x00"),
        Code.CRYPTO_ERROR + 10,
    ),
}
TO_SERVER = {
    "handshake done, 19.20": (varints(0x1E), Code.PROTOCOL_VIOLATION),
    "token, 19.7": (varints(0x07, 1, b"x"), Code.PROTOCOL_VIOLATION),
}
TO_CLIENT = {"empty token, 19.7": (varints(0x07, 0), Code.FRAME_ENCODING_ERROR)}


@pytest.mark.parametrize(
    ("frame", "code"), {**FRAMES, **TO_SERVER}.values(), ids=[*FRAMES, *TO_SERVER]
)
def test_a_server_answers_an_illegal_frame(pki, frame, code):
    assert play(pki, False, frame=frame) == code


def parameter(number, value):
    return varints(number, len(value), value)


def replaced(number, value):
    """Returns a function that replaces or removes one of the parameters."""

    def change(parameters):
        kept, cursor = b"", Buffer(data=parameters)
        while not cursor.eof():
            found = cursor.pull_uint_var()
            content = cursor.pull_bytes(cursor.pull_uint_var())
            if found != number:
                kept += parameter(found, content)
        return kept + (b"" if value is None else parameter(number, value))

    return change


def added(raw):
    return lambda parameters: parameters + raw


# Section 18.2; section 7.3 for the connection ids.
PARAMETERS = {
    "ack delay exponent above 20": replaced(0x0A, varints(21)),
    "ack delay of 2^14": replaced(0x0B, varints(1 << 14)),
    "payload below 1200": replaced(0x03, varints(1199)),
    "one connection id": replaced(0x0E, varints(1)),
    "more than 2^60 streams": replaced(0x08, varints((1 << 60) + 1)),
    "twice": added(parameter(0x04, varints(1))),
    "longer than its number": replaced(0x04, varints(1) + b"\x00"),
    "flag with a value": replaced(0x0C, b"\x01"),
    "truncated": added(varints(0x3F, 9, b"x")),
    "no source id": replaced(0x0F, None),
    "another source id": replaced(0x0F, b"another."),
}
OF_CLIENT = {
    "reset token of a client": replaced(0x02, TOKEN),
    "original id of a client": added(parameter(0x00, ID)),
    "Retry's id of a client": added(parameter(0x10, ID)),
    "preferred address of a client": added(parameter(0x0D, bytes(24) + b"\x08" + ID + TOKEN)),
}
OF_SERVER = {
    "no original id": replaced(0x00, None),
    "another original id": replaced(0x00, ID),
    "Retry's id without a Retry": added(parameter(0x10, ID)),
    "short reset token": replaced(0x02, TOKEN[1:]),
}


@pytest.mark.parametrize(
    ("side", "change"),
    [
        *(("server", change) for change in {**PARAMETERS, **OF_CLIENT}.values()),
        *(("client", change) for change in {**PARAMETERS, **OF_SERVER}.values()),
    ],
    ids=[
        *(f"server-{name}" for name in {**PARAMETERS, **OF_CLIENT}),
        *(f"client-{name}" for name in {**PARAMETERS, **OF_SERVER}),
    ],
)
def test_an_illegal_transport_parameter_is_answered(pki, side, change):
    assert play(pki, side == "client", change=change) == Code.TRANSPORT_PARAMETER_ERROR


@pytest.mark.parametrize(("frame", "code"), TO_CLIENT.values(), ids=list(TO_CLIENT))
def test_a_client_answers_an_illegal_frame(pki, frame, code):
    assert play(pki, True, frame=frame) == code
