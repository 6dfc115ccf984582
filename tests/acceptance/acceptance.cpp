// The harness of the acceptance tests.
#include "tests/acceptance/acceptance.h"

#include <tuple>

#include "ir/builder.h"
#include "passes/emit.h"
#include "passes/sharding/collectives.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/propagate.h"
#include "passes/sharding/report.h"
#include "passes/transforms.h"
#include "tests/passes/partitioned.h"

namespace sheaf::acceptance {

using namespace ir;

namespace {

// A leaf of argument w is called "w", "w[0]", "w[0][1]".
Type laid_out(Value leaf, const std::map<std::string, std::string>& specs, const MeshAtoms& atoms) {
  Sharding s = Sharding::replicated(leaf.rank());
  for (const auto& [name, text] : specs) {
    if (leaf.name() != name && !leaf.name().starts_with(name + "[")) continue;
    const Spec spec = *parse_spec(text);
    for (std::size_t d = 0; d < spec.size(); ++d) s.dims.at(d) = atoms.of(spec[d].axes);
  }
  return ir::with_sharding(leaf.type(), atoms, s);
}

void count(const Function& f, std::int64_t steps, std::map<std::string, int>& counts) {
  for (const Eqn* e : f.eqns()) {
    if (tests::is_collective(*e))
      ++counts[(steps > 1 ? fmt::format("each of {}: ", steps) : "") + tests::collective(*e)];
    const std::int64_t inside = e->op == &ops::scan ? steps * e->attrs<ops::Scan>().length : steps;
    for (const FunctionRef& r : e->regions) count(*r, inside, counts);
  }
}

std::string listed(const std::map<std::string, int>& counts) {
  std::string text;
  for (const auto& [line, n] : counts) text += fmt::format("{} x{}\n", line, n);
  return text;
}

// A byte takes a nanosecond, and a product as long against its operands as one of 8192 features on an accelerator.
const passes::Profile& profile() {
  static const passes::Profile made{
      .name = "acceptance", .links = {{.link = {1e-8, 1e9}}}, .flops = 3e9, .memory = 1e12, .launch = 0};
  return made;
}

}  // namespace

ir::Mesh mesh_of(const std::string& axes) {
  const auto module = parse("mesh @m = [" + axes + "]\nfunc @f() -> () on @m {\n  return\n}\n");
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0]->mesh();
}

Partitioned partitioned(const FunctionRef& traced, const Layout& layout) {
  const MeshAtoms atoms(mesh_of(layout.mesh));
  Builder b(traced->name());
  Values params;
  for (const Value p : traced->params()) params.push_back(b.param(laid_out(p, layout.params, atoms), p.name()));
  const FunctionRef f = passes::inline_calls(b.finish(passes::inline_into(b, *traced, params)))->on_mesh(atoms.mesh());
  std::vector<std::optional<Spec>> wanted(f->results().size());
  for (const auto& [j, spec] : layout.results) wanted.at(j < 0 ? wanted.size() + j : j) = *parse_spec(spec);
  Partitioned p;
  passes::Propagated done = passes::propagate(passes::with_wanted(f, wanted), {});
  p.whole = done.function;
  p.visits = done.visits;
  p.local = passes::partition(p.whole, {.profile = &profile(), .work = &p.work});
  // At the latency of a server's links; at that of the profile above nothing is small.
  p.improved = passes::combine_collectives(passes::simplify_collectives(p.local), *passes::built_in_profile("nvlink"));
  for (const FunctionRef& program : {p.local, p.improved}) {
    const absl::Status s = verify(*program);
    REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
    CHECK(tests::left_over(*program) == "");
    for (const passes::CollectiveEntry& c : passes::report_collectives(*program, profile()).entries)
      CHECK_MESSAGE(!c.gathers_all, passes::to_string(c));
  }
  return p;
}

std::string collectives_of(const Function& local) {
  std::map<std::string, int> counts;
  count(local, 1, counts);
  return listed(counts);
}

std::int64_t largest_value(const Function& local) {
  std::int64_t most = 0;
  for (const Eqn* e : local.eqns()) {
    for (const Value v : e->outs()) most = std::max(most, v.type().bytes());
    for (const FunctionRef& r : e->regions) most = std::max(most, largest_value(*r));
  }
  return most;
}

std::string listed(const std::vector<Expected>& all) {
  std::map<std::string, int> counts;
  for (const Expected& e : all)
    counts[(e.steps > 1 ? fmt::format("each of {}: ", e.steps) : "") +
           fmt::format("{} {} {}", e.op, e.axes, e.bytes)] += e.count;
  return listed(counts);
}

Expected combining(Expected e) {
  e.combines = true;
  return e;
}
Expected behind_loops(Expected e) {
  e.is_behind_loops = true;
  return e;
}

std::vector<Expected> combined(const std::vector<Expected>& all) {
  std::vector<Expected> out;
  std::map<std::tuple<std::string, std::string, std::int64_t>, std::int64_t> bytes;
  for (const Expected& e : all) {
    if (e.combines) bytes[{e.op, e.axes, e.steps}] += e.bytes * e.count;
    else out.push_back(e);
  }
  for (const auto& [key, sum] : bytes) out.push_back({std::get<0>(key), std::get<1>(key), sum, 1, std::get<2>(key)});
  return out;
}

double largest_difference(const Partitioned& p, const Function& reference) {
  const Literals in = tests::numbers(*p.whole), want = eval(reference, in);
  double most = 0;
  for (const FunctionRef& local : {p.local, p.improved}) {
    const Literals got = tests::run_partitioned(p.whole, local, in);
    for (std::size_t j = 0; j < want.size(); ++j) most = std::max(most, tests::difference(want[j], got[j]));
  }
  return most;
}

}  // namespace sheaf::acceptance
