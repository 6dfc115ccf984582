// Closure conversion of sibling regions, and the weak types of what they return.
#include "trace/region_op.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/manual.h"
#include "passes/emit.h"
#include "trace/apply.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

// The dtype a C++ number of `weak` has beside an array of `strong`.
DType beside(DType weak, DType strong) {
  if (is_float(weak) && !is_differentiable(strong)) return f32;
  if (is_int(weak) && is_bool(strong)) return i32;
  return strong;
}

std::optional<LeafType> meet_on_one(const LeafType& a, const LeafType& b) {
  if (a.type.dims() != b.type.dims()) return {};
  if (a.type == b.type) return LeafType{a.type, a.is_weak && b.is_weak};
  if (!a.is_weak && !b.is_weak) return {};
  if (a.is_weak && b.is_weak) return LeafType{a.type.with_dtype(promote(a.type.dtype(), b.type.dtype())), true};
  const LeafType &weak = a.is_weak ? a : b, &strong = a.is_weak ? b : a;
  if (beside(weak.type.dtype(), strong.type.dtype()) != strong.type.dtype()) return {};
  return strong;
}

}  // namespace

std::optional<LeafType> meet(const LeafType& a, const LeafType& b) {
  if (a.type.manual() == b.type.manual()) return meet_on_one(a, b);
  const std::optional<ir::Manual> manual = ir::common(a.type.manual(), b.type.manual());
  std::optional<LeafType> both = meet_on_one({a.type.with_manual({}), a.is_weak}, {b.type.with_manual({}), b.is_weak});
  if (!manual || !both) return {};
  both->type = both->type.with_manual(*manual);
  return both;
}

LeafType varied(LeafType t, const ir::Axes& axes) {
  t.type = t.type.with_varying(ir::joined(t.type.varying(), axes));
  return t;
}

std::vector<LeafType> varied(std::vector<LeafType> types, const ir::Axes& axes) {
  for (LeafType& t : types) t = varied(t, axes);
  return types;
}

std::vector<LeafType> cotangents(std::vector<LeafType> types) {
  for (LeafType& t : types) t.type = ir::cotangent_type(t.type);
  return types;
}

ir::Axes varying_of(std::span<const LeafType> types) {
  ir::Axes all;
  for (const LeafType& t : types) all = ir::joined(std::move(all), t.type.varying());
  return all;
}

std::vector<Array> WithResultTypes::trace(std::span<const Array> leaves, detail::Structure& result) const {
  std::vector<Array> results = call_.trace(leaves, result);
  for (std::size_t i = 0; i < std::min(results.size(), wanted_.size()); ++i) {
    if (!results[i].has_value()) continue;
    const LeafType have = leaf_type(results[i], loc());
    const ir::Type type = wanted_[i].type;
    if (have == wanted_[i] || meet({have.type.with_manual(type.manual()), have.is_weak}, wanted_[i]) != wanted_[i])
      continue;
    Recorder& r = *Recorder::current();
    const ir::Value v = ir::casted(r.lift(results[i], loc(), type.dtype()), type.manual());
    if (v.type() == type) results[i] = r.wrap(v, wanted_[i].is_weak, results[i].made_at());
  }
  return results;
}

Captures::Captures(std::span<const Traced* const> regions) {
  for (const Traced* t : regions) {
    const std::size_t leaves = t->function->params().size() - t->captured.size();
    for (std::size_t i = 0; i < t->captured.size(); ++i) {
      if (!position_.try_emplace(capture_key(*t->captured[i].node()), arrays_.size()).second) continue;
      arrays_.push_back(t->captured[i]);
      types_.push_back(t->function->params()[leaves + i].type());
    }
  }
}

ir::FunctionRef Captures::first(const Traced& region) const {
  const ir::Function& f = *region.function;
  ir::Builder b(f.name());
  ir::Values captured, args;
  for (const ir::Type t : types_) captured.push_back(b.param(t));
  const std::size_t leaves = f.params().size() - region.captured.size();
  for (std::size_t i = 0; i < leaves; ++i) args.push_back(b.param(f.params()[i].type(), f.params()[i].name()));
  for (const Array& x : region.captured) args.push_back(captured[position_.at(capture_key(*x.node()))]);
  return b.finish(passes::inline_into(b, f, args));
}

std::vector<Array> apply_program(std::string name, std::span<const Array> inputs, std::span<const ir::Type> types,
                                 const std::vector<bool>& weak, Loc loc,
                                 absl::FunctionRef<ir::Values(ir::Builder&, const ir::Values&)> program,
                                 const std::vector<bool>& donated) {
  ir::Builder b(std::move(name));
  ir::Values params;
  for (const ir::Type t : types) params.push_back(b.param(t));
  b.set_loc(loc);
  ir::Values results = program(b, params);
  return apply_function(b.finish(std::move(results)), inputs, loc, weak, donated);
}

bool has_precise_number(const detail::FlatCall& call) {
  for (const Array* x : call.leaves()) {
    const ArrayNode& node = node_of(*x, call.loc());
    const bool is_traced_f64 = node.kind == ArrayNode::Kind::traced && node.value.dtype() == f64;
    if (node.is_weak && node.type.dtype() == f32 && (node.kind == ArrayNode::Kind::number || is_traced_f64))
      return true;
  }
  return false;
}

std::string leaf_name(const std::string& path, const char* whole) { return path.empty() ? whole : path; }

std::string list_of(const std::vector<std::string>& paths) {
  if (paths.empty()) return "none";
  std::vector<std::string> names;
  for (const std::string& p : paths) names.push_back(leaf_name(p, "one array"));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<bool> weak_of(std::span<const LeafType> types) {
  std::vector<bool> weak;
  for (const LeafType& t : types) weak.push_back(t.is_weak);
  return weak;
}

}  // namespace sheaf
