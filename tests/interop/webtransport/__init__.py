"""WebTransport with other implementations: the requirements on both ends, and Python libraries as
endpoints.

An endpoint has the command line of the other peers (see ../peers). Its server accepts sessions at
`/probe` and responds with 404 elsewhere. In a session it echoes every datagram, and echoes a
unidirectional stream on one of its own. A bidirectional stream of the client begins with a command:

    ECHO\\n<data>            the server echoes the data
    OPEN\\n                  the server opens a stream with `GIFT`, sends `same` here after a correct echo
    CLOSE <code> <reason>\\n the server closes the session
    RESET <code>\\n          the server resets its side
    STOP <code>\\n           the server sends STOP_SENDING; the client's side stays open
    HEAR\\n                  the server sends `ready`, the client resets its side, the server sends the code
                            on a unidirectional stream
    LAST\\n                  the server sends code and reason of the previous session's close
    PROTOCOL\\n              the server sends the chosen protocol

Commands end with the stream, except for STOP and HEAR. `scenario` has both ends in Python, on the
adapter that a module of `libraries` makes for its library; in Go and in Rust they are in
../webtransportgo and ../webtransportquinn.
"""
