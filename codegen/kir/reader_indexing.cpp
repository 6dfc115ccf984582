// Producers whose positions are data (gather, update_slice) and the random-bit generator, whose data is a position.
#include <algorithm>

#include "codegen/kir/reader.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using ir::ScalarOp;
using Dims = std::vector<std::int64_t>;

bool contains(const Dims& list, std::int64_t d) { return std::find(list.begin(), list.end(), d) != list.end(); }

ValueId clamp(PhaseBuilder& b, ValueId value, std::int64_t hi) {
  const ValueId zero = b.constant(DType::i64, 0), top = b.constant(DType::i64, static_cast<std::uint64_t>(hi));
  return b.op(ScalarOp::min, b.op(ScalarOp::max, value, zero), top);
}

/// Negative starts count from the end.
ValueId wrapped(PhaseBuilder& b, ValueId value, std::int64_t extent) {
  const ValueId is_negative = b.op(ScalarOp::lt, value, b.constant(DType::i64, 0));
  const ValueId from_end = b.op(ScalarOp::add, value, b.constant(DType::i64, static_cast<std::uint64_t>(extent)));
  return b.op(ScalarOp::select, is_negative, from_end, value);
}

ValueId is_within(PhaseBuilder& b, ValueId value, std::int64_t hi) {
  const ValueId zero = b.constant(DType::i64, 0), top = b.constant(DType::i64, static_cast<std::uint64_t>(hi));
  return b.op(ScalarOp::and_, b.op(ScalarOp::ge, value, zero), b.op(ScalarOp::le, value, top));
}

}  // namespace

ValueId Reader::start(int indices, const Position& batch, int index_dim, std::int64_t k, ValueId mask) {
  Position at = batch;
  if (at.size() < group_.dims(indices).size()) at.insert(at.begin() + index_dim, b_.indices().constant(k));
  const ValueId value = read(indices, at, mask);
  if (!ok_) return -1;
  // A u64 beyond i64 is out of range either way; keep it from wrapping to a small negative number.
  if (group_.dtype(indices) == DType::u64) {
    return b_.convert(b_.op(ScalarOp::min, value, b_.constant(DType::u64, INT64_MAX)), DType::i64);
  }
  return b_.convert(value, DType::i64);
}

ValueId Reader::lower(int node, const low::Gather& g, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  const int from = operand(node, 0), indices = operand(node, 1);
  const Shape& dims = group_.dims(from);
  Position batch, window;
  for (std::size_t d = 0; d < i.size(); ++d) (contains(g.offset_dims, d) ? window : batch).push_back(i[d]);
  // Position of an indices dim among the batch dims: the index vector's dim is not one of them.
  const auto batch_at = [&](std::int64_t d) { return batch[d > g.index_vector_dim ? d - 1 : d]; };

  Position j(dims.size());
  ValueId inside = -1;
  std::size_t next_window = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const bool has_window = !contains(g.collapsed_dims, d) && !contains(g.operand_batch, d);
    j[d] = has_window ? window[next_window++] : pool.constant(0);
    if (auto k = std::find(g.operand_batch.begin(), g.operand_batch.end(), d); k != g.operand_batch.end()) {
      j[d] = batch_at(g.indices_batch[k - g.operand_batch.begin()]);
    }
    auto k = std::find(g.start_index_map.begin(), g.start_index_map.end(), d);
    if (k == g.start_index_map.end()) continue;
    const std::int64_t last = dims[d] - g.slice_sizes[d];
    ValueId s = start(indices, batch, g.index_vector_dim, k - g.start_index_map.begin(), mask);
    if (!ok_) return -1;
    if (g.wrap) s = wrapped(b_, s, dims[d]);
    if (g.mode == low::OutOfBounds::fill) inside = b_.both(inside, is_within(b_, s, last));
    // Clamped also for `promise`: a broken promise must not read foreign memory.
    j[d] = pool.add(j[d],
                    b_.index_of(clamp(b_, s, std::max<std::int64_t>(last, 0)), {0, std::max<std::int64_t>(last, 0)}));
  }
  const ValueId value = read(from, j, b_.both(mask, inside));
  if (!ok_ || inside < 0) return value;
  return b_.op(ScalarOp::select, inside, value, b_.constant(group_.dtype(node), g.fill_bits));
}

std::vector<Index> Reader::window_starts(int node, const low::UpdateSlice& u, const Position& i, ValueId mask) {
  const int from = operand(node, 0), update = operand(node, 1), starts = operand(node, 2);
  Position batch(u.starts_batch.size());
  for (std::size_t k = 0; k < u.starts_batch.size(); ++k) {
    batch[u.starts_batch[k] > u.index_dim ? u.starts_batch[k] - 1 : u.starts_batch[k]] = i[u.operand_batch[k]];
  }
  std::vector<Index> at;
  for (std::size_t k = 0; k < u.dims.size(); ++k) {
    const std::int64_t extent = group_.dims(from)[u.dims[k]], last = extent - group_.dims(update)[u.dims[k]];
    const ValueId s = start(starts, batch, u.index_dim, static_cast<std::int64_t>(k), mask);
    if (!ok_) return {};
    at.push_back(b_.index_of(clamp(b_, wrapped(b_, s, extent), last), {0, last}));
  }
  return at;
}

