"""WebTransport with other implementations: what is asked of both ends, and Python's libraries as endpoints.

An endpoint has the command line of the other peers (see ../peers). Its server takes sessions at `/probe`
and answers 404 elsewhere. In a session it sends every datagram back, and what it reads on a
unidirectional stream it says on one of its own. A bidirectional stream of the client begins with an order:

    ECHO\\n<data>            the data comes back
    OPEN\\n                  the server opens a stream with `GIFT`, and says `same` here if that comes back
    CLOSE <code> <reason>\\n the server closes the session
    RESET <code>\\n          the server resets its side
    STOP <code>\\n           the server asks the client to stop; the client's side is open all along
    HEAR\\n                  the server says `ready`, the client resets its side, and the server says the code
                            on a unidirectional stream
    LAST\\n                  the server says code and reason with which the session before was closed
    PROTOCOL\\n              the server says which protocol was chosen

Orders end with the stream, but for STOP and HEAR. `scenario` has both ends in Python, on what a module of
`libraries` makes of its library; in Go and in Rust they are in ../webtransportgo and ../webtransportquinn.
"""
