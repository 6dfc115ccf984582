"""Golden values from JAX, for tests/jax: what each op gives over dtypes and special points.

Needs `pip install jax`; run it with the directory of the data as its argument: python make_golden.py golden
The data is committed, so neither building nor testing Sheaf needs Python. An op is one line in a table below.
"""
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_allow_excess_precision=false"  # bf16 rounds after every op, as documented
import jax
import ml_dtypes
import numpy as np
from jax import lax

from golden_writer import Writer

jax.config.update("jax_enable_x64", True)
BF16 = ml_dtypes.bfloat16
FLOATS = [np.float32, np.float64, np.float16, BF16]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
UNSIGNED = [np.uint8, np.uint16, np.uint32, np.uint64]
INTS = SIGNED + UNSIGNED


# ---- points ----
def float_points(t):
    """Both zeros, ordinary numbers, halves, and the ends of the format."""
    f = ml_dtypes.finfo(t)
    ends = [f.max, f.tiny, f.smallest_subnormal, f.tiny - f.smallest_subnormal, 1 + float(f.eps), 1 - float(f.eps) / 2]
    ends = [float(e) for e in ends]
    plain = [0.0, 0.5, 1, 1.5, 2, 2.5, 3, 0.1, 0.75, 1e-3, 7.25, 20, 90, 700, 3e4, 2.0**-12, np.inf]
    points = [s * p for p in plain + ends for s in (1, -1)] + [np.nan]
    return np.array(points).astype(t)


def float_grid(t):
    f = ml_dtypes.finfo(t)
    return grid(np.array([0, -0.0, 1, -1, 2.5, -3, 0.5, np.inf, -np.inf, np.nan, float(f.max), float(f.tiny),
                          float(f.smallest_subnormal)]).astype(t))


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

# ---- tables: op, JAX's function ----
UNARY_FLOAT = {
    "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "floor": lax.floor, "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), "sqrt": lax.sqrt, "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt, "is_finite": lax.is_finite, "exp": lax.exp, "exp2": lax.exp2, "expm1": lax.expm1, "log": lax.log,
    "log1p": lax.log1p, "sin": lax.sin, "cos": lax.cos, "tan": lax.tan, "asin": lax.asin, "acos": lax.acos,
    "atan": lax.atan, "sinh": lax.sinh, "cosh": lax.cosh, "tanh": lax.tanh, "asinh": lax.asinh, "acosh": lax.acosh,
    "atanh": lax.atanh, "logistic": lax.logistic, "erf": lax.erf, "erfc": lax.erfc, "erf_inv": lax.erf_inv,
    "lgamma": lax.lgamma, "digamma": lax.digamma, "stop_gradient": lax.stop_gradient,
}
UNARY_INT = {"neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "not": lax.bitwise_not, "popcount": lax.population_count,
             "clz": lax.clz}
COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
ARITHMETIC = {"add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem, "max": lax.max,
              "min": lax.min}
BINARY_FLOAT = {"pow": lax.pow, "atan2": lax.atan2}
LOGIC = {"and": lax.bitwise_and, "or": lax.bitwise_or, "xor": lax.bitwise_xor}
SHIFTS = {"shl": lax.shift_left, "shr_arith": lax.shift_right_arithmetic, "shr_logical": lax.shift_right_logical}


def unary(out):
    for name, fn in UNARY_FLOAT.items():
        for t in FLOATS:
            out.row(name, fn, [float_points(t)])
        out.row(name, fn, [np.float32([0.5, -2, 1.25])], batches=[(0,), (1,)], derivatives=False)
    for name, fn in UNARY_INT.items():
        for t in INTS:
            if t in SIGNED or name not in ("neg", "abs"):
                out.row(name, fn, [int_points(t)])
    out.row("not", lax.bitwise_not, [BOOLS])


def binary(out):
    for name, fn in {**ARITHMETIC, **BINARY_FLOAT, **COMPARE}.items():
        for t in FLOATS:
            out.row(name, fn, float_grid(t), derivatives=t in (np.float32, np.float16))
        out.row(name, fn, [np.float32([1, 2, np.nan]), np.float32([2, 2, 0])], batches=[(0, -1), (-1, 0), (1, 0)])
    for name, fn in {**ARITHMETIC, **COMPARE, **LOGIC}.items():
        for t in INTS:
            out.row(name, fn, grid(int_points(t)))
        if name not in ("add", "sub", "mul", "div", "rem"):
            out.row(name, fn, grid(BOOLS))
    for name, fn in SHIFTS.items():
        for t in INTS:
            out.row(name, fn, shift_grid(t))


def main(directory):
    for family in [unary, binary]:
        family(Writer(os.path.join(directory, f"{family.__name__}.txt")))


main(sys.argv[1])
