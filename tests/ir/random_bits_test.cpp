// Random bits against the vectors of the Threefry paper and of JAX's partitionable layout, bit for bit.
#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/threefry.h"

namespace sheaf::ir {
namespace {

Block key_of(std::uint64_t seed) { return {static_cast<std::uint32_t>(seed >> 32), static_cast<std::uint32_t>(seed)}; }

Literal keys(const Shape& dims, const std::vector<Block>& blocks) {
  Literal l(Type(u32, dims));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    for (int w : {0, 1}) l.set_bits(static_cast<std::int64_t>(2 * i) + w, blocks[i][w]);
  return l;
}

std::vector<std::uint64_t> bits_of(const Literal& key, ops::RandomBits attrs) {
  Builder b;
  const Value y = b.emit(ops::random_bits, {b.param(key.type())}, std::move(attrs));
  std::vector<Literal> out = {Literal(y.type())};
  ops::random_bits.eval(*y.eqn(), {&key, 1}, out);
  std::vector<std::uint64_t> bits;
  for (std::int64_t i = 0; i < out[0].size(); ++i) bits.push_back(out[0].bits(i));
  return bits;
}

std::vector<std::uint64_t> bits_of(std::uint64_t seed, const Shape& shape, DType dtype) {
  return bits_of(keys({2}, {key_of(seed)}), {.shape = shape, .dtype = dtype});
}

using Bits = std::vector<std::uint64_t>;

TEST_CASE("threefry gives the known answers of its authors") {
  CHECK(threefry2x32({0, 0}, {0, 0}) == Block{0x6b200159, 0x99ba4efe});
  CHECK(threefry2x32({~0u, ~0u}, {~0u, ~0u}) == Block{0x1cb996fc, 0xbb002be7});
  CHECK(threefry2x32({0x13198a2e, 0x03707344}, {0x243f6a88, 0x85a308d3}) == Block{0xc4923a9c, 0x483df7a0});
}

TEST_CASE("blocks at counters 0 to 3 are JAX's split of key 0, and the block at 4 its fold_in") {
  CHECK(threefry2x32({0, 0}, {0, 0}) == Block{1797259609, 2579123966});
  CHECK(threefry2x32({0, 0}, {0, 1}) == Block{928981903, 3453687069});
  CHECK(threefry2x32({0, 0}, {0, 2}) == Block{4146024105, 2718843009});
  CHECK(threefry2x32({0, 0}, {0, 3}) == Block{2467461003, 3840466878});
  CHECK(threefry2x32({0, 0}, {0, 4}) == Block{2285895361, 433833334});
}

TEST_CASE("random bits of every width are JAX's") {
  CHECK(bits_of(0, {5}, u32) == Bits{4070199207, 4202968722, 1427181096, 2012915765, 2447653815});
  CHECK(bits_of(0, {3}, u64) == Bits{7719171245655871230u, 3989946895414531357u, 17807037942121513089u});
  CHECK(bits_of(1701, {3}, u32) == Bits{1111271205, 2679469115, 974515252});
  CHECK(bits_of(1701, {3}, u16) == Bits{42789, 29755, 60468});
  CHECK(bits_of(1701, {3}, u8) == Bits{37, 59, 52});
}

TEST_CASE("random bits depend on the flat position only, not on the shape") {
  CHECK(bits_of(7, {2, 3}, u32) == bits_of(7, {6}, u32));
  CHECK(bits_of(7, {}, u32) == bits_of(7, {1}, u32));
  CHECK(bits_of(7, {0, 4}, u32).empty());
}

TEST_CASE("positions past 2^32 use the high word of the counter") {
  CHECK(random_bits_at({1, 2}, std::uint64_t{5} << 32 | 9, 64) != random_bits_at({1, 2}, 9, 64));
  const Block x = threefry2x32({1, 2}, {5, 9});
  CHECK(random_bits_at({1, 2}, std::uint64_t{5} << 32 | 9, 32) == (x[0] ^ x[1]));
}

TEST_CASE("a batch of keys gives what each key gives alone") {
  const Literal key = keys({3, 2}, {key_of(0), key_of(1), key_of(1701)});
  const Bits all = bits_of(key, {.shape = {4, 3}, .key_batch = {0}, .result_batch = {1}, .dtype = u32});
  const std::uint64_t seeds[] = {0, 1, 1701};
  for (std::size_t k = 0; k < 3; ++k) {
    const Bits alone = bits_of(seeds[k], {4}, u32);
    for (std::size_t i = 0; i < 4; ++i) CHECK(all[3 * i + k] == alone[i]);
  }
}

TEST_CASE("random_bits refuses keys and dtypes of the wrong type, and says so") {
  const auto error = [](Type key, ops::RandomBits attrs) {
    Builder b;
    const auto r =
        b.try_emit(&ops::random_bits, {b.param(key)}, std::make_shared<const ops::RandomBits>(std::move(attrs)));
    return std::string(r.status().message());
  };
  CHECK(error(Type(i32, {2}), {.shape = {3}}) == "key must be u32[.., 2], not i32[2]");
  CHECK(error(Type(u32, {3}), {.shape = {3}}) == "key must be u32[.., 2], not u32[3]");
  CHECK(error(Type(u32, {}), {.shape = {3}}) == "key must be u32[.., 2], not u32[]");
  CHECK(error(Type(u32, {2}), {.shape = {3}, .dtype = f32}) == "dtype must be an unsigned integer, not f32");
  CHECK(error(Type(u32, {4, 2}), {.shape = {3}, .key_batch = {0}, .result_batch = {0}}) ==
        "key dim 0 (4) and result dim 0 (3) must match");
  CHECK(error(Type(u32, {2}), {.shape = {3, 5}, .whole = {6, 4}}) ==
        "dims [0, 1] of the shape [3, 5] are no part of an array of [6, 4]");
  CHECK(error(Type(u32, {2}), {.shape = {3}, .whole = {6, 4}}) ==
        "dims [0] of the shape [3] are no part of an array of [6, 4]");
  const auto counter_error = [](const std::vector<Type>& operands, ops::RandomBits attrs) {
    Builder b;
    Values values;
    for (const Type t : operands) values.push_back(b.param(t));
    const auto r = b.try_emit(&ops::random_bits, values, std::make_shared<const ops::RandomBits>(std::move(attrs)));
    return std::string(r.status().message());
  };
  const Type key(u32, {2}), counter(u64, {});
  CHECK(counter_error({key, Type(u32, {})}, {.shape = {3}}) == "the counter must be u64, not u32[]");
  CHECK(counter_error({key, Type(u64, {2})}, {.shape = {3}}) ==
        "the counter must be u64[], one for each key, not u64[2]");
  CHECK(counter_error({key, counter, counter}, {.shape = {3}}) == "takes a key and perhaps a counter, not 3 operands");
}

TEST_CASE("a part of an array has the bits of its positions in the whole") {
  const Literal key = keys({2}, {key_of(7)});
  const Bits all = bits_of(key, {.shape = {4, 6}, .dtype = u32});
  Builder b;
  const Value y = b.emit(ops::random_bits, {b.param(key.type()), b.param(Type(u64, {}))},
                         ops::RandomBits{.shape = {2, 3}, .dtype = u32, .whole = {4, 6}});
  Literal first(Type(u64, {}));
  first.set_bits(0, 2 * 6 + 3);
  const std::vector<Literal> in = {key, first};
  std::vector<Literal> out = {Literal(y.type())};
  ops::random_bits.eval(*y.eqn(), in, out);
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 3; ++j)
      CHECK(out[0].bits(3 * i + j) == all[static_cast<std::size_t>((2 + i) * 6 + 3 + j)]);
}

}  // namespace
}  // namespace sheaf::ir
