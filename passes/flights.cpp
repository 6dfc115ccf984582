// One walk that remembers what is under way; it asks nothing of the devices, so that those which are ahead of each
// other still meet in the same order.
#include "passes/flights.h"

#include <algorithm>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"

namespace sheaf::passes {

using namespace ir;
using lowering::Collective;

std::optional<Collective> collective_of(const Eqn& e) {
  if (e.op != &ops::kernel || e.attrs<ops::Kernel>().schedule != Schedule::host) return std::nullopt;
  const Eqn& step = host_step(*e.regions[0]);
  Lowering lowering = step.op->lower(step);
  auto* what = std::get_if<Collective>(&lowering);
  if (!what || what->kind == Collective::Kind::axis_index) return std::nullopt;
  return std::move(*what);
}

std::vector<Flight> flights(const Function& f) {
  struct UnderWay {
    int eqn;
    Collective what;
  };
  const int count = static_cast<int>(f.eqns().size());
  std::vector<Flight> all(count);
  std::vector<UnderWay> under_way;  // as they started; one for each kind and set of axes, or a few
  ValueTable<char> is_awaited(f, 0);  // results of what is under way
  const auto land = [&](std::vector<UnderWay>::iterator it, int at) {
    all[it->eqn].done = at;
    is_awaited[f.eqns()[it->eqn]->out()] = 0;
    under_way.erase(it);
  };
  for (int k = 0; k < count; ++k) {
    const Eqn& e = *f.eqns()[k];
    for (const Value v : e.operands)
      if (is_awaited[v])
        land(std::ranges::find_if(under_way, [&](const UnderWay& u) { return f.eqns()[u.eqn] == v.eqn(); }), k);
    const std::optional<Collective> what = collective_of(e);
    if (!what) continue;
    const auto is_like = [&](const UnderWay& u) { return u.what.axes == what->axes && u.what.kind == what->kind; };
    if (std::ranges::count_if(under_way, is_like) == most_under_way(what->kind))
      land(std::ranges::find_if(under_way, is_like), k);
    const auto is_taken = [&](const UnderWay& u) {
      return u.what.axes == what->axes && all[u.eqn].lane == all[k].lane;
    };
    while (std::ranges::any_of(under_way, is_taken)) ++all[k].lane;
    all[k].done = count;
    is_awaited[e.out()] = 1;
    under_way.push_back({k, *what});
  }
  return all;
}

}  // namespace sheaf::passes
