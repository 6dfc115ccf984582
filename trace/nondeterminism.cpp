// Whether runs of one compiled program differ. The equation at fault is looked for in a second program, which has the
// values of all equations as results: kernels are others there, but what an equation computes is not.
#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "ir/op.h"
#include "passes/transforms.h"
#include "sheaf/debug.h"
#include "trace/element.h"
#include "trace/messages.h"
#include "trace/runnable.h"
#include "trace/trace_call.h"

namespace sheaf {
namespace {

constexpr int kRuns = 4;
constexpr const char* kWho = "find_nondeterminism";

ir::Literals run(const Runnable& program, const ir::Function& f, const std::vector<Array>& inputs, Loc loc) {
  std::vector<const Array*> given;
  for (const Array& x : inputs) given.push_back(&x);
  const std::vector<Array> out = program.run(given, {}, loc);
  ir::Literals results;
  for (std::size_t j = 0; j < out.size(); ++j) {
    const ir::Type type = ir::without_sharding(f.results()[j].type());
    ir::Literal& value = results.emplace_back(type);
    check(buffer_of(out[j], type, loc)->to_host(std::span(value.data(), value.bytes())), loc);
  }
  return results;
}

struct Difference {
  std::size_t result = 0;
  ir::Literal first, later;
};

/// Of the earliest result that is not the same in all runs.
std::optional<Difference> difference_between_runs(const ir::FunctionRef& f, const std::vector<Array>& inputs, Loc loc) {
  const Runnable program(f, {.what = kWho});
  const ir::Literals first = run(program, *f, inputs, loc);
  std::optional<Difference> found;
  for (int k = 1; k < kRuns; ++k) {
    const ir::Literals later = run(program, *f, inputs, loc);
    for (std::size_t j = 0; j < first.size() && (!found || j < found->result); ++j)
      if (!(first[j] == later[j])) found = {j, first[j], later[j]};
  }
  return found;
}

bool is_same(const ir::Literal& a, const ir::Literal& b, std::int64_t i) {
  const auto size = static_cast<std::size_t>(size_bytes(a.dtype()));
  return std::memcmp(a.data() + static_cast<std::size_t>(i) * size, b.data() + static_cast<std::size_t>(i) * size,
                     size) == 0;
}

/// "at [3]: 0.25 and 0.5, 2 of 8 elements"
std::string text_of(const Difference& d) {
  std::int64_t at = -1, count = 0;
  for (std::int64_t i = 0; i < d.first.size(); ++i) {
    if (is_same(d.first, d.later, i)) continue;
    if (count++ == 0) at = i;
  }
  return fmt::format("at {}: {} and {}, {} of {} elements", index_text(d.first, at), element_text(d.first, at),
                     element_text(d.later, at), count, d.first.size());
}

/// The first equation whose values differ, regions as the equations that they are of.
std::string equation_at_fault(const ir::FunctionRef& traced, const std::vector<Array>& inputs, Loc loc) {
  const ir::FunctionRef f = passes::inline_calls(traced);
  ir::Values all;
  for (const ir::Eqn* e : f->eqns())
    for (const ir::Value v : e->outs())
      if (v.dtype() != DType::token) all.push_back(v);
  const std::optional<Difference> found =
      difference_between_runs(f->with_results(all)->on_mesh(f->mesh()), inputs, loc);
  if (!found) return "with the values of all equations as results, runs do not differ";
  const ir::Eqn& e = *all[found->result].eqn();
  return fmt::format("the first equation whose values differ is {} at {}, {}", e.op->name, to_string(e.loc),
                     text_of(*found));
}

}  // namespace

std::string detail::find_nondeterminism(const FlatCall& call) {
  const Traced traced = trace_call(call, {.what = kWho, .name = kWho, .loc = call.loc()}, leaf_types(call));
  const std::vector<Array> inputs = inputs_of(call, traced);
  const std::optional<Difference> found = difference_between_runs(traced.function, inputs, call.loc());
  if (!found) return "";
  const std::string& path = traced.structure.paths[found->result];
  return fmt::format("the result{}{} differs between runs {}\n  {}", path.empty() ? "" : " ", path, text_of(*found),
                     equation_at_fault(traced.function, inputs, call.loc()));
}

}  // namespace sheaf
