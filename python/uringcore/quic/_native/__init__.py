"""The typed interface of :mod:`uringcore.quic`, which aioquic lacks.

| file | noun |
| --- | --- |
| ``client`` | ``connect`` |
| ``server`` | ``listen`` |
| ``listening`` | the socket of a server, and its settings with their reload |
| ``accepting``, ``backlog`` | accepted connections; those that no program has yet |
| ``connection`` | ``Connection`` |
| ``config``, ``endpoint_config`` | ``ClientConfig`` and ``ServerConfig``; what they have in common |
| ``certificates`` | ``Certificate`` |
| ``field_types`` | checks the types of their fields |
| ``link`` | a connection's handshake, pings and end |
| ``contexts`` | ``await`` and ``async with`` of connections, sessions and listeners |
| ``unclosed`` | unreferenced connections, streams and listeners: their end, and a warning |
| ``files`` | ``sendfile`` |
"""
