// Dense constants of programs on a mesh: each device reads its own part in place.
#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sharding.h"
#include "passes/pipeline.h"

using namespace sheaf;

TEST_CASE("no device copies its part of a dense constant: the kernel that needs it reads it where it lies") {
  const ir::MeshAtoms atoms(*ir::Mesh::parse("a=4"));
  ir::Builder b("f");
  const ir::Type type(f32, {64, 32});
  const ir::Value x = b.param(with_sharding(type, atoms, {.dims = {atoms.of("a"), {}}}), "x");
  ir::Literal table(type);
  for (std::int64_t i = 0; i < table.size(); ++i) table.set(i, static_cast<double>(i));
  const passes::Plan plan = passes::run_pipeline(b.finish({x * b.constant(table)})->on_mesh(atoms.mesh()));
  int kernels = 0;
  for (const ir::Eqn* e : plan.function->eqns())
    if (e->op == &ir::ops::kernel) kernels += e->attrs<ir::ops::Kernel>().schedule != ir::Schedule::host;
  CHECK(kernels == 1);
  CHECK(plan.arena_bytes < type.bytes() / 4);
}
