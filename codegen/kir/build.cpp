// The placement rule: a value's level is the deepest of its operands' levels, and an index's level is the deepest loop
// it mentions. Invariant: levels_[i] is open, so appending to an outer level puts the value before the inner loop.
#include "codegen/kir/build.h"

#include <algorithm>

#include "codegen/kir/canonical.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

enum KeyKind { constant_key, scalar_key, load_key, index_key, range_key };

}  // namespace

PhaseBuilder::PhaseBuilder(std::span<const Param> params, std::int64_t units) : levels_(1) {
  for (const Param& p : params) {
    read_only_.push_back(p.access == Param::Access::read);
    param_dtypes_.push_back(p.dtype);
  }
  phase_.axes.push_back({"unit", units});
  levels_[0].axis = 0;
}

AxisId PhaseBuilder::begin_for(std::string name, std::int64_t extent, LoopKind kind, int width) {
  SHEAF_CHECK(extent >= 1, name);
  const AxisId id = static_cast<AxisId>(phase_.axes.size());
  phase_.axes.push_back({std::move(name), extent});
  levels_.push_back({.block = {}, .axis = id, .kind = kind, .width = width, .known = {}});
  return id;
}

AxisId PhaseBuilder::begin_part(std::string name, std::int64_t extent, LoopKind kind, const Rest& rest) {
  SHEAF_CHECK(rest.extent >= 1, name);
  const AxisId id = begin_for(std::move(name), extent, kind);
  if (rest.extent < extent && constant_bits(rest.where) != std::uint64_t{0}) levels_.back().rest = rest;
  return id;
}

AxisId PhaseBuilder::begin_limited(std::string name, std::int64_t extent, ValueId limit) {
  const AxisId id = begin_for(std::move(name), extent, LoopKind::serial);
  levels_.back().limit = limit;
  return id;
}

void PhaseBuilder::begin_if(ValueId condition) {
  levels_.push_back(
      {.block = {}, .axis = -1, .kind = LoopKind::serial, .width = 0, .condition = condition, .known = {}});
}

void PhaseBuilder::end() {
  SHEAF_CHECK(levels_.size() > 1);
  Level inner = std::move(levels_.back());
  levels_.pop_back();
  if (inner.axis < 0) {
    levels_.back().block.push_back(If{inner.condition, std::move(inner.block)});
  } else {
    levels_.back().block.push_back(
        For{inner.axis, inner.kind, inner.width, std::move(inner.block), inner.limit, inner.rest});
  }
}

void PhaseBuilder::barrier() { levels_.back().block.push_back(Barrier{}); }

LocalId PhaseBuilder::local(DType dtype, int lanes) {
  phase_.locals.push_back({dtype, lanes});
  return static_cast<LocalId>(phase_.locals.size()) - 1;
}

BufferId PhaseBuilder::scratch(DType dtype, std::int64_t count, Scratch::Space space) {
  phase_.scratch.push_back({dtype, count, space});
  return static_cast<BufferId>(read_only_.size() + phase_.scratch.size()) - 1;
}

int PhaseBuilder::level_of_axis(AxisId axis) const {
  for (std::size_t i = 0; i < levels_.size(); ++i) {
    if (levels_[i].axis == axis) return static_cast<int>(i);
  }
  SHEAF_CHECK(false, "index mentions a loop that is not open: " + phase_.axes[axis].name);
  return 0;
}

int PhaseBuilder::level_of(Index index) const {
  int level = 0;
  for (const Term& t : phase_.indices.terms(index)) {
    const Atom& a = phase_.indices.atom(t.atom);
    switch (a.kind) {
      case Atom::Kind::axis: level = std::max(level, level_of_axis(a.id)); break;
      case Atom::Kind::value: level = std::max(level, value_levels_[a.id]); break;
      case Atom::Kind::floor_div:
      case Atom::Kind::mod: level = std::max(level, level_of(a.operand)); break;
    }
  }
  return level;
}

int PhaseBuilder::level_of_if() const {
  for (std::size_t i = levels_.size(); i-- > 0;) {
    if (levels_[i].axis < 0 || levels_[i].limit >= 0) return static_cast<int>(i);
  }
  return 0;
}

