// Tracing, and the check that it has no hidden inputs: a pure function gives the same program twice.
#include "trace/trace_call.h"

#include <fmt/format.h>

#include "ir/environment.h"
#include "ir/op.h"
#include "ir/profile.h"
#include "trace/messages.h"
#include "trace/placement.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

Traced trace_once(const detail::FlatCall& call, const Tracing& how, std::span<const LeafType> leaves) {
  Recorder r(how.what, how.loc, how.name);
  std::vector<Array> params;
  const std::vector<detail::Argument> arguments = call.arguments();
  for (std::size_t k = 0, i = 0; k < arguments.size(); ++k) {
    const bool is_named = k < how.args.size();
    for (const std::string& path : arguments[k].paths) {
      const std::string shown = is_named ? how.args[k] + path : path;
      const std::string in_text = is_named ? shown : fmt::format("arg{}{}", k, path);
      params.push_back(r.param(leaves[i].type, leaves[i].is_weak,
                               {.shown = shown, .in_text = in_text, .place = fmt::format("argument {}", k)},
                               how.precise));
      ++i;
    }
  }
  Traced t;
  const std::vector<Array> results = call.trace(params, t.structure);
  for (std::size_t j = 0; j < results.size(); ++j) {
    if (!results[j].has_value())
      throw TypeError(how.loc, fmt::format("{}: the result{}{} has no value", how.what,
                                           t.structure.paths[j].empty() ? "" : " ", t.structure.paths[j]));
    t.results.push_back(leaf_type(results[j], how.loc));
  }
  t.captured = r.captured();
  t.function = r.finish(results, how.loc);
  if (r.captured().size() != t.captured.size()) t.captured = r.captured();  // a result may be a captured array
  return t;
}

// The first equation in which two programs differ; null if they do not.
const ir::Eqn* first_difference(const ir::Function& a, const ir::Function& b) {
  ir::ValueTable<int> ids_a(a, -1), ids_b(b, -1);
  int next = 0;
  const auto same_params = [&] {
    if (a.params().size() != b.params().size()) return false;
    for (std::size_t i = 0; i < a.params().size(); ++i) {
      if (a.params()[i].type() != b.params()[i].type()) return false;
      ids_a[a.params()[i]] = ids_b[b.params()[i]] = next++;
    }
    return true;
  };
  const auto same_values = [&](const ir::Values& x, const ir::Values& y) {
    if (x.size() != y.size()) return false;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (ids_a[x[i]] != ids_b[y[i]]) return false;
    return true;
  };
  if (!same_params()) return a.eqns().empty() ? nullptr : a.eqns().front();
  const std::size_t n = std::min(a.eqns().size(), b.eqns().size());
  for (std::size_t k = 0; k < n; ++k) {
    const ir::Eqn &x = *a.eqns()[k], &y = *b.eqns()[k];
    const bool same_attrs =
        !x.attributes || !y.attributes || x.op != y.op || x.op->attrs.equal(x.attributes.get(), y.attributes.get());
    if (x.op != y.op || !same_attrs || x.num_out() != y.num_out() || !same_values(x.operands, y.operands)) return &x;
    for (std::size_t i = 0; i < std::min(x.regions.size(), y.regions.size()); ++i)
      if (const ir::Eqn* inner = first_difference(*x.regions[i], *y.regions[i])) return inner;
    for (int j = 0; j < x.num_out(); ++j) ids_a[x.out(j)] = ids_b[y.out(j)] = next++;
  }
  if (a.eqns().size() != b.eqns().size()) return a.eqns().size() > n ? a.eqns()[n] : b.eqns()[n];
  if (!same_values(a.results(), b.results())) return a.eqns().empty() ? nullptr : a.eqns().back();
  return nullptr;
}

// The same array, or one made anew with the same bytes: a literal in the traced function.
bool same_capture(const ArrayNode& a, const ArrayNode& b, Loc loc) {
  if (a.type != b.type || a.value != b.value || a.placement != b.placement) return false;
  if (a.buffer == b.buffer && a.shards == b.shards) return true;
  const auto bytes = [](const ArrayNode& node, Loc at) { return node.placement ? gathered(node, at) : node.buffer; };
  ir::Literal x(a.type), y(b.type);
  check(bytes(a, loc)->to_host(std::span(x.data(), x.bytes())), loc);
  check(bytes(b, loc)->to_host(std::span(y.data(), y.bytes())), loc);
  return x == y;
}

void check_pure(const Traced& first, const Traced& second, const Tracing& how) {
  bool same_captured = first.captured.size() == second.captured.size();
  for (std::size_t i = 0; same_captured && i < first.captured.size(); ++i) {
    same_captured = same_capture(*first.captured[i].node(), *second.captured[i].node(), how.loc);
  }
  const ir::Eqn* e = first_difference(*first.function, *second.function);
  if (!e && same_captured) return;
  const std::string where = e ? fmt::format("the first difference is {} at {}", e->op->name, to_string(e->loc))
                              : std::string("they capture different arrays");
  throw PurityError(
      how.loc, fmt::format("{}: tracing it twice gave two programs; {}. A traced function must depend on its arguments "
                           "alone, not on counters, clocks, host random numbers or other changing state",
                           how.what, where));
}

bool checks_purity() { return ir::is_switched_on("SHEAF_CHECK_PURE"); }

}  // namespace

LeafType leaf_type(const Array& x, Loc loc) {
  const ArrayNode& node = node_of(x, loc);
  return {node.type, node.is_weak};
}

std::vector<LeafType> leaf_types(const detail::FlatCall& call) {
  std::vector<LeafType> types;
  for (const Array* x : call.leaves()) {
    if (!x->has_value()) throw TypeError(call.loc(), leaf_places(call)[types.size()] + " was never given a value");
    types.push_back(leaf_type(*x, call.loc()));
  }
  return types;
}

Traced trace_call(const detail::FlatCall& call, const Tracing& how, std::span<const LeafType> leaves) {
  const ir::Span span(ir::Activity::trace, how.what, how.loc);
  Traced t = trace_once(call, how, leaves);
  const bool is_alone = how.is_kept || !Recorder::current();
  if (is_alone && checks_purity()) check_pure(t, trace_once(call, how, leaves), how);
  return t;
}

std::string argument_place(std::size_t k, const std::vector<std::string>& names) {
  const bool is_named = k < names.size() && !names[k].empty();
  return fmt::format("argument {}{}", k, is_named ? " (" + names[k] + ")" : "");
}

std::vector<std::string> leaf_places(const detail::FlatCall& call, const std::vector<std::string>& names) {
  std::vector<std::string> places;
  const std::vector<detail::Argument> arguments = call.arguments();
  for (std::size_t k = 0; k < arguments.size(); ++k)
    for (const std::string& path : arguments[k].paths)
      places.push_back(argument_place(k, names) + (path.empty() ? "" : " ") + path);
  return places;
}

std::vector<Array> inputs_of(const detail::FlatCall& call, const Traced& traced) {
  std::vector<Array> inputs;
  for (const Array* x : call.leaves()) inputs.push_back(*x);
  inputs.insert(inputs.end(), traced.captured.begin(), traced.captured.end());
  return inputs;
}

std::string name_from(Loc loc) {
  if (!loc) return "f";
  std::string s = to_string(loc);
  s = s.substr(0, s.find('.')) + "_" + std::to_string(loc.line);
  for (char& c : s)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return s;
}

}  // namespace sheaf
