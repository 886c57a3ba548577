"""What ``uringcore.quic`` offers of its own, beside the modules in aioquic's shape."""
