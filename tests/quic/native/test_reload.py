"""``listener.reload()``: other certificates, keys and settings for new connections; open ones stay."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os

import pytest

from tests.quic.aioquic_peer import AioquicRecorder, aioquic_asyncio, aioquic_client
from tests.quic.harness import eventually
from tests.quic.native.connection_pairs import connecting, listening, server_config, settled
from tests.quic.native.test_options import listening_again
from tests.support.certificates import LOCAL
from tests.support.reset_oracle import answers, asked_for, mark, victim
from uringcore import quic
from uringcore.quic.logger import QuicLogger
from uringcore.quic.workers import PortGroup

pytestmark = pytest.mark.either_backend


@pytest.fixture
def renewable(pki, tmp_path):
    """The files of a server, and a function that replaces their contents."""
    certfile, keyfile = tmp_path / "live.pem", tmp_path / "live.key"

    def put(identity):
        certfile.write_bytes(identity.certfile.read_bytes())
        keyfile.write_bytes(identity.keyfile.read_bytes())

    put(pki.server)
    return (certfile, keyfile), put


async def echoed(one, other):
    async with one.open_stream() as stream:
        await stream.send(b"hello", finish=True)
        async with await other.accept_stream() as there:
            await there.send(await there.read())
        return await stream.read()


def test_renewed_files_are_for_new_connections(run_anywhere, pki, renewable, tmp_path):
    files, put = renewable
    renewed = pki.authority.issue(tmp_path, "server2", *LOCAL)

    async def main():
        async with listening(pki, certificate=files) as listener:
            async with connecting(pki, listener) as one, await listener.accept() as other:
                await eventually(lambda: one.session_ticket is not None)
                put(renewed)
                async with connecting(pki, listener) as two:
                    assert two.peer_certificate == pki.server.der, "the old files until reload()"
                listener.reload()
                assert await echoed(one, other) == b"hello"
                async with connecting(pki, listener) as two:
                    assert two.peer_certificate == renewed.der
                async with aioquic_asyncio.connect(
                    *listener.address,
                    configuration=aioquic_client(pki, server_name="localhost"),
                    create_protocol=AioquicRecorder,
                ) as client:
                    await client.ping()
                    assert client._quic.tls._peer_certificate == renewed.certificate
                # Sessions remain valid when the certificate changes.
                async with connecting(pki, listener, session_ticket=one.session_ticket) as two:
                    assert two.is_resumed
                assert await echoed(one, other) == b"hello"

    run_anywhere(main())


def test_invalid_files_change_nothing(run, pki, renewable):
    files, put = renewable

    async def main():
        async with listening(pki, certificate=files) as listener:
            files[1].write_bytes(pki.client.keyfile.read_bytes())
            with pytest.raises(quic.QuicConfigurationError, match="key") as caught:
                listener.reload()
            assert caught.value.field == "certificate"
            async with connecting(pki, listener) as one:
                assert one.peer_certificate == pki.server.der
            files[0].unlink()
            with pytest.raises(quic.QuicConfigurationError, match="read"):
                listener.reload()
            async with connecting(pki, listener) as one:
                assert one.peer_certificate == pki.server.der
            put(pki.server)
            listener.reload()

    run(main())


def test_other_settings_are_for_new_connections(run, pki):
    log = io.StringIO()

    async def main():
        async with listening(pki, max_streams=1, backlog=1) as listener:
            ticket = None
            async with connecting(pki, listener) as one, await listener.accept() as other:
                await eventually(lambda: one.session_ticket is not None)
                ticket = one.session_ticket
                listener.reload(
                    server_config(pki, alpn=["next"], max_streams=2, backlog=2, key_log=log)
                )
                assert await echoed(one, other) == b"hello"
            with pytest.raises(quic.QuicAlpnError):
                async with connecting(pki, listener):
                    pass
            fields = {"alpn": ["next"], "session_ticket": ticket}
            waiting = [await connecting(pki, listener, **fields) for _ in range(2)]
            assert all(one.alpn == "next" for one in waiting)
            # RFC 9000 section 7.4.1 forbids resumption under lower limits; the server resumes under none but
            # equal ones.
            assert not any(one.is_resumed for one in waiting)
            await eventually(lambda: "CLIENT_TRAFFIC_SECRET_0" in log.getvalue())
            for one in waiting:
                async with await listener.accept():
                    streams = [await one.open_stream() for _ in range(2)]
                    assert len(streams) == 2
                one.close()
                await one.wait_closed()

    run(main())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("connection_id_length", 12),
        ("limits", quic.ServerLimits(max_connections=5)),
        ("preferred_address", [("127.0.0.5", 4433)]),
    ],
)
def test_settings_of_the_socket_are_not_reloadable(run, pki, field, value):
    async def main():
        async with listening(pki) as listener:
            with pytest.raises(quic.QuicConfigurationError, match="cannot change") as caught:
                listener.reload(server_config(pki, alpn=["next"], **{field: value}))
            assert caught.value.field == field
            async with connecting(pki, listener) as one:
                assert one.alpn == "test"

    run(main())


def test_token_keys_are_rotated(run, pki):
    """A token that the old key has sealed is valid while the old key is listed."""
    old, new = b"o" * 32, b"n" * 64

    async def main():
        async with listening(pki, retry=True, token_keys=[old]) as listener:

            async def token():
                async with connecting(pki, listener) as one:
                    await eventually(lambda: one.address_token is not None)
                    return one.address_token

            async def retries(token):
                before = listener.stats()["incoming_retried"]
                async with connecting(pki, listener, address_token=token) as one:
                    await one.ping()
                return listener.stats()["incoming_retried"] - before

            first, second = await token(), await token()
            listener.reload(server_config(pki, retry=True, token_keys=[new, old]))
            assert await retries(first) == 0
            third = await token()
            listener.reload(server_config(pki, retry=True, token_keys=[new]))
            assert await retries(second) == 1
            assert await retries(third) == 0
            # If the settings contain no keys, issued tokens stay valid.
            fourth = await token()
            listener.reload(server_config(pki, retry=True))
            assert await retries(fourth) == 0

    run(main())


def test_a_reset_key_is_rotated(run_anywhere, pki):
    """Connections are reset with the key of their time, in this process and in the next one."""
    first, second, third, fourth = (bytes([number]) * 32 for number in range(4))

    async def tokens_of(listener, **fields):
        if fields:
            listener.reload(server_config(pki, **fields))
        async with victim(*listener.address, "test") as alive:
            tokens = alive.tokens()
        await eventually(lambda: listener.stats()["connections"] == 0)
        return tokens

    async def resets(listener, tokens):
        """The number of connection IDs of which each is reset with its token."""
        found = [
            (await asyncio.to_thread(answers, listener.address, connection_id))[0].endswith(token)
            for connection_id, token in tokens.items()
        ]
        return sum(found)

    async def main():
        async with listening(pki) as listener:
            port = listener.address[1]
            by_key = [
                await tokens_of(listener, stateless_reset_key=key) for key in (first, second, third)
            ]
            assert len({connection_id[-1] for tokens in by_key for connection_id in tokens}) == 3
            for tokens in by_key:
                assert await resets(listener, tokens) == len(tokens)
            # No key in the settings, and the present one again, change nothing.
            listener.reload()
            listener.reload(server_config(pki))
            listener.reload(server_config(pki, stateless_reset_key=third))
            assert await resets(listener, by_key[0]) == len(by_key[0])
            # There is room for three.
            by_key.append(await tokens_of(listener, stateless_reset_key=[fourth]))
            assert await resets(listener, by_key[0]) == 0
            for tokens in by_key[1:]:
                assert await resets(listener, tokens) == len(tokens)
        settings = server_config(pki, stateless_reset_key=[fourth, third])
        async with await listening_again(port, settings) as listener:
            assert await resets(listener, by_key[1]) == 0
            for tokens in by_key[2:]:
                assert await resets(listener, tokens) == len(tokens)

    run_anywhere(main())


def test_connections_from_before_the_first_reset_key_are_reset_too(run_anywhere, pki):
    async def main():
        async with listening(pki) as listener:
            async with victim(*listener.address, "test") as alive:
                tokens = alive.tokens()
                listener.reload(server_config(pki, stateless_reset_key=bytes(32)))
                # The connection is alive: nobody is sent its tokens.
                assert await asyncio.to_thread(asked_for, tokens, listener.address) == 0
                await alive.protocol.ping()
            await eventually(lambda: listener.stats()["connections"] == 0)
            for connection_id, token in tokens.items():
                (reset,) = await asyncio.to_thread(answers, listener.address, connection_id)
                assert reset.endswith(token) or connection_id[-1] == mark(bytes(32))

    run_anywhere(main())


def test_a_former_reset_key_on_two_addresses(run_anywhere, pki):
    """RFC 9000 section 21.11: a former key ends no connection of another address either."""
    old, new = b"o" * 32, b"n" * 32

    async def main():
        async with (
            listening(pki, stateless_reset_key=old) as one,
            quic.listen("127.0.0.2", 0, server_config(pki, stateless_reset_key=[new, old])) as two,
            victim(*one.address, "test") as alive,
        ):
            tokens = alive.tokens()
            assert await asyncio.to_thread(asked_for, tokens, two.address) == len(tokens)
            await alive.protocol.ping()

    run_anywhere(main())


def test_a_reset_key_for_a_shared_port_is_refused_and_changes_nothing(run_anywhere, pki):
    async def main():
        async with quic.listen("127.0.0.1", 0, server_config(pki), reuse_port=True) as listener:
            with pytest.raises(quic.QuicConfigurationError) as caught:
                listener.reload(server_config(pki, alpn=["next"], stateless_reset_key=bytes(32)))
            assert caught.value.field == "stateless_reset_key"
            listener.reload()
            async with connecting(pki, listener) as one:
                assert one.alpn == "test"

    run_anywhere(main())


def test_a_reload_without_a_free_descriptor_changes_nothing(run_anywhere, pki, monkeypatch):
    """The socket's name, of which reset keys are derived, takes a duplicate of its descriptor."""
    traces = QuicLogger()

    def no_descriptor(fd):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def main():
        with PortGroup("127.0.0.1", 0, workers=1, stateless_reset_key=bytes(32)) as group:
            async with quic.listen(config=server_config(pki), workers=group[0]) as listener:
                with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
                    patch.setattr(os, "dup", no_descriptor)
                    listener.reload(server_config(pki, alpn=["next"], qlog=traces))
                assert caught.value.errno == errno.EMFILE
                async with connecting(pki, listener) as one, await listener.accept() as other:
                    assert await echoed(one, other) == b"hello"
                assert traces.to_dict()["traces"] == []
                listener.reload(server_config(pki, qlog=traces))
                async with connecting(pki, listener), await listener.accept():
                    assert len(traces.to_dict()["traces"]) == 1

    run_anywhere(main())


