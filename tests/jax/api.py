"""Golden values of what the API decides rather than an op: promotion of dtypes, and random numbers."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from points import BF16, INTS, grid, int_points
from writer import NAMES, type_name, words

STRONG = {NAMES[np.dtype(t).name]: t for t in [np.bool_] + INTS + [np.float16, BF16, np.float32, np.float64]}
STRONG |= {"c64": np.complex64, "c128": np.complex128}
WEAK = {"i*": 1, "f*": 1.0, "c*": 1j}  # numbers of the host language


def promotion(out):
    """One table for each mode: the dtype of x + y, i*, f* or c* where it is weak, "-" where JAX refuses."""
    for mode, x64, rule in [("x64", True, "standard"), ("x32", False, "standard"), ("strict", True, "strict")]:
        with jax.enable_x64(x64), jax.numpy_dtype_promotion(rule):
            names = [n for n in STRONG if x64 or n not in ("i64", "u64", "f64", "c128")] + list(WEAK)
            print("table", mode, *names, file=out.file)
            for a in names:
                print(a, *[promoted(a, b) for b in names], file=out.file)


def promoted(a, b):
    try:
        x = jnp.add(*[WEAK[n] if n in WEAK else jnp.zeros((), STRONG[n]) for n in (a, b)])
    except ValueError:
        return "-"
    return f"{x.dtype.kind}*" if x.weak_type else NAMES[x.dtype.name]


def draws(out):
    """What a key gives. The name says which function, tests/jax/draws_test.cpp calls Sheaf's of that name."""

    def draw(name, seed, x):
        x = np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        print(f"{name}, {seed}, {type_name(x)}: {words(x)}", file=out.file)

    r = jax.random
    for seed in (0, 1701, -1, 2**32 + 5, 2**63 - 1):
        key = r.key(seed)
        draw("key", seed, key)
        draw("split", seed, r.split(key, 4))
        draw("fold_in 4", seed, r.fold_in(key, 4))
        draw("fold_in 4294967295", seed, r.fold_in(key, np.uint32(2**32 - 1)))
        for t in (np.uint8, np.uint16, np.uint32, np.uint64):
            draw("bits", seed, r.bits(key, (2, 3), t))
    key = r.key(42)
    for t in (np.float32, np.float64, np.float16, BF16):
        draw("uniform", 42, r.uniform(key, (3, 5), t))
        draw("uniform in (-2, 3)", 42, r.uniform(key, (3, 5), t, -2.0, 3.0))
        draw("normal", 42, r.normal(key, (3, 5), t))
    draw("bernoulli 0.5", 42, r.bernoulli(key, np.float32(0.5), (17,)))
    draw("bernoulli 0.1", 42, r.bernoulli(key, np.float32(0.1), (17,)))
    draw("uniform of keys", 42, jax.vmap(lambda k: r.uniform(k, (3,), np.float32))(r.split(key, 4)))


GRID = np.array([0.0, -0.0, 1, -1, 2.5, -3.5, 7, np.inf, -np.inf, np.nan])
ROWS = [[1, 2.5, -3, 0.5], [0.0, 0.0, 0.0, 0.0], [1e3, -1e3, 999, 0], [np.inf, 1, 2, 3], [-np.inf, 1, 2, -np.inf]]
ROWS += [[np.nan, 1, 2, 3], [-np.inf] * 4]

