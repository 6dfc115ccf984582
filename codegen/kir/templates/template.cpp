// Parameters, phases and blocking: what all templates share.
#include "codegen/kir/templates/template.h"

#include <algorithm>

#include "codegen/kir/estimate.h"
#include "ir/check.h"

namespace sheaf::kir {
namespace {

/// Scratch ids start after the parameters; temporaries added later push them up.
void rebase_scratch(Block& block, int first, int by) {
  const auto moved = [&](BufferId& id) { id += id >= first ? by : 0; };
  for (Stmt& s : block) {
    if (auto* let = std::get_if<Let>(&s)) {
      if (auto* load = std::get_if<Load>(&let->expr)) moved(load->buffer);
    } else if (auto* store = std::get_if<Store>(&s)) {
      moved(store->buffer);
    } else if (auto* loop = std::get_if<For>(&s)) {
      rebase_scratch(loop->body, first, by);
    } else if (auto* branch = std::get_if<If>(&s)) {
      rebase_scratch(branch->then, first, by);
    }
  }
}

}  // namespace

KernelBuilder::KernelBuilder(const Group& group, const std::vector<std::int64_t>& in_place, const Grain& grain)
    : buffers(group.nodes.size(), -1), group_(group), in_place_(in_place), grain_(grain) {
  in_place_.resize(group.results.size(), -1);
  for (int i = 0; i < group.num_inputs; ++i) {
    const bool is_shared = std::find(in_place_.begin(), in_place_.end(), i) != in_place_.end();
    buffers[i] = i;
    // What shares memory with a result is not "only read": its loads must stay where the program has them.
    kernel_.params.push_back({group.dtype(i), group.nodes[i].type.num_elements(),
                              is_shared ? Param::Access::read_write : Param::Access::read});
  }
  for (std::size_t j = 0; j < group.results.size(); ++j) {
    kernel_.params.push_back({group.dtype(group.results[j]), group.nodes[group.results[j]].type.num_elements(),
                              in_place_[j] >= 0 ? Param::Access::read_write : Param::Access::write});
  }
}

BufferId KernelBuilder::temporary(DType dtype, std::int64_t count) {
  kernel_.params.push_back({dtype, count, Param::Access::temporary});
  return static_cast<BufferId>(kernel_.params.size()) - 1;
}

void KernelBuilder::end_phase(PhaseBuilder& builder, int threads) {
  Phase phase = builder.finish(0);
  phase.threads = threads;
  phase.unit_ps = estimate_unit_ps(phase);
  params_at_phase_.push_back(builder.num_params());
  kernel_.phases.push_back(std::move(phase));
}

Kernel KernelBuilder::finish(std::string name) {
  kernel_.name = std::move(name);
  const int params = static_cast<int>(kernel_.params.size());
  for (std::size_t i = 0; i < kernel_.phases.size(); ++i) {
    rebase_scratch(kernel_.phases[i].body, params_at_phase_[i], params - params_at_phase_[i]);
  }
  return std::move(kernel_);
}

Blocking choose_blocking(const Grain& grain, std::int64_t count, double item_ps) {
  if (grain.is_gpu()) return {count, 1};
  if (static_cast<double>(count) * item_ps <= static_cast<double>(grain.serial_ps)) return {count, count};
  const auto wanted = static_cast<std::int64_t>(static_cast<double>(grain.unit_ps) / std::max(item_ps, 1.0));
  const std::int64_t units = Blocking{count, std::clamp<std::int64_t>(wanted, 1, count)}.units();
  return {count, (count + units - 1) / units};  // even units
}

void for_each_item(PhaseBuilder& b, const Blocking& blocking, Index unit, const std::string& name,
                   const std::function<void(Index)>& body) {
  IndexPool& pool = b.indices();
  if (blocking.block == 1) return body(unit);
  const std::int64_t last = blocking.units() - 1, rest = blocking.count - last * blocking.block;
  const AxisId axis = b.begin_part(name, blocking.block, LoopKind::serial, {b.in_range(unit, last, last + 1), rest});
  body(pool.add(pool.scale(unit, blocking.block), b.axis(axis)));
  b.end();
}

}  // namespace sheaf::kir
