// Statements and serial control flow of a phase.
#include "codegen/llvm/phase_emitter.h"

#include <algorithm>

#include "codegen/llvm/loops.h"
#include "ir/check.h"

namespace sheaf::codegen {

namespace {

constexpr std::int64_t kMaxUnroll = 16;

}  // namespace

PhaseEmitter::PhaseEmitter(llvm::Function& function, const kir::Kernel& kernel, const kir::Phase& phase,
                           const CpuTarget& target)
    : function_(function),
      kernel_(kernel),
      phase_(phase),
      target_(target),
      b_(llvm::BasicBlock::Create(function.getContext(), "entry", &function)),
      scalar_(b_, target),
      values_(phase.values.size()),
      axes_(phase.axes.size()) {
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    buffers_.push_back(b_.CreateLoad(b_.getPtrTy(), b_.CreateConstGEP1_64(b_.getPtrTy(), function.getArg(0), i)));
  }
  std::int64_t offset = 0;
  for (const kir::Scratch& s : phase.scratch) {
    buffers_.push_back(b_.CreateConstGEP1_64(b_.getInt8Ty(), function.getArg(3), offset));
    offset += (s.count * size_bytes(s.dtype) + 63) / 64 * 64;
  }
  for (const kir::Local& local : phase.locals) {
    locals_.push_back(b_.CreateAlloca(scalar_.type(local.dtype, local.lanes)));
  }
  masked_out_ = b_.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), 16));
}

void PhaseEmitter::emit() {
  emit_loop(b_, function_.getArg(1), function_.getArg(2), 1, [&](Value unit) {
    axes_[0] = unit;
    emit(phase_.body);
  });
  b_.CreateRetVoid();
}

void PhaseEmitter::emit_part(const Part& part) {
  SHEAF_CHECK(phase_.scratch.empty(), "what follows a contraction takes scratch");
  part_ = &part;
  axes_[0] = part.batch;
  emit(phase_.body);
  b_.CreateRetVoid();
}

void PhaseEmitter::emit(const kir::Block& block) {
  for (const kir::Stmt& stmt : block) {
    std::visit([&](const auto& node) { emit(node); }, static_cast<const kir::Stmt::variant&>(stmt));
  }
}

void PhaseEmitter::emit(const kir::Let& let) {
  if (!values_[let.value] || vector_.axis < 0) values_[let.value] = expression(let);  // else it was hoisted
}

llvm::Value* PhaseEmitter::expression(const kir::Let& let) {
  const DType dtype = phase_.values[let.value];
  struct Visitor {
    PhaseEmitter& e;
    DType dtype;
    Value operator()(const kir::Scalar& scalar) { return e.expression(scalar, dtype); }
    Value operator()(const kir::Constant& constant) { return e.scalar_.constant(dtype, constant.bits, 1); }
    Value operator()(const kir::Load& load) { return e.load(load, dtype); }
    Value operator()(const kir::Get& get) { return e.get(get.local); }
    Value operator()(const kir::IndexValue& value) { return e.index_value(value, dtype); }
    Value operator()(const kir::InRange& test) { return e.in_range(test); }
  };
  return std::visit(Visitor{*this, dtype}, let.expr);
}

// Stays a scalar as long as every operand is one, also inside a vector loop.
llvm::Value* PhaseEmitter::expression(const kir::Scalar& scalar, DType dtype) {
  const int count = ir::arity(scalar.op);
  int lanes = 1;
  for (int i = 0; i < count; ++i) lanes = std::max(lanes, lanes_of(values_[scalar.in[i]]));
  Value operands[3] = {};
  for (int i = 0; i < count; ++i) operands[i] = operand(scalar.in[i], lanes);
  const DType in = phase_.values[scalar.in[scalar.op == ir::ScalarOp::select ? 1 : 0]];
  return scalar_.emit(scalar.op, in, dtype, std::span(operands, count));
}

llvm::Value* PhaseEmitter::in_range(const kir::InRange& test) {
  // One unsigned comparison; the difference wraps above hi - lo when the index is below lo. In 32 bits it may not.
  const kir::Range range = phase_.indices.range(test.index);
  const bool narrow = fits_32_bits(test.index) && std::min(range.lo, test.lo) >= -(1LL << 30) &&
                      std::max(range.hi, test.hi) <= 1LL << 30;
  Value index = index_value(test.index, narrow && vector_.width > 1 ? 32 : 64);
  auto constant = [&](std::int64_t v) { return llvm::ConstantInt::get(index->getType(), v, true); };
  return b_.CreateICmpULT(b_.CreateSub(index, constant(test.lo)),
                          constant(std::max<std::int64_t>(test.hi - test.lo, 0)));
}

