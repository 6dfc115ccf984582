// One walk that remembers what is under way: at most one collective per set of axes, so that devices which are ahead of
// each other still meet in the same order.
#include "passes/overlap.h"

#include <map>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// The axes that the step's devices meet over; none for other steps.
Axes meeting_of(const Eqn& e) {
  if (e.op != &ops::kernel || e.attrs<ops::Kernel>().schedule != Schedule::host) return {};
  const Eqn& step = host_step(*e.regions[0]);
  const Lowering lowering = step.op->lower(step);
  const auto* what = std::get_if<lowering::Collective>(&lowering);
  return what && what->kind != lowering::Collective::Kind::axis_index ? what->axes : Axes{};
}

}  // namespace

std::vector<int> done_before(const Function& f) {
  const int count = static_cast<int>(f.eqns().size());
  std::vector<int> done(count, -1);
  std::map<Axes, int> under_way;
  ValueTable<int> maker(f, -1);  // of results of collectives
  const auto end = [&](int collective, int at) {
    if (done[collective] == count) done[collective] = at;
  };
  for (int k = 0; k < count; ++k) {
    const Eqn& e = *f.eqns()[k];
    for (const Value v : e.operands)
      if (maker[v] >= 0) end(maker[v], k);
    const Axes axes = meeting_of(e);
    if (axes.empty()) continue;
    if (const auto before = under_way.find(axes); before != under_way.end()) end(before->second, k);
    under_way[axes] = k;
    done[k] = count;
    maker[e.out()] = k;
  }
  return done;
}

}  // namespace sheaf::passes
