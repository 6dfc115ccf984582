"""The points at which ops are compared: ordinary numbers, special ones, and the ends of each format."""

import ml_dtypes
import numpy as np

BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float64, np.float16, BF16]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTS = SIGNED + UNSIGNED
EVERYTHING = FLOATS + INTS + [np.bool_]


def float_points(t):
    """Both zeros, ordinary numbers, halves, and the ends of the format."""
    f = ml_dtypes.finfo(t)
    ends = [
        f.max,
        f.tiny,
        f.smallest_subnormal,
        f.tiny - f.smallest_subnormal,
        1 + float(f.eps),
        1 - float(f.eps) / 2,
    ]
    ends = [float(e) for e in ends]
    plain = [0.0, 0.5, 1, 1.5, 2, 2.5, 3, 0.1, 0.75, 1e-3, 7.25, 20, 90, 700, 3e4, 2.0**-12, np.inf]
    points = [s * p for p in plain + ends for s in (1, -1)] + [np.nan]
    return np.array(points).astype(t)


def float_grid(t):
    f = ml_dtypes.finfo(t)
    return grid(
        np.array(
            [
                0,
                -0.0,
                1,
                -1,
                2.5,
                -3,
                0.5,
                np.inf,
                -np.inf,
                np.nan,
                float(f.max),
                float(f.tiny),
                float(f.smallest_subnormal),
            ]
        ).astype(t)
    )


def int_points(t):
    i = np.iinfo(t)
    low = [i.min, i.min + 1, -100, -7, -1] if i.min < 0 else []
    return np.array(low + [0, 1, 2, 7, 100, i.max], dtype=t)


def grid(points):
    """All pairs."""
    return np.repeat(points, len(points)), np.tile(points, len(points))


def shift_grid(t):
    width = np.iinfo(t).bits
    amounts = [0, 1, width - 1, width, width + 1, np.iinfo(t).max] + ([-1, np.iinfo(t).min] if t in SIGNED else [])
    values = int_points(t)
    return np.repeat(values, len(amounts)), np.tile(np.array(amounts, dtype=t), len(values))


BOOLS = np.array([False, True])


def ramp(shape, t, specials=()):
    """Small numbers, ties among them; the first few are replaced by `specials`."""
    count = int(np.prod(shape))
    x = (np.arange(count) * 7 % 11 - 5).astype(np.int64)
    x = x.astype(t) if t in INTS else (x * 0.5).astype(t)
    x[1 : 1 + 2 * len(specials) : 2] = np.array(specials).astype(t)
    return x.reshape(shape)
