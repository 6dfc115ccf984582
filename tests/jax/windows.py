"""Golden rows of ops that look along an axis: running reductions, windows and convolutions."""

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


def pooling(out):
    kinds = {"sum": (0, lax.add), "prod": (1, lax.mul), "max": (-np.inf, lax.max), "min": (np.inf, lax.min)}
    cases = [  # window, strides, low, high, base_dilation, window_dilation
        ((2, 2), (2, 2), (0, 0), (0, 0), (1, 1), (1, 1)),
        ((3, 2), (1, 2), (1, 0), (1, 1), (1, 1), (1, 1)),
        ((2, 2), (1, 1), (0, 1), (0, 0), (1, 1), (2, 1)),
        ((2, 1), (1, 1), (1, 0), (0, 0), (2, 1), (1, 1)),
        ((2, 2), (2, 1), (-1, 0), (0, -1), (1, 1), (1, 1)),
    ]
    for kind, (identity, fn) in kinds.items():
        for window, strides, low, high, base, dilation in cases:
            for x in ramp((4, 5), np.float32), ramp((4, 5), np.float32, [np.nan])[::-1]:
                pads = list(zip(low, high))
                pooled = lambda x: lax.reduce_window(
                    x, np.float32(identity), fn, window, strides, pads, base, dilation
                )
                out.row(
                    "reduce_window",
                    pooled,
                    [x],
                    batches=[(0,), (2,)],
                    kind=kind,
                    window=list(window),
                    strides=list(strides),
                    low=list(low),
                    high=list(high),
                    base_dilation=list(base),
                    window_dilation=list(dilation),
                )


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
