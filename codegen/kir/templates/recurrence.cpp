// Recurrence: one pass along the dim, the state in locals. Where other dims lie behind it, lanes run over those; where
// it is the innermost, a row is scalar work; a GPU's lanes run over rows then, which come and go through the memory of
// the block. Rows and blocks of lanes are independent. The order is that of the dim, so the bits are those of a plain
// loop.
#include <algorithm>
#include <bit>
#include <limits>

#include "codegen/kir/estimate.h"
#include "codegen/kir/templates/template.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

namespace low = ir::lowering;
using ir::ScalarOp;
using Kind = low::Recurrence::Kind;
using Values = std::vector<ValueId>;

/// A GPU's block takes so many elements of up to so many rows at a time, but fewer rows where there are few.
constexpr std::int64_t kStage = 1024, kMostRows = 32, kManyUnits = 256;
constexpr int kStageThreads = 128;

class RecurrenceTemplate {
 public:
  RecurrenceTemplate(KernelBuilder& k, Target target)
      : k_(k),
        g_(k.group()),
        target_(target),
        recurrence_(*g_.as<low::Recurrence>(target.node)),
        operands_(g_.nodes[target.node].operands),
        dims_(g_.dims(target.node)),
        length_(dims_[recurrence_.dim]) {
    for (std::size_t d = 0; d < dims_.size(); ++d) {
      if (static_cast<int>(d) < recurrence_.dim) outer_dims_.push_back(dims_[d]);
      if (static_cast<int>(d) > recurrence_.dim) inner_dims_.push_back(dims_[d]);
    }
  }

  void emit() {
    const std::int64_t outer = num_elements(outer_dims_), inner = num_elements(inner_dims_);
    if (outer * inner * length_ == 0) return;
    if (k_.grain().is_gpu() && inner == 1) return emit_staged(outer);
    block_ = std::min<std::int64_t>(inner, kLanes);
    blocks_ = (inner + block_ - 1) / block_;
    last_block_ = inner - (blocks_ - 1) * block_;
    PhaseBuilder sketch = k_.begin_phase(1);
    b_ = &sketch;
    run_block(sketch.indices().constant(0), sketch.indices().constant(0), block_);
    const auto item_ps = static_cast<double>(estimate_unit_ps(KernelBuilder::sketch(sketch)));
    const Blocking blocking = choose_blocking(k_.grain(), outer * blocks_, item_ps);
    PhaseBuilder b = k_.begin_phase(blocking.units());
    b_ = &b;
    for_each_item(b, blocking, b.unit(), "o", [&](Index item) {
      const Position at = unflatten(b.indices(), item, {outer, blocks_});
      if (last_block_ == block_) return run_block(at[0], at[1], block_);
      b.begin_if(b.in_range(at[1], 0, blocks_ - 1));
      run_block(at[0], at[1], block_);
      b.end();
      b.begin_if(b.in_range(at[1], blocks_ - 1, blocks_));
      run_block(at[0], at[1], last_block_);
      b.end();
    });
    k_.end_phase(b);
  }

 private:
  // ---- staged, on a GPU ----

  struct Stage {
    std::int64_t rows, steps;  // that are in the block's memory at once
    std::vector<BufferId> in;  // operands
    BufferId out;
  };

  /// Rows of a stage are padded, so that lanes along a column meet in no bank.
  static std::int64_t pitch(const Stage& stage, DType t) { return stage.steps + std::max(1, 4 / size_bytes(t)); }

