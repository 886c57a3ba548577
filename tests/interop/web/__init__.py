"""HTTP/3 as it is deployed: other projects' clients for `uringcore app:app`, their servers for our client.

Programs with the command line and the environment of the other peers (see ../peers). Besides files, which
GET gives and POST gives back, their cases ask for what `application` has. `server` starts servers,
`client` clients, `origin` is what stands behind a proxy; quic-go's are in ../quicgo.
"""