def test_workers_rotate_their_reset_keys(run, pki):
    """A worker that is gone is answered for with the key of the connection's time."""
    old, new = b"o" * 32, b"n" * 32

    async def main():
        with PortGroup("127.0.0.1", 0, workers=2, stateless_reset_key=old) as group:
            async with contextlib.AsyncExitStack() as stack:
                listeners = [
                    await stack.enter_async_context(
                        quic.listen(config=server_config(pki), workers=worker)
                    )
                    for worker in group
                ]
                async with victim(*group.sockname, "test") as before:
                    tokens = before.tokens()
                    for listener in listeners:
                        listener.reload(server_config(pki, stateless_reset_key=new))
                    async with victim(*group.sockname, "test") as after:
                        tokens |= after.tokens()
                        # Both places have connections that are alive.
                        assert await asyncio.to_thread(asked_for, tokens, group.sockname) == 0
                for index in range(2):
                    group.mark(index, serving=False)
                    for connection_id, token in tokens.items():
                        if connection_id[0] % 2 == index:
                            found = await asyncio.to_thread(answers, group.sockname, connection_id)
                            assert [one.endswith(token) for one in found] == [True]
                    group.mark(index, serving=True)

    run(main())


def test_a_listener_that_does_not_accept_has_nothing_to_reload(run, pki):
    async def main():
        listener = await listening(pki)
        listener.stop_accepting()
        with pytest.raises(quic.ListenerClosedError):
            listener.reload()
        listener.close()
        await listener.wait_closed()
        with pytest.raises(quic.ListenerClosedError):
            listener.reload()

    run(main())