void PhaseEmitter::emit(const kir::Assign& assign) {
  const bool has_lanes = phase_.locals[assign.local].lanes > 1;
  set(assign.local, operand(assign.value, has_lanes ? vector_.width : 1));
}

void PhaseEmitter::emit(const kir::For& loop_stmt) {
  const std::int64_t extent = phase_.axes[loop_stmt.axis].extent;
  SHEAF_CHECK(loop_stmt.limit < 0, "a loop with a limit on the CPU");
  auto body = [&](Value i) {
    axes_[loop_stmt.axis] = i;
    emit(loop_stmt.body);
  };
  if (part_ && loop_stmt.axis == 1) return emit_rows(loop_stmt, *part_);
  if (part_ && loop_stmt.axis == 2) return emit_columns(loop_stmt, *part_);
  switch (loop_stmt.kind) {
    case kir::LoopKind::vector: return emit_vector_loop(loop_stmt);
    case kir::LoopKind::thread: SHEAF_CHECK(false, "a loop over CUDA threads on the CPU"); return;
    case kir::LoopKind::unroll:
      if (extent > kMaxUnroll) break;
      for (std::int64_t i = 0; i < extent; ++i) body(b_.getInt64(i));
      return;
    case kir::LoopKind::serial:
      if (extent > 1) break;
      if (extent == 1) body(b_.getInt64(0));
      return;
  }
  Value end = b_.getInt64(extent);
  if (const auto& rest = loop_stmt.rest) end = b_.CreateSelect(values_[rest->where], b_.getInt64(rest->extent), end);
  emit_loop(b_, b_.getInt64(0), end, 1, body);
}

void PhaseEmitter::emit_rows(const kir::For& loop_stmt, const Part& part) {
  const std::int64_t lane_rows = part.lane_rows;
  emit_loop(b_, part.first_row, part.end_row, 1, [&](Value row) {
    part_row_ = axes_[1] = row;
    if (lane_rows > 0) {
      const auto scaled = [&](Value v, std::int64_t by) { return b_.CreateMul(v, b_.getInt64(by)); };
      Value step = b_.CreateURem(row, b_.getInt64(lane_rows)), slot = b_.CreateUDiv(row, b_.getInt64(lane_rows));
      Value lane = b_.CreateURem(slot, b_.getInt64(kir::kLanes)), leaf = b_.CreateUDiv(slot, b_.getInt64(kir::kLanes));
      axes_[1] = b_.CreateAdd(b_.CreateAdd(scaled(leaf, kir::kLeaf), scaled(step, kir::kLanes)), lane);
    }
    emit(loop_stmt.body);
  });
}

void PhaseEmitter::emit(const kir::LaneReduce& reduce) {
  const std::size_t parts = reduce.locals.size();
  std::vector<Value> lanes;
  for (kir::LocalId local : reduce.locals) {
    lanes.push_back(b_.CreateLoad(scalar_.type(phase_.locals[local].dtype, kir::kLanes), locals_[local]));
  }
  for (int half = kir::kLanes / 2; half >= 1; half /= 2) {
    std::vector<Value> args;  // left parts, then right parts
    for (int side : {0, 1}) {
      for (Value part : lanes) {
        std::vector<int> picked(half);
        for (int i = 0; i < half; ++i) picked[i] = side * half + i;
        args.push_back(half == 1 ? b_.CreateExtractElement(part, picked[0]) : b_.CreateShuffleVector(part, picked));
      }
    }
    for (std::size_t i = 0; i < parts; ++i) lanes[i] = scalar_.call(reduce.combine[i], args, half);
  }
  for (std::size_t i = 0; i < parts; ++i) values_[reduce.results[i]] = lanes[i];
}

void PhaseEmitter::emit(const kir::If& branch) {
  emit_if(b_, values_[branch.condition], [&] { emit(branch.then); });
}

void PhaseEmitter::emit(const kir::Barrier&) { SHEAF_CHECK(false, "a CUDA barrier on the CPU"); }

}  // namespace sheaf::codegen
