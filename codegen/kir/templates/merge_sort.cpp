// Stable, since of equal elements those of the left run go first: an element of the left run passes what is less than
// itself, one of the right run passes what is not greater.
#include "codegen/kir/templates/merge_sort.h"

#include <algorithm>
#include <bit>

namespace sheaf::kir {
namespace {

using ir::ScalarOp;
using Values = std::vector<ValueId>;

/// Of the two copies of a chunk that a block sorts.
constexpr std::int64_t kChunkBytes = 32 * 1024;
constexpr std::int64_t kLongestChunk = 2048;

class MergeSort {
 public:
  MergeSort(KernelBuilder& k, const SortedRows& sorted)
      : k_(k), sorted_(sorted), length_(sorted.length), number_(length_ < (1 << 30) ? DType::i32 : DType::i64) {
    std::int64_t bytes = 0;  // of one element
    for (DType part : sorted.parts) bytes += size_bytes(part);
    const auto fits = static_cast<std::uint64_t>(std::min(kLongestChunk, kChunkBytes / (2 * bytes)));
    const auto all = static_cast<std::uint64_t>(std::max<std::int64_t>(length_, 1));
    chunk_ = static_cast<std::int64_t>(std::min(std::bit_floor(fits), std::bit_ceil(all)));
  }

  void emit() {
    if (sorted_.rows == 0 || length_ == 0) return;
    std::vector<BufferId> runs, others;  // of sorted elements, row by row, a buffer for each part; none: the end
    if (chunk_ < length_) runs = temporaries();
    sort_chunks(runs);
    for (std::int64_t width = chunk_; width < length_; width *= 2) {
      const bool is_last = 2 * width >= length_;
      if (!is_last && others.empty()) others = temporaries();
      merge_runs(runs, is_last ? std::vector<BufferId>{} : others, width);
      std::swap(runs, others);
    }
  }

 private:
  using LoadAt = std::function<Values(ValueId position)>;

  std::vector<BufferId> temporaries() {
    std::vector<BufferId> buffers;
    for (DType part : sorted_.parts) buffers.push_back(k_.temporary(part, sorted_.rows * length_));
    return buffers;
  }

  ValueId number(PhaseBuilder& b, std::int64_t v) const { return b.constant(number_, static_cast<std::uint64_t>(v)); }

  /// Element `i` of row `row`, to `runs` or to where it belongs.
  void store(PhaseBuilder& b, const std::vector<BufferId>& runs, Index row, Index i, const Values& element,
             ValueId exists) {
    if (runs.empty()) return sorted_.store(b, row, i, element, exists);
    const Index at = b.indices().add(b.indices().scale(row, length_), i);
    for (std::size_t k = 0; k < runs.size(); ++k) b.store(runs[k], at, element[k], exists);
  }

  struct Range {
    ValueId low, high;
  };
  /// Who looks for a place: among threads that share out a loop, which holds no other, or by itself.
  enum class Search : std::uint8_t { unrolled, looped };

  /// Where the element at `from` goes when runs of `width` below `end` merge in pairs. `steps` halve a run to nothing.
  ValueId destination(PhaseBuilder& b, ValueId from, ValueId width, ValueId end, int steps, Search search,
                      const LoadAt& load) const {
    const auto op = [&](ScalarOp o, ValueId x, ValueId y, ValueId z = -1) { return b.op(o, x, y, z); };
    const ValueId mask = op(ScalarOp::sub, number(b, 0), op(ScalarOp::add, width, width));
    const ValueId pair = op(ScalarOp::and_, from, mask);
    const ValueId middle = op(ScalarOp::min, op(ScalarOp::add, pair, width), end);
    const ValueId pair_end = op(ScalarOp::min, op(ScalarOp::add, middle, width), end);
    const ValueId is_left = op(ScalarOp::lt, from, middle);
    const ValueId last = op(ScalarOp::sub, end, number(b, 1));
    const std::size_t keys = sorted_.num_keys;
    const Values own = load(from);
    const auto halved = [&](Range range) -> Range {
      const ValueId is_open = op(ScalarOp::lt, range.low, range.high);
      const ValueId at = op(ScalarOp::shr_logical, op(ScalarOp::add, range.low, range.high), number(b, 1));
      const Values other = load(op(ScalarOp::min, at, last));
      const ValueId other_is_less = is_less(b, std::span(other).first(keys), std::span(own).first(keys));
      const ValueId own_is_less = is_less(b, std::span(own).first(keys), std::span(other).first(keys));
      const ValueId passes = op(ScalarOp::select, is_left, other_is_less, b.op(ScalarOp::not_, own_is_less));
      const ValueId rises = op(ScalarOp::and_, is_open, passes);
      const ValueId falls = op(ScalarOp::and_, is_open, b.op(ScalarOp::not_, passes));
      return {op(ScalarOp::select, rises, op(ScalarOp::add, at, number(b, 1)), range.low),
              op(ScalarOp::select, falls, at, range.high)};
    };
    Range range{op(ScalarOp::select, is_left, middle, pair), op(ScalarOp::select, is_left, pair_end, middle)};
    if (search == Search::unrolled) {
      for (int step = 0; step < steps; ++step) range = halved(range);
    } else {
      const LocalId low = b.local(number_), high = b.local(number_);
      b.assign(low, range.low);
      b.assign(high, range.high);
      b.begin_for("step", steps, LoopKind::serial);
      range = halved({b.get(low), b.get(high)});
      b.assign(low, range.low);
      b.assign(high, range.high);
      b.end();
      range.low = b.get(low);
    }
    return op(ScalarOp::add, op(ScalarOp::sub, from, middle), range.low);
  }

