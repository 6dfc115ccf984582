// Sort: per row a bottom-up merge sort, stable, all operands moving with their keys. Two halves of scratch alternate as
// source and destination; each pass is one loop over the row that merges pairs of runs without branches.
#include <algorithm>
#include <bit>
#include <span>

#include "codegen/kir/estimate.h"
#include "codegen/kir/templates/merge_sort.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using ir::ScalarOp;

/// x < y in the total order of keys: NaN last, -0 equal to +0, false before true.
ValueId is_less(PhaseBuilder& b, ValueId x, ValueId y) {
  const DType t = b.dtype(x);
  if (t == DType::f16 || t == DType::bf16) return is_less(b, b.convert(x, DType::f32), b.convert(y, DType::f32));
  if (is_bool(t)) return is_less(b, b.convert(x, DType::i32), b.convert(y, DType::i32));
  const ValueId less = b.op(ScalarOp::lt, x, y);
  if (!is_float(t)) return less;
  return b.op(ScalarOp::or_, less, b.op(ScalarOp::and_, b.op(ScalarOp::eq, x, x), b.op(ScalarOp::ne, y, y)));
}

}  // namespace

ValueId is_less(PhaseBuilder& b, std::span<const ValueId> x, std::span<const ValueId> y) {
  ValueId result = b.constant(DType::bool_, 0);
  for (std::size_t k = x.size(); k-- > 0;) {
    const ValueId is_equal_so_far = b.op(ScalarOp::not_, is_less(b, y[k], x[k]));
    result = b.op(ScalarOp::or_, is_less(b, x[k], y[k]), b.op(ScalarOp::and_, is_equal_so_far, result));
  }
  return result;
}

namespace {

class SortTemplate {
 public:
  SortTemplate(KernelBuilder& k, const std::vector<Target>& targets)
      : k_(k),
        targets_(targets),
        node_(k.group().nodes[targets[0].node]),
        sort_(*k.group().as<low::Sort>(targets[0].node)),
        dims_(k.group().dims(targets[0].node)),
        length_(dims_[sort_.dim]) {
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      if (static_cast<int>(d) != sort_.dim) others_.push_back(dims_[d]);
    }
  }

  void emit() {
    const std::int64_t rows = num_elements(others_);
    if (rows == 0 || length_ == 0) return;
    if (k_.grain().is_gpu()) return merge_sort(k_, sorted_rows(rows));
    const double row_ps = 4000.0 * static_cast<double>(length_) * (1.0 + num_passes());
    const Blocking blocking = choose_blocking(k_.grain(), rows, row_ps);
    PhaseBuilder b = k_.begin_phase(blocking.units());
    b_ = &b;
    for_each_item(b, blocking, b.unit(), "o", [&](Index row) { sort_row(unflatten(b.indices(), row, others_)); });
    k_.end_phase(b);
  }

