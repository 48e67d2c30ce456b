"""SplitMix64 keys and permutations (Steele, Lea & Flood 2014), which are the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from streamsvm.kernels.jit import inlined, kernel

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, rounded to an odd integer
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_SLICE = 32
_MIN_LOCAL_ROWS = 2**16  # fewer rows fit into the cache, and training converges faster with a full shuffle


@inlined
def mix(state):
    """Apply the SplitMix64 finaliser, a bijection of 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))


@kernel
def _draw(seed, numbers, keys):
    start = mix(np.uint64(seed))
    for i in range(len(numbers)):
        keys[i] = mix(start + (np.uint64(numbers[i]) + np.uint64(1)) * GAMMA)


def draws(seed: int | np.uint64, numbers: np.ndarray) -> np.ndarray:
    """Return a random uint64 key for each integer, shape (n,); distinct integers have distinct keys."""
    keys = np.empty(len(numbers), np.uint64)
    _draw(np.uint64(seed), numbers, keys)
    return keys


def draw_integers(seed: int, pieces: Iterable[np.ndarray], max_count: int) -> np.ndarray:
    """Draw up to `max_count` of the distinct integers in `pieces`: those with the smallest keys, sorted."""
    drawn = np.empty(0, np.int64)
    for integers in pieces:
        drawn = np.append(drawn, integers)
        drawn = drawn[np.argsort(draws(seed, drawn))[:max_count]]
    return drawn


@inlined
def _shuffle(order, begin, end, key):
    for i in range(end - 1, begin, -1):
        draw = mix(key + np.uint64(i) * GAMMA)
        j = begin + np.int64(draw % np.uint64(i - begin + 1))
        order[i], order[j] = order[j], order[i]


@kernel
def _permute(seed, stage, block, inner, length, slices, order):
    key = mix(np.uint64(seed) + GAMMA)
    key = mix(key ^ mix(np.uint64(stage) + GAMMA))
    key = mix(key ^ mix(np.uint64(block) + GAMMA))
    key = mix(key ^ mix(np.uint64(inner) + GAMMA))
    _shuffle(slices, 0, len(slices), key)
    if length == 1:
        return
    n, at = len(order), 0
    for number in slices:
        for i in range(number * length, min((number + 1) * length, n)):
            order[at] = i
            at += 1
    key = mix(key)
    for begin in range(0, n, length * length):
        _shuffle(order, begin, min(begin + length * length, n), key)


def permutation(n: int, seed: int, stage: int, block: int, inner: int) -> np.ndarray:
    """Return a random permutation of 0..n-1 (int64) that is determined by the arguments."""
    order = np.arange(n, dtype=np.int64)
    _permute(seed, stage, block, inner, 1, order, order)
    return order


def local_permutation(n: int, seed: int, stage: int, block: int, inner: int) -> np.ndarray:
    """Like `permutation`, but if `n` is large, shuffle 32 random slices of 32 integers at a time."""
    if n < _MIN_LOCAL_ROWS:
        return permutation(n, seed, stage, block, inner)
    order = np.empty(n, np.int64)
    _permute(seed, stage, block, inner, _SLICE, np.arange(-(-n // _SLICE)), order)
    return order
