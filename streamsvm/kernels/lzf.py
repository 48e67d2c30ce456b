"""Decompression of LZF, the fast filter of h5py: literal runs, and copies of what was written before.

A byte below 32 begins a run of so many literals and one more. Any other one begins a copy: its upper three
bits are the length less 2 (7: the next byte is added), its lower five and the next byte the distance less 1
(Marc Lehmann's LibLZF defines the format).
"""

from __future__ import annotations

from streamsvm.kernels.jit import kernel


@kernel
def decompress(source, out):
    """Decompress `source` into `out`, both uint8; return the bytes that were written, -1 if damaged."""
    at, written = 0, 0
    n, capacity = len(source), len(out)
    while at < n:
        control = int(source[at])
        at += 1
        if control < 32:
            length = control + 1
            if at + length > n or written + length > capacity:
                return -1
            for k in range(length):
                out[written + k] = source[at + k]
            at += length
            written += length
            continue
        length = control >> 5
        if length == 7:
            if at >= n:
                return -1
            length += int(source[at])
            at += 1
        if at >= n:
            return -1
        begin = written - ((control & 31) << 8) - int(source[at]) - 1
        at += 1
        length += 2
        if begin < 0 or written + length > capacity:
            return -1
        for k in range(length):  # may overlap: a byte at a time
            out[written + k] = out[begin + k]
        written += length
    return written
