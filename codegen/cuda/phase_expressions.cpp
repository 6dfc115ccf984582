// Indices and expressions of a phase.
#include "codegen/cuda/phase_printer.h"
#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {

using kir::Atom;
using kir::Block;
using kir::Index;

/// 32 bits where no index of the phase can leave them.
std::string_view PhasePrinter::index_type() {
  if (index_type_.empty()) {
    bool is_narrow = phase_.axes[0].extent <= INT32_MAX;
    for (const kir::Param& p : kernel_.params) is_narrow &= p.count <= INT32_MAX;
    for (const kir::Axis& a : phase_.axes) is_narrow &= a.extent <= INT32_MAX;
    index_type_ = is_narrow && all_narrow(phase_.body) ? "sf_i32" : "sf_i64";
  }
  return index_type_;
}

bool PhasePrinter::all_narrow(Index index) const {
  const kir::IndexPool& pool = phase_.indices;
  std::int64_t magnitude = std::abs(pool.offset(index));  // of partial sums, in whatever order
  for (const kir::Term& t : pool.terms(index)) {
    const Atom& a = pool.atom(t.atom);
    // Values are i64 in the text, and so is what is computed from them.
    if (a.operand.node >= 0 && !all_narrow(a.operand)) return false;
    const kir::Range r = pool.atom_range(t.atom);
    magnitude += std::abs(t.coefficient) * std::max(std::abs(r.lo), std::abs(r.hi));
  }
  return magnitude <= INT32_MAX;
}

bool PhasePrinter::all_narrow(const Block& block) const {
  return std::all_of(block.begin(), block.end(), [&](const kir::Stmt& s) {
    if (const auto* let = std::get_if<kir::Let>(&s)) {
      if (const auto* load = std::get_if<kir::Load>(&let->expr)) return all_narrow(load->index);
      if (const auto* value = std::get_if<kir::IndexValue>(&let->expr)) return all_narrow(value->index);
      if (const auto* range = std::get_if<kir::InRange>(&let->expr)) return all_narrow(range->index);
      return true;
    }
    if (const auto* store = std::get_if<kir::Store>(&s)) return all_narrow(store->index);
    if (const auto* loop = std::get_if<kir::For>(&s)) return all_narrow(loop->body);
    if (const auto* branch = std::get_if<kir::If>(&s)) return all_narrow(branch->then);
    return true;
  });
}

std::string PhasePrinter::index(Index i) {
  const kir::IndexPool& pool = team_.indices();
  std::string out;
  for (const kir::Term& t : pool.terms(i)) {
    const Atom& a = pool.atom(t.atom);
    if (!out.empty()) out += " + ";
    if (t.coefficient != 1) out += fmt::format("{} * ", t.coefficient);
    switch (a.kind) {
      case Atom::Kind::axis: out += axis_name(a.id); break;
      case Atom::Kind::value: out += fmt::format("v{}", a.id); break;
      case Atom::Kind::floor_div: out += division(a, "/", "sf_floor_div"); break;
      case Atom::Kind::mod: out += division(a, "%", "sf_floor_mod"); break;
    }
  }
  if (out.empty()) return std::to_string(pool.offset(i));
  return pool.offset(i) == 0 ? out : fmt::format("{} + {}", out, pool.offset(i));
}

std::string PhasePrinter::axis_name(kir::AxisId axis) const {
  if (axis >= std::ssize(phase_.axes)) return fmt::format("k{}", vector_axis_);
  return fmt::format("{}{}", is_group_ && axis == vector_axis_ ? 'b' : 'a', axis);
}

std::string PhasePrinter::division(const Atom& a, std::string_view op, std::string_view floored) {
  if (team_.indices().range(a.operand).lo >= 0) return fmt::format("(({}) {} {})", index(a.operand), op, a.divisor);
  return fmt::format("{0}<{1}>({2}, {3})", floored, index_type(), index(a.operand), a.divisor);
}

std::string PhasePrinter::element(kir::BufferId buffer, Index i) {
  return fmt::format("p{}[{}]", buffer, index(is_in_registers(buffer) ? team_.own_element(i, vector_axis_) : i));
}

std::string PhasePrinter::local(kir::LocalId l) const {
  if (phase_.locals[l].lanes == 1 || team_.threads != kWarp) return fmt::format("l{}", l);
  const bool has_rounds = phase_.axes[vector_axis_].extent > kWarp;
  return fmt::format("l{}[{}]", l, has_rounds ? fmt::format("k{}", vector_axis_) : "0");
}

std::string PhasePrinter::expression(DType t, const kir::Scalar& s) {
  std::string in[3];
  for (int k = 0; k < ir::arity(s.op); ++k) in[k] = fmt::format("v{}", s.in[k]);
  return cuda_expression(s.op, phase_.values[s.op == ir::ScalarOp::select ? s.in[1] : s.in[0]], t, in);
}
std::string PhasePrinter::expression(DType t, const kir::Constant& c) { return cuda_constant(t, c.bits); }
std::string PhasePrinter::expression(DType t, const kir::Load& l) {
  if (l.buffer == bound_) return bound_value_;
  std::string at = element(l.buffer, l.index);
  if (is_bool(t)) at += " != 0";
  if (l.mask < 0) return at;
  return fmt::format("v{} ? {} : {}", l.mask, at, l.other < 0 ? cuda_constant(t, 0) : fmt::format("v{}", l.other));
}
std::string PhasePrinter::expression(DType, const kir::Get& g) { return local(g.local); }
std::string PhasePrinter::expression(DType t, const kir::IndexValue& i) {
  return fmt::format("({})({})", cuda_type(t), index(i.index));
}
std::string PhasePrinter::expression(DType, const kir::InRange& r) {
  const std::string i = index(r.index);
  return fmt::format("{} <= {} && {} < {}", r.lo, i, i, r.hi);
}

}  // namespace sheaf::codegen