  void sort_chunks(const std::vector<BufferId>& runs) {
    const std::int64_t chunks = (length_ + chunk_ - 1) / chunk_;
    PhaseBuilder b = k_.begin_phase(sorted_.rows * chunks);
    IndexPool& pool = b.indices();
    const Position unit = unflatten(pool, b.unit(), {sorted_.rows, chunks});
    const Index begin = pool.scale(unit[1], chunk_);
    const std::int64_t rest = length_ - (chunks - 1) * chunk_;
    const ValueId is_whole = b.in_range(unit[1], 0, rest == chunk_ ? chunks : chunks - 1);
    const ValueId end = b.op(ScalarOp::select, is_whole, number(b, chunk_), number(b, rest));
    std::vector<BufferId> copies;  // two, which alternate as source and destination
    for (DType part : sorted_.parts) copies.push_back(b.scratch(part, 2 * chunk_));
    const auto each = [&](const std::function<void(Index i, ValueId exists)>& body) {
      const Index i = b.axis(b.begin_for("i", chunk_, LoopKind::vector));
      body(i, b.in_range(pool.add(begin, i), 0, length_));
      b.end();
    };
    each([&](Index i, ValueId exists) {
      const Values element = sorted_.read(b, unit[0], pool.add(begin, i), exists);
      for (std::size_t k = 0; k < copies.size(); ++k) b.store(copies[k], i, element[k], exists);
    });
    const int passes = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(chunk_ - 1)));
    if (passes > 0) {
      const LocalId width = b.local(number_);
      b.assign(width, number(b, 1));
      const Index pass = b.axis(b.begin_for("pass", passes, LoopKind::serial));
      const Index source = pool.scale(pool.mod(pass, 2), chunk_), to = pool.sub(pool.constant(chunk_), source);
      const ValueId w = b.get(width);
      each([&](Index i, ValueId exists) {
        const auto load = [&](ValueId at) {
          Values element;
          for (BufferId c : copies) element.push_back(b.load(c, pool.add(source, b.index_of(at, {0, chunk_ - 1}))));
          return element;
        };
        const ValueId from = b.op(ScalarOp::min, b.index_value(i, number_), b.op(ScalarOp::sub, end, number(b, 1)));
        const Index at = b.index_of(destination(b, from, w, end, passes, Search::unrolled, load), {0, chunk_ - 1});
        const Values element = load(from);
        for (std::size_t k = 0; k < copies.size(); ++k) b.store(copies[k], pool.add(to, at), element[k], exists);
      });
      b.assign(width, b.op(ScalarOp::add, w, w));
      b.end();
    }
    each([&](Index i, ValueId exists) {
      Values element;
      for (BufferId c : copies) element.push_back(b.load(c, pool.add(i, passes % 2 * chunk_), exists));
      store(b, runs, unit[0], pool.add(begin, i), element, exists);
    });
    k_.end_phase(b, static_cast<int>(std::min<std::int64_t>(k_.grain().threads, std::max<std::int64_t>(chunk_, 32))));
  }

  /// A thread for each element.
  void merge_runs(const std::vector<BufferId>& runs, const std::vector<BufferId>& merged, std::int64_t width) {
    PhaseBuilder b = k_.begin_phase(sorted_.rows * length_);
    IndexPool& pool = b.indices();
    const Position unit = unflatten(pool, b.unit(), {sorted_.rows, length_});
    const Index row = pool.scale(unit[0], length_);
    const auto load = [&](ValueId at) {
      Values element;
      for (BufferId r : runs) element.push_back(b.load(r, pool.add(row, b.index_of(at, {0, length_ - 1}))));
      return element;
    };
    const ValueId from = b.index_value(unit[1], number_);
    const int steps = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(width)));
    const ValueId to = destination(b, from, number(b, width), number(b, length_), steps, Search::looped, load);
    store(b, merged, unit[0], b.index_of(to, {0, length_ - 1}), load(from), -1);
    k_.end_phase(b);
  }

  KernelBuilder& k_;
  const SortedRows& sorted_;
  std::int64_t length_;
  DType number_;  // of positions in a row
  std::int64_t chunk_ = 1;
};

}  // namespace

void merge_sort(KernelBuilder& k, const SortedRows& rows) { MergeSort(k, rows).emit(); }

}  // namespace sheaf::kir
