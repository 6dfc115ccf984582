"""Golden rows of ops that look along an axis: running reductions, windows and convolutions."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from points import BF16, ramp

RUNNING = {
    "sum": lax.cumsum,
    "prod": lax.cumprod,
    "max": lax.cummax,
    "min": lax.cummin,
    "logsumexp": lax.cumlogsumexp,
}


def windows(out):
    running(out)
    sliding(out)
    pooling(out)
    convolutions(out)


def running(out):
    for kind, fn in RUNNING.items():
        for specials in [], [np.nan], [np.inf, -np.inf], [0.0, -0.0]:
            for reverse in False, True:
                x = ramp((2, 6), np.float32, specials)
                forward = lambda x: fn(x, axis=1, reverse=reverse)
                batches = [] if specials else [(0,), (1,), (2,)]
                out.row("cumulative", forward, [x], batches=batches, kind=kind, dim=[1], reverse=reverse)
        out.row("cumulative", lambda x: fn(x, axis=0), [ramp((3, 2), np.float64)], kind=kind, dim=[0])
        if kind != "logsumexp":
            for t in (np.int8, np.uint32):
                out.row("cumulative", lambda x: fn(x, axis=0), [ramp((4, 2), t)], kind=kind, dim=[0])
    for t in (np.float32, np.float64, np.float16):
        for reverse in False, True:
            affine = lambda a, b: along_rows(a, b, reverse)
            batches = [(0, -1), (-1, 1), (1, 0)] if t == np.float32 else []
            out.row(
                "recurrence",
                affine,
                [ramp((2, 5), t), ramp((2, 5), t)[::-1]],
                batches=batches,
                dim=[1],
                reverse=reverse,
            )


def along_rows(a, b, reverse):
    """y[:, i] = a[:, i] y[:, i - 1] + b[:, i], the first being b's."""
    step = lambda y, ab: (ab[0] * y + ab[1],) * 2
    a, b = jnp.asarray(a), jnp.asarray(b)
    first = jnp.zeros_like(b[:, 0])
    return jax.lax.scan(step, first, (a.T, b.T), reverse=reverse)[1].T


def sliding(out):
    cases = [  # shape, dims, sizes, strides, dilations
        ((7,), (0,), (3,), (1,), (1,)),
        ((3, 8), (1,), (3,), (2,), (2,)),
        ((4, 5), (1, 0), (2, 3), (1, 1), (1, 1)),
    ]
    for shape, dims, sizes, strides, dilations in cases:
        fn = lambda x: windows_of(x, dims, sizes, strides, dilations)
        fields = dict(dims=list(dims), sizes=list(sizes), strides=list(strides), dilations=list(dilations))
        for t in (np.float32, BF16, np.int8):
            batches = [(0,), (1,)] if t == np.float32 else []
            out.row("sliding_windows", fn, [ramp(shape, t)], batches=batches, **fields)


def windows_of(x, dims, sizes, strides, dilations):
    """The windows' counts in place of the dims, their sizes behind."""
    for dim, size, stride, dilation in zip(dims, sizes, strides, dilations):
        starts = np.arange(0, x.shape[dim] - (size - 1) * dilation, stride)
        x = jnp.moveaxis(jnp.take(x, starts[:, None] + dilation * np.arange(size), axis=dim), dim + 1, -1)
    return x


def pooling(out):
    kinds = {"sum": (0, lax.add), "prod": (1, lax.mul), "max": (-np.inf, lax.max), "min": (np.inf, lax.min)}
    cases = [  # window, strides, low, high, base_dilation, window_dilation
        ((2, 2), (2, 2), (0, 0), (0, 0), (1, 1), (1, 1)),
        ((3, 2), (1, 2), (1, 0), (1, 1), (1, 1), (1, 1)),
        ((2, 2), (1, 1), (0, 1), (0, 0), (1, 1), (2, 1)),
        ((2, 1), (1, 1), (1, 0), (0, 0), (2, 1), (1, 1)),
        ((2, 2), (2, 1), (-1, 0), (0, -1), (1, 1), (1, 1)),
    ]
    x = distinct((4, 5))
    with_nan = x.copy()
    with_nan[1, 2] = with_nan[3, 0] = np.nan
    for kind, (identity, fn) in kinds.items():
        for number, (window, strides, low, high, base, dilation) in enumerate(cases):
            pads = list(zip(low, high))
            pooled = lambda x: lax.reduce_window(x, np.float32(identity), fn, window, strides, pads, base, dilation)
            fields = dict(window=list(window), strides=list(strides), low=list(low), high=list(high))
            fields |= dict(base_dilation=list(base), window_dilation=list(dilation))
            out.row("reduce_window", pooled, [x], batches=[(0,), (2,)], kind=kind, **fields)
            out.row("reduce_window", pooled, [with_nan], kind=kind, **fields)
            if number < 2:  # elsewhere JAX's jvp and vjp choose different ones of tied elements
                out.row("reduce_window", pooled, [np.floor(x / 2)], kind=kind, **fields)


