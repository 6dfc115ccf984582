"""Golden rows of ops that move, combine or look up elements. A new op is one line in its family."""

import jax
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from points import *
from writer import NAMES


def shaping(out):
    f, i = ramp((3, 4), np.float32, [np.nan]), ramp((2, 3), np.int16)
    for t in (np.float32, BF16, np.int8, np.uint64):
        out.row(
            "iota",
            lambda: lax.broadcasted_iota(t, (2, 3), 1),
            [],
            shape=[2, 3],
            dim=[1],
            dtype=NAMES[np.dtype(t).name],
        )
    for x, shape, dims in [
        (f, (2, 3, 4), (1, 2)),
        (f[:, :1], (3, 2), (0, 1)),
        (i, (2, 1, 3), (0, 2)),
        (np.float16(3), (2, 2), ()),
    ]:
        out.row(
            "broadcast",
            lambda x: lax.broadcast_in_dim(x, shape, dims),
            [x],
            batches=[(0,)],
            shape=list(shape),
            dims=list(dims),
        )
    for x, shape in [(f, (2, 6)), (f, (12,)), (i, (3, 1, 2)), (f[:0], (0, 5))]:
        out.row("reshape", lambda x: lax.reshape(x, shape), [x], batches=[(1,)], shape=list(shape))
    for x, perm in [(f, (1, 0)), (ramp((2, 3, 2), np.float64), (2, 0, 1))]:
        out.row("transpose", lambda x: lax.transpose(x, perm), [x], batches=[(2,)], perm=list(perm))
    for x, start, limit, stride in [
        (f, (1, 0), (3, 4), (1, 3)),
        (f, (0, 2), (3, 2), (1, 1)),
        (i, (0, 1), (2, 3), (1, 1)),
    ]:
        out.row(
            "slice",
            lambda x: lax.slice(x, start, limit, stride),
            [x],
            batches=[(0,), (2,)],
            start=list(start),
            limit=list(limit),
            stride=list(stride),
        )
    out.row("checkpoint_name", lambda x: checkpoint_name(x, "h"), [f], batches=[(1,)], name='"h"')
    for x, dims in [(f, (1,)), (f, (0, 1)), (i, ())]:
        out.row("reverse", lambda x: lax.rev(x, dims), [x], batches=[(1,)], dims=list(dims))
    for parts, dim in [([f, f[:, 1:], f[:, :0]], 1), ([i, i + 1], 0)]:
        out.row(
            "concatenate",
            lambda *parts: lax.concatenate(parts, dim),
            parts,
            batches=[(0,) * len(parts), (-1, 1, -1)[: len(parts)]],
            dim=[dim],
        )
    for low, high, interior in [
        ((1, 0), (0, 2), (0, 1)),
        ((-1, 2), (1, -3), (0, 0)),
        ((-2, 0), (4, -1), (2, 3)),
        ((-5, 0), (5, 0), (0, 0)),
    ]:
        config = list(zip(low, high, interior))
        out.row(
            "pad",
            lambda x, fill: lax.pad(x, fill, config),
            [f, np.float32(-7)],
            batches=[(0, -1), (2, 0), (-1, 0)],
            low=list(low),
            high=list(high),
            interior=list(interior),
        )


def reductions(out):
    kinds = {"sum": lax.reduce_sum, "prod": lax.reduce_prod, "max": lax.reduce_max, "min": lax.reduce_min}
    for kind, fn in kinds.items():
        for t in FLOATS:
            wide = lambda fn, x: fn(x.astype(np.float32)).astype(t) if t in (np.float16, BF16) else fn(x)
            for specials in [], [np.nan], [np.inf], [0.0, -0.0]:
                out.row(
                    "reduce",
                    lambda x: wide(lambda x: fn(x, (1,)), x),
                    [ramp((2, 5), t, specials)],
                    kind=kind,
                    dims=[1],
                )
        for t in (np.int8, np.uint32):
            out.row("reduce", lambda x: fn(x, (0,)), [ramp((4, 3), t)], kind=kind, dims=[0])
        x = ramp((3, 2, 3), np.float32)
        out.row("reduce", lambda x: fn(x, (0, 2)), [x], batches=[(0,), (2,), (3,)], kind=kind, dims=[0, 2])
        out.row(
            "reduce", lambda x: fn(x, (1,)), [np.float32([[2, 2, 1, 2], [0.0, -0.0, 0, -1]])], kind=kind, dims=[1]
        )
        if kind in ("sum", "prod"):
            out.row("reduce", lambda x: fn(x, (1,)), [x[:, :0]], kind=kind, dims=[1])
    for kind, fn in {"and": lax.reduce_and, "or": lax.reduce_or}.items():
        out.row(
            "reduce",
            lambda x: fn(x, (1,)),
            [np.arange(12).reshape(4, 3) % 5 > 1],
            batches=[(1,)],
            kind=kind,
            dims=[1],
        )
        out.row("reduce", lambda x: fn(x, (1,)), [np.zeros((2, 0), bool)], kind=kind, dims=[1])
    rows = [
        [1, 3, 3, 2],
        [np.nan, 1, np.nan, 5],
        [0.0, -0.0, -1, 0],
        [-0.0, 0.0, 0, 0],
        [np.inf, 2, np.inf, -np.inf],
        [-np.inf, -np.inf, 1, np.nan],
    ]
    for name, fn in {"argmax": lax.argmax, "argmin": lax.argmin}.items():
        for t in FLOATS:
            out.row(name, lambda x: fn(x, 1, np.int32), [np.array(rows).astype(t)], batches=[(0,), (2,)], dim=[1])
        for t in (np.int8, np.uint64):
            out.row(name, lambda x: fn(x, 0, np.int64), [ramp((5, 2), t)], dim=[0], dtype="i64")


