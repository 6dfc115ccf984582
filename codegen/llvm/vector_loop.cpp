// Vector loops: whole vectors in a loop, the rest as one masked vector. What does not change along the axis is computed
// once before them.
#include <algorithm>
#include <bit>
#include <numeric>

#include "codegen/llvm/loops.h"
#include "codegen/llvm/phase_emitter.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

constexpr int kFewestLanes = 8;

template <typename Node, typename F>
void for_each(const kir::Block& body, F&& f) {
  for (const kir::Stmt& stmt : body) {
    if (const auto* node = std::get_if<Node>(&stmt)) f(*node);
  }
}

bool touches_lanes(const kir::Block& body, const std::vector<kir::Local>& locals) {
  bool found = false;
  for_each<kir::Assign>(body, [&](const kir::Assign& a) { found |= locals[a.local].lanes > 1; });
  for_each<kir::Let>(body, [&](const kir::Let& let) {
    if (const auto* get = std::get_if<kir::Get>(&let.expr)) found |= locals[get->local].lanes > 1;
  });
  return found;
}

}  // namespace

void PhaseEmitter::emit_vector_loop(const kir::For& loop_stmt) {
  const std::int64_t extent = phase_.axes[loop_stmt.axis].extent;
  if (extent == 0) return;
  begin_vector_loop(loop_stmt);
  const bool is_lane_loop = touches_lanes(loop_stmt.body, phase_.locals);
  SHEAF_CHECK(!is_lane_loop || extent <= kir::kLanes, "a loop over lane locals is longer than the lanes");
  if (is_lane_loop) {  // short rows need not compute all the lanes that the order of reductions has
    const int active = static_cast<int>(extent);
    const int width = std::max(kFewestLanes, static_cast<int>(std::bit_ceil(static_cast<unsigned>(active))));
    emit_lanes(loop_stmt, b_.getInt64(0), {loop_stmt.axis, width, active});
    return;
  }
  const int width = loop_stmt.width > 0 ? loop_stmt.width : choose_width(loop_stmt.body);
  if (loop_stmt.rest) return emit_shorter_vector_loop(loop_stmt, width);
  const std::int64_t whole = extent / width * width;
  if (whole == width) {
    emit_lanes(loop_stmt, b_.getInt64(0), {loop_stmt.axis, width, width});
  } else if (whole > 0) {
    emit_whole_vectors(loop_stmt, b_.getInt64(whole), width);
  }
  if (extent > whole) emit_rest_of_vector(loop_stmt, extent, width);
}

// One body of whole vectors for all units. Only where the loop is shorter may it end in a part of one.
void PhaseEmitter::emit_shorter_vector_loop(const kir::For& loop_stmt, int width) {
  const std::int64_t extent = phase_.axes[loop_stmt.axis].extent, shorter = loop_stmt.rest->extent;
  width = static_cast<int>(std::gcd(width, extent));
  Value is_short = values_[loop_stmt.rest->where];
  Value end = b_.CreateSelect(is_short, b_.getInt64(shorter / width * width), b_.getInt64(extent));
  emit_whole_vectors(loop_stmt, end, width);
  if (shorter % width != 0) emit_if(b_, is_short, [&] { emit_rest_of_vector(loop_stmt, shorter, width); });
}

void PhaseEmitter::emit_whole_vectors(const kir::For& loop_stmt, Value end, int width) {
  emit_loop(b_, b_.getInt64(0), end, width,
            [&](Value first) { emit_lanes(loop_stmt, first, {loop_stmt.axis, width, width}); });
}

void PhaseEmitter::emit_rest_of_vector(const kir::For& loop_stmt, std::int64_t end, int width) {
  const auto rest = static_cast<int>(end % width);
  const auto rest_width = static_cast<int>(std::bit_ceil(static_cast<unsigned>(rest)));
  emit_lanes(loop_stmt, b_.getInt64(end - rest), {loop_stmt.axis, rest_width, rest});
}

// Whole vectors, and the rest of one where the part ends with the last column.
void PhaseEmitter::emit_columns(const kir::For& loop_stmt, const Part& part) {
  begin_vector_loop(loop_stmt);
  const auto width = static_cast<int>(std::gcd(choose_width(loop_stmt.body), part.column_step));
  const auto rest = static_cast<int>(phase_.axes[loop_stmt.axis].extent % width);
  Value count = b_.CreateSub(part.end_column, part.first_column);
  Value whole = b_.CreateAdd(part.first_column, b_.CreateAnd(count, b_.getInt64(-width)));
  emit_loop(b_, part.first_column, whole, width,
            [&](Value first) { emit_lanes(loop_stmt, first, {loop_stmt.axis, width, width}); });
  if (rest == 0) return;
  emit_if(b_, b_.CreateICmpSLT(whole, part.end_column),
          [&] { emit_lanes(loop_stmt, whole, {loop_stmt.axis, width, rest}); });
}

void PhaseEmitter::begin_vector_loop(const kir::For& loop_stmt) {
  for_each<kir::Let>(loop_stmt.body, [&](const kir::Let& let) { values_[let.value] = nullptr; });
  run_bases_.clear();
  hoist(loop_stmt);
}

