"""An endpoint for QUIC's public interoperability runner: ``python -m examples.interop
server|client``.

The runner passes its orders in the environment (``ROLE``, ``TESTCASE``, ``REQUESTS``,
``SSLKEYLOGFILE``, ``QLOGDIR``), puts the files to serve into ``/www``, expects the received files
in ``/downloads``, keeps certificates in ``/certs``, and reads exit status 127 as "case not
supported". ``cases`` lists the requirements of each case, ``server`` and ``client`` implement them,
``command`` reads the orders.

``server`` and ``client`` use only the names that uringcore shares with aioquic, so they are also an
example of that API.
"""
