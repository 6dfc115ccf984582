"""MLX on CPU, each row one compiled function; it has no loops, so there is no scan."""
import mlx.core as mx
import numpy as np
from array_rows import Library, rows_of
from array_rows import ten_ops as ten_ops_of
from mlx.utils import tree_map

NAME = f"MLX {mx.__version__}"
mx.set_default_device(mx.cpu)


def wait(tree):
    mx.eval(tree)
    return tree


def conv(x, kernel, stride, before, after, groups):
    x = mx.pad(x, [(0, 0), (before, after), (before, after), (0, 0)])
    return mx.conv2d(x, mx.transpose(kernel, (3, 0, 1, 2)), stride=stride, groups=groups)


def attention(q, k, v):
    q, k, v = (mx.swapaxes(x, 1, 2) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5
    return mx.swapaxes(mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask="causal"), 1, 2)


def dot(x, y, transposes_x, transposes_y):
    return ((x.T if transposes_x else x) @ (y.T if transposes_y else y)).astype(mx.float32)


def array(x):
    return x if isinstance(x, mx.array) else mx.array(x)


LIBRARY = Library(
    xp=mx,
    array=array,
    jit=mx.compile,
    grad=mx.grad,
    value_and_grad=mx.value_and_grad,
    wait=wait,
    tree_map=tree_map,
    conv=conv,
    softmax=lambda x: mx.softmax(x, axis=-1),
    layer_norm=lambda x, scale, shift: mx.fast.layer_norm(x, scale, shift, 1e-5),
    attention=attention,
    dot=dot,
    trace=lambda f, x: (f(x), None)[1],
    dtypes={"f32": mx.float32, "bf16": mx.bfloat16},
)
ROWS = rows_of(LIBRARY)


def ten_ops():
    ten_ops_of(LIBRARY)
