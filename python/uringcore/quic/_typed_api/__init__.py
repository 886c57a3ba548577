"""The typed interface of :mod:`uringcore.quic`, which aioquic lacks.

| file | noun |
| --- | --- |
| ``connect`` | ``connect`` |
| ``listener`` | ``listen`` and ``Listener`` |
| ``listener_socket`` | the socket of a listener |
| ``listener_settings`` | the settings of an open listener, and their reload |
| ``accepted_connections``, ``accept_backlog`` | accepted connections; those that no program has yet |
| ``connection`` | ``Connection`` |
| ``config``, ``endpoint_config`` | ``ClientConfig`` and ``ServerConfig``; what they have in common |
| ``certificates`` | ``Certificate`` |
| ``field_type_checks`` | checks the types of their fields |
| ``connection_event_dispatch`` | the protocol object of a connection, which gets its events |
| ``await_and_async_with`` | ``await`` and ``async with`` of connections, sessions and listeners |
| ``unclosed_objects`` | unreferenced connections, streams and listeners: their end, and a warning |
| ``sendfile`` | ``sendfile`` |
"""