  void emit_staged(std::int64_t rows) {
    const auto units = static_cast<std::uint64_t>(std::max<std::int64_t>(rows / kManyUnits, 1));
    Stage stage{
        .rows = std::min(kMostRows, static_cast<std::int64_t>(std::bit_floor(units))), .steps = 0, .in = {}, .out = -1};
    stage.steps = std::min(length_, kStage / stage.rows);
    PhaseBuilder b = k_.begin_phase((rows + stage.rows - 1) / stage.rows);
    b_ = &b;
    IndexPool& pool = b.indices();
    const DType t = recurrence_.accumulate, result = g_.dtype(target_.node);
    for (std::size_t i = 0; i < operands_.size(); ++i) stage.in.push_back(b.scratch(t, stage.rows * pitch(stage, t)));
    stage.out = b.scratch(result, stage.rows * pitch(stage, result));
    begin_state(kLanes);
    each("w", stage.rows, [&](Index) {
      for (LocalId s : state_) b.assign(s, b.constant_value(t, 0));  // the first step does not read it
    });
    if (const std::int64_t whole = length_ / stage.steps; whole > 0) {
      const Index c = b.axis(b.begin_for("c", whole, LoopKind::serial));
      run_stage(stage, rows, pool.scale(c, stage.steps), stage.steps);
      b.end();
    }
    if (const std::int64_t rest = length_ % stage.steps; rest > 0)
      run_stage(stage, rows, pool.constant(length_ - rest), rest);
    k_.end_phase(b, kStageThreads);
  }

  /// `count` steps from `first` on.
  void run_stage(const Stage& stage, std::int64_t rows, Index first, std::int64_t count) {
    IndexPool& pool = b_->indices();
    const DType t = recurrence_.accumulate, result = g_.dtype(target_.node);
    const Index first_row = pool.scale(b_->unit(), stage.rows);
    const auto in_stage = [&](DType type, Index row, Index step) {
      return pool.add(pool.scale(row, pitch(stage, type)), step);
    };
    const auto each_element =
        [&](const std::function<void(Index row, Index step, const Position& at, ValueId exists)>& body) {
          each("e", stage.rows * count, [&](Index e) {
            const Index row = pool.floor_div(e, count), step = pool.mod(e, count);
            body(row, step, position(pool.add(first_row, row), pool.constant(0), pool.add(first, step)),
                 b_->in_range(pool.add(first_row, row), 0, rows));
          });
        };
    each_element([&](Index row, Index step, const Position& at, ValueId exists) {
      const Values in = read_operands(at, exists);
      for (std::size_t i = 0; i < in.size(); ++i) b_->store(stage.in[i], in_stage(t, row, step), in[i]);
    });
    const Index step = b_->axis(b_->begin_for("i", count, LoopKind::serial));
    each("w", stage.rows, [&](Index row) {
      Values in;
      for (BufferId s : stage.in) in.push_back(b_->load(s, in_stage(t, row, step)));
      const ValueId is_first = b_->in_range(pool.add(first, step), 0, 1);
      const Values start = first_state(in);
      Values next = next_state(in);
      for (std::size_t i = 0; i < state_.size(); ++i) {
        next[i] = b_->op(ScalarOp::select, is_first, start[i], next[i]);
        b_->assign(state_[i], next[i]);
      }
      b_->store(stage.out, in_stage(result, row, step), b_->convert(this->result(next), result));
    });
    b_->end();
    each_element([&](Index row, Index s, const Position& at, ValueId exists) {
      b_->store(target_.buffer, flatten(pool, at, dims_), b_->load(stage.out, in_stage(result, row, s)), exists);
    });
  }

  void each(const char* name, std::int64_t extent, const std::function<void(Index)>& body) {
    body(b_->axis(b_->begin_for(name, extent, LoopKind::vector)));
    b_->end();
  }

  // ---- one pass ----

  void begin_state(int lanes) {
    state_.clear();
    for (int i = 0; i < (recurrence_.kind == Kind::logsumexp ? 2 : 1); ++i)
      state_.push_back(b_->local(recurrence_.accumulate, lanes));
  }

  /// All of the dim, for `width` neighbours of the dims behind it.
  void run_block(Index outer, Index block, std::int64_t width) {
    IndexPool& pool = b_->indices();
    begin_state(width > 1 ? kLanes : 1);
    const auto each_lane = [&](Index step, bool is_first) {
      if (width == 1) return emit_step(outer, pool.scale(block, block_), step, is_first);
      const Index lane = b_->axis(b_->begin_for("w", width, LoopKind::vector));
      emit_step(outer, pool.add(pool.scale(block, block_), lane), step, is_first);
      b_->end();
    };
    each_lane(pool.constant(0), true);
    if (length_ == 1) return;
    const Index rest = b_->axis(b_->begin_for("i", length_ - 1, LoopKind::serial));
    each_lane(pool.add(rest, 1), false);
    b_->end();
  }