def products(out):
    a, b = ramp((2, 3, 4), np.float32), ramp((4, 3, 2), np.float32)[::-1]
    cases = [  # lhs, rhs, lhs_batch, rhs_batch
        (a, b, (2,), (0,), (), ()),
        (a, b, (2,), (0,), (1,), (1,)),
        (a, b, (1, 2), (1, 0), (), ()),
        (a, b, (2,), (0,), (0, 1), (2, 1)),
        (a[:, 0], b[:, 0], (1,), (0,), (), ()),
        (a[0, 0], b[:, 0, 0], (), (), (), ()),
        (a[:, :, :0], b[:0], (2,), (0,), (), ()),
    ]
    for x, y, lhs, rhs, lhs_batch, rhs_batch in cases:
        fn = lambda x, y: lax.dot_general(x, y, ((lhs, rhs), (lhs_batch, rhs_batch)))
        out.row(
            "dot",
            fn,
            [x, y],
            batches=[(0, -1), (-1, 1), (1, 0)],
            lhs=list(lhs),
            rhs=list(rhs),
            lhs_batch=list(lhs_batch),
            rhs_batch=list(rhs_batch),
        )
    for t, result in [
        (np.float64, None),
        (BF16, np.float32),
        (np.float16, np.float32),
        (BF16, None),
        (np.int8, np.int32),
        (np.uint8, None),
        (np.int64, None),
    ]:
        fn = lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=result)
        fields = {"dtype": NAMES[np.dtype(result).name]} if result else {}
        out.row("dot", fn, [ramp((2, 5), t), ramp((5, 3), t)], lhs=[1], rhs=[0], **fields)
    specials = np.float32([[np.inf, 0], [np.nan, 1]])
    out.row(
        "dot",
        lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ()))),
        [specials, np.float32([[0, 1], [2, np.inf]])],
        lhs=[1],
        rhs=[0],
    )


def indexing(out):
    x = ramp((5, 3), np.float32)
    for starts, sizes in [((1, 0), (2, 3)), ((-1, 1), (2, 2)), ((4, 2), (3, 2)), ((-9, 9), (1, 1))]:
        out.row(
            "dynamic_slice",
            lambda x, s: lax.dynamic_slice(x, [s[0], s[1]], sizes),
            [x, np.int32(starts)],
            batches=[(0, -1), (-1, 0), (2, 1)],
            dims=[0, 1],
            sizes=list(sizes),
            index_dim=[0],
        )
        out.row(
            "dynamic_update_slice",
            lambda x, u, s: lax.dynamic_update_slice(x, u, [s[0], s[1]]),
            [x, 10 + ramp(sizes, np.float32), np.int32(starts)],
            batches=[(0, -1, -1), (-1, 0, 0), (1, 2, -1), (-1, -1, 0)],
            dims=[0, 1],
            index_dim=[0],
        )
    gathers(out)
    scatters(out)
    for t in FLOATS:
        points = np.array([[3, np.nan, -np.inf, 0.0, -0.0, 1, np.inf, -0.0, 0.0, -2, np.nan]]).astype(t)
        out.row(
            "sort", lambda x: lax.sort(x, dimension=1, is_stable=True), [points], batches=[(0,), (1,), (2,)], dim=[1]
        )
        carried = np.arange(11, dtype=np.float32).reshape(1, 11)
        out.row(
            "sort",
            lambda x, y: lax.sort((x, y), dimension=1, is_stable=True, num_keys=1),
            [points, carried],
            batches=[(0, -1), (-1, 1)],
            dim=[1],
        )
    keys = [ramp((9,), np.int8) % 3, ramp((9,), np.uint32) % 2, ramp((9,), np.float64)]
    out.row(
        "sort",
        lambda *x: lax.sort(x, dimension=0, is_stable=True, num_keys=2),
        keys,
        batches=[(0, -1, 1)],
        dim=[0],
        num_keys=2,
    )
    for t in UNSIGNED:
        bits = lambda k: jax.random.bits(jax.random.wrap_key_data(k), (2, 3), t)
        out.row(
            "random_bits",
            bits,
            [np.uint32([0, 1701])],
            batches=[(0,), (1,)],
            shape=[2, 3],
            dtype=NAMES[np.dtype(t).name],
        )