ValueId PhaseBuilder::define(int level, DType dtype, Expr expr) {
  const ValueId id = static_cast<ValueId>(phase_.values.size());
  phase_.values.push_back(dtype);
  value_levels_.push_back(level);
  constants_.emplace_back();
  levels_[level].block.push_back(Let{id, std::move(expr)});
  return id;
}

ValueId PhaseBuilder::pure(int level, const Key& key, Expr expr) {
  // An equal value placed inside a finished sibling loop is gone with its level's map, so a hit is always in scope.
  auto [it, inserted] = levels_[level].known.try_emplace(key, -1);
  if (inserted) {
    const ValueId id = define(level, key.dtype, std::move(expr));
    levels_[level].known[key] = id;
    return id;
  }
  return it->second;
}

std::optional<std::uint64_t> PhaseBuilder::constant_bits(ValueId value) const {
  return value < 0 ? std::nullopt : constants_[value];
}

ValueId PhaseBuilder::constant(DType dtype, std::uint64_t bits) {
  const ValueId id =
      pure(0, {.kind = constant_key, .dtype = dtype, .in = {-1, -1, -1}, .a = static_cast<std::int64_t>(bits), .b = 0},
           Constant{bits});
  constants_[id] = bits;
  return id;
}

ValueId PhaseBuilder::constant_value(DType dtype, double value) { return constant(dtype, ir::to_bits(dtype, value)); }

ValueId PhaseBuilder::scalar(ir::ScalarOp op, DType in_dtype, DType result, std::array<ValueId, 3> in) {
  const int count = ir::arity(op);
  int level = 0;
  bool all_constant = true;
  std::uint64_t bits[3] = {0, 0, 0};
  for (int i = 0; i < count; ++i) {
    level = std::max(level, value_levels_[in[i]]);
    if (constants_[in[i]]) {
      bits[i] = *constants_[in[i]];
    } else {
      all_constant = false;
    }
  }
  if (all_constant) return constant(result, ir::eval_op(op, in_dtype, result, bits));
  return pure(level, {.kind = scalar_key, .dtype = result, .in = in, .a = static_cast<std::int64_t>(op), .b = 0},
              Scalar{op, in});
}

ValueId PhaseBuilder::op(ir::ScalarOp op, ValueId a, ValueId b, ValueId c) {
  using enum ir::ScalarOp;
  if (op == select) {
    if (constants_[a]) return *constants_[a] ? b : c;
    if (b == c) return b;
    const DType t = dtype(b), bits = size_bytes(t) == 2 ? DType::u16 : DType::u8;
    if (t == DType::f16 || t == DType::bf16 || t == DType::f8e4m3 || t == DType::f8e5m2) {
      return this->bitcast(this->op(op, a, this->bitcast(b, bits), this->bitcast(c, bits)),
                           t);  // no op computes in these types
    }
    return scalar(op, t, t, {a, b, c});
  }
  const bool is_comparison = op >= eq && op <= ge;
  return scalar(op, dtype(a), is_comparison ? DType::bool_ : dtype(a), {a, b, c});
}

ValueId PhaseBuilder::convert(ValueId a, DType to) {
  return dtype(a) == to ? a : scalar(ir::ScalarOp::convert, dtype(a), to, {a, -1, -1});
}

ValueId PhaseBuilder::bitcast(ValueId a, DType to) {
  return dtype(a) == to ? a : scalar(ir::ScalarOp::bitcast, dtype(a), to, {a, -1, -1});
}

ValueId PhaseBuilder::call(const ir::ScalarFn& fn, std::span<const ValueId> args) {
  std::vector<ValueId> done(fn.nodes.size(), -1);
  for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
    const ir::ScalarNode& n = fn.nodes[i];
    auto in = [&](int k) { return n.in[k] < 0 ? -1 : done[n.in[k]]; };
    switch (n.op) {
      case ir::ScalarOp::arg: done[i] = args[n.index]; break;
      case ir::ScalarOp::constant: done[i] = constant(n.dtype, n.bits); break;
      case ir::ScalarOp::convert: done[i] = convert(in(0), n.dtype); break;
      case ir::ScalarOp::bitcast: done[i] = bitcast(in(0), n.dtype); break;
      default: done[i] = op(n.op, in(0), in(1), in(2));
    }
  }
  return done[fn.result];
}

