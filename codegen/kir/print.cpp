// One printer per node kind, top-down. Everything a target may depend on is printed; nothing else is.
#include "codegen/kir/print.h"

#include <fmt/format.h>

#include <iterator>

#include "codegen/kir/attention.h"

namespace sheaf::kir {
namespace {

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

const char* access_name(Param::Access access) {
  switch (access) {
    case Param::Access::read: return "read";
    case Param::Access::write: return "write";
    case Param::Access::read_write: return "read_write";
    case Param::Access::temporary: return "temporary";
  }
  return "?";
}

const char* loop_name(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial: return "serial";
    case LoopKind::unroll: return "unroll";
    case LoopKind::vector: return "vector";
    case LoopKind::thread: return "thread";
  }
  return "?";
}

std::string text_of(const ir::ScalarFn& fn) {
  std::string out = "(";
  for (std::size_t i = 0; i < fn.args.size(); ++i) out += fmt::format("{}{}", i ? ", " : "", name(fn.args[i]));
  out += ")";
  for (std::size_t i = 0; i < fn.nodes.size(); ++i) {
    const ir::ScalarNode& n = fn.nodes[i];
    if (n.op == ir::ScalarOp::arg) {
      out += fmt::format(" n{} = arg {};", i, n.index);
    } else if (n.op == ir::ScalarOp::constant) {
      out += fmt::format(" n{}: {} = 0x{:x};", i, name(n.dtype), n.bits);
    } else {
      out += fmt::format(" n{}: {} = {}", i, name(n.dtype), ir::name(n.op));
      for (int k = 0; k < ir::arity(n.op); ++k) out += fmt::format("{} n{}", k ? "," : "", n.in[k]);
      out += ";";
    }
  }
  return out + fmt::format(" -> n{}", fn.result);
}

std::string text_of(const Contract& c) {
  auto dims = [](const char* what, const Contract::Dims& d) {
    return fmt::format(" {}=[{}] lhs[{}] rhs[{}] out[{}]", what, fmt::join(d.extents, ", "),
                       fmt::join(d.lhs_strides, ", "), fmt::join(d.rhs_strides, ", "), fmt::join(d.out_strides, ", "));
  };
  std::string padding;
  if (c.padding)
    padding = fmt::format(" padded [{}] low[{}] to [{}]", fmt::join(c.padding->extents, ", "),
                          fmt::join(c.padding->low, ", "), fmt::join(c.padding->padded, ", "));
  return fmt::format("contract {} x {} -> p{} {} in {}{}{}{}{}{} offsets {}, {}, {}{}\n", name(c.lhs), name(c.rhs),
                     c.result, name(c.out), name(c.accumulate), c.precision == Precision::tf32 ? " by tf32" : "",
                     dims("batch", c.batch), dims("m", c.m), dims("n", c.n), dims("k", c.k), c.lhs_offset, c.rhs_offset,
                     c.out_offset, padding);
}

class Printer {
 public:
  explicit Printer(const Phase& phase, int indent) : phase_(phase), indent_(indent) {}

  std::string text;

  void print(const Block& block) {
    for (const Stmt& s : block) {
      std::visit([&](const auto& node) { statement(node); },
                 static_cast<const std::variant<Let, Assign, Store, For, LaneReduce, If, Barrier>&>(s));
    }
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text.append(indent_ * 2, ' ');
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  }
  void nested(const Block& block) {
    ++indent_;
    print(block);
    --indent_;
    line("}}");
  }
  std::string index(Index i) const { return to_text(phase_.indices, phase_.axes, i); }
  static std::string where(ValueId mask) { return mask < 0 ? "" : fmt::format(" where v{}", mask); }

  std::string expression(const Expr& e) const {
    return std::visit(Overload{
                          [](const Scalar& s) {
                            std::string out(ir::name(s.op));
                            for (int i = 0; i < ir::arity(s.op); ++i)
                              out += fmt::format("{} v{}", i ? "," : "", s.in[i]);
                            return out;
                          },
                          [](const Constant& c) { return fmt::format("0x{:x}", c.bits); },
                          [&](const Load& l) {
                            return fmt::format("load p{}[{}]{}{}", l.buffer, index(l.index), where(l.mask),
                                               l.other < 0 ? "" : fmt::format(" else v{}", l.other));
                          },
                          [](const Get& g) { return fmt::format("l{}", g.local); },
                          [&](const IndexValue& i) { return fmt::format("index {}", index(i.index)); },
                          [&](const InRange& r) { return fmt::format("{} <= {} < {}", r.lo, index(r.index), r.hi); },
                      },
                      e);
  }

