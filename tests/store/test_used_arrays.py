"""Memory of arrays that serves others when nobody has them."""

from __future__ import annotations

import numpy as np

from streamsvm.store.chunk_reader import ChunkReader, UsedArrays

FLOATS = np.dtype("f4")
N = 2**20


def place(array: np.ndarray) -> int:
    return array.ctypes.data


def test_memory_is_used_again_only_when_nobody_has_a_part_of_it() -> None:
    arrays = UsedArrays()
    first = arrays.empty(N, FLOATS)
    where = place(first)
    second = arrays.empty(N, FLOATS)
    assert place(second) != where
    part = first[100:].view(np.int32)[::2]
    del first
    assert place(arrays.empty(N, FLOATS)) != where
    part[:] = 7
    second[:] = 1
    assert (part == 7).all()
    del part
    assert place(arrays.empty(N + N // 16, np.dtype("i4"))) == where


class CountedChunks:
    """Chunks of 0, 1, 2, ..., which count how often each is fetched."""

    dtype, chunk, fill = np.dtype("i8"), 10, 0

    def __init__(self) -> None:
        self.fetched: list[int] = []

    def expect(self, number: int) -> None:
        pass

    def fetch(self, number: int, local: object) -> int:
        self.fetched.append(number)
        return number

    def decode(self, payload: int, out: np.ndarray) -> None:
        out[:] = 10 * payload + np.arange(10)


def test_a_chunk_is_decoded_once_by_reads_that_go_on_and_anew_by_others() -> None:
    chunks, reader = CountedChunks(), ChunkReader()
    for ranges, fetched in (
        ([(0, 13)], [0, 1]),
        ([(13, 17)], []),
        ([(16, 35)], [2, 3]),  # as row pointers, which overlap
        ([(35, 40)], []),
        ([(40, 41)], [4]),
        ([(20, 25)], [2]),
        ([(25, 27), (41, 43)], [2, 4]),
        ([(43, 44)], [4]),
        ([(0, 10)], [0]),
        ([(10, 20)], [1]),
    ):
        found = reader.read(chunks, np.array(ranges))
        assert found.tolist() == [number for each in ranges for number in range(*each)]
        assert sorted(chunks.fetched) == fetched, ranges
        chunks.fetched.clear()
    reader.close()
