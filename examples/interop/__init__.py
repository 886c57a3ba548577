"""An endpoint for QUIC's public interoperability runner: ``python -m examples.interop server|client``.

The runner starts an endpoint with its orders in the environment (``ROLE``, ``TESTCASE``,
``REQUESTS``, ``SSLKEYLOGFILE``, ``QLOGDIR``), serves from ``/www``, looks for files in
``/downloads``, keeps certificates in ``/certs``, and reads exit status 127 as "case not supported".
``cases`` says what each case asks for, ``server`` and ``client`` do it, ``command`` reads the orders.

``server`` and ``client`` are written on the names that uringcore shares with aioquic and on nothing
else, so they are at once an example of that API.
"""
