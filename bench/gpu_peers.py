"""What PyTorch and JAX reach on the first GPU, for the rows of bench/gpu.cpp: gpu_peers.py [PATTERN] [--quick].

Each library that Python has prints a table; one that it lacks, or that finds no GPU, prints why.
"""
import statistics
import sys
import time

CALLS = 16
QUICK = "--quick" in sys.argv
PATTERN = next((a for a in sys.argv[1:] if not a.startswith("--")), "")
ROWS, COLUMNS = (64, 96) if QUICK else (16384, 8192)
SIDE = 48 if QUICK else 4096
ATTENTION = (1, 2, 32, 64) if QUICK else (4, 16, 4096, 64)


def seconds(call, wait):
    """Median seconds of one call, CALLS to a wait."""
    for _ in range(3):
        wait(call())
    turns = []
    for _ in range(3 if QUICK else 9):
        start = time.perf_counter()
        for _ in range(CALLS):
            last = call()
        wait(last)
        turns.append((time.perf_counter() - start) / CALLS)
    return statistics.median(turns)


def table(title, rows, wait):
    print(f"\n{title}\n\n| what | time | rate |\n|---|--:|--:|")
    for name, call, amount, unit in rows:
        if PATTERN in name:
            taken = seconds(call, wait)
            print(f"| {name} | {taken * 1e6:.1f} us | {amount / taken / 1e9:.1f} {unit} |")


def amounts():
    b, n, t, h = ATTENTION
    return 2 * ROWS * COLUMNS * 4, 2 * SIDE**3, 4 * b * n * h * t * t


def torch_rows():
    import torch
    import torch.nn.functional as nn

    if not torch.cuda.is_available():
        raise RuntimeError("it finds no GPU")
    moved, product, attention = amounts()
    x = torch.randn(ROWS, COLUMNS, device="cuda")
    a = torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16)
    q = torch.randn(*ATTENTION, device="cuda", dtype=torch.bfloat16)
    gelu = torch.compile(lambda v: nn.gelu(v, approximate="tanh"))
    softmax = torch.compile(lambda v: torch.softmax(v, -1))
    norm = torch.compile(lambda v: nn.layer_norm(v, v.shape[-1:]))
    rows = [
        ("map: gelu, f32", lambda: gelu(x), moved, "GB/s"),
        ("transpose, f32", lambda: x.t().contiguous(), moved, "GB/s"),
        ("sum of rows, f32", lambda: x.sum(1), moved / 2, "GB/s"),
        ("softmax of rows, f32", lambda: softmax(x), moved, "GB/s"),
        ("layer norm, f32", lambda: norm(x), moved, "GB/s"),
        ("product, bf16, 4096", lambda: a @ a, product, "GF/s"),
        ("attention, bf16 [4, 4096, 16, 64]", lambda: nn.scaled_dot_product_attention(q, q, q), attention, "GF/s"),
    ]
    table(f"PyTorch {torch.__version__}", rows, lambda _: torch.cuda.synchronize())


def jax_rows():
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        raise RuntimeError("it finds no GPU")
    moved, product, attention = amounts()
    x = jax.random.normal(jax.random.key(1), (ROWS, COLUMNS))
    a = jax.random.normal(jax.random.key(2), (SIDE, SIDE), jnp.bfloat16)
    b, n, t, h = ATTENTION
    q = jax.random.normal(jax.random.key(3), (b, t, n, h), jnp.bfloat16)
    gelu, turn, total = jax.jit(jax.nn.gelu), jax.jit(jnp.transpose), jax.jit(lambda v: v.sum(1))
    softmax, norm = jax.jit(jax.nn.softmax), jax.jit(lambda v: jax.nn.standardize(v, epsilon=1e-5))
    multiply, attend = jax.jit(jnp.matmul), jax.jit(jax.nn.dot_product_attention)
    rows = [
        ("map: gelu, f32", lambda: gelu(x), moved, "GB/s"),
        ("transpose, f32", lambda: turn(x), moved, "GB/s"),
        ("sum of rows, f32", lambda: total(x), moved / 2, "GB/s"),
        ("softmax of rows, f32", lambda: softmax(x), moved, "GB/s"),
        ("layer norm, f32", lambda: norm(x), moved, "GB/s"),
        ("product, bf16, 4096", lambda: multiply(a, a), product, "GF/s"),
        ("attention, bf16 [4, 4096, 16, 64]", lambda: attend(q, q, q), attention, "GF/s"),
    ]
    table(f"JAX {jax.__version__}", rows, lambda y: y.block_until_ready())


for library, rows_of in (("PyTorch", torch_rows), ("JAX", jax_rows)):
    try:
        rows_of()
    except Exception as error:  # a peer that does not work costs its own table only
        print(f"{library}: not measured: {error}".splitlines()[0])