 private:
  int num_passes() const { return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(length_ - 1))); }

  Position position(const Position& other, Index i) const {
    Position at = other;
    at.insert(at.begin() + sort_.dim, i);
    return at;
  }

  SortedRows sorted_rows(std::int64_t rows) const {
    SortedRows sorted{.rows = rows, .length = length_, .num_keys = static_cast<std::size_t>(sort_.num_keys)};
    for (int operand : node_.operands) sorted.parts.push_back(k_.group().dtype(operand));
    const auto at = [this](PhaseBuilder& b, Index row, Index i) {
      return position(unflatten(b.indices(), row, others_), i);
    };
    sorted.read = [this, at](PhaseBuilder& b, Index row, Index i, ValueId exists) {
      Reader reader(b, k_.group(), k_.buffers);
      std::vector<ValueId> element;
      for (int operand : node_.operands) element.push_back(reader.read(operand, at(b, row, i), exists));
      SHEAF_CHECK(reader.ok(), "sort of a value that is in no buffer yet");
      return element;
    };
    sorted.store = [this, at](PhaseBuilder& b, Index row, Index i, std::span<const ValueId> element, ValueId exists) {
      for (const Target& t : targets_) {
        const auto part = static_cast<std::size_t>(k_.group().nodes[t.node].result);
        b.store(t.buffer, flatten(b.indices(), at(b, row, i), dims_), element[part], exists);
      }
    };
    return sorted;
  }

  void sort_row(const Position& other) {
    IndexPool& pool = b_->indices();
    scratch_.clear();
    for (int operand : node_.operands) scratch_.push_back(b_->scratch(k_.group().dtype(operand), 2 * length_));
    const Index from = b_->axis(b_->begin_for("i", length_, LoopKind::vector));
    Reader reader(*b_, k_.group(), k_.buffers);
    for (std::size_t k = 0; k < scratch_.size(); ++k) {
      const ValueId value = reader.read(node_.operands[k], position(other, from));
      SHEAF_CHECK(reader.ok(), "sort of a value that is in no buffer yet");
      b_->store(scratch_[k], from, value);
    }
    b_->end();
    const int passes = num_passes();
    if (passes > 0) merge_passes(passes);
    const Index to = b_->axis(b_->begin_for("i", length_, LoopKind::vector));
    for (const Target& t : targets_) {
      const ValueId value = b_->load(scratch_[k_.group().nodes[t.node].result], pool.add(to, passes % 2 * length_));
      b_->store(t.buffer, flatten(pool, position(other, to), dims_), value);
    }
    b_->end();
  }

  ValueId i64_constant(std::int64_t v) const { return b_->constant(DType::i64, static_cast<std::uint64_t>(v)); }
  ValueId capped(ValueId v) const { return b_->op(ScalarOp::min, v, i64_constant(length_)); }
  ValueId plus(ValueId a, ValueId b) const { return b_->op(ScalarOp::add, a, b); }

  /// Each pass merges runs of `width`: i and j walk the two runs of a pair, which end at middle and end.
  void merge_passes(int passes) {
    IndexPool& pool = b_->indices();
    const LocalId width = b_->local(DType::i64), i = b_->local(DType::i64), j = b_->local(DType::i64);
    const LocalId middle = b_->local(DType::i64), end = b_->local(DType::i64);
    b_->assign(width, i64_constant(1));
    const Index pass = b_->axis(b_->begin_for("pass", passes, LoopKind::serial));
    const Index source = pool.scale(pool.mod(pass, 2), length_);
    const Index destination = pool.sub(pool.constant(length_), source);
    b_->assign(end, i64_constant(0));
    const Index at = b_->axis(b_->begin_for("at", length_, LoopKind::serial));
    // A pair is used up: open the next.
    b_->begin_if(b_->op(ScalarOp::eq, b_->index_value(at), b_->get(end)));
    const ValueId begin = b_->get(end), next_middle = capped(plus(begin, b_->get(width)));
    b_->assign(i, begin);
    b_->assign(j, next_middle);
    b_->assign(middle, next_middle);
    b_->assign(end, capped(plus(next_middle, b_->get(width))));
    b_->end();
    const ValueId i_now = b_->get(i), j_now = b_->get(j);
    const ValueId left_left = b_->op(ScalarOp::lt, i_now, b_->get(middle));
    const ValueId right_left = b_->op(ScalarOp::lt, j_now, b_->get(end));
    const auto in_source = [&](ValueId v) {
      const ValueId safe = b_->op(ScalarOp::min, v, i64_constant(length_ - 1));
      return pool.add(source, b_->index_of(safe, {0, length_ - 1}));
    };
    std::vector<ValueId> left, right;
    for (BufferId s : scratch_) left.push_back(b_->load(s, in_source(i_now)));
    for (BufferId s : scratch_) right.push_back(b_->load(s, in_source(j_now)));
    const auto keys = static_cast<std::size_t>(sort_.num_keys);
    const ValueId right_first = is_less(*b_, std::span(right).first(keys), std::span(left).first(keys));
    // Stable: the right run goes first only if it is strictly less, or the left run is used up.
    const ValueId takes_right =
        b_->op(ScalarOp::and_, right_left, b_->op(ScalarOp::or_, b_->op(ScalarOp::not_, left_left), right_first));
    for (std::size_t k = 0; k < scratch_.size(); ++k) {
      b_->store(scratch_[k], pool.add(destination, at), b_->op(ScalarOp::select, takes_right, right[k], left[k]));
    }
    const ValueId step_right = b_->convert(takes_right, DType::i64);
    b_->assign(j, plus(j_now, step_right));
    b_->assign(i, plus(i_now, b_->op(ScalarOp::sub, i64_constant(1), step_right)));
    b_->end();
    b_->assign(width, plus(b_->get(width), b_->get(width)));
    b_->end();
  }

  KernelBuilder& k_;
  const std::vector<Target>& targets_;
  const GroupNode& node_;
  const low::Sort& sort_;
  const Shape& dims_;
  std::int64_t length_;
  Shape others_;
  PhaseBuilder* b_ = nullptr;
  std::vector<BufferId> scratch_;
};

}  // namespace

void sort_template(KernelBuilder& k, const std::vector<Target>& targets) { SortTemplate(k, targets).emit(); }

}  // namespace sheaf::kir
