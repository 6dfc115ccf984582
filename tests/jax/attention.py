"""Golden rows of attention: its result, and the log of the sums that its weights were divided by.

The formula is written out, for jax.nn's function rounds softmax to f32 in f64 too, and gives the logs no derivative.
"""

import jax
import jax.numpy as jnp
import numpy as np

from points import BF16


def attention(out):
    mask = np.array([[[1, 0, 1, 1, 0], [1, 1, 0, 1, 1], [0, 1, 1, 1, 0]]], dtype=bool)[None]  # [1, 1, queries, keys]
    for t in (np.float64, np.float32, np.float16, BF16):
        row(out, t, (2, 3, 2, 4), (2, 5, 2, 4), scale=0.5)
    row(out, np.float64, (2, 3, 4, 2), (2, 5, 2, 2), scale=0.75)
    row(out, np.float64, (1, 4, 2, 2), (1, 4, 1, 2), after=0)
    row(out, np.float64, (1, 5, 2, 2), (1, 5, 2, 2), before=1, after=2)
    row(out, np.float64, (2, 3, 2, 2), (2, 5, 2, 2), mask=mask, scale=0.5)
    row(out, np.float64, (2, 3, 2, 2), (2, 5, 2, 2), bias=(1, 2, 3, 5), scale=0.5)
    row(out, np.float32, (2, 3, 2, 2), (2, 5, 1, 2), bias=(2, 2, 3, 5), mask=mask, scale=0.5)


def numbers(shape, t, period):
    """Small numbers whose scores do not overflow."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % period - period // 2) / 8).astype(t).reshape(shape)


def row(out, t, query, key, bias=None, mask=None, scale=1.0, before=-1, after=-1):
    operands = [numbers(query, t, 11), numbers(key, t, 13), numbers(key, t, 17)]
    fields = dict(scale=scale, before=before, after=after)
    if bias is not None:
        operands.append(numbers(bias, t, 19))
        fields |= dict(bias=True)
    if mask is not None:
        operands.append(mask)
        fields |= dict(mask=True)
    distance = np.arange(key[1])[None, :] - np.arange(query[1])[:, None]  # of a key from a query
    is_met = ((before < 0) | (-distance <= before)) & ((after < 0) | (distance <= after))

    def attend(q, k, v, *more):
        wide = jnp.promote_types(t, np.float32)
        q, k, v = (x.astype(wide) for x in (q, k, v))
        k, v = (jnp.repeat(x, query[2] // key[2], axis=2) for x in (k, v))
        scores = scale * jnp.einsum("btnh,bsnh->bnts", q, k)
        if bias is not None:
            scores = scores + more[0]
        scores = jnp.where(is_met if mask is None else is_met & more[-1], scores, -np.inf)
        logs = jax.scipy.special.logsumexp(scores, axis=-1)
        weights = jnp.exp(scores - logs[..., None])
        return jnp.einsum("bnts,bsnv->btnv", weights, v).astype(t), logs

    batches = [(0,) + (-1,) * (len(operands) - 1)] if t == np.float64 else []
    out.row("attention", jax.jit(attend), operands, batches=batches, **fields)