  void statement(const Let& s) { line("v{}: {} = {}", s.value, name(phase_.values[s.value]), expression(s.expr)); }
  void statement(const Assign& s) { line("l{} = v{}", s.local, s.value); }
  void statement(const Store& s) {
    line("store p{}[{}] {}= v{}{}", s.buffer, index(s.index), s.update ? fmt::format("{} ", ir::name(*s.update)) : "",
         s.value, where(s.mask));
  }
  void statement(const For& s) {
    const Axis& axis = phase_.axes[s.axis];
    const std::string rest = s.rest ? fmt::format(", <{}>{}", s.rest->extent, where(s.rest->where)) : "";
    line("for {}{}<{}> {}{}{}{} {{", axis.name, s.axis, axis.extent, loop_name(s.kind),
         s.width ? fmt::format("({})", s.width) : "", s.limit < 0 ? "" : fmt::format(" below v{}", s.limit), rest);
    nested(s.body);
  }
  void statement(const LaneReduce& s) {
    for (std::size_t i = 0; i < s.locals.size(); ++i) {
      line("v{} = lane_reduce l{} by {}", s.results[i], s.locals[i], text_of(s.combine[i]));
    }
  }
  void statement(const If& s) {
    line("if v{} {{", s.condition);
    nested(s.then);
  }
  void statement(const Barrier&) { line("barrier"); }

  const Phase& phase_;
  int indent_;
};

}  // namespace

std::string to_text(const IndexPool& pool, const std::vector<Axis>& axes, Index index) {
  std::string out;
  for (const Term& t : pool.terms(index)) {
    const Atom& a = pool.atom(t.atom);
    if (!out.empty()) out += " + ";
    if (t.coefficient != 1) out += fmt::format("{}*", t.coefficient);
    switch (a.kind) {
      case Atom::Kind::axis: out += fmt::format("{}{}", axes[a.id].name, a.id); break;
      case Atom::Kind::value: out += fmt::format("v{}", a.id); break;
      case Atom::Kind::floor_div: out += fmt::format("(({}) div {})", to_text(pool, axes, a.operand), a.divisor); break;
      case Atom::Kind::mod: out += fmt::format("(({}) mod {})", to_text(pool, axes, a.operand), a.divisor); break;
    }
  }
  const std::int64_t offset = pool.offset(index);
  if (out.empty()) return std::to_string(offset);
  return offset == 0 ? out : fmt::format("{} + {}", out, offset);
}

std::string to_text(const Kernel& kernel) {
  std::string out = "kernel(";
  for (std::size_t i = 0; i < kernel.params.size(); ++i) {
    const Param& p = kernel.params[i];
    out += fmt::format("{}p{}: {} {}[{}]", i ? ", " : "", i, access_name(p.access), name(p.dtype), p.count);
    if (p.alignment < Param{}.alignment) out += fmt::format(" at {}", p.alignment);
  }
  out += ")\n";
  if (kernel.contract) out += text_of(*kernel.contract);
  if (kernel.attention) out += to_text(*kernel.attention);
  for (const Phase& phase : kernel.phases) {
    out += fmt::format("phase unit0<{}>", phase.axes[0].extent);
    if (phase.threads != 1) out += fmt::format(" threads({})", phase.threads);
    out += " {\n";
    for (std::size_t i = 0; i < phase.locals.size(); ++i) {
      out += fmt::format("  local l{}: {} x {}\n", i, name(phase.locals[i].dtype), phase.locals[i].lanes);
    }
    for (std::size_t i = 0; i < phase.scratch.size(); ++i) {
      const Scratch& s = phase.scratch[i];
      out += fmt::format("  {} p{}: {}[{}]\n", s.space == Scratch::Space::shared ? "shared" : "scratch",
                         kernel.params.size() + i, name(s.dtype), s.count);
    }
    Printer printer(phase, 1);
    printer.print(phase.body);
    out += printer.text + "}\n";
  }
  return out;
}

}  // namespace sheaf::kir
