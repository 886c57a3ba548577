"""A clock for tests of what is counted by time."""


class Clock:
    """Seconds, as the test sets them."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