// The body for the lanes of one vector, the first of them at axis = `first`.
void PhaseEmitter::emit_lanes(const kir::For& loop_stmt, Value first, Vector lanes) {
  std::vector<kir::ValueId> defined;
  for_each<kir::Let>(loop_stmt.body, [&](const kir::Let& let) {
    if (!values_[let.value]) defined.push_back(let.value);
  });
  vector_ = lanes;
  axes_[loop_stmt.axis] = first;
  emit(loop_stmt.body);
  vector_ = {};
  for (kir::ValueId id : defined) values_[id] = nullptr;
}

void PhaseEmitter::hoist(const kir::For& loop_stmt) {
  vector_ = {loop_stmt.axis, 1, 1};
  axes_[loop_stmt.axis] = b_.getInt64(0);
  for_each<kir::Let>(loop_stmt.body, [&](const kir::Let& let) {
    if (is_hoistable(let, loop_stmt)) values_[let.value] = expression(let);
  });
  // The start of each run is hoisted as well, unless a value computed in the body is part of it.
  auto hoist_run = [&](kir::BufferId buffer, kir::Index index) {
    const auto stride = phase_.indices.stride(index, loop_stmt.axis);
    if (!stride || (*stride != 1 && *stride != -1) || !is_defined(index)) return;
    Value base = element(buffer, dtype_of(buffer), index_value(index, 64));
    run_bases_.emplace(std::pair(buffer, index), base);
  };
  for_each<kir::Let>(loop_stmt.body, [&](const kir::Let& let) {
    if (const auto* load = std::get_if<kir::Load>(&let.expr)) hoist_run(load->buffer, load->index);
  });
  for_each<kir::Store>(loop_stmt.body, [&](const kir::Store& store) { hoist_run(store.buffer, store.index); });
  vector_ = {};
}

// True if the value is the same in every iteration of the loop, and what it is made of is known before it.
bool PhaseEmitter::is_hoistable(const kir::Let& let, const kir::For& loop_stmt) const {
  auto is_known = [&](kir::ValueId id) { return id < 0 || values_[id] != nullptr; };
  auto is_uniform = [&](kir::Index index) {
    return !phase_.indices.depends_on(index, loop_stmt.axis) && is_defined(index);
  };
  if (const auto* scalar = std::get_if<kir::Scalar>(&let.expr)) {
    return std::all_of(scalar->in.begin(), scalar->in.begin() + ir::arity(scalar->op), is_known);
  }
  if (std::holds_alternative<kir::Constant>(let.expr)) return true;
  if (const auto* index = std::get_if<kir::IndexValue>(&let.expr)) return is_uniform(index->index);
  if (const auto* test = std::get_if<kir::InRange>(&let.expr)) return is_uniform(test->index);
  if (const auto* get = std::get_if<kir::Get>(&let.expr)) return phase_.locals[get->local].lanes == 1;
  const auto& load = std::get<kir::Load>(let.expr);
  bool is_written = false;
  for_each<kir::Store>(loop_stmt.body, [&](const kir::Store& store) { is_written |= store.buffer == load.buffer; });
  return !is_written && is_uniform(load.index) && is_known(load.mask) && is_known(load.other);
}

// Two registers of the widest element: enough independent work to hide latencies, few enough live registers.
int PhaseEmitter::choose_width(const kir::Block& body) const {
  int bytes = 1;
  for_each<kir::Let>(body, [&](const kir::Let& let) {
    if (!values_[let.value]) bytes = std::max(bytes, size_bytes(phase_.values[let.value]));
  });
  for_each<kir::Store>(body,
                       [&](const kir::Store& store) { bytes = std::max(bytes, size_bytes(dtype_of(store.buffer))); });
  return 2 * target_.lanes(bytes);
}

llvm::Value* PhaseEmitter::lane_mask() const {
  if (!vector_.is_partial()) return nullptr;
  std::vector<llvm::Constant*> lanes(vector_.width);
  for (int i = 0; i < vector_.width; ++i) {
    lanes[i] = llvm::ConstantInt::getBool(function_.getContext(), i < vector_.active);
  }
  return llvm::ConstantVector::get(lanes);
}

// The lanes of the current vector, of a local.
llvm::Value* PhaseEmitter::get(kir::LocalId id) {
  const kir::Local& local = phase_.locals[id];
  Value value = b_.CreateLoad(scalar_.type(local.dtype, local.lanes), locals_[id]);
  if (local.lanes == 1 || vector_.width == local.lanes) return value;
  std::vector<int> first(vector_.width);
  std::iota(first.begin(), first.end(), 0);
  return b_.CreateShuffleVector(value, first);
}

void PhaseEmitter::set(kir::LocalId id, Value value) {
  const kir::Local& local = phase_.locals[id];
  if (local.lanes > 1 && vector_.is_partial()) value = b_.CreateSelect(lane_mask(), value, get(id));
  if (local.lanes > 1 && vector_.width < local.lanes) {
    Value old = b_.CreateLoad(scalar_.type(local.dtype, local.lanes), locals_[id]);
    std::vector<int> widened(local.lanes, 0), merged(local.lanes);
    for (int i = 0; i < local.lanes; ++i) {
      if (i < vector_.width) widened[i] = i;
      merged[i] = i < vector_.width ? i : local.lanes + i;
    }
    value = b_.CreateShuffleVector(b_.CreateShuffleVector(value, widened), old, merged);
  }
  b_.CreateStore(value, locals_[id]);
}

llvm::Value* PhaseEmitter::operand(kir::ValueId id, int lanes) { return scalar_.splat(values_[id], lanes); }

}  // namespace sheaf::codegen
