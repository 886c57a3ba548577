"""Libraries for WebTransport, each a module of the shape that `session.Library` describes."""
