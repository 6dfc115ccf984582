// Random bits: a pure function of a key and of each element's position. Positions count over the dims that no batch of
// keys owns, so mapping over keys equals a loop over keys.
#include <fmt/format.h>

#include "ir/ops/rules.h"
#include "ir/shard.h"
#include "ir/threefry.h"

namespace sheaf::ir::ops {
namespace {

DimList counted_dims(const RandomBits& a) { return other_dims(a.result_batch, static_cast<int>(a.shape.size())); }

// The extents that positions count in.
DimList counted_extents(const RandomBits& a) {
  if (!a.whole.empty()) return a.whole;
  DimList extents;
  for (const std::int64_t d : counted_dims(a)) extents.push_back(a.shape[d]);
  return extents;
}

absl::StatusOr<std::vector<DType>> random_bits_dtypes(const Eqn& e) {
  const DType t = e.attrs<RandomBits>().dtype;
  if (e.num_in() != 1 && e.num_in() != 2)
    return absl::InvalidArgumentError(fmt::format("takes a key and perhaps a counter, not {} operands", e.num_in()));
  if (e.in(0).dtype() != DType::u32)
    return absl::InvalidArgumentError(fmt::format("key must be u32[.., 2], not {}", to_string(e.in(0).type())));
  if (e.num_in() == 2 && e.in(1).dtype() != DType::u64)
    return absl::InvalidArgumentError(fmt::format("the counter must be u64, not {}", to_string(e.in(1).type())));
  if (!is_unsigned_int(t))
    return absl::InvalidArgumentError(fmt::format("dtype must be an unsigned integer, not {}", name(t)));
  return std::vector<DType>{t};
}

// The counted dims fit in the array they are a part of.
absl::Status check_whole(const RandomBits& a) {
  const DimList counted = counted_dims(a);
  bool fits = a.whole.empty() || a.whole.size() == counted.size();
  for (std::size_t i = 0; fits && i < a.whole.size(); ++i) fits = a.shape[counted[i]] <= a.whole[i];
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("dims {} of the shape {} are no part of an array of {}",
                                                to_string(counted), to_string(a.shape), to_string(a.whole)));
}

absl::StatusOr<Factors> random_bits_factors(const Eqn& e) {
  const RandomBits& a = e.attrs<RandomBits>();
  const Type key = e.in(0).type();
  const int last = key.rank() - 1, rank = static_cast<int>(a.shape.size());
  if (last < 0 || key.dim(last) != 2 || lists(a.key_batch, last))
    return absl::InvalidArgumentError(fmt::format("key must be u32[.., 2], not {}", to_string(key)));
  if (absl::Status s = check_dims("key_batch", a.key_batch, key.rank()); !s.ok()) return s;
  if (absl::Status s = check_dims("result_batch", a.result_batch, rank); !s.ok()) return s;
  if (static_cast<int>(a.key_batch.size()) != last || a.result_batch.size() != a.key_batch.size())
    return absl::InvalidArgumentError(
        fmt::format("key_batch={} and result_batch={} must pair up all but the last dim of {}", to_string(a.key_batch),
                    to_string(a.result_batch), to_string(key)));
  if (absl::Status s = check_shape(a.shape); !s.ok()) return s;
  if (absl::Status s = check_whole(a); !s.ok()) return s;
  Factors r;
  r.in = {TensorFactors(key.rank())};
  r.out = {TensorFactors(rank)};
  for (int i = 0; i < last; ++i) {
    const std::int64_t k = a.key_batch[i], d = a.result_batch[i];
    if (key.dims()[k] != a.shape[d])
      return absl::InvalidArgumentError(
          fmt::format("key dim {} ({}) and result dim {} ({}) must match", k, key.dims()[k], d, a.shape[d]));
    r.in[0][k] = r.out[0][d] = {r.add(a.shape[d])};
  }
  r.in[0][last] = {r.add(2, FactorClass::N)};
  for (int d = 0; d < rank; ++d)
    if (r.out[0][d].empty()) r.out[0][d] = {r.add(a.shape[d], FactorClass::P, Combine::none, true)};
  if (e.num_in() == 1) return r;
  r.in.emplace_back(r.in[0].begin(), r.in[0].begin() + last);
  if (e.in(1).dims() != r.dims(r.in[1]))
    return absl::InvalidArgumentError(fmt::format("the counter must be {}, one for each key, not {}",
                                                  to_string(Type(DType::u64, r.dims(r.in[1]))),
                                                  to_string(e.in(1).type())));
  return r;
}

void eval_random_bits(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  const RandomBits& a = e.attrs<RandomBits>();
  const Literal& key = in[0];
  Literal& y = out[0];
  if (y.size() == 0) return;
  const DimList key_strides = strides_of(key.dims());
  const DimList counted = counted_dims(a), extents = counted_extents(a);
  DimList index(a.shape.size(), 0);
  std::int64_t i = 0;
  do {
    std::int64_t k = 0;
    for (std::size_t b = 0; b < a.key_batch.size(); ++b) k += index[a.result_batch[b]] * key_strides[a.key_batch[b]];
    std::uint64_t position = 0;
    for (std::size_t c = 0; c < counted.size(); ++c)
      position = position * static_cast<std::uint64_t>(extents[c]) + static_cast<std::uint64_t>(index[counted[c]]);
    if (in.size() == 2) position += in[1].bits(k / 2);
    const Block block = {static_cast<std::uint32_t>(key.bits(k)), static_cast<std::uint32_t>(key.bits(k + 1))};
    y.set_bits(i++, random_bits_at(block, position, 8 * size_bytes(a.dtype)));
  } while (next_index(index, a.shape));
}

// Bits are those of positions in the whole, wherever a part of it lies.
Values localize_random_bits(const Shard& s) {
  RandomBits a = s.whole.attrs<RandomBits>();
  const TensorFactors& dims = s.factors.out[0];
  const DimList counted = counted_dims(a);
  a.whole = counted_extents(a);
  a.shape = s.local_dims(dims);
  Value first;
  double minor = 1;
  for (std::size_t c = counted.size(); c-- > 0;) {
    const Value at = convert_to(s.offset(dims[counted[c]]), DType::u64) * minor;
    first = first ? first + at : at;
    minor *= static_cast<double>(a.whole[c]);
  }
  first = broadcast_to(first, s.local_dims({s.factors.in[0].begin(), s.factors.in[0].end() - 1}), {});
  if (s.operands.size() == 2) first = first + s.operands[1];
  return {s.b.emit(random_bits, {s.operands[0], first}, std::move(a))};
}

constexpr std::string_view kBatchFields[] = {"key_batch", "result_batch"};
constexpr BatchSlot kSlots[] = {{.operands = 0b01, .append = kBatchFields}, {.operands = 0b11, .append = kBatchFields}};

}  // namespace

