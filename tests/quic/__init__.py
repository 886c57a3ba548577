"""QUIC: the state machine in Python, on the loop, and against aioquic."""
