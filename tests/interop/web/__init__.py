"""HTTP/3 deployments: other projects' clients for `uringcore app:app`, their servers for our
client.

The programs have the command line and the environment of the other peers (see ../peers). Besides
files, which GET returns and POST echoes, their cases use the paths of `application`. `server`
starts servers, `client` clients, `origin` is the server behind a proxy; quic-go's are in ../quicgo.
"""
