"""Golden values from JAX, for tests/jax: what each op gives over dtypes and special points.

Needs `pip install jax`; run it with the directory of the data, and with the names of families to make only those:
python make_golden.py golden [unary binary ...]
The data is committed, so neither building nor testing Sheaf needs Python. An op is one line of elementwise.py,
tensors.py or windows.py.
"""

import os
import sys

os.environ["XLA_FLAGS"] = "--xla_allow_excess_precision=false"  # bf16 rounds after every op, as documented
import jax

jax.config.update("jax_enable_x64", True)

import api
import attention
import elementwise
import linalg
import tensors
import windows
from writer import Writer

FAMILIES = [
    elementwise.unary,
    elementwise.precision,
    elementwise.binary,
    elementwise.ternary,
    elementwise.conversions,
    tensors.shaping,
    tensors.reductions,
    tensors.products,
    tensors.indexing,
    tensors.top_k,
    windows.windows,
    attention.attention,
    api.promotion,
    api.draws,
    api.functions,
    api.complex_numbers,
    linalg.linalg,
    linalg.einsum,
    linalg.collectives,
]


def main(directory, *names):
    for family in FAMILIES:
        if not names or family.__name__ in names:
            family(Writer(os.path.join(directory, f"{family.__name__}.txt")))


main(*sys.argv[1:])