# Functions of one array at special points; those of rows reduce or normalise along the last axis.
POINTWISE = {
    "relu": jax.nn.relu,
    "leaky_relu": jax.nn.leaky_relu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "square": jnp.square,
    "reciprocal": jnp.reciprocal,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
}
ROW_WISE = {
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=-1),
    "mean": lambda x: jnp.mean(x, -1),
    "var": lambda x: jnp.var(x, -1),
    "stddev": lambda x: jnp.std(x, -1),
    "sort": lambda x: jnp.sort(x, -1),
    "argsort": lambda x: jnp.argsort(x, -1).astype(np.int32),
    "flip": lambda x: jnp.flip(x, -1),
    "roll": lambda x: jnp.roll(x, 1, -1),
    "tril": jnp.tril,
    "triu": jnp.triu,
    "repeat": lambda x: jnp.repeat(x, 2, -1),
    "tile": lambda x: jnp.tile(x, (2, 1)),
}
OF_TWO = {
    "mod": jnp.mod,
    "floor_divide": jnp.floor_divide,
    "maximum": jnp.maximum,
    "where": lambda x, y: jnp.where(x > y, x, y),
    "logical_and": jnp.logical_and,
    "logical_xor": jnp.logical_xor,
}
OF_INTEGERS = {
    "sum": lambda x: jnp.sum(x, -1),
    "prod": lambda x: jnp.prod(x, -1),
    "mean": lambda x: jnp.mean(x, -1),
    "any": lambda x: jnp.any(x, -1),
    "all": lambda x: jnp.all(x, -1),
}


def functions(out):
    """Functions of the API, with 64-bit types off, as its C++ numbers are i32 and f32 alone."""

    def call(name, fn, *operands):
        result = jax.eval_shape(fn, *operands)
        out.row(name, fn, operands, result=NAMES[result.dtype.name])

    with jax.enable_x64(False):
        for t in (np.float32, BF16):
            for name, fn in POINTWISE.items():
                call(name, fn, np.concatenate([GRID, [20, -20, 100, -100, 1e-3]]).astype(t))
        for name, fn in ROW_WISE.items():
            call(name, fn, np.array(ROWS).astype(np.float32))
        for name, fn in OF_TWO.items():
            for t in (np.float32, np.int32, np.int8, np.uint8):
                points = GRID if t == np.float32 else int_points(t)
                call(name, fn, *(p.astype(t) for p in grid(points)))
        for name, fn in OF_INTEGERS.items():
            for t in (np.bool_, np.int8, np.uint8, np.int32, np.uint32):
                call(name, fn, np.array([[1, 0, 100, 3], [0, 0, 0, 0], [127, 127, 2, 1]]).astype(t))


COMPLEX = {  # of one complex number
    "neg": lambda z: -z,
    "conj": jnp.conj,
    "abs": jnp.abs,
    "angle": jnp.angle,
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "reciprocal": lambda z: 1 / z,
    "square": lambda z: z * z,
    "sum": jnp.sum,
}
OF_TWO_COMPLEX = {
    "add": lambda z, w: z + w,
    "sub": lambda z, w: z - w,
    "mul": lambda z, w: z * w,
    "div": lambda z, w: z / w,
    "pow": lambda z, w: z**w,
    "dot": jnp.dot,
    "outer": jnp.outer,
}


def complex_numbers(out):
    """Functions of real and imaginary parts, giving both, so that no convention of complex derivatives matters."""

    def parts(z):
        return jnp.stack([jnp.real(z), jnp.imag(z)])

    re, im = (p.reshape(-1) for p in np.meshgrid([0.5, -1.25, 2, -3], [0.75, -0.5, 1.5]))
    for t in (np.float64, np.float32):
        z = [re.astype(t), im.astype(t)]
        w = [np.roll(re, 5).astype(t) + t(0.25), np.roll(im, 7).astype(t)]
        for name, fn in COMPLEX.items():
            of_parts = lambda x, y: parts(fn(lax.complex(x, y)))
            out.row(
                "complex:" + name, of_parts, z, batches=[(0, -1)] if t == np.float64 else [], result=NAMES[t.__name__]
            )
        for name, fn in OF_TWO_COMPLEX.items():
            of_parts = lambda x, y, u, v: parts(fn(lax.complex(x, y), lax.complex(u, v)))
            out.row("complex:" + name, of_parts, [*z, *w], result=NAMES[t.__name__])
