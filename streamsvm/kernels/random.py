"""Random numbers of compiled code: functions of their arguments alone, the same on every machine.

They come from SplitMix64 (Steele, Lea & Flood 2014), whose i-th output is ``mix(seed + i * GAMMA)``.
"""

from __future__ import annotations

import numpy as np

from streamsvm.kernels.jit import allocating, inlined

GAMMA = np.uint64(0x9E3779B97F4A7C15)  # 2**64 divided by the golden ratio, made odd
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


@inlined
def mix(state):
    """The SplitMix64 finaliser: a bijection of 64-bit integers."""
    state = (state ^ (state >> np.uint64(30))) * _MIX1
    state = (state ^ (state >> np.uint64(27))) * _MIX2
    return state ^ (state >> np.uint64(31))


@allocating
def draws(seed, numbers):
    """Random uint64 keys of integers, shape (n,): distinct integers have distinct keys."""
    start = mix(np.uint64(seed))
    keys = np.empty(len(numbers), np.uint64)
    for i in range(len(numbers)):
        keys[i] = mix(start + (np.uint64(numbers[i]) + np.uint64(1)) * GAMMA)
    return keys


@allocating
def permutation(n, seed, stage, block, inner):
    """A random permutation of 0..n-1 (int64), a function of its arguments alone (Fisher-Yates)."""
    key = mix(np.uint64(seed) + GAMMA)
    key = mix(key ^ mix(np.uint64(stage) + GAMMA))
    key = mix(key ^ mix(np.uint64(block) + GAMMA))
    key = mix(key ^ mix(np.uint64(inner) + GAMMA))
    order = np.arange(n)
    for i in range(n - 1, 0, -1):
        draw = mix(key + np.uint64(i) * GAMMA)
        j = np.int64(draw % np.uint64(i + 1))
        order[i], order[j] = order[j], order[i]
    return order
