"""``sock_*``: the calls on the program's own sockets, as operations of the ring.

The operations are in Rust (``src/py/sock``); the coroutines here wait for them. A cancelled call cancels its
operation and loses nothing: data that the kernel has delivered for it goes to the next call on the socket
object.

If data (or buffer space) is available, a call usually returns without suspending, as asyncio's calls do. A
task that repeats such calls is suspended from time to time, so that others run.

asyncio's own code, on the loop's watchers, handles subclasses of ``socket.socket``, address families other
than IPv4, IPv6 and Unix, and invalid arguments, so that the errors are asyncio's.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from asyncio import base_events, exceptions, unix_events
from typing import TYPE_CHECKING, Any, cast

from . import _uringcore

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ._uringcore import LoopCore

    class _Base(LoopCore, asyncio.SelectorEventLoop):  # type: ignore[misc]
        pass

    _Address = Any
else:
    _Base = object

_abandon = _uringcore._sock_abandon
_receive = _uringcore._sock_receive
_receive_into = _uringcore._sock_receive_into
_send_all = _uringcore._sock_send_all

# The number of sends after which a sendfile lets other tasks run, however fast its peer is.
_SENDFILES_AT_ONCE = 16
_INET = (socket.AF_INET, socket.AF_INET6)


class SocketCalls(_Base):
    """The ``sock_*`` methods of the loop. Sockets must be non-blocking."""

    async def sock_recv(self, sock: socket.socket, n: int) -> bytes:
        """Receive up to `n` bytes; ``b""`` is the end of the stream.

        Cancelling loses nothing: bytes in transit go to the next call on `sock`.

        Raises:
            OSError: the connection failed.
            ValueError: debug mode, and `sock` is blocking.
        """
        result = _receive(self, sock, n)
        kind = type(result)
        if kind is bytes:
            return cast(bytes, result)
        if kind is tuple:
            return cast(bytes, result[0])
        if result is None:
            return await super().sock_recv(sock, n)
        try:
            data = await result
        except BaseException:
            _abandon(self, sock, result)
            raise
        return cast(bytes, data if type(data) is bytes else data[0])

    async def sock_recv_into(self, sock: socket.socket, buf: Buffer) -> int:
        """Receive into `buf` as much as fits; 0 is the end of the stream.

        `buf` may be resized meanwhile: bytes that do not fit any more go to the next call on `sock`.
        """
        result = _receive_into(self, sock, buf)
        if type(result) is int:
            return result
        if result is None:
            return await super().sock_recv_into(sock, buf)
        try:
            data = await result
        except BaseException:
            _abandon(self, sock, result)
            raise
        return _uringcore._sock_fill(self, sock, buf, data if type(data) is bytes else data[0])

    async def sock_recvfrom(self, sock: socket.socket, bufsize: int) -> tuple[bytes, Any]:
        """Receive one datagram of up to `bufsize` bytes: ``(data, address)``.

        Until the call has a result, its datagram stays in the socket: for the next call, or for another
        process that receives from the socket.
        """
        result = _receive(self, sock, bufsize)
        kind = type(result)
        if kind is tuple:
            return cast("tuple[bytes, Any]", result)
        if kind is bytes:
            return cast(bytes, result), None
        if result is None:
            return await self._asyncio_recvfrom(sock, bufsize)
        try:
            data = await result
        except BaseException:
            _abandon(self, sock, result)
            raise
        return data if type(data) is tuple else (data, None)

    async def sock_recvfrom_into(
        self, sock: socket.socket, buf: Buffer, nbytes: int = 0
    ) -> tuple[int, Any]:
        """Receive one datagram into the first ``nbytes`` of ``buf`` (0: all of ``buf``). Returns ``(count,
        address)``."""
        size = nbytes or len(cast(bytes, buf))
        with memoryview(buf) as view:
            usable = not view.readonly and view.contiguous and 0 < size <= view.nbytes
        result = _receive(self, sock, size) if usable else None
        if result is None:
            return await self._asyncio_recvfrom_into(sock, buf, nbytes)
        if type(result) is not tuple and type(result) is not bytes:
            try:
                future, result = result, await result
            except BaseException:
                _abandon(self, sock, result)
                raise
            del future
        data, address = result if type(result) is tuple else (result, None)
        try:
            with memoryview(buf) as view, view.cast("B") as target:
                if size > target.nbytes:
                    raise ValueError("nbytes is greater than the length of the buffer")
                target[: len(data)] = data
        except BaseException:
            _uringcore._sock_give_back(self, sock, result)
            raise
        return len(data), address

    async def sock_sendall(self, sock: socket.socket, data: Buffer) -> None:
        """Send all of `data`. Two calls on one socket at once send one after the other.

        After an error or a cancellation the number of bytes sent is unknown, as in asyncio.
        """
        result = _send_all(self, sock, data)
        if type(result) is int:
            return
        if result is None:
            await super().sock_sendall(sock, data)
            return
        try:
            await result
        except BaseException:
            _abandon(self, sock, result)
            raise

    async def sock_sendto(self, sock: socket.socket, data: Buffer, address: _Address) -> int:
        """Send one datagram to `address` and return the count of bytes."""
        result = _uringcore._sock_send_to(self, sock, data, address)
        if type(result) is int:
            return result
        if result is None:
            return await self._asyncio_sendto(sock, data, address)
        try:
            return cast(int, await result)
        except BaseException:
            _abandon(self, sock, result)
            raise

    async def sock_connect(self, sock: socket.socket, address: _Address) -> None:
        """Connect `sock`; a host name is resolved first.

        Raises:
            OSError: ``Connect call failed``, with the address.
        """
        base_events._check_ssl_socket(sock)  # type: ignore[attr-defined]
        if self.get_debug() and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        if sock.family in _INET:
            resolved = await self._ensure_resolved(  # type: ignore[attr-defined]
                address, family=sock.family, type=sock.type, proto=sock.proto, loop=self
            )
            address = resolved[0][4]
        result = _uringcore._sock_connect(self, sock, address)
        if type(result) is int:
            return
        if result is None:
            # From here on the steps are those of asyncio's method after the look-up of the name.
            connected = self.create_future()
            self._sock_connect(connected, sock, address)  # type: ignore[attr-defined]
            try:
                await connected
            finally:
                # The exception has this frame in its traceback, and the future has the exception.
                del connected
            return
        try:
            await result
        except OSError as exc:
            raise OSError(exc.errno, f"Connect call failed {address}") from None
        except BaseException:
            _abandon(self, sock, result)
            raise
        finally:
            del result

    async def sock_accept(self, sock: socket.socket) -> tuple[socket.socket, Any]:
        """Accept a connection: ``(connection, address)``, the connection non-blocking.

        At most one connection is accepted in each iteration of the loop. Until the call has a result, its
        connection stays in the socket: for the next call, or for another process that accepts on it. If the
        call is cancelled between its result and its return, the next call on `sock` gets the connection.
        """
        result = _uringcore._sock_accept(self, sock)
        if type(result) is tuple:
            return result
        if result is None:
            return await super().sock_accept(sock)
        try:
            return cast("tuple[socket.socket, Any]", await result)
        except BaseException:
            _abandon(self, sock, result)
            raise

    # sendfile -------------------------------------------------------------------------------------

    async def _sock_sendfile_native(
        self, sock: socket.socket, file: Any, offset: int, count: int | None
    ) -> int:
        if not hasattr(unix_events.os, "sendfile"):  # type: ignore[attr-defined]
            raise exceptions.SendfileNotAvailableError("os.sendfile() is not available")
        # asyncio's rule: after any end, also a cancellation, the file's position is behind the bytes that
        # were sent.
        try:
            fileno = file.fileno()
            size = os.fstat(fileno).st_size
        except (AttributeError, OSError) as exc:  # io.UnsupportedOperation is an OSError
            raise exceptions.SendfileNotAvailableError("not a regular file") from exc
        if not (count or size):
            return 0  # empty file
        total = 0
        answered = 0
        try:
            while count is None or total < count:
                wanted = size if count is None else count - total
                try:
                    sent = os.sendfile(sock.fileno(), fileno, offset, wanted or size)
                except (BlockingIOError, InterruptedError):
                    await self._wait_writable(sock)
                    answered = 0
                    continue
                except OSError as exc:
                    if exc.errno == errno.ENOTCONN and type(exc) is not ConnectionError:
                        raise ConnectionError("socket is not connected", errno.ENOTCONN) from exc
                    if total == 0:
                        raise exceptions.SendfileNotAvailableError(
                            "os.sendfile call failed"
                        ) from exc
                    raise
                if sent == 0:
                    if sys.version_info >= (
                        3,
                        14,
                    ):  # the position is set even if there was nothing to send
                        os.lseek(fileno, offset, os.SEEK_SET)
                    break
                offset += sent
                total += sent
                answered += 1
                if answered == _SENDFILES_AT_ONCE:
                    answered = 0
                    await asyncio.sleep(0)
        finally:
            if total:
                os.lseek(fileno, offset, os.SEEK_SET)
        return total

    async def _wait_writable(self, sock: Any) -> None:
        result = _uringcore._sock_writable(self, sock)
        if result is None:
            ready = self.create_future()
            fd = sock.fileno()
            self.add_writer(fd, _wake, ready)
            try:
                await ready
            finally:
                self.remove_writer(fd)
            return
        try:
            await result
        except BaseException:
            _abandon(self, sock, result)
            raise

    # CPython 3.10 lacks the following three -----------------------------------------------------------

    if hasattr(asyncio.SelectorEventLoop, "sock_recvfrom"):

        async def _asyncio_recvfrom(self, sock: Any, bufsize: int) -> tuple[bytes, Any]:
            base: Any = super()
            return cast("tuple[bytes, Any]", await base.sock_recvfrom(sock, bufsize))

        async def _asyncio_recvfrom_into(self, sock: Any, buf: Any, n: int) -> tuple[int, Any]:
            base: Any = super()
            return cast("tuple[int, Any]", await base.sock_recvfrom_into(sock, buf, n))

        async def _asyncio_sendto(self, sock: Any, data: Any, address: Any) -> int:
            base: Any = super()
            return cast(int, await base.sock_sendto(sock, data, address))

    else:

        async def _asyncio_recvfrom(self, sock: Any, bufsize: int) -> tuple[bytes, Any]:
            return cast("tuple[bytes, Any]", await self._when_readable(sock, "recvfrom", bufsize))

        async def _asyncio_recvfrom_into(self, sock: Any, buf: Any, n: int) -> tuple[int, Any]:
            size = n or len(buf)
            return cast(
                "tuple[int, Any]", await self._when_readable(sock, "recvfrom_into", buf, size)
            )

        async def _asyncio_sendto(self, sock: Any, data: Any, address: Any) -> int:
            return cast(int, await self._when_writable(sock, "sendto", data, address))

    async def _when_readable(self, sock: Any, method: str, *args: Any) -> Any:
        return await self._when_ready(self.add_reader, self.remove_reader, sock, method, args)

    async def _when_writable(self, sock: Any, method: str, *args: Any) -> Any:
        return await self._when_ready(self.add_writer, self.remove_writer, sock, method, args)

    async def _when_ready(
        self, add: Any, remove: Any, sock: Any, method: str, args: tuple[Any, ...]
    ) -> Any:
        base_events._check_ssl_socket(sock)  # type: ignore[attr-defined]
        if self.get_debug() and sock.gettimeout() != 0:
            raise ValueError("the socket must be non-blocking")
        while True:
            try:
                return getattr(sock, method)(*args)
            except (BlockingIOError, InterruptedError):
                pass
            ready = self.create_future()
            fd = sock.fileno()
            add(fd, _wake, ready)
            try:
                await ready
            finally:
                remove(fd)


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