def test_listeners_with_the_same_settings_are_reloaded_by_themselves(run, pki, renewable, tmp_path):
    files, put = renewable
    renewed = pki.authority.issue(tmp_path, "server3", *LOCAL)

    async def main():
        settings = server_config(pki, certificate=files)
        async with (
            quic.listen("127.0.0.1", 0, settings) as one,
            quic.listen("127.0.0.1", 0, settings) as other,
        ):
            put(renewed)
            one.reload()
            for listener, expected in ((one, renewed), (other, pki.server)):
                async with connecting(pki, listener) as client:
                    assert client.peer_certificate == expected.der

    run(main())


def test_draining_waits_for_open_connections(run_anywhere, pki):
    async def main():
        listener = await listening(pki)
        one = await connecting(pki, listener)
        other = await listener.accept()
        waiting = asyncio.ensure_future(listener.accept())
        draining = await settled(asyncio.ensure_future(listener.drain()))
        with pytest.raises(quic.QuicConnectionRefusedError):
            async with connecting(pki, listener):
                pass
        assert await echoed(one, other) == b"hello"
        assert not draining.done() and not waiting.done() and not listener.is_closed
        one.close()
        await draining
        assert listener.is_closed and other.is_closed
        with pytest.raises(quic.ListenerClosedError):
            await waiting

    run_anywhere(main())


def test_draining_ends_with_its_time(run_anywhere, pki):
    async def main():
        listener = await listening(pki)
        one = await connecting(pki, listener)
        await listener.drain(timeout=0.01)
        assert listener.is_closed
        await one.wait_closed()
        with pytest.raises(quic.QuicConnectionError) as caught:
            await one.ping()
        assert caught.value.code == 0

    run_anywhere(main())