constinit const OpDef random_bits = {
    .name = "random_bits",
    .doc =
        "Uniform random bits of `shape` and unsigned `dtype` from a key u32[.., 2]. Element i is Threefry-2x32-20 of "
        "the key at the 64-bit counter i, the row-major position over the dims not in `result_batch`: its two words "
        "for u64, else the low bits of their xor. The key's dims `key_batch` are the result's dims `result_batch`. Of a part "
        "of an array of extents `whole` the counters are those in the whole, from a second operand on.",
    .attrs = attrs_of<RandomBits>(),
    .factors = random_bits_factors,
    .dtypes = random_bits_dtypes,
    .no_jvp = Absent::integer_result,
    .slots = kSlots,
    .localize = localize_random_bits,
    .lower = [](const Eqn& e) -> Lowering {
      const RandomBits& a = e.attrs<RandomBits>();
      return lowering::RandomBits{
          .key_batch = a.key_batch, .result_batch = a.result_batch, .whole = counted_extents(a)};
    },
    .eval = eval_random_bits,
    .cost =
        [](const Eqn& e) {
          const Type y = e.out().type();
      // 20 rounds of add, rotate, xor, and five key injections.
          return Cost{.flops = 80 * static_cast<double>(y.num_elements()),
                      .bytes = static_cast<double>(e.in(0).type().bytes() + y.bytes())};
        },
    .samples =
        [] {
          return Samples{"random_bits u32[2] {shape=[5]}",
                         "random_bits u32[2] {shape=[3, 7], dtype=u64}",
                         "random_bits u32[2] {shape=[2, 3, 4], dtype=u16}",
                         "random_bits u32[2] {shape=[9], dtype=u8}",
                         "random_bits u32[2] {shape=[]}",
                         "random_bits u32[2] {shape=[3, 0]}",
                         "random_bits u32[3, 2] {shape=[4, 3, 5], key_batch=[0], result_batch=[1]}",
                         "random_bits u32[2], u64[] in (0, 50) {shape=[2, 3], whole=[4, 6]}",
                         "random_bits u32[3, 2], u64[3] in (0, 50) {shape=[2, 3, 2], key_batch=[0], result_batch=[1], "
                         "dtype=u64, whole=[2, 5]}"};
        },
};

}  // namespace sheaf::ir::ops
