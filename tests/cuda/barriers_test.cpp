// Barriers of a team: put in where threads touch what others did, left out where they do not, and missed where they
// lack.
#include "codegen/cuda/barriers.h"

#include <doctest/doctest.h>

#include "codegen/kir/build.h"

using namespace sheaf;
using namespace sheaf::kir;
using codegen::Team;

namespace {

int count(const Block& block) {
  int barriers = 0;
  for (const Stmt& s : block) {
    barriers += std::holds_alternative<Barrier>(s);
    if (const auto* loop = std::get_if<For>(&s)) barriers += count(loop->body);
  }
  return barriers;
}

struct Built {
  Kernel kernel;
  Team team() const { return Team(kernel, kernel.phases[0]); }
  Block body() const { return with_barriers(kernel.phases[0], team()); }
};

/// Stores element i of scratch, then reads element i + `step` of it, mod 256, `rounds` times.
Built exchange(std::int64_t step, std::int64_t rounds) {
  Built built{{.name = "k",
               .params = {{DType::f32, 256, Param::Access::read}, {DType::f32, 256, Param::Access::write}},
               .phases = {},
               .contract = {}}};
  PhaseBuilder b(built.kernel.params, 1);
  IndexPool& pool = b.indices();
  const BufferId s = b.scratch(DType::f32, 256);
  b.begin_for("r", rounds, LoopKind::serial);
  const Index i = b.axis(b.begin_for("i", 256, LoopKind::vector));
  b.store(s, i, b.load(0, i));
  b.end();
  const Index j = b.axis(b.begin_for("j", 256, LoopKind::vector));
  b.store(1, j, b.load(s, pool.mod(pool.add(j, step), 256)));
  b.end();
  b.end();
  built.kernel.phases.push_back(b.finish(1));
  return built;
}

}  // namespace

TEST_CASE("threads that read only what they wrote do not meet") {
  const Built own = exchange(0, 2);
  CHECK(own.team().threads == 256);
  CHECK(own.team().places[0] == Team::Place::registers);
  CHECK(count(own.body()) == 0);
}

TEST_CASE("threads meet before they read what others wrote, and before they write over it") {
  const Built once = exchange(1, 1), again = exchange(1, 2);
  CHECK(once.team().places[0] == Team::Place::shared);
  CHECK(count(once.body()) == 2);  // a loop of one step is a loop
  CHECK(count(again.body()) == 2);
  CHECK(check_barriers(again.body(), again.team()).ok());
}

TEST_CASE("a lacking barrier and one that not all threads reach are errors") {
  const Built built = exchange(1, 2);
  const Block bare = built.kernel.phases[0].body;
  CHECK(check_barriers(bare, built.team()).message() == "p2 is touched by several threads, with no barrier between");
  Block late = built.body();  // what the last step reads, the first of the next round writes
  Block& body = std::get<For>(late[0]).body;
  std::erase_if(body,
                [&, seen = 0](const Stmt& s) mutable { return std::holds_alternative<Barrier>(s) && seen++ == 0; });
  CHECK(check_barriers(late, built.team()).message() == "p2 is touched by several threads, with no barrier between");
  Block divergent = built.body();
  for (Stmt& s : std::get<For>(divergent[0]).body)
    if (auto* loop = std::get_if<For>(&s)) loop->body.push_back(Barrier{});
  CHECK(check_barriers(divergent, built.team()).message() ==
        "a barrier inside a vector loop, where threads go their own ways");
}
