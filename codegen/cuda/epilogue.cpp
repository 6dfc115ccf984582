// The epilogue's loops are the contraction's own, so only what they hold is printed, in their order.
#include "codegen/cuda/epilogue.h"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>

#include "codegen/cuda/contract.h"
#include "codegen/cuda/prelude.h"
#include "ir/check.h"

namespace sheaf::codegen {
namespace {

using kir::Atom;
using kir::Index;

class ElementPrinter {
 public:
  ElementPrinter(const kir::Kernel& kernel, const std::string& value)
      : kernel_(kernel), phase_(kernel.phases[0]), value_(value) {}

  void print(const kir::Block& block) {
    for (const kir::Stmt& s : block) {
      if (const auto* let = std::get_if<kir::Let>(&s)) {
        const DType t = phase_.values[let->value];
        text += fmt::format("const {} v{} = {};\n", cuda_type(t), let->value,
                            std::visit([&](const auto& e) { return expression(t, e); }, let->expr));
      } else if (const auto* store = std::get_if<kir::Store>(&s)) {
        SHEAF_CHECK(store->mask < 0, "an epilogue stores each element");
        text += fmt::format("p{}[{}] = v{};\n", store->buffer, index(store->index), store->value);
      } else if (const auto* loop = std::get_if<kir::For>(&s)) {
        print(loop->body);
      } else {
        SHEAF_CHECK(false, "an epilogue is straight-line code");
      }
    }
  }

  std::string text;

 private:
  std::string index(Index i) {
    const kir::IndexPool& pool = phase_.indices;
    std::string out;
    for (const kir::Term& t : pool.terms(i)) {
      if (!out.empty()) out += " + ";
      if (t.coefficient != 1) out += fmt::format("{} * ", t.coefficient);
      out += atom(pool.atom(t.atom));
    }
    if (out.empty()) return std::to_string(pool.offset(i));
    return pool.offset(i) == 0 ? out : fmt::format("{} + {}", out, pool.offset(i));
  }

  std::string atom(const Atom& a) {
    if (a.kind == Atom::Kind::axis) return fmt::format("a{}", a.id);
    if (a.kind == Atom::Kind::value) return fmt::format("v{}", a.id);
    const bool is_mod = a.kind == Atom::Kind::mod;
    if (phase_.indices.range(a.operand).lo >= 0)
      return fmt::format("(({}) {} {})", index(a.operand), is_mod ? "%" : "/", a.divisor);
    return fmt::format("{}<sf_i64>({}, {})", is_mod ? "sf_floor_mod" : "sf_floor_div", index(a.operand), a.divisor);
  }

  std::string expression(DType t, const kir::Scalar& s) {
    std::string in[3];
    for (int k = 0; k < ir::arity(s.op); ++k) in[k] = fmt::format("v{}", s.in[k]);
    return cuda_expression(s.op, phase_.values[s.op == ir::ScalarOp::select ? s.in[1] : s.in[0]], t, in);
  }
  std::string expression(DType t, const kir::Constant& c) { return cuda_constant(t, c.bits); }
  std::string expression(DType t, const kir::Load& l) {
    if (l.buffer == kernel_.contract->result) return value_;
    std::string element = fmt::format("p{}[{}]", l.buffer, index(l.index));
    if (is_bool(t)) element += " != 0";
    if (l.mask < 0) return element;
    return fmt::format("v{} ? {} : {}", l.mask, element,
                       l.other < 0 ? cuda_constant(t, 0) : fmt::format("v{}", l.other));
  }
  std::string expression(DType, const kir::Get&) {
    SHEAF_CHECK(false, "an epilogue has no locals");
    return "";
  }
  std::string expression(DType t, const kir::IndexValue& i) {
    return fmt::format("({})({})", cuda_type(t), index(i.index));
  }
  std::string expression(DType, const kir::InRange& r) {
    const std::string i = index(r.index);
    return fmt::format("{} <= {} && {} < {}", r.lo, i, i, r.hi);
  }

  const kir::Kernel& kernel_;
  const kir::Phase& phase_;
  const std::string& value_;
};

/// An element of any parameter can be found with 32 bits.
bool is_narrow(const kir::Kernel& kernel) {
  for (const kir::Param& p : kernel.params)
    if (p.count > std::numeric_limits<std::int32_t>::max()) return false;
  return true;
}

}  // namespace

std::string Epilogue::parameters() const {
  std::string all;
  for (std::size_t i = 0; i < kernel_.params.size(); ++i) {
    const kir::Param& p = kernel_.params[i];
    if (p.access == kir::Param::Access::temporary) continue;
    const bool is_const = p.access == kir::Param::Access::read;
    all += fmt::format("{}{}{}* {}p{}", i ? ", " : "", is_const ? "const " : "", cuda_memory_type(p.dtype),
                       is_const ? "__restrict__ " : "", i);
  }
  return all;
}

std::string Epilogue::store(const std::string& batch, const std::string& row, const std::string& column,
                            const std::string& sum) const {
  const kir::Contract& c = *kernel_.contract;
  const bool is_wide = !is_narrow(kernel_);
  const std::string value =
      is_bool(c.accumulate) ? sum : cuda_converted(c.accumulate, c.out, sum);  // bool: as it lies in memory
  std::string text;
  if (kernel_.params[c.result].access != kir::Param::Access::temporary)
    text += fmt::format("p{}[{} + {} + {} + {}] = {};\n", c.result, c.out_offset,
                        cuda_offset(c.batch.extents, c.batch.out_strides, batch, is_wide),
                        cuda_offset(c.m.extents, c.m.out_strides, row, is_wide),
                        cuda_offset(c.n.extents, c.n.out_strides, column, is_wide), value);
  if (kernel_.phases.empty()) return text;
  text += fmt::format("const {} a0 = {}, a1 = {}, a2 = {};\n", is_wide ? "sf_i64" : "sf_i32", batch, row, column);
  ElementPrinter printer(kernel_, value);
  printer.print(kernel_.phases[0].body);
  return text + printer.text;
}

}  // namespace sheaf::codegen
