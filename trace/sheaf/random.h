// Random numbers without state: every draw is a function of a key, so the same key gives the same numbers whatever the
// order, batching or device. Threefry-2x32 on the flat index of each element; bits, uniform, split and fold_in agree
// with JAX's defaults bit for bit.
#pragma once

#include "sheaf/ops.h"

namespace sheaf::random {

/// A key: u32[2].
Array key(std::int64_t seed, Loc loc = Loc::current());
/// `count` new keys: u32[count, 2]. Use each key once.
Array split(const Array& key, std::int64_t count = 2, Loc loc = Loc::current());
/// A new key from a key and a number, a step counter for instance.
Array fold_in(const Array& key, Operand data);

Array bits(const Array& key, const Shape& shape, DType dtype = u32, Loc loc = Loc::current());
/// Floats in [low, high); where low is not 0, a number next to high may round to it.
Array uniform(const Array& key, const Shape& shape, DType dtype = f32, double low = 0, double high = 1,
              Loc loc = Loc::current());
/// Mean 0, variance 1.
Array normal(const Array& key, const Shape& shape, DType dtype = f32, Loc loc = Loc::current());
/// Integers in [low, high), which the dtype must hold; no one is likelier than another by more than 2^-64.
Array randint(const Array& key, const Shape& shape, std::int64_t low, std::int64_t high, DType dtype = i32,
              Loc loc = Loc::current());
/// true with probability p.
Array bernoulli(const Array& key, const Shape& shape, Operand p = 0.5);
/// 0..n-1 in random order: i32[n].
Array permutation(const Array& key, std::int64_t n, Loc loc = Loc::current());
/// x with its slices along axis 0 in random order.
Array shuffle(const Array& key, Operand x);

}  // namespace sheaf::random