def gathers(out):
    modes = {"clip": "clip", "fill": "fill", "promise": "promise_in_bounds"}
    rows, window = np.int32([[0], [4], [2]]), np.int32([[0, 1], [3, 0]])
    outside, outside_window = np.int32([[-1], [4], [9], [0]]), np.int32([[4, 2], [-1, 0], [1, 1], [0, 5]])
    whole_row = dict(offset_dims=[1], collapsed=[0], start_index_map=[0])
    block = dict(offset_dims=[1, 2], collapsed=[], start_index_map=[0, 1])
    batched = dict(offset_dims=[2], collapsed=[1], start_index_map=[1], operand_batch=[0], indices_batch=[0])
    stacks, picks = (ramp((2, 4, 3), np.float32), np.int32([[[0], [3], [5]], [[1], [-1], [2]]]))
    cases = [
        (ramp((5, 3), t), i, (1, 3), whole_row, mode)
        for t in (np.float32, BF16, np.int8, np.uint16)
        for mode in modes
        for i in ([rows] if mode == "promise" else [rows, outside])
    ]
    cases += [
        (ramp((5, 3), np.float64), i, (2, 2), block, mode)
        for mode in modes
        for i in ([window] if mode == "promise" else [window, outside_window])
    ]
    cases += [(stacks, picks, (1, 1, 3), batched, mode) for mode in ("clip", "fill")]
    for x, indices, sizes, numbers, mode in cases:
        dims = lax.GatherDimensionNumbers(
            offset_dims=tuple(numbers["offset_dims"]),
            collapsed_slice_dims=tuple(numbers["collapsed"]),
            start_index_map=tuple(numbers["start_index_map"]),
            operand_batching_dims=tuple(numbers.get("operand_batch", ())),
            start_indices_batching_dims=tuple(numbers.get("indices_batch", ())),
        )
        fn = lambda x, i: lax.gather(x, i, dims, sizes, mode=modes[mode])
        out.row(
            "gather",
            fn,
            [x, indices],
            batches=[(0, -1), (-1, 1), (1, 0)],
            **numbers,
            index_dim=[indices.ndim - 1],
            slice_sizes=list(sizes),
            mode=mode
        )


def scatters(out):
    kinds = {
        "add": lax.scatter_add,
        "set": lax.scatter,
        "min": lax.scatter_min,
        "max": lax.scatter_max,
        "mul": lax.scatter_mul,
    }
    rows, window = np.int32([[0], [4], [-1], [9], [2]]), np.int32([[3, 0], [0, 1], [4, 1], [-1, 0]])
    clash = np.int32([[1], [1], [3], [1]])
    whole_row = dict(update_window_dims=[1], inserted=[0], scatter_dims=[0])
    block = dict(update_window_dims=[1, 2], inserted=[], scatter_dims=[0, 1])
    for combine, scatter in kinds.items():
        cases = [
            (ramp((5, 3), t), rows, 1 + ramp((5, 3), t), whole_row, True) for t in (np.float32, np.float16, np.int8)
        ]
        cases += [(ramp((5, 3), np.float64), window, 1 + ramp((4, 2, 2), np.float64), block, False)]
        cases += [(ramp((5, 3), np.float32), clash, 1 + ramp((4, 3), np.float32), whole_row, False)]
        for x, indices, updates, numbers, unique in cases:
            dims = lax.ScatterDimensionNumbers(
                update_window_dims=tuple(numbers["update_window_dims"]),
                inserted_window_dims=tuple(numbers["inserted"]),
                scatter_dims_to_operand_dims=tuple(numbers["scatter_dims"]),
            )
            fn = lambda x, i, u: scatter(x, i, u, dims, unique_indices=unique, mode="drop")
            fields = {"unique": True} if unique else {}
            out.row(
                "scatter",
                fn,
                [x, indices, updates],
                batches=[(0, -1, -1), (-1, 1, 0), (-1, -1, 1)],
                combine=combine,
                **numbers,
                index_dim=[1],
                **fields
            )


def top_k(out):
    points = [[3, np.nan, -np.inf, 0.5, -0.5, 1, np.inf, -0.5, 0.5, -2, np.nan], [2, 2, 1, 1, 2, 3, 3, 1, 2, 1, 3]]
    for t in FLOATS:
        for k in (0, 4, 11):
            x = np.array(points).astype(t)
            out.row("top_k", lambda x: lax.top_k(x, k), [x], batches=[(0,), (2,)] if k == 4 else [], dim=[1], k=k)
    out.row("top_k", lambda x: lax.top_k(x, 4), [np.float32([-0.0, 0.0, -1, 0.0, -0.0])], dim=[0], k=4)
    for t in (np.int8, np.uint32):
        out.row("top_k", lambda x: lax.top_k(x, 3, axis=0), [1 + ramp((7, 2), t)], dim=[0], k=3)
