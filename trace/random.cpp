// Random numbers from threefry bits, following JAX's algorithms where they are fixed (bits, uniform, split, fold_in).
#include "sheaf/random.h"

#include <fmt/format.h>

#include <cmath>

#include "ir/ops/attrs.h"
#include "trace/apply.h"
#include "trace/messages.h"
#include "trace/promotion.h"
#include "trace/recorder.h"

namespace sheaf::random {
namespace {

void check_key(std::string_view name, const Array& key, Loc loc) {
  const ArrayNode& node = node_of(key, loc);
  if (node.type.dtype() == u32 && node.type.dims() == Shape{2}) return;
  const Named named{"key", &key};
  throw TypeError(UserLine::or_own(loc), fmt::format("{}: a key is u32[2], made by random::key or random::split{}",
                                                     name, describe({&named, 1})));
}

// The unsigned type of a float's representation, and the one whose random bits fill its mantissa: bf16 needs only 7.
DType bits_of(DType t) { return size_bytes(t) == 8 ? u64 : size_bytes(t) == 2 ? u16 : u32; }
DType drawn_for(DType t) { return t == bf16 ? u8 : bits_of(t); }

// Mantissa bits and the bits of 1.0.
struct FloatFormat {
  int mantissa;
  std::int64_t one;
};
FloatFormat format_of(DType t) {
  if (t == f64) return {52, 0x3ff0000000000000};
  if (t == f16) return {10, 0x3c00};
  if (t == bf16) return {7, 0x3f80};
  return {23, 0x3f800000};
}

void check_float(std::string_view name, DType t, Loc loc) {
  if (!is_float(t))
    throw TypeError(UserLine::or_own(loc), fmt::format("{}: the dtype must be a float, not {}", name, sheaf::name(t)));
}

// [1, 2) by filling the mantissa, then scaled.
Array uniform_from(const Array& raw, DType t, double low, double high) {
  const FloatFormat f = format_of(t);
  const int width = 8 * size_bytes(raw.dtype());
  const Array mantissa = convert(shift_right_logical(raw, width - f.mantissa), bits_of(t));
  const Array unit = bitcast(mantissa | convert(full({}, f.one), bits_of(t)), t) - 1.0;
  return maximum(unit * (high - low) + low, full({}, low, t));  // rounding may fall below low
}

// Threefry-2x32 with 20 rounds (Salmon et al., SC 2011) of one block: what random_bits does for each position.
Array threefry(const Array& key, Array x0, Array x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const Array k0 = key[0], k1 = key[1];
  const Array keys[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bda};
  x0 += keys[0];
  x1 += keys[1];
  for (int round = 0; round < 5; ++round) {
    for (const int r : kRotations[round % 2]) {
      x0 += x1;
      x1 = (x1 << r) | shift_right_logical(x1, 32 - r);
      x1 ^= x0;
    }
    x0 += keys[(round + 1) % 3];
    x1 += keys[(round + 2) % 3] + (round + 1);
  }
  return stack({x0, x1});
}

}  // namespace

Array key(std::int64_t seed, Loc loc) {
  const auto bits = static_cast<std::uint64_t>(seed);
  const std::vector<std::uint32_t> words{static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
  if (!Recorder::current()) return array(words, {}, {}, loc);
  const UserLine line(loc);
  return stack({full({}, std::int64_t{words[0]}, u32), full({}, std::int64_t{words[1]}, u32)});
}

Array split(const Array& key, std::int64_t count, Loc loc) {
  check_key("split", key, loc);
  return compose1("split", RuleKey().add(count), {Operand(key, loc)}, loc, [&](std::span<const Array> in) {
    // Key i is the pair of words threefry gives for counter i: 64 bits, high word first.
    const Array words = bits(in[0], {count}, u64);
    return stack({convert(shift_right_logical(words, 32), u32), convert(words & 0xffffffff, u32)}, 1);
  });
}

Array fold_in(const Array& key, Operand data) {
  check_key("fold_in", key, data.loc());
  if (!is_int(data.dtype()) || data.rank() != 0)
    throw TypeError(UserLine::or_own(data.loc()), "fold_in: data is one integer");
  return compose1("fold_in", RuleKey(), {Operand(key, data.loc()), data}, data.loc(),
                  [](std::span<const Array> in) { return threefry(in[0], zeros({}, u32), convert(in[1], u32)); });
}

Array bits(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  check_key("bits", key, loc);
  if (!is_unsigned_int(dtype))
    throw TypeError(UserLine::or_own(loc), fmt::format("bits: the dtype must be unsigned, not {}", sheaf::name(dtype)));
  return apply1(
      "bits", RuleKey().add(shape).add(static_cast<std::int64_t>(dtype)), {Operand(key, loc)}, loc,
      [&](ir::Builder& b, const ir::Values& in) {
        return ir::Values{emit1(b, ir::ops::random_bits, in, ir::ops::RandomBits{.shape = shape, .dtype = dtype})};
      });
}

Array uniform(const Array& key, const Shape& shape, DType dtype, double low, double high, Loc loc) {
  check_key("uniform", key, loc);
  check_float("uniform", dtype, loc);
  return compose1("uniform", RuleKey().add(shape).add(static_cast<std::int64_t>(dtype)).add(low).add(high),
                  {Operand(key, loc)}, loc, [&](std::span<const Array> in) {
                    return uniform_from(bits(in[0], shape, drawn_for(dtype)), dtype, low, high);
                  });
}

Array normal(const Array& key, const Shape& shape, DType dtype, Loc loc) {
  check_key("normal", key, loc);
  check_float("normal", dtype, loc);
  return compose1("normal", RuleKey().add(shape).add(static_cast<std::int64_t>(dtype)), {Operand(key, loc)}, loc,
                  [&](std::span<const Array> in) {
                    const DType wide = accumulator(dtype);
                    const double low =
                        wide == f64 ? std::nextafter(-1.0, 0.0) : static_cast<double>(std::nextafter(-1.0f, 0.0f));
                    return convert(std::sqrt(2.0) * erf_inv(uniform(in[0], shape, wide, low, 1.0)), dtype);
                  });
}

Array randint(const Array& key, const Shape& shape, std::int64_t low, std::int64_t high, DType dtype, Loc loc) {
  check_key("randint", key, loc);
  if (!is_int(dtype))
    throw TypeError(UserLine::or_own(loc),
                    fmt::format("randint: the dtype must be an integer, not {}", sheaf::name(dtype)));
  if (high <= low) throw ShapeError(UserLine::or_own(loc), fmt::format("randint: no integers in [{}, {})", low, high));
  if (!holds(dtype, low) || !holds(dtype, high - 1))
    throw TypeError(UserLine::or_own(loc),
                    fmt::format("randint: [{}, {}) does not fit in {}", low, high, sheaf::name(dtype)));
  const auto span = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  return compose1("randint", RuleKey().add(shape).add(low).add(high).add(static_cast<std::int64_t>(dtype)),
                  {Operand(key, loc)}, loc, [&](std::span<const Array> in) {
                    // 64 bits modulo the span: the bias is at most span / 2^64.
                    const Array offset =
                        bits(in[0], shape, u64) % convert(full({}, static_cast<std::int64_t>(span)), u64);
                    return convert(convert(offset, i64) + low, dtype);
                  });
}

Array bernoulli(const Array& key, const Shape& shape, Operand p) {
  check_key("bernoulli", key, p.loc());
  return compose1("bernoulli", RuleKey().add(shape), {Operand(key, p.loc()), p}, p.loc(),
                  [&](std::span<const Array> in) { return uniform(in[0], shape) < in[1]; });
}

Array permutation(const Array& key, std::int64_t n, Loc loc) {
  check_key("permutation", key, loc);
  if (n < 0) throw ShapeError(UserLine::or_own(loc), fmt::format("permutation: {} elements", n));
  return compose1("permutation", RuleKey().add(n), {Operand(key, loc)}, loc, [&](std::span<const Array> in) {
    // Sorting by 64 random bits: equal keys, which would bias the order, are practically absent.
    return sort_together({bits(in[0], {n}, u64), iota({n}, 0)}, 0)[1];
  });
}

Array shuffle(const Array& key, Operand x) {
  check_key("shuffle", key, x.loc());
  if (x.rank() == 0) throw ShapeError(UserLine::or_own(x.loc()), "shuffle: a scalar has no order");
  return compose1("shuffle", RuleKey(), {Operand(key, x.loc()), x}, x.loc(),
                  [](std::span<const Array> in) { return take(in[1], permutation(in[0], in[1].shape()[0]), 0); });
}

}  // namespace sheaf::random