  Position position(Index outer, Index inner, Index step) const {
    IndexPool& pool = b_->indices();
    Position at = unflatten(pool, outer, outer_dims_);
    at.push_back(recurrence_.is_reverse ? pool.sub(pool.constant(length_ - 1), step) : step);
    for (Index i : unflatten(pool, inner, inner_dims_)) at.push_back(i);
    return at;
  }

  Values read_operands(const Position& at, ValueId mask = -1) const {
    Reader reader(*b_, g_, k_.buffers);
    Values in;
    for (int operand : operands_) {
      const ValueId value = reader.read(operand, at, mask);
      SHEAF_CHECK(reader.ok(), "recurrence over a value that is in no buffer yet");
      in.push_back(b_->convert(value, recurrence_.accumulate));
    }
    return in;
  }

  void emit_step(Index outer, Index inner, Index step, bool is_first) {
    IndexPool& pool = b_->indices();
    const Position at = position(outer, inner, step);
    const Values in = read_operands(at);
    const Values next = is_first ? first_state(in) : next_state(in);
    for (std::size_t i = 0; i < state_.size(); ++i) b_->assign(state_[i], next[i]);
    b_->store(target_.buffer, flatten(pool, at, dims_), b_->convert(result(next), g_.dtype(target_.node)));
  }

  Values first_state(const Values& in) {
    if (recurrence_.kind == Kind::logsumexp) return {in[0], b_->constant_value(recurrence_.accumulate, 1)};
    return {in.back()};
  }

  Values next_state(const Values& in) {
    const ValueId before = b_->get(state_[0]);
    switch (recurrence_.kind) {
      case Kind::sum: return {b_->op(ScalarOp::add, before, in[0])};
      case Kind::prod: return {b_->op(ScalarOp::mul, before, in[0])};
      case Kind::max: return {b_->op(ScalarOp::max, before, in[0])};
      case Kind::min: return {b_->op(ScalarOp::min, before, in[0])};
      case Kind::affine: return {b_->op(ScalarOp::fma, in[0], before, in[1])};
      case Kind::logsumexp: break;
    }
    // The maximum so far, and the sum of exp(x - maximum): nothing overflows. An infinite maximum scales nothing.
    const ValueId top = b_->op(ScalarOp::max, before, in[0]);
    const ValueId infinity = b_->constant_value(recurrence_.accumulate, std::numeric_limits<double>::infinity());
    const ValueId is_finite = b_->op(ScalarOp::lt, b_->op(ScalarOp::abs, top), infinity);
    const ValueId scale = b_->op(ScalarOp::select, is_finite, top, b_->constant_value(recurrence_.accumulate, 0));
    const ValueId shrunk = call("exp", b_->op(ScalarOp::sub, before, scale));
    const ValueId added = call("exp", b_->op(ScalarOp::sub, in[0], scale));
    return {top, b_->op(ScalarOp::fma, b_->get(state_[1]), shrunk, added)};
  }

  ValueId result(const Values& state) {
    if (recurrence_.kind != Kind::logsumexp) return state[0];
    return b_->op(ScalarOp::add, state[0], call("log", state[1]));
  }

  ValueId call(std::string_view function, ValueId x) {
    return b_->call(*ir::scalar_function(function, recurrence_.accumulate), {&x, 1});
  }

  KernelBuilder& k_;
  const Group& g_;
  Target target_;
  const low::Recurrence& recurrence_;
  const std::vector<int>& operands_;
  const Shape& dims_;
  std::int64_t length_;
  Shape outer_dims_, inner_dims_;  // before and behind the dim
  std::int64_t block_ = 1, blocks_ = 1, last_block_ = 1;
  std::vector<LocalId> state_;
  PhaseBuilder* b_ = nullptr;
};

}  // namespace

void recurrence_template(KernelBuilder& k, Target target) { RecurrenceTemplate(k, target).emit(); }

}  // namespace sheaf::kir