def distinct(shape):
    """Small numbers, no two of them equal."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 % 23 - 11) * 0.5).astype(np.float32).reshape(shape)


def convolutions(out):
    """Layouts by the letters of their dims, batches N, features C, outputs O, spatial dims in order."""
    cases = [  # layouts, lhs, rhs, strides, low, high, lhs_dilation, rhs_dilation, groups, batch_groups
        ("NHWC HWCO NHWO", (2, 4, 3, 2), (2, 2, 2, 3), (1, 1), (0, 0), (0, 0), (1, 1), (1, 1), 1, 1),
        ("NHWC HWCO NHWO", (1, 5, 4, 2), (3, 3, 2, 2), (2, 1), (1, 1), (1, 0), (1, 1), (1, 1), 1, 1),
        ("NCHW OCHW NOHW", (2, 2, 4, 3), (3, 2, 2, 2), (1, 2), (0, 1), (1, 0), (1, 1), (1, 1), 1, 1),
        ("NWC WCO NWO", (2, 5, 2), (2, 2, 3), (2,), (-1,), (2,), (3,), (2,), 1, 1),
        ("NWC WCO NWO", (1, 6, 4), (3, 2, 6), (1,), (1,), (1,), (1,), (1,), 2, 1),
        ("NWC WCO NWO", (2, 4, 3), (2, 1, 6), (1,), (0,), (1,), (1,), (2,), 3, 1),
        ("NWC WCO NWO", (4, 5, 2), (2, 2, 6), (1,), (0,), (0,), (1,), (1,), 1, 2),
        ("CNW WOC WON", (2, 3, 4), (2, 3, 2), (1,), (1,), (0,), (2,), (1,), 1, 1),
        ("NC CO NO", (3, 2), (2, 4), (), (), (), (), (), 1, 1),
    ]
    for case in cases:
        convolution(out, np.float32, *case)
    for t in (np.float64, np.float16, BF16, np.int8):
        convolution(out, t, *cases[1])


def convolution(out, t, layouts, lhs, rhs, strides, low, high, lhs_dilation, rhs_dilation, groups, batch_groups):
    x_dims, y_dims, out_dims = layouts.split()
    spatial = [d for d in "HW" if d in x_dims]

    def positions(dims, letters):
        return [dims.index(d) for d in letters]

    numbers = lax.ConvDimensionNumbers(
        lhs_spec=tuple(positions(x_dims, ["N", "C", *spatial])),
        rhs_spec=tuple(positions(y_dims, ["O", "C", *spatial])),
        out_spec=tuple(positions(out_dims, ["N", "O", *spatial])),
    )

    def conv(x, y):
        return lax.conv_general_dilated(
            x,
            y,
            strides,
            list(zip(low, high)),
            lhs_dilation,
            rhs_dilation,
            numbers,
            feature_group_count=groups,
            batch_group_count=batch_groups,
        )

    out.row(
        "conv",
        conv,
        [ramp(lhs, t), ramp(rhs, t)[::-1]],
        batches=[(0, -1), (-1, 1), (1, 0)] if t == np.float32 else [],
        lhs_batch=positions(x_dims, "N"),
        lhs_feature=positions(x_dims, "C"),
        lhs_spatial=positions(x_dims, spatial),
        rhs_feature=positions(y_dims, "C"),
        rhs_spatial=positions(y_dims, spatial),
        rhs_output=positions(y_dims, "O"),
        out_batch=positions(out_dims, "N"),
        out_spatial=positions(out_dims, spatial),
        out_feature=positions(out_dims, "O"),
        strides=list(strides),
        low=list(low),
        high=list(high),
        lhs_dilation=list(lhs_dilation),
        rhs_dilation=list(rhs_dilation),
        groups=groups,
        batch_groups=batch_groups,
    )
