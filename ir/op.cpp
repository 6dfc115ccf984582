// The list of ops, and inference from the data sheets.
#include "ir/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/manual.h"

namespace sheaf::ir {
namespace {

constexpr Op kAllOps[] = {
#define SHEAF_OP(name) &ops::name,
#include "ir/ops.def"
#undef SHEAF_OP
};

absl::Status check_operands(const Eqn& e) {
  const OpDef& op = *e.op;
  if (op.arity >= 0 && e.num_in() != op.arity)
    return absl::InvalidArgumentError(
        fmt::format("takes {} operand{}, not {}", op.arity, op.arity == 1 ? "" : "s", e.num_in()));
  if (e.num_in() == 0 && op.arity != 0 && !op.infer) return absl::InvalidArgumentError("needs at least one operand");
  for (int k = 0; k < e.num_in(); ++k) {
    if (!contains(op.types, e.in(k).dtype()))
      return absl::InvalidArgumentError(
          fmt::format("operand {} ({}) must be {}", k, to_string(e.in(k).type()), name(op.types)));
    if (!op.dtypes && !op.infer && e.in(k).dtype() != e.in(0).dtype())
      return absl::InvalidArgumentError(fmt::format("operands 0 ({}) and {} ({}) must have the same dtype",
                                                    to_string(e.in(0).type()), k, to_string(e.in(k).type())));
  }
  return absl::OkStatus();
}

// Dtypes by the op's own rule, dims read off its factors.
absl::StatusOr<std::vector<Type>> infer_by_factors(const Eqn& e) {
  const OpDef& op = *e.op;
  std::vector<DType> dtypes;
  if (op.dtypes) {
    absl::StatusOr<std::vector<DType>> given = op.dtypes(e);
    if (!given.ok()) return given.status();
    dtypes = *std::move(given);
  } else {
    dtypes.assign(op.num_results, e.in(0).dtype());
  }
  absl::StatusOr<Factors> f = op.factors(e);
  if (!f.ok()) return f.status();
  std::vector<Type> types;
  for (std::size_t j = 0; j < dtypes.size(); ++j) types.emplace_back(dtypes[j], f->dims(f->out[j]));
  return types;
}

bool is_plain(Type t) {
  const TypeData& d = t.data();
  return d.dim_axes.empty() && d.unreduced.empty() && d.space == MemorySpace::device && d.manual == Manual{};
}

// Regions say it of their results.
absl::Status set_manual(const Eqn& e, std::vector<Type>& types) {
  if (!e.regions.empty() || e.op->varies_as_operands) return absl::OkStatus();
  absl::StatusOr<Manual> together;
  if (e.op->manual) {
    together = e.op->manual(e);
  } else if (absl::StatusOr<Meeting> m = meet(e); m.ok()) {
    together = std::move(m->results);
  } else {
    together = m.status();
  }
  if (!together.ok()) return together.status();
  for (Type& t : types) t = t.with_manual(*together);
  return absl::OkStatus();
}

}  // namespace

Axes joined(Axes a, const Axes& b) {
  if (a == b || b.empty()) return a;
  a.insert(a.end(), b.begin(), b.end());
  std::sort(a.begin(), a.end());
  a.erase(std::unique(a.begin(), a.end()), a.end());
  return a;
}

Axes without(Axes a, const Axes& b) {
  std::erase_if(a, [&](const std::string& axis) { return std::find(b.begin(), b.end(), axis) != b.end(); });
  return a;
}

bool contains(Dtypes set, DType t) {
  switch (set) {
    case Dtypes::any: return t != DType::token;
    case Dtypes::floating: return is_float(t);
    case Dtypes::integral: return is_int(t);
    case Dtypes::numeric: return is_int(t) || is_float(t) || is_complex(t);
    case Dtypes::boolean: return is_bool(t);
    case Dtypes::bits: return is_int(t) || is_bool(t);
    case Dtypes::differentiable: return is_differentiable(t);
    case Dtypes::real: return is_int(t) || is_float(t);
    case Dtypes::ordered: return is_bool(t) || is_int(t) || is_float(t);
    case Dtypes::any_number: return is_bool(t) || is_int(t) || is_float(t) || is_complex(t);
  }
  return false;
}

std::string_view name(Dtypes set) {
  constexpr std::string_view kNames[] = {"an array",
                                         "floating point",
                                         "an integer",
                                         "a number",
                                         "bool",
                                         "bool or an integer",
                                         "floating point or complex",
                                         "an integer or floating point",
                                         "bool, an integer or floating point",
                                         "bool or a number"};
  return kNames[static_cast<int>(set)];
}

Type infer_alone(const Eqn& e) {
  const OpDef& op = *e.op;
  if (!op.is_elementwise || op.infer || op.dtypes || op.manual || op.num_results != 1 || e.num_in() != op.arity)
    return {};
  Type full = e.in(0).type();
  for (const Value v : e.operands)
    if (v.rank() > full.rank()) full = v.type();
  if (!contains(op.types, full.dtype()) || !is_plain(full)) return {};
  for (const Value v : e.operands)
    if (v.type() != full && !(v.rank() == 0 && v.dtype() == full.dtype() && is_plain(v.type()))) return {};
  return full;
}

absl::StatusOr<std::vector<Type>> infer(const Eqn& e) {
  if (const Type alone = infer_alone(e)) return std::vector<Type>{alone};
  if (absl::Status s = check_operands(e); !s.ok()) return s;
  absl::StatusOr<std::vector<Type>> types = e.op->infer ? e.op->infer(e) : infer_by_factors(e);
  if (!types.ok()) return types;
  if (absl::Status s = set_manual(e, *types); !s.ok()) return s;
  for (Type t : *types)
    if (t.num_elements() >= kMaxElements)
      return absl::InvalidArgumentError(fmt::format("a result {} has too many elements", to_string(t)));
  return types;
}

std::span<const Op> all_ops() { return kAllOps; }

Op find_op(std::string_view name) {
  static const auto& by_name = *[] {
    auto* v = new std::vector<Op>(std::begin(kAllOps), std::end(kAllOps));
    std::sort(v->begin(), v->end(), [](Op a, Op b) { return a->name < b->name; });
    return v;
  }();
  auto it =
      std::lower_bound(by_name.begin(), by_name.end(), name, [](Op a, std::string_view n) { return a->name < n; });
  return it != by_name.end() && (*it)->name == name ? *it : nullptr;
}

Linear linear_of(const Eqn& e) { return e.op->linear_when ? e.op->linear_when(e) : e.op->linear; }

Cost cost_of(const Eqn& e) {
  if (e.op->cost) return e.op->cost(e);
  Cost c;
  for (Value v : e.operands) c.bytes += static_cast<double>(v.type().bytes());
  for (Value v : e.outs()) {
    c.bytes += static_cast<double>(v.type().bytes());
    c.flops += static_cast<double>(v.type().num_elements());
  }
  return c;
}

}  // namespace sheaf::ir
