"""Golden rows of elementwise ops. A new op is one line in a table."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from points import *
from writer import NAMES

# op: JAX's function
UNARY_FLOAT = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "cbrt": lax.cbrt,
    "is_finite": lax.is_finite,
    "exp": lax.exp,
    "exp2": lax.exp2,
    "expm1": lax.expm1,
    "log": lax.log,
    "log2": jnp.log2,
    "log1p": lax.log1p,
    "sin": lax.sin,
    "cos": lax.cos,
    "tan": lax.tan,
    "asin": lax.asin,
    "acos": lax.acos,
    "atan": lax.atan,
    "sinh": lax.sinh,
    "cosh": lax.cosh,
    "tanh": lax.tanh,
    "asinh": lax.asinh,
    "acosh": lax.acosh,
    "atanh": lax.atanh,
    "logistic": lax.logistic,
    "erf": lax.erf,
    "erfc": lax.erfc,
    "erf_inv": lax.erf_inv,
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "stop_gradient": lax.stop_gradient,
}
UNARY_INT = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "not": lax.bitwise_not,
    "popcount": lax.population_count,
    "clz": lax.clz,
}
COMPARE = {"eq": lax.eq, "ne": lax.ne, "lt": lax.lt, "le": lax.le, "gt": lax.gt, "ge": lax.ge}
ARITHMETIC = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
}
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


def precision(out):
    for t in FLOATS:
        for exponent, mantissa in [(8, 23), (5, 10), (8, 7), (4, 3), (2, 1)]:
            fn = lambda x: lax.reduce_precision(x, exponent, mantissa)
            out.row("reduce_precision", fn, [float_points(t)], exponent_bits=exponent, mantissa_bits=mantissa)


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


def ternary(out):
    three = np.array([0, 1, 3], dtype=np.int32)
    for t in FLOATS:
        low, x, high = (v.reshape(-1) for v in np.meshgrid(*[np.array([-1, 0.0, 1, np.nan]).astype(t)] * 3))
        out.row("clamp", lax.clamp, [low, x, high])
        out.row("select", lax.select, [np.arange(5) % 2 == 0, ramp(5, t, [np.inf, np.nan]), ramp(5, t)[::-1]])
    for t in (np.int32, np.uint8):
        low, x, high = (v.reshape(-1) for v in np.meshgrid(*[three.astype(t)] * 3))
        out.row("clamp", lax.clamp, [low, x, high])
    x = np.float32([-2, 0.5, 3])
    out.row(
        "clamp",
        lax.clamp,
        [np.float32(-1), x, np.float32(1)],
        batches=[(-1, 0, -1), (0, -1, -1), (0, 1, -1)],
        derivatives=False,
    )
    out.row("select", lax.select, [np.array([True, False, True]), x, -x], batches=[(0, -1, -1), (-1, 1, 0)])


def conversions(out):
    for a in EVERYTHING:
        for b in EVERYTHING:
            points = float_points(a) if a in FLOATS else BOOLS if a == np.bool_ else int_points(a)
            out.row("convert", lambda x: lax.convert_element_type(x, b), [points], to=NAMES[np.dtype(b).name])
            if a != np.bool_ and b != np.bool_ and a != b and np.dtype(a).itemsize == np.dtype(b).itemsize:
                bits = int_points(f"u{np.dtype(a).itemsize}")[:-1].view(a)  # no NaN: its bits are not in the data
                out.row("bitcast", lambda x: lax.bitcast_convert_type(x, b), [bits], to=NAMES[np.dtype(b).name])
