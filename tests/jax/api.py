"""Golden values of what the API decides rather than an op: promotion of dtypes, and random numbers."""

import jax
import jax.numpy as jnp
import numpy as np

from points import BF16, INTS
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
