"""What all sides of a row are given: bench/inputs.h in NumPy, to the bit."""
import time

import numpy as np


def wave(seed, *shape):
    """In [-2, 2)."""
    with np.errstate(over="ignore"):
        h = np.arange(np.prod(shape, dtype=np.int64), dtype=np.uint32) * np.uint32(0x9E3779B1)
        h += np.uint32(seed * 0x85EBCA77 & 0xFFFFFFFF)
        for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
            h ^= h >> np.uint32(shift)
            h *= np.uint32(factor)
        h ^= h >> np.uint32(15)
    return ((h >> np.uint32(8)).astype(np.float32) * np.float32(2**-22) - np.float32(2)).reshape(shape)


def weights(seed, *shape):
    """Small enough for deep networks."""
    return wave(seed, *shape) * np.float32(0.5 / shape[0] ** 0.5)


def labels(count, classes):
    return (np.arange(count, dtype=np.int64) * 7919 % classes).astype(np.int32)


def new_factor():
    """A number that no kernel in any cache was made for."""
    return 1.25 + time.time_ns() % 1000003 / 1000003
