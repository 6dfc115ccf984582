// Every op of the table by its samples, on meshes and layouts drawn at random: what all devices compute together is
// what one computes, to the bit where no reduced dim is split.
#include <random>

#include "ir/sample.h"
#include "passes/sharding/constraints.h"
#include "passes/sharding/propagate.h"
#include "tests/passes/partitioned.h"
#include "tests/passes/programs.h"

using namespace sheaf;
using namespace sheaf::ir;
using namespace sheaf::tests;

namespace {

using Random = std::mt19937;

std::int64_t below(Random& r, std::int64_t n) { return static_cast<std::int64_t>(r() % static_cast<std::uint64_t>(n)); }

Mesh draw_mesh(Random& r) {
  static constexpr std::string_view kMeshes[] = {"x=2",           "x=2, y=2", "x=3, y=2", "x=4",
                                                 "x=2, y=2, z=2", "x=6",      "x=1, y=3"};
  return *Mesh::parse(kMeshes[below(r, std::size(kMeshes))]);
}

/// Whole axes on dims that divide by them.
Sharding draw_layout(Random& r, const Shape& dims, const MeshAtoms& mesh) {
  Sharding s = Sharding::replicated(static_cast<int>(dims.size()));
  for (const MeshAxis& axis : mesh.mesh().axes()) {
    if (dims.empty() || below(r, 4) == 0) continue;
    const std::int64_t d = below(r, std::ssize(dims));
    Sharding longer = s;
    for (const int a : mesh.of(axis.name)) longer.dims[d].push_back(a);
    if (divides(dims, mesh, longer)) s = longer;
  }
  return s;
}

Spec spec_of(const Sharding& s, const MeshAtoms& mesh) {
  Spec spec;
  for (const Atoms& dim : s.dims) spec.push_back({.axes = mesh.names(dim)});
  return spec;
}

/// f with its parameters laid out at random.
FunctionRef laid_out(const FunctionRef& f, Random& r, const MeshAtoms& mesh) {
  Builder b(f->name());
  Values params;
  for (const Value p : f->params())
    params.push_back(b.param(with_sharding(p.type(), mesh, draw_layout(r, p.dims(), mesh)), p.name()));
  return b.finish(passes::inline_into(b, *f, params))->on_mesh(mesh.mesh());
}

double tolerance(const Function& f, const Function& local) {
  bool is_exact = true;
  for (const std::string& line : collectives(local))
    is_exact = is_exact && !line.starts_with("all_reduce") && !line.starts_with("reduce_scatter");
  // Sums along a split dim, made by the op's own rule.
  for (const Eqn* e : f.eqns())
    for (const Op op : {&ops::cumulative, &ops::recurrence, &ops::attention, &ops::attention_backward})
      is_exact = is_exact && e->op != op;
  if (is_exact) return 0;
  double worst = 1e-12;
  for (const Eqn* e : f.eqns())
    for (const Value v : e->outs())
      if (is_float(v.dtype()) || is_complex(v.dtype()))
        worst = std::max(worst, size_bytes(v.dtype()) <= 2 ? 3e-2 : v.dtype() == f64 ? 1e-12 : 1e-5);
  return worst;
}

/// f on parts, laid out in so many ways, against f on the whole.
void check_on_parts(const FunctionRef& f, const Literals& in, int draws, Random& r) {
  const Literals want = eval(*f, in);
  for (int i = 0; i < draws; ++i) {
    const MeshAtoms mesh(draw_mesh(r));
    std::vector<std::optional<Spec>> wanted;
    for (const Value v : f->results())
      wanted.push_back(below(r, 2) ? std::optional(spec_of(draw_layout(r, v.dims(), mesh), mesh)) : std::nullopt);
    const FunctionRef whole = passes::propagate(passes::with_wanted(laid_out(f, r, mesh), wanted));
    const FunctionRef local = passes::partition(whole, {.profile = passes::built_in_profile("flat")});
    INFO(to_string(mesh.mesh()), "\n", print(whole), print(local));
    const absl::Status s = verify(*local);
    REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
    REQUIRE(left_over(*local) == "");
    const Literals got = run_partitioned(whole, local, in);
    for (std::size_t j = 0; j < want.size(); ++j) {
      INFO("result ", j);
      CHECK(difference(want[j], got[j]) <= tolerance(*whole, *local));
    }
  }
}

/// Of a sample whose op has a derivative: the cotangents of its operands, from operands and cotangents. Null
/// where there are none.
FunctionRef gradient(const Sample& sample) {
  const FunctionRef& f = sample.function;
  passes::Mask wrt;
  for (const Value p : f->params()) wrt.push_back(is_differentiable(p.dtype()));
  if (passes::count(wrt) == 0) return nullptr;
  const passes::Vjp v = passes::vjp(f, wrt);
  if (passes::count(v.out) == 0) return nullptr;
  Builder b(f->name() + ".vjp");
  const Values operands = passes::clone_params(b, *f, passes::Mask(f->params().size(), true));
  const Values forward = passes::inline_into(b, *v.forward, operands);
  Values in(forward.end() - v.num_residuals, forward.end());
  for (std::size_t j = 0; j < f->results().size(); ++j)
    if (v.out[j]) in.push_back(b.param(f->results()[j].type()));
  return passes::inline_calls(b.finish(passes::inline_into(b, *v.backward, in)));
}

}  // namespace

TEST_CASE("every op computes on parts what it computes on the whole") {
  Random r(7);
  for (const Op op : all_ops()) {
    if (!op->samples) continue;
    for (const std::string_view text : op->samples()) {
      INFO(text);
      const absl::StatusOr<Sample> sample = parse_sample(text);
      check_on_parts(sample->function, random_inputs(*sample, 3), 6, r);
    }
  }
}

TEST_CASE("every op's gradient is on parts what it is on the whole") {
  Random r(11);
  for (const Op op : all_ops()) {
    if (!op->samples || op->no_jvp != Absent::none) continue;
    for (const std::string_view text : op->samples()) {
      const absl::StatusOr<Sample> sample = parse_sample(text);
      const FunctionRef backward = gradient(*sample);
      if (!backward) continue;
      INFO(text);
      Literals in = random_inputs(*backward, 5);
      std::ranges::copy(random_inputs(*sample, 3), in.begin());
      check_on_parts(backward, in, 3, r);
    }
  }
}
