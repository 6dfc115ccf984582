// Every op of the table by its samples, on meshes and layouts drawn at random: what all devices compute together is
// what one computes, to the bit where no reduced dim is split.
#include <random>

#include "ir/complex.h"
#include "ir/sample.h"
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
    for (const Op op : {&ops::cumulative, &ops::recurrence, &ops::attention}) is_exact = is_exact && e->op != op;
  if (is_exact) return 0;
  double worst = 1e-12;
  for (const Eqn* e : f.eqns())
    for (const Value v : e->outs())
      if (is_float(v.dtype()) || is_complex(v.dtype()))
        worst = std::max(worst, size_bytes(v.dtype()) <= 2 ? 3e-2 : v.dtype() == f64 ? 1e-12 : 1e-5);
  return worst;
}

void check_sample(std::string_view text, int draws, Random& r) {
  const absl::StatusOr<Sample> sample = parse_sample(text);
  REQUIRE_MESSAGE(sample.ok(), std::string(sample.status().message()));
  for (int i = 0; i < draws; ++i) {
    const MeshAtoms mesh(draw_mesh(r));
    passes::PropagateOptions options;
    for (const Value v : sample->function->results())
      options.results.push_back(below(r, 2) ? std::optional(spec_of(draw_layout(r, v.dims(), mesh), mesh))
                                            : std::nullopt);
    const FunctionRef f = passes::propagate(laid_out(sample->function, r, mesh), options).function;
    const FunctionRef local = passes::partition(f, {.profile = passes::built_in_profile("flat")});
    INFO(text, " on ", to_string(mesh.mesh()), "\n", print(f), print(local));
    const absl::Status s = verify(*local);
    REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
    REQUIRE(left_over(*local) == "");
    const Literals in = random_inputs(*sample, 3);
    const Literals want = eval(*sample->function, in), got = run_partitioned(f, local, in);
    for (std::size_t j = 0; j < want.size(); ++j) {
      INFO("result ", j);
      CHECK(difference(want[j], got[j]) <= tolerance(*f, *local));
    }
  }
}

}  // namespace

TEST_CASE("every op computes on parts what it computes on the whole") {
  Random r(7);
  for (const Op op : all_ops()) {
    if (!op->samples) continue;
    for (const std::string_view text : op->samples())
      if (!has_complex(*parse_sample(text)->function)) check_sample(text, 6, r);
  }
}
