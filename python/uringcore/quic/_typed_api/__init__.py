"""The typed interface of :mod:`uringcore.quic`, which aioquic lacks.

| file | noun |
| --- | --- |
| ``client`` | ``connect`` |
| ``server`` | ``listen`` |
| ``listen_settings`` | the socket of a server, and its settings with their reload |
| ``acceptor``, ``accept_backlog`` | accepted connections; those that no program has yet |
| ``connection`` | ``Connection`` |
| ``config``, ``endpoint_config`` | ``ClientConfig`` and ``ServerConfig``; what they have in common |
| ``certificates`` | ``Certificate`` |
| ``field_type_checks`` | checks the types of their fields |
| ``connection_events`` | a connection's handshake, pings and end |
| ``awaitable_context`` | ``await`` and ``async with`` of connections, sessions and listeners |
| ``unclosed_objects`` | unreferenced connections, streams and listeners: their end, and a warning |
| ``sendfile`` | ``sendfile`` |
"""
