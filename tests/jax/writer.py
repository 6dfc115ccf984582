"""Writes golden rows: one op of Sheaf, its operands, and what JAX says of its value, tangents, cotangents and batches.

The file is text, read by tests/jax/golden.h. Elements are their bits in hexadecimal, "nan" for any NaN, "b*n" for n
equal ones. Tangents and cotangents are no data: both sides make them by the rules below, from numbers that every
float holds exactly.
"""

import jax
import jax.numpy as jnp
import numpy as np

NAMES = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "complex128": "c128",
}
DIRECTIONS = [1, -0.5, 2, 0.75]


def dtype_name(x):
    return NAMES[x.dtype.name]


def type_name(x):
    return f"{dtype_name(x)}[{', '.join(map(str, x.shape))}]"


def has_tangent(x):
    return jnp.issubdtype(x.dtype, jnp.inexact)


def direction(x, shift):
    """Element i is DIRECTIONS[(i + shift) % 4]."""
    return np.resize(np.roll(DIRECTIONS, -shift), x.size).reshape(x.shape).astype(x.dtype)


def second(x):
    """The other element of a batch of two: x, its elements moved on by one position."""
    return np.roll(x.reshape(-1), 1).reshape(x.shape)


def parts(x):
    """The numbers an element is made of: two for complex."""
    if not np.iscomplexobj(x):
        return x.reshape(-1)
    return np.stack([x.real, x.imag], -1).reshape(-1)


def words(x):
    x = np.ascontiguousarray(parts(np.asarray(x)))
    is_nan = np.isnan(x.astype(np.float64)) if has_tangent(x) else np.zeros(x.shape, bool)
    bits = x.view(f"u{x.dtype.itemsize}")
    out = []
    for b, nan in zip(bits, is_nan):
        word = "nan" if nan else f"{b:x}"
        if out and out[-1][0] == word:
            out[-1][1] += 1
        else:
            out.append([word, 1])
    return " ".join(w if n == 1 else f"{w}*{n}" for w, n in out)


def listed(results):
    return results if isinstance(results, (tuple, list)) else [results]


def arrays(results):
    return [np.asarray(r) for r in listed(results)]


def attrs(**fields):
    """Sheaf's text of an op's attributes."""
    return ", ".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in fields.items())


class Writer:
    """One data file."""

    def __init__(self, path):
        self.file = open(path, "w")
        self.operands = {}
        print(f"# Made by make_golden.py with JAX {jax.__version__}; not to be edited.", file=self.file)

    def operand(self, x):
        text = f"{type_name(x)} {words(x)}".rstrip()
        if text not in self.operands:
            self.operands[text] = f"x{len(self.operands)}"
            print(f"in {self.operands[text]} {text}", file=self.file)
        return self.operands[text]

    def results(self, kind, results):
        print(f"{kind}: " + " ; ".join(words(r) for r in arrays(results)), file=self.file)

    def row(self, op, fn, operands, derivatives=True, batches=(), **fields):
        """fn: the JAX function of the operands. batches: the axis of each operand, -1 for none. fields: attributes."""
        operands = [np.asarray(x) for x in operands]
        names = [self.operand(x) for x in operands]
        types = ", ".join(type_name(x) for x in operands)
        attributes = f" {{{attrs(**fields)}}}" if fields else ""
        print(f"row {op} {types}{attributes} | {' '.join(names)}", file=self.file)
        value = arrays(fn(*operands))
        self.results("value", value)
        smooth = [k for k, x in enumerate(operands) if has_tangent(x)]
        if derivatives and smooth and all(has_tangent(v) for v in value):
            self.derivatives(fn, operands, smooth, value)
        for axes in batches:
            stacked = [x if a < 0 else np.stack([x, second(x)], a) for x, a in zip(operands, axes)]
            in_axes = [None if a < 0 else a for a in axes]
            self.results("vmap " + " ".join(map(str, axes)), jax.vmap(fn, in_axes)(*stacked))

    def derivatives(self, fn, operands, smooth, value):
        def along(*chosen):
            full = list(operands)
            for k, x in zip(smooth, chosen):
                full[k] = x
            return tuple(jnp.asarray(v) for v in listed(fn(*full)))

        primals = [operands[k] for k in smooth]
        for i, k in enumerate(smooth):
            only = lambda x, i=i: along(*primals[:i], x, *primals[i + 1 :])
            self.where_defined(f"jvp {k}", lambda: jax.jvp(only, (primals[i],), (direction(primals[i], k),))[1])
        cotangents = tuple(direction(v, 2 + j) for j, v in enumerate(value))
        self.where_defined("vjp", lambda: list(jax.vjp(along, *primals)[1](cotangents)))

    def where_defined(self, kind, derivative):
        try:
            self.results(kind, derivative())
        except (NotImplementedError, ValueError, TypeError) as error:  # each says that JAX has no such derivative
            print(f"left out: {kind}: {str(error).splitlines()[0]}")
