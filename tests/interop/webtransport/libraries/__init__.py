"""WebTransport libraries, each a module with the interface of `session.Library`."""
