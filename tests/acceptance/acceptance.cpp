// The harness of the acceptance tests.
#include "tests/acceptance/acceptance.h"

#include <absl/strings/str_split.h>

#include "ir/builder.h"
#include "passes/emit.h"
#include "passes/sharding/collectives.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/propagate.h"
#include "passes/sharding/report.h"
#include "passes/transforms.h"
#include "tests/passes/partitioned.h"
#include "tests/runtime/spmd.h"

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

// Each collective once, in the order of the program.
std::vector<Expected> found(const Function& f, std::int64_t steps) {
  std::vector<Expected> all;
  for (const Eqn* e : f.eqns()) {
    if (tests::is_collective(*e)) {
      const std::vector<std::string> words = absl::StrSplit(tests::collective(*e), ' ');
      all.push_back({words[0], words[1], std::stoll(words[2]), 1, steps});
    }
    const std::int64_t inside = e->op == &ops::scan ? steps * e->attrs<ops::Scan>().length : steps;
    for (const FunctionRef& r : e->regions)
      for (Expected& one : found(*r, inside)) all.push_back(std::move(one));
  }
  return all;
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

std::string collectives_of(const Function& local) { return listed(found(local, 1)); }

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
  std::string text;
  for (const auto& [line, n] : counts) text += fmt::format("{} x{}\n", line, n);
  return text;
}

Expected combining(Expected e) {
  e.combines = true;
  return e;
}
Expected behind_loops(Expected e) {
  e.is_behind_loops = true;
  return e;
}

void check_combined(const Function& improved, const std::vector<Expected>& expected) {
  struct Total {
    std::int64_t bytes = 0;
    int messages = 0;
  };
  std::map<std::string, Total> got, want;
  const auto key = [](const Expected& e) { return fmt::format("{} {} {}", e.op, e.axes, e.steps); };
  for (const Expected& e : found(improved, 1)) {
    got[key(e)].bytes += e.bytes;
    ++got[key(e)].messages;
  }
  for (const Expected& e : expected) {
    want[key(e)].bytes += e.bytes * e.count;
    if (e.combines) want[key(e)].messages = 1;
  }
  CHECK(got.size() == want.size());
  for (const auto& [of, total] : want) {
    CAPTURE(of);
    CHECK(got[of].bytes == total.bytes);
    if (total.messages > 0) CHECK(got[of].messages == total.messages);
  }
}

double largest_difference(const Partitioned& p, const Function& reference) {
  const Literals in = tests::numbers(*p.whole), want = eval(reference, in);
  double most = 0;
  for (const FunctionRef& local : {p.local, p.improved}) {
    const Literals got = tests::run_partitioned(p.whole, local, in);
    for (std::size_t j = 0; j < want.size(); ++j) most = std::max(most, tests::difference(want[j], got[j]));
  }
  if (!tests::is_on_gpus()) return most;
  const Literals got = tests::run_partitioned(p.whole, p.improved, in, tests::run_local);
  // The reference adds up in f64. What is compiled for a CPU is as far from it, to the bit.
  for (std::size_t j = 0; j < want.size(); ++j) CHECK(tests::difference(want[j], got[j]) < 1e-3);
  return most;
}

}  // namespace sheaf::acceptance
