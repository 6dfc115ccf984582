"""The rows that JAX and MLX share. Both speak NumPy; how each compiles, derives, convolves and waits is its `Library`."""
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np
from inputs import labels, new_factor, wave, weights


@dataclass
class Library:
    xp: Any  # its NumPy
    array: Callable  # of NumPy's
    jit: Callable
    grad: Callable  # (f, argnums)
    value_and_grad: Callable  # by the first argument, a tree
    wait: Callable  # for a tree; returns it
    tree_map: Callable
    conv: Callable  # (x, kernel, stride, padding before, padding after, groups), channels last
    softmax: Callable
    layer_norm: Callable  # (x, scale, shift)
    attention: Callable  # (q, k, v) of [batch, time, heads, features], causal
    dot: Callable  # (x, y, transposes x, transposes y): the result wide
    trace: Callable  # (f, x)
    dtypes: dict


def rows_of(lib):
    xp = lib.xp

    def calls(f, *inputs):
        compiled, arrays = lib.jit(f), [lib.array(x) for x in inputs]
        return lambda: lib.wait(compiled(*arrays))

    # ---- loops ----
    def chain(n):
        def f(v):
            v = xp.maximum(v * 1.5 + 0.25, -0.5)
            v = xp.maximum(v * 0.75 + 0.125, 0.0625)
            v = xp.maximum(v * 1.25 + -0.5, -0.25)
            return v + 1.0

        return calls(f, wave(1, int(n)))

    def tanh_exp(u, v):
        t = xp.tanh(u * v + 0.5)
        e = xp.exp(t - u)
        return xp.maximum((e * v + t) / (e + 1.5), 0.125) * 0.75

    def tanh_exp_chain(n):
        return calls(tanh_exp, wave(1, int(n)), wave(2, int(n)))

    def softmax(rows, columns):
        return calls(lib.softmax, wave(3, int(rows), int(columns)))

    def layer_norm(rows, columns):
        n = int(columns)
        return calls(lib.layer_norm, wave(3, int(rows), n), wave(4, n), wave(5, n))

    def cross_entropy_of(logits, classes):
        top = logits.max(axis=-1, keepdims=True)
        total = xp.log(xp.exp(logits - top).sum(axis=-1)) + top[..., 0]
        return xp.mean(total - xp.take_along_axis(logits, classes[..., None], axis=-1)[..., 0])

    def cross_entropy(rows, columns):
        return calls(cross_entropy_of, wave(3, int(rows), int(columns)), labels(int(rows), int(columns)))

    def cross_entropy_gradient(rows, columns):
        return calls(
            lib.grad(cross_entropy_of, 0), wave(3, int(rows), int(columns)), labels(int(rows), int(columns))
        )

    # ---- products, convolutions, attention ----
    def matmul(m, n, k, dtype, transposes_x, transposes_y):
        m, n, k, tx, ty = int(m), int(n), int(k), int(transposes_x), int(transposes_y)
        x, y = wave(1, *((k, m) if tx else (m, k))), wave(2, *((n, k) if ty else (k, n)))
        if dtype == "i8":
            x, y = np.trunc(x * 50), np.trunc(y * 50)
        a, b = (lib.array(v).astype(lib.dtypes[dtype]) for v in (x, y))
        product = lib.jit(lambda a, b: lib.dot(a, b, tx, ty))
        return lambda: lib.wait(product(a, b))

    def attention(b, t, n, h):
        shape = int(b), int(t), int(n), int(h)
        return calls(lib.attention, wave(1, *shape), wave(2, *shape), wave(3, *shape))

    def attention_gradient(b, t, n, h):
        shape = int(b), int(t), int(n), int(h)
        gradient = lib.grad(lambda q, k, v: xp.square(lib.attention(q, k, v)).sum(), (0, 1, 2))
        return calls(lambda q, k, v: sum(gradient(q, k, v)), wave(1, *shape), wave(2, *shape), wave(3, *shape))

    def conv(batch, extent, inputs, outputs, size, stride, groups, channels_first, way):
        batch, extent, inputs, outputs, size, stride, groups = map(
            int, (batch, extent, inputs, outputs, size, stride, groups)
        )
        before = size // 2
        extent_out = (extent + 2 * before - size) // stride + 1
        after = (extent_out - 1) * stride + size - before - extent
        first = channels_first == "1"
        images = lambda e, c: (batch, c, e, e) if first else (batch, e, e, c)

        def forward(x, w):
            if first:
                x = xp.transpose(x, (0, 2, 3, 1))
            y = lib.conv(x, w, stride, before, after, groups)
            return xp.transpose(y, (0, 3, 1, 2)) if first else y

        x, w = wave(1, *images(extent, inputs)), wave(2, size, size, inputs // groups, outputs)
        if way == "forward":
            return calls(forward, x, w)
        loss = lambda x, w, y: (forward(x, w) * y).sum()
        gradient = lib.grad(loss, 0 if way == "input_gradient" else 1)
        return calls(gradient, x, w, wave(3, *images(extent_out, outputs)))

    # ---- training steps: the losses of three in a row are their values ----
    def steps(step, state, *inputs):
        compiled, arrays = lib.jit(step), [lib.array(x) for x in inputs]
        box = [lib.tree_map(lib.array, state)]

        def call():
            loss, box[0] = lib.wait(compiled(box[0], *arrays))
            return loss

        return call

    def sgd(loss, rate):
        def step(model, *inputs):
            value, gradient = lib.value_and_grad(loss)(model, *inputs)
            return value, lib.tree_map(lambda p, g: p - rate * g, model, gradient)

        return step

    def adam(loss, rate):
        def step(state, *inputs):
            model, m, v, t = state
            value, g = lib.value_and_grad(loss)(model, *inputs)
            t = t + 1.0
            m = lib.tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = lib.tree_map(lambda v, g: 0.999 * v + 0.001 * g * g, v, g)
            a, b = 1 - 0.9**t, 1 - 0.999**t
            update = lambda p, m, v: p - rate * (m / a) / (xp.sqrt(v / b) + 1e-8)
            return value, [lib.tree_map(update, model, m, v), m, v, t]

        return step

    def adam_state(model):
        zeros = lambda: lib.tree_map(np.zeros_like, model)
        return [model, zeros(), zeros(), np.float32(0)]

    def dense(seed, inputs, outputs):
        return {"W": weights(seed, inputs, outputs), "b": np.zeros(outputs, np.float32)}

    apply = lambda layer, x: x @ layer["W"] + layer["b"]
    relu = lambda x: xp.maximum(x, 0)

    def gelu(x):
        return 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))

    def mlp(width, batch):
        width, batch = int(width), int(batch)

        def loss(m, x, y):
            return xp.mean(xp.square(apply(m[2], relu(apply(m[1], relu(apply(m[0], x))))) - y))

        model = [dense(i, width, width) for i in (1, 2, 3)]
        return steps(sgd(loss, 0.05), model, wave(4, batch, width), wave(5, batch, width))

    def convolve(layer, x):
        return lib.conv(x, layer["W"], 1, 1, 1, 1) + layer["b"]

    def pool(x):
        b, h, w, c = x.shape
        return xp.max(x.reshape(b, h // 2, 2, w // 2, 2, c), axis=(2, 4))

    def cnn(batch):
        batch = int(batch)

        def loss(m, images, classes):
            x = pool(relu(convolve(m["first"], images)))
            x = pool(relu(convolve(m["second"], x)))
            return cross_entropy_of(apply(m["out"], relu(apply(m["hidden"], x.reshape(batch, 7 * 7 * 32)))), classes)

        kernel = lambda seed, i, o: {"W": wave(seed, 3, 3, i, o) * np.float32(0.1), "b": np.zeros(o, np.float32)}
        model = {"first": kernel(1, 1, 16), "second": kernel(2, 16, 32), "hidden": dense(3, 7 * 7 * 32, 128)}
        model["out"] = dense(4, 128, 10)
        return steps(adam(loss, 1e-3), adam_state(model), wave(5, batch, 28, 28, 1), labels(batch, 10))

    def transformer(layers, batch, time, width, heads, vocabulary):
        layers, batch, time, width, heads, vocabulary = map(
            int, (layers, batch, time, width, heads, vocabulary)
        )

        def block(x, m):
            y = lib.layer_norm(x, m["scale_a"], m["shift_a"]) @ m["qkv"]
            q, k, v = (y[..., i * width : (i + 1) * width].reshape(batch, time, heads, width // heads) for i in range(3))
            x = x + lib.attention(q, k, v).reshape(batch, time, width) @ m["mix"]
            return x + gelu(lib.layer_norm(x, m["scale_b"], m["shift_b"]) @ m["feed_in"]) @ m["feed_out"]

        def loss(m, text):
            x = m["tokens"][text[:, :-1]] + m["positions"]
            for b in m["blocks"]:
                x = block(x, b)
            logits = lib.layer_norm(x, m["scale"], m["shift"]) @ m["tokens"].T
            return cross_entropy_of(logits, text[:, 1:])

        one, zero = np.ones(width, np.float32), np.zeros(width, np.float32)
        blocks = [
            {
                "scale_a": one, "shift_a": zero, "scale_b": one, "shift_b": zero,
                "qkv": weights(8 * i + 1, width, 3 * width), "mix": weights(8 * i + 2, width, width),
                "feed_in": weights(8 * i + 3, width, 4 * width), "feed_out": weights(8 * i + 4, 4 * width, width),
            }
            for i in range(layers)
        ]
        model = {
            "tokens": wave(91, vocabulary, width) * np.float32(0.05),
            "positions": wave(92, time, width) * np.float32(0.05),
            "blocks": blocks, "scale": one, "shift": zero,
        }
        text = labels(batch * (time + 1), vocabulary).reshape(batch, time + 1)
        return steps(adam(loss, 1e-3), adam_state(model), text)

    # ---- what the library itself costs ----
    def trace(n):
        x = lib.array(np.ones((64, 64), np.float32))

        def f(v):
            for _ in range(int(n) // 2):
                v = v * 1.5 + v
            return v

        return lambda: lib.trace(f, x)

    def first_call(f, *inputs):
        """Of a function that is new each time, as is a number in it: no kernel has been compiled before."""
        arrays = lib.tree_map(lib.array, list(inputs))

        def call():
            factor = new_factor()
            lib.wait(lib.jit(lambda *x: f(factor, *x))(*arrays))

        return call

    def compile_chain():
        return first_call(lambda factor, v: tanh_exp(v, factor), np.ones(1 << 20, np.float32))

    def program(n):
        def f(factor, v, w):
            for _ in range(int(n) // 10):
                e = xp.exp(xp.tanh(v @ w + w) * factor)
                v = xp.maximum(e / e.sum(axis=1, keepdims=True) * 0.5 + v, 0.01)
            return v

        return first_call(f, wave(1, 64, 64), weights(2, 64, 64))

    def layers(count):
        count = int(count)

        def layer(factor, x, l):
            n = lib.layer_norm(x, l[2], l[2])
            mixed = lib.softmax(n @ xp.swapaxes(n, -1, -2) * factor) @ n
            return x + gelu(mixed @ l[0]) @ l[1]

        def loss(all, factor, x):
            for l in all:
                x = layer(factor, x, l)
            return x.sum()

        full = lambda value, *shape: np.full(shape, value, np.float32)
        model = [[full(0.01, 64, 256), full(0.01, 256, 64), full(1, 64)] for _ in range(count)]
        return first_call(lambda factor, all, x: lib.grad(loss, 0)(all, factor, x), model, full(0.1, 4, 32, 64))

    def dispatch(n):
        f, x = lib.jit(lambda v, w: v * 0.5 + w), lib.array(np.ones(8, np.float32))
        box = [x]

        def call():
            y = box[0]
            for _ in range(int(n)):
                y = f(y, x)
            box[0] = lib.wait(y)

        return call

    def round_trip():
        f, box = lib.jit(lambda v: v * 0.5 + 1.0), [lib.array(np.ones(8, np.float32))]

        def call():
            box[0] = lib.wait(f(box[0]))

        return call

    def eager():
        box = [lib.array(np.ones(8, np.float32))]

        def call():
            box[0] = lib.wait(box[0] * 0.5)

        return call

    def new_process():
        command = [sys.executable, os.path.join(os.path.dirname(__file__), "serve.py"), *sys.argv[1:3], "--ten-ops"]
        return lambda: subprocess.run(command, check=True) and None

    return {name: row for name, row in locals().items() if name in NAMES}


NAMES = """chain tanh_exp_chain softmax layer_norm cross_entropy cross_entropy_gradient matmul attention
attention_gradient conv mlp cnn transformer trace compile_chain program layers dispatch round_trip eager
new_process""".split()


def ten_ops(lib):
    xp = lib.xp
    x = xp.full((128, 128), 0.5)
    t = xp.tanh(xp.exp((x + x) * x))
    rows = (t @ (x + x)).T.sum(axis=1)
    assert xp.where(rows.max() > 0, rows, 0.0)[0].item()
