"""JAX on CPU, each row one jitted function."""
import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from array_rows import Library, rows_of
from array_rows import ten_ops as ten_ops_of
from inputs import wave

NAME = f"JAX {jax.__version__}"


def conv(x, kernel, stride, before, after, groups):
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), [(before, after)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )


def layer_norm(x, scale, shift):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-5) * scale + shift


def dot(x, y, transposes_x, transposes_y):
    wide = jnp.int32 if x.dtype == jnp.int8 else jnp.float32
    dims = ((0 if transposes_x else 1,), (1 if transposes_y else 0,)), ((), ())
    return jax.lax.dot_general(x, y, dims, preferred_element_type=wide)


LIBRARY = Library(
    xp=jnp,
    array=jnp.asarray,
    jit=jax.jit,
    grad=jax.grad,
    value_and_grad=jax.value_and_grad,
    wait=jax.block_until_ready,
    tree_map=jax.tree.map,
    conv=conv,
    softmax=jax.nn.softmax,
    layer_norm=layer_norm,
    attention=lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
    dot=dot,
    trace=lambda f, x: jax.make_jaxpr(lambda v: f(v))(jax.ShapeDtypeStruct(x.shape, x.dtype)) and None,
    dtypes={"f32": jnp.float32, "bf16": jnp.bfloat16, "i8": jnp.int8},
)


def scan(steps):
    f = jax.jit(lambda c, x: jax.lax.scan(lambda h, row: (h * 0.5 + row, None), c, x)[0])
    c, x = jnp.ones(8), jnp.asarray(wave(1, int(steps), 8))
    return lambda: f(c, x).block_until_ready()


ROWS = {**rows_of(LIBRARY), "scan": scan}


def ten_ops():
    ten_ops_of(LIBRARY)
