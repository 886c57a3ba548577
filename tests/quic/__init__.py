"""Tests of QUIC: the protocol state machine from Python, on the loop, and against aioquic."""
