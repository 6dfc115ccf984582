"""Golden values of linear algebra, einsum and collectives, which are functions of the API.

What has a free sign (vectors of svd and eigh) is compared in a form that has none: the products of the pairs of vectors
that belong to one value.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from points import BF16, ramp
from writer import NAMES

GENERAL = np.array([[2, -1, 0.5], [1, 3, -2], [0.25, -0.5, 1.5]])
DEFINITE = np.array([[4, 1, -0.5], [1, 3, 0.75], [-0.5, 0.75, 2]])
INDEFINITE = np.array([[1, 2, 0], [2, 1, 0.5], [0, 0.5, -3]])
SINGULAR = np.array([[1, 2, 3], [2, 4, 6], [0, 1, 1.0]])
TALL = np.array([[1, 0.5], [-2, 1], [0.25, 3]])
STACK = np.stack([GENERAL[:2, :2], np.array([[0.5, 2], [1, -1]])])
VECTOR = np.array([1, -2, 0.5])


def call(out, name, fn, *operands, **options):
    result = jax.eval_shape(fn, *operands)
    out.row(name, fn, operands, result=NAMES[result.dtype.name], **options)


def svd_parts(x):
    u, s, vt = jnp.linalg.svd(x, full_matrices=False)
    return jnp.einsum("...ik,...kj->...kij", u, vt)


def eigh_parts(x):
    vectors = jnp.linalg.eigh(x)[1]
    return jnp.einsum("...ik,...jk->...kij", vectors, vectors)


SYMMETRIC = {
    "eigh:values": lambda x: jnp.linalg.eigh(x)[0],
    "eigh:parts": eigh_parts,
}
SQUARE = {
    "inv": jnp.linalg.inv,
    "det": jnp.linalg.det,
    "slogdet:sign": lambda x: jnp.linalg.slogdet(x)[0],
    "slogdet:logdet": lambda x: jnp.linalg.slogdet(x)[1],
    "matrix_power:3": lambda x: jnp.linalg.matrix_power(x, 3),
    "matrix_power:-2": lambda x: jnp.linalg.matrix_power(x, -2),
    "lu": lambda x: lax.linalg.lu(x)[0],
    "lu:pivots": lambda x: lax.linalg.lu(x)[1],
    "lu:permutation": lambda x: lax.linalg.lu(x)[2],
}
ANY_SHAPE = {
    "qr:q": lambda x: jnp.linalg.qr(x)[0],
    "qr:r": lambda x: jnp.linalg.qr(x)[1],
    "svd:values": lambda x: jnp.linalg.svd(x, full_matrices=False)[1],
    "svd:parts": svd_parts,
    "pinv": jnp.linalg.pinv,
    "norm": jnp.linalg.norm,
    "norm:rows": lambda x: jnp.linalg.norm(x, axis=-1),
    "norm:rows_one": lambda x: jnp.linalg.norm(x, 1, -1),
    "norm:rows_inf": lambda x: jnp.linalg.norm(x, np.inf, -1),
    "norm:frobenius": lambda x: jnp.linalg.norm(x, "fro", (-2, -1)),
    "norm:one": lambda x: jnp.linalg.norm(x, 1, (-2, -1)),
    "norm:two": lambda x: jnp.linalg.norm(x, 2, (-2, -1)),
    "norm:inf": lambda x: jnp.linalg.norm(x, np.inf, (-2, -1)),
}


def triangular(lower, transposed, unit):
    def solve(a, b):
        return lax.linalg.triangular_solve(
            a, b, left_side=True, lower=lower, transpose_a=transposed, unit_diagonal=unit
        )

    return solve


SYSTEMS = {
    "solve": jnp.linalg.solve,
    "triangular_solve:lower": triangular(True, False, False),
    "triangular_solve:upper_transposed": triangular(False, True, False),
    "triangular_solve:unit_lower_transposed": triangular(True, True, True),
}


def linear_solve(a, b):
    """The derivative is that of the equation a x = b; the functions that solve it are not looked into."""
    return lax.custom_linear_solve(
        lambda x: a @ x, b, lambda _, y: jnp.linalg.solve(a, y), lambda _, y: jnp.linalg.solve(a.T, y)
    )


def linalg(out):
    for t in (np.float64, np.float32):
        batches = [(0,)] if t == np.float64 else []
        call(out, "cholesky", jnp.linalg.cholesky, DEFINITE.astype(t), batches=[])
        for name, fn in SYMMETRIC.items():
            call(out, name, fn, INDEFINITE.astype(t), batches=batches)
        for name, fn in SQUARE.items():
            call(out, name, fn, GENERAL.astype(t), batches=batches)
        for name, fn in ANY_SHAPE.items():
            call(out, name, fn, TALL.astype(t), batches=batches)
        for name, fn in SYSTEMS.items():
            call(out, name, fn, GENERAL.astype(t), TALL.astype(t), batches=[(0, -1), (-1, 0)] if batches else [])
        call(out, "custom_linear_solve", linear_solve, GENERAL.astype(t), VECTOR.astype(t))
        call(out, "lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], TALL.astype(t), VECTOR.astype(t))
    for name, fn in {**SQUARE, **ANY_SHAPE}.items():
        call(out, name, fn, STACK)
        if name not in ("matrix_power:-2", "norm:one", "norm:two", "norm:inf"):
            call(out, name, fn, np.zeros((0, 0)) if name in SQUARE else np.zeros((0, 2)), derivatives=False)
    for name in ("qr:q", "qr:r", "svd:values", "svd:parts", "pinv", "norm:two"):
        call(out, name, ANY_SHAPE[name], TALL.T.copy())
    missing(out)


def missing(out):
    """Matrices that lack what is asked for."""
    nan = DEFINITE.copy()
    nan[1, 0] = np.nan
    for x in INDEFINITE, nan:
        call(out, "cholesky", jnp.linalg.cholesky, x, derivatives=False)
    for name in ("eigh:values", "eigh:parts"):
        call(out, name, SYMMETRIC[name], nan, derivatives=False)
    for name in ("svd:values", "svd:parts"):
        call(out, name, ANY_SHAPE[name], nan, derivatives=False)
    for name in ("det", "slogdet:sign", "slogdet:logdet", "pinv"):
        call(out, name, {**SQUARE, **ANY_SHAPE}[name], SINGULAR)
    for name in ("norm", "norm:rows", "norm:rows_one", "norm:rows_inf", "norm:frobenius"):
        call(out, name, ANY_SHAPE[name], np.array([[0.0, -0.0], [3, -3]]))
        call(out, name, ANY_SHAPE[name], np.zeros((2, 2)))
        call(out, name, ANY_SHAPE[name], np.array([[np.inf, 1], [np.nan, 2]]))


SPECS = {
    "ij->ji": [(2, 3)],
    "ij->": [(2, 3)],
    "ij": [(2, 3)],
    "ji": [(2, 3)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "iij->j": [(2, 2, 3)],
    "iji->ij": [(2, 3, 2)],
    "iii->i": [(2, 2, 2)],
    "...ii->...i": [(2, 3, 3)],
    "i...->...i": [(2, 3, 2)],
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "ij,kj->ki": [(2, 3), (4, 3)],
    "ij,ij->": [(2, 3), (2, 3)],
    "ij,ij->ij": [(2, 3), (2, 3)],
    "i,j->ij": [(2,), (3,)],
    "i,i": [(3,), (3,)],
    "i,j->": [(2,), (3,)],
    ",ij->ij": [(), (2, 3)],
    "bij,bjk->bik": [(2, 2, 3), (2, 3, 2)],
    "bij,bjk->kb": [(2, 2, 3), (2, 3, 2)],
    "...ij,...jk->...ik": [(2, 2, 3), (3, 2)],
    "...ij,jk": [(2, 2, 3), (3, 2)],
    "i...,i...->...": [(3, 2), (3,)],
    "ii,ij->j": [(3, 3), (3, 2)],
    "aab,bcc->ac": [(2, 2, 3), (3, 2, 2)],
    "ij,jk,kl->il": [(2, 3), (3, 2), (2, 3)],
    "i,ij,j->": [(2,), (2, 3), (3,)],
    "bhqd,bhkd->bhqk": [(2, 1, 3, 2), (2, 1, 2, 2)],
}


def einsum(out):
    for spec, shapes in SPECS.items():
        fn = lambda *x: jnp.einsum(spec, *x)
        batches = [(0,), (1,)] if len(shapes) == 1 else [(0, -1), (-1, 0)] if len(shapes) == 2 else []
        operands = [ramp(shape, np.float64) + k for k, shape in enumerate(shapes)]
        call(out, "einsum:" + spec, fn, *operands, batches=batches)
    for spec in ("ij,jk->ik", "ii->i", "ij,ij->"):
        for t in (np.float32, np.int32, np.uint8):
            operands = [ramp((3, 3), t) for _ in SPECS[spec]]
            call(out, "einsum:" + spec, lambda *x: jnp.einsum(spec, *x), *operands)
    empty = [np.zeros((2, 0)), np.zeros((0, 3))]
    call(out, "einsum:ij,jk->ik", lambda *x: jnp.einsum("ij,jk->ik", *x), *empty)


COLLECTIVES = {  # of one example
    "psum": lambda x: lax.psum(x, "i"),
    "pmean": lambda x: lax.pmean(x, "i"),
    "pmax": lambda x: lax.pmax(x, "i"),
    "pmin": lambda x: lax.pmin(x, "i"),
    "product": lambda x: x * lax.psum(x, "i"),
    "all_gather": lambda x: lax.all_gather(x, "i"),
    "all_gather_last": lambda x: lax.all_gather(x, "i", axis=1),
    "ppermute": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]),
    "rotate": lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)]),
    "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0),
    "axis_index": lambda x: x * lax.axis_index("i").astype(x.dtype),
}


def collectives(out):
    """Functions of a batch of three examples, whose axis is named."""
    for name, of_one in COLLECTIVES.items():
        fn = jax.vmap(of_one, axis_name="i")
        for t in (np.float32, np.float64, BF16, np.int8):
            call(out, name, fn, ramp((3, 3), t), batches=[(1,)] if t == np.float32 else [])
    for name in ("pmax", "pmin"):
        call(out, name, jax.vmap(COLLECTIVES[name], axis_name="i"), np.float32([[1, np.nan], [2, 0.0], [2, -0.0]]))
