"""Dr.Jit on its LLVM backend: what it is for, loops over arrays. Functions are frozen, so that a repetition is a replay."""
import sys

import drjit as dr
import numpy as np
from drjit.llvm import Float, TensorXf
from inputs import new_factor, wave

NAME = f"Dr.Jit {dr.__version__}"
dr.set_thread_count(int(sys.argv[2]) - 1)  # the thread that waits works too


def wait(x):
    dr.eval(x)
    dr.sync_thread()
    return x


wait(Float([1.0]) + 1)  # fails where LLVM is not found


def frozen(f, *inputs):
    run = dr.freeze(f)
    return lambda: wait(run(*inputs))


def chain(n):
    def f(v):
        v = dr.maximum(v * 1.5 + 0.25, -0.5)
        v = dr.maximum(v * 0.75 + 0.125, 0.0625)
        v = dr.maximum(v * 1.25 + -0.5, -0.25)
        return v + 1.0

    return frozen(f, Float(wave(1, int(n))))


def tanh_exp(u, v):
    t = dr.tanh(u * v + 0.5)
    e = dr.exp(t - u)
    return dr.maximum((e * v + t) / (e + 1.5), 0.125) * 0.75


def tanh_exp_chain(n):
    return frozen(tanh_exp, Float(wave(1, int(n))), Float(wave(2, int(n))))


def column(x):
    return dr.reshape(x, (-1, 1))


def softmax(rows, columns):
    def f(x):
        e = dr.exp(x - column(dr.max(x, axis=1)))
        return e / column(dr.sum(e, axis=1))

    return frozen(f, TensorXf(wave(3, int(rows), int(columns))))


def layer_norm(rows, columns):
    def f(x, scale, shift):
        d = x - column(dr.mean(x, axis=1))
        return d * column(dr.rsqrt(dr.mean(d * d, axis=1) + 1e-5)) * scale + shift

    n = int(columns)
    row = lambda seed: TensorXf(wave(seed, 1, n))
    return frozen(f, TensorXf(wave(3, int(rows), n)), row(4), row(5))


def trace(n):
    x = Float(np.ones(64 * 64, np.float32))

    def call():
        v = x
        for _ in range(int(n) // 2):
            v = v * 1.5 + v

    return call


def compile_chain():
    x = Float(np.ones(1 << 20, np.float32))
    return lambda: (wait(tanh_exp(x, new_factor())), None)[1]


def dispatch(n):
    f, x = dr.freeze(lambda v, w: v * 0.5 + w), Float(np.ones(8, np.float32))
    box = [x]

    def call():
        y = box[0]
        for _ in range(int(n)):
            y = f(y, x)
        box[0] = wait(y)

    return call


def round_trip():
    f, box = dr.freeze(lambda v: v * 0.5 + 1.0), [Float(np.ones(8, np.float32))]

    def call():
        box[0] = wait(f(box[0]))

    return call


def eager():
    box = [Float(np.ones(8, np.float32))]

    def call():
        box[0] = wait(box[0] * 0.5)

    return call


ROWS = {
    row.__name__: row
    for row in (chain, tanh_exp_chain, softmax, layer_norm, trace, compile_chain, dispatch, round_trip, eager)
}