Position Reader::window_position(int update_slice, const Position& position) {
  const auto& u = *group_.as<low::UpdateSlice>(update_slice);
  const std::vector<Index> starts = window_starts(update_slice, u, position, -1);
  SHEAF_CHECK(ok_, "an update at starts that are in no buffer yet");
  Position at = position;
  for (std::size_t k = 0; k < u.dims.size(); ++k) at[u.dims[k]] = b_.indices().add(position[u.dims[k]], starts[k]);
  return at;
}

ValueId Reader::lower(int node, const low::UpdateSlice& u, const Position& i, ValueId mask) {
  const int from = operand(node, 0), update = operand(node, 1);
  const std::vector<Index> starts = window_starts(node, u, i, mask);
  if (!ok_) return -1;
  Position j = i;
  ValueId inside = -1;
  for (std::size_t k = 0; k < u.dims.size(); ++k) {
    const std::int64_t d = u.dims[k];
    j[d] = b_.indices().sub(i[d], starts[k]);
    inside = b_.both(inside, b_.in_range(j[d], 0, group_.dims(update)[d]));
  }
  if (b_.is_true(inside)) return read(update, j, mask);
  const ValueId kept = read(from, i, mask);
  if (b_.constant_bits(inside) == std::uint64_t{0}) return kept;
  const ValueId written = read(update, j, b_.both(mask, inside));
  return ok_ ? b_.op(ScalarOp::select, inside, written, kept) : -1;
}

std::array<ValueId, 2> threefry2x32(PhaseBuilder& b, std::array<ValueId, 2> key, std::array<ValueId, 2> counter) {
  const auto u32_constant = [&](std::uint32_t v) { return b.constant(DType::u32, v); };
  const auto rotated = [&](ValueId x, std::uint32_t by) {
    return b.op(ScalarOp::or_, b.op(ScalarOp::shl, x, u32_constant(by)),
                b.op(ScalarOp::shr_logical, x, u32_constant(32 - by)));
  };
  const std::array<ValueId, 3> schedule = {
      key[0], key[1], b.op(ScalarOp::xor_, b.op(ScalarOp::xor_, key[0], key[1]), u32_constant(0x1BD11BDA))};
  constexpr std::uint32_t kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  ValueId x = b.op(ScalarOp::add, counter[0], schedule[0]), y = b.op(ScalarOp::add, counter[1], schedule[1]);
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (std::uint32_t rotation : kRotations[round % 2]) {
      x = b.op(ScalarOp::add, x, y);
      y = b.op(ScalarOp::xor_, rotated(y, rotation), x);
    }
    x = b.op(ScalarOp::add, x, schedule[(round + 1) % 3]);
    y = b.op(ScalarOp::add, b.op(ScalarOp::add, y, schedule[(round + 2) % 3]), u32_constant(round + 1));
  }
  return {x, y};
}

ValueId Reader::lower(int node, const low::RandomBits& r, const Position& i, ValueId mask) {
  IndexPool& pool = b_.indices();
  const int key = operand(node, 0);
  Position counted;
  for (std::size_t d = 0; d < i.size(); ++d)
    if (!contains(r.result_batch, d)) counted.push_back(i[d]);
  Position at(group_.dims(key).size());
  for (std::size_t k = 0; k < r.key_batch.size(); ++k) at[r.key_batch[k]] = i[r.result_batch[k]];
  std::array<ValueId, 2> words;
  for (std::int64_t w = 0; w < 2; ++w) {
    at.back() = pool.constant(w);
    words[w] = read(key, at, mask);
    if (!ok_) return -1;
  }
  constexpr std::int64_t kWord = std::int64_t{1} << 32;
  const Index flat = flatten(pool, counted, r.whole);
  std::array<ValueId, 2> counter;
  if (group_.nodes[node].operands.size() == 1) {
    // By the positions there are, as one behind a mask may be none of them.
    const bool is_word = num_elements(r.whole) <= kWord;
    counter = {is_word ? b_.constant(DType::u32, 0) : b_.index_value(pool.floor_div(flat, kWord), DType::u32),
               b_.index_value(is_word ? flat : pool.mod(flat, kWord), DType::u32)};
  } else {
    at.pop_back();
    const ValueId first = read(operand(node, 1), at, mask);
    if (!ok_) return -1;
    const ValueId sum = b_.op(ScalarOp::add, first, b_.index_value(flat, DType::u64));
    counter = {b_.convert(b_.op(ScalarOp::shr_logical, sum, b_.constant(DType::u64, 32)), DType::u32),
               b_.convert(sum, DType::u32)};
  }
  const auto bits = threefry2x32(b_, words, counter);
  const DType dtype = group_.dtype(node);
  if (size_bytes(dtype) == 8) {
    const ValueId shifted = b_.op(ScalarOp::shl, b_.convert(bits[0], DType::u64), b_.constant(DType::u64, 32));
    return b_.convert(b_.op(ScalarOp::or_, shifted, b_.convert(bits[1], DType::u64)), dtype);
  }
  return b_.convert(b_.op(ScalarOp::xor_, bits[0], bits[1]), dtype);
}

}  // namespace sheaf::kir