ValueId PhaseBuilder::index_value(Index index, DType dtype) {
  if (indices().is_constant(index)) return constant_value(dtype, static_cast<double>(indices().offset(index)));
  const Range r = indices().range(index);
  const bool is_narrow = r.lo >= INT32_MIN && r.hi <= INT32_MAX;
  const DType own = dtype != DType::i64 && is_narrow ? DType::i32 : DType::i64;
  const ValueId raw =
      pure(level_of(index), {.kind = index_key, .dtype = own, .in = {-1, -1, -1}, .a = index.node, .b = 0},
           IndexValue{index});
  return convert(raw, dtype);
}

ValueId PhaseBuilder::in_range(Index index, std::int64_t lo, std::int64_t hi) {
  const Range r = indices().range(index);
  if (r.lo >= lo && r.hi < hi) return constant(DType::bool_, 1);
  if (r.hi < lo || r.lo >= hi) return constant(DType::bool_, 0);
  return pure(level_of(index), {.kind = range_key, .dtype = DType::bool_, .in = {index.node, -1, -1}, .a = lo, .b = hi},
              InRange{index, lo, hi});
}

ValueId PhaseBuilder::both(ValueId a, ValueId b) {
  if (is_true(a)) return b;
  if (is_true(b) || a == b) return a;
  return op(ir::ScalarOp::and_, a, b);
}

Index PhaseBuilder::index_of(ValueId value, Range range) {
  if (auto bits = constants_[convert(value, DType::i64)]) return indices().constant(static_cast<std::int64_t>(*bits));
  return indices().value(convert(value, DType::i64), range);
}

ValueId PhaseBuilder::load(BufferId buffer, Index index, ValueId mask, ValueId other) {
  SHEAF_CHECK(buffer < static_cast<int>(read_only_.size()) + static_cast<int>(phase_.scratch.size()));
  const bool is_param = buffer < static_cast<int>(read_only_.size());
  const DType dtype = is_param ? param_dtypes_[buffer] : phase_.scratch[buffer - read_only_.size()].dtype;
  if (is_true(mask)) mask = other = -1;
  const Load load{buffer, index, mask, other};
  if (!is_param || !read_only_[buffer]) return define(static_cast<int>(levels_.size()) - 1, dtype, load);
  int level = std::max(level_of(index), level_of_if());
  if (mask >= 0) level = std::max(level, value_levels_[mask]);
  if (other >= 0) level = std::max(level, value_levels_[other]);
  return pure(level, {.kind = load_key, .dtype = dtype, .in = {buffer, index.node, mask}, .a = other, .b = 0}, load);
}

void PhaseBuilder::store(BufferId buffer, Index index, ValueId value, ValueId mask) {
  levels_.back().block.push_back(Store{buffer, index, value, is_true(mask) ? -1 : mask});
}

void PhaseBuilder::update(BufferId buffer, Index index, ir::ScalarOp op, ValueId value, ValueId mask) {
  levels_.back().block.push_back(Store{buffer, index, value, is_true(mask) ? -1 : mask, op});
}

ValueId PhaseBuilder::get(LocalId local) {
  return define(static_cast<int>(levels_.size()) - 1, phase_.locals[local].dtype, Get{local});
}

void PhaseBuilder::assign(LocalId local, ValueId value) { levels_.back().block.push_back(Assign{local, value}); }

std::vector<ValueId> PhaseBuilder::lane_reduce(std::vector<LocalId> locals, std::vector<ir::ScalarFn> combine) {
  LaneReduce reduce{std::move(locals), std::move(combine), {}};
  for (LocalId l : reduce.locals) {
    reduce.results.push_back(static_cast<ValueId>(phase_.values.size()));
    phase_.values.push_back(phase_.locals[l].dtype);
    value_levels_.push_back(static_cast<int>(levels_.size()) - 1);
    constants_.emplace_back();
  }
  std::vector<ValueId> results = reduce.results;
  levels_.back().block.push_back(std::move(reduce));
  return results;
}

Phase PhaseBuilder::finish(std::int64_t unit_ps) {
  SHEAF_CHECK(levels_.size() == 1);
  phase_.body = std::move(levels_[0].block);
  phase_.unit_ps = unit_ps;
  canonicalise(phase_, read_only_);
  return std::move(phase_);
}

}  // namespace sheaf::kir
