"""Bytes may be any contiguous buffer, and lists any iterable: the code does not trust a claimed
length.
"""

import array
import sys

import pytest

from tests.extension.odd_values import Claims
from uringcore._uringcore import QpackEncoder
from uringcore.buffer import Buffer
from uringcore.tls import MemorySessionStore

KINDS = [bytes, bytearray, memoryview, lambda data: array.array("B", data)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_contiguous_buffer_is_taken(kind):
    store = MemorySessionStore()
    assert store.put(kind(b"ticket"), kind(b"session"))
    assert store.take(kind(b"ticket")) == b"session"
    buffer = Buffer(data=kind(b"abc"))
    assert buffer.pull_bytes(3) == b"abc"
    buffer = Buffer(capacity=3)
    buffer.push_bytes(kind(b"abc"))
    assert buffer.data == b"abc"


@pytest.mark.parametrize("value", [range(1 << 40), [1, 2], "text", None, Claims(1), 5])
def test_a_value_without_a_buffer_is_a_type_error_that_names_the_argument(value):
    store = MemorySessionStore()
    with pytest.raises(TypeError, match="bytes-like") as caught:
        store.put(value, b"x")
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == ["while processing 'ticket'"]
    assert len(store) == 0


def test_a_buffer_with_gaps_is_refused():
    with pytest.raises(BufferError):
        MemorySessionStore().put(memoryview(b"abcdef")[::2], b"x")


@pytest.mark.parametrize("pair", [(b"a", b"b"), [b"a", b"b"]])
def test_headers_may_claim_any_length(pair):
    told = QpackEncoder().encode(0, Claims(pair))
    assert told == QpackEncoder().encode(0, [pair])
