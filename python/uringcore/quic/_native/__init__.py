"""The typed interface of :mod:`uringcore.quic`, which aioquic lacks.

| file | noun |
| --- | --- |
| ``client`` | ``connect`` |
| ``server``, ``backlog`` | ``listen``; the connections that nobody has accepted yet |
| ``connection`` | ``Connection`` |
| ``config`` | ``ClientConfig`` and ``ServerConfig`` |
| ``link`` | a connection's handshake, pings and end |
| ``contexts`` | ``await`` and ``async with`` of connections, sessions and listeners |
| ``origin`` | warnings about connections, streams and listeners that a program forgot |
| ``files`` | ``sendfile`` |
"""
