"""Every test of another project in which this loop may differ from stock asyncio, with its reason.

A listed test that passes after all fails the run, so that the list stays true; `varies` marks the few
whose outcome depends on timing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Allowed:
    """Tests of a project (a pattern over their names) that may fail or be skipped, with the reason."""

    project: str
    pattern: str
    reason: str
    loops: tuple[str, ...] = ("uring", "epoll")
    varies: bool = False

    def covers(self, project: str, test: str, loop: str) -> bool:
        """Return true if this exception covers `test` of `project` on `loop`."""
        return project == self.project and loop in self.loops and fnmatchcase(test, self.pattern)


AIOQUIC = (
    (
        "Looks at how many streams aioquic's HTTP/3 remembers, or at other tables inside it.",
        "h3",
        "H3ConnectionTest",
        "test_blocked_stream_reset test_blocked_stream_reset_by_client "
        "test_handle_control_frame_max_push_id_reduced test_handle_control_frame_unknown "
        "test_handle_control_frame_unknown_fragmented "
        "test_handle_request_frame_unknown_fragmented test_streams_are_closed_after_* "
        "test_streams_are_not_closed_prematurely test_uni_stream_reset test_uni_stream_type",
    ),
    (
        "The same.",
        "webtransport",
        "WebTransportTest",
        "test_bidirectional_stream_reset test_unidirectional_stream_reset",
    ),
    (
        "Fills QPACK's table before its capacity was set, which RFC 9204 section 3.2.3 does not allow.",
        "h3",
        "H3ConnectionTest",
        "test_blocked_stream_trailer",
    ),
    (
        "Sends a content-length that is none: here sending it is a ValueError, so the peer never sees it.",
        "h3",
        "H3ConnectionTest",
        "test_content_length_that_is_negative_is_rejected "
        "test_content_length_that_is_not_an_int_rejected",
    ),
    (
        "Hands over a frame behind the end of its stream, which QUIC never does.",
        "h3",
        "H3ConnectionTest",
        "test_handle_request_frame_headers_after_trailers",
    ),
    (
        "The end of a message comes with its last event, not as an empty DATA frame of its own.",
        "h3",
        "H3ConnectionTest",
        "test_handle_request_frame_unknown_at_end test_request",
    ),
    (
        "Of one packet's streams the pushed ones are told first; and what came before an error is told too.",
        "h3",
        "H3ConnectionTest",
        "test_request_with_server_push test_handle_request_frame_truncated",
    ),
    (
        "Compares the words of an exception of the same class.",
        "h3",
        "H3ConnectionTest",
        "test_double_sending_stream_closing test_send_headers_interim_end_stream",
    ),
    (
        "The same.",
        "h3",
        "H3ParserTest",
        "test_parse_settings_duplicate_identifier test_parse_settings_reserved_identifier",
    ),
    (
        "Our traces say that they are ours.",
        "logger",
        "Quic*LoggerTest",
        "test_single_trace",
    ),
    (
        "Spoils what aioquic's server keeps of a Retry; here that is Rust's.",
        "asyncio",
        "HighLevelTest",
        "test_connect_and_serve_with_retry_bad_*",
    ),
    (
        "Nobody listens at the port: here that is a ConnectionRefusedError at once; and several may wait.",
        "asyncio",
        "HighLevelTest",
        "test_wait_connected_twice",
    ),
)

MITMPROXY = (
    (
        "Compares the first timer: aioquic waits two round-trip times for an answer to its first packet, "
        "and here it is three (RFC 9002 section 6.2.1).",
        "TestServerQuic::test_simple TestServerQuic::test_untrusted_cert",
    ),
    (
        "Joins the datagrams of a turn into one. Here a probe of the path's MTU is among them.",
        "TestClientQuic::test_server_required*",
    ),
    (
        "Its client supports no version of QUIC, which is a mistake in its configuration here.",
        "TestClientQuic::test_version_negotiation",
    ),
)

EXCEPTIONS: tuple[Allowed, ...] = (
    *(
        Allowed(
            "mitmproxy", f"test/mitmproxy/proxy/layers/quic/test__stream_layers.py::{name}", reason
        )
        for reason, names in MITMPROXY
        for name in names.split()
    ),
    Allowed(
        "quic-migration-tester",
        "*::test_it_moves_its_connection_to_another_socket",
        "Closes its transport and gives the protocol another one. Here a transport that is closed ends its "
        "connections; `QuicConnectionProtocol.migrate` moves them.",
    ),
    *(
        Allowed(
            "anyio",
            f"tests/test_pytest_plugin.py::{name}*",
            "Gives a pytest process of its own, which runs stock asyncio, three seconds to start and end: "
            "too few on a busy machine, whatever the loop of the outer test.",
            varies=True,
        )
        for name in (
            "test_keyboardinterrupt_during_test",
            "test_dynamic_async_fixture_access_does_not_hang",
        )
    ),
    *(
        Allowed("aioquic", f"tests/test_{file}.py::{suite}::{name}", reason)
        for reason, file, suite, names in AIOQUIC
        for name in names.split()
    ),
)


def allowed(project: str, test: str, loop: str) -> Allowed | None:
    """Return the exception that covers `test` of `project` on `loop`, or None."""
    return next((one for one in EXCEPTIONS if one.covers(project, test, loop)), None)
