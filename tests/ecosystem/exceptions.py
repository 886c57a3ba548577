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

UVICORN_NATIVE = (
    (
        "The head of a response is held until its content comes, so a mistake of the application is "
        "answered with a 500, and not with a closed connection.",
        "http",
        "h11",
        "test_invalid_header_name test_partial_response_returned test_response_header_splitting "
        "test_duplicate_start_message test_undersized_request test_oversized_request",
    ),
    (
        "Expects that the connection is closed after a complete response to a complete request, because "
        "the application has failed. It is kept.",
        "http",
        "h11",
        "test_app_exception test_no_response_returned test_missing_start_message "
        "test_message_after_body_complete test_value_returned",
    ),
    (
        "Content that is sent in one message gets a Content-Length, and no chunks.",
        "http",
        "h11",
        "test_chunked_encoding test_chunked_encoding_empty_body",
    ),
    (
        "The next pipelined request begins in another iteration of the loop, which the recorded loop of "
        "the test does not run.",
        "http",
        "h11",
        "test_pipelined_requests",
    ),
    (
        "Reads attributes of uvicorn's class: its timer, scope, transport or state.",
        "http",
        "h11",
        "test_keepalive_timeout test_keepalive_timeout_with_pipelined_requests "
        "test_keepalive_timeout_with_pipelined_websocket_upgrade test_scopes",
    ),
    (
        "No status 100 is sent if the content has arrived already (RFC 9110 section 10.1.1).",
        "http",
        "h11",
        "test_100_continue_sent_when_body_consumed",
    ),
    (
        "Reading stops above 256 KiB of waiting content, and in uvicorn above 64 KiB.",
        "http",
        "h11",
        "test_large_post_request",
    ),
    (
        "A request above the limit of concurrency is answered without a task.",
        "http",
        "h11",
        "test_max_concurrency",
    ),
    (
        "WebSocket needs no class of uvicorn, and an Upgrade that is ignored is not logged.",
        "http",
        "h11",
        "test_unsupported_ws_upgrade_request_warn_on_auto "
        "test_header_upgrade_is_not_websocket_depend_installed "
        "test_header_upgrade_is_websocket_depend_not_installed",
    ),
    (
        "The content of a 400 names the fault.",
        "http",
        "h11",
        "test_invalid_http_request",
    ),
    (
        "The limit of a head is an option of its own, and not h11's.",
        "http",
        "",
        "test_huge_headers_h11protocol_failure test_huge_headers_h11protocol_failure_with_setting "
        "test_huge_headers_h11_max_incomplete",
    ),
    (
        "An application that fails or returns closes its WebSocket with a close frame, 1011 or 1000.",
        "websocket",
        "websockets-sansio",
        "test_asgi_return_value test_close_transport_on_asgi_return test_duplicate_handshake",
    ),
    (
        "The disconnect message has a reason, as in ASGI since version 2.4.",
        "websocket",
        "websockets-sansio",
        "test_connection_lost_before_handshake_complete test_send_close_on_server_shutdown "
        "test_server_reject_connection test_server_reject_connection_with_response "
        "test_server_reject_connection_with_multibody_response",
    ),
    (
        "Reads attributes of uvicorn's class for WebSocket.",
        "websocket",
        "websockets-sansio",
        "test_frame_after_close_handshake_is_ignored test_server_keepalive_ping_pong "
        "test_server_keepalive_disabled test_server_keepalive_ping_timeout",
    ),
)

EXCEPTIONS: tuple[Allowed, ...] = (
    *(
        Allowed(
            "uvicorn-native",
            f"tests/protocols/test_{file}.py::{name}{f'?{variant}*' if variant else ''}",
            reason,
        )
        for reason, file, variant, names in UVICORN_NATIVE
        for name in names.split()
    ),
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
