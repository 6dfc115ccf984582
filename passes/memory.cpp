// Buffers: kernel results that stay inside the program get offsets in one arena by liveness, first fit; an elementwise
// kernel may write over an operand that dies in it, and results may take the buffers of donated parameters. The regions
// of a loop or branch have arenas of their own, which lie in the outer one while the step runs; a loop's carry is
// overwritten in place where its body can, and alternates between two buffers where it cannot.
#include "passes/memory.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::int64_t kAlign = 256;  // bytes; vector loads and GPU transactions want no less

std::int64_t aligned(std::int64_t bytes) { return (std::max<std::int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign; }

// First fit over sorted live intervals.
class Arena {
 public:
  std::int64_t allocate(std::int64_t bytes) {
    bytes = aligned(bytes);
    std::int64_t at = 0;
    auto it = live_.begin();
    for (; it != live_.end() && it->first - at < bytes; ++it) at = it->second;
    live_.insert(it, {at, at + bytes});
    high_ = std::max(high_, at + bytes);
    return at;
  }
  void release(std::int64_t at) {
    std::erase_if(live_, [&](const auto& interval) { return interval.first == at; });
  }
  std::int64_t high() const { return high_; }

 private:
  std::vector<std::pair<std::int64_t, std::int64_t>> live_;
  std::int64_t high_ = 0;
};

// What each result may take the buffer of: parameters, in order of preference.
using Offers = std::vector<std::vector<int>>;

// A loop or branch with its regions' buffers assigned.
struct HostStep {
  const Eqn* eqn = nullptr;
  std::vector<Memory> regions;
  int first_carry = 0, carry = 0;      // of a loop: operands
  std::vector<int> carry_in_place;     // per carry: does the body overwrite it
  bool has_condition = false;
};

Memory assign(const FunctionRef& plan, const Offers& offers);

// Result j of the body may take the buffer of carry j and of nothing else.
Offers own_carries(const Function& body, int consts, int carry) {
  Offers offers(body.results().size());
  for (int j = 0; j < carry; ++j) offers[j] = {consts + j};
  return offers;
}

HostStep assign_host(const Eqn& step) {
  HostStep host;
  host.eqn = &step;
  const Lowering lowering = step.op->lower(step);
  const auto loop = [&](const FunctionRef& body, int consts, int first_carry) {
    host.first_carry = first_carry;
    host.carry = step.num_in() - first_carry;
    if (const auto* scan = std::get_if<lowering::Scan>(&lowering)) host.carry = scan->carry;
    host.regions.push_back(assign(body, own_carries(*body, consts, host.carry)));
    for (int j = 0; j < host.carry; ++j) host.carry_in_place.push_back(host.regions.back().alias[j] >= 0);
  };
  if (const auto* scan = std::get_if<lowering::Scan>(&lowering)) {
    loop(step.regions[0], scan->consts, scan->consts);
  } else if (const auto* until = std::get_if<lowering::While>(&lowering)) {
    host.has_condition = true;
    host.regions.push_back(assign(step.regions[0], Offers(1)));
    loop(step.regions[1], until->body_consts, until->cond_consts + until->body_consts);
  } else {
    for (const FunctionRef& branch : step.regions) host.regions.push_back(assign(branch, Offers(branch->results().size())));
  }
  return host;
}

class Assignment {
 public:
  Assignment(const Function& f, const Offers& offers)
      : f_(f), last_use_(f, -1), offset_(f, -1), writer_(f, -1), is_result_(f, 0) {
    for (const Eqn* e : f.eqns())
      if (e->op == &ops::kernel && e->attrs<ops::Kernel>().schedule == Schedule::host)
        hosts_.emplace(e, assign_host(host_step(*e->regions[0])));
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      for (Value v : f.eqns()[k]->operands) last_use_[v] = static_cast<int>(k);
      for (Value v : f.eqns()[k]->outs()) writer_[v] = static_cast<int>(k);
    }
    for (Value r : f.results()) is_result_[r] = 1;
    choose_aliases(offers);
  }

  Memory run() {
    FunctionRef placed = with_kernels(f_, [this](const Eqn& e) {
      ops::Kernel kernel = place(e, writer_[e.out()]);
      const auto host = hosts_.find(&e);
      if (host == hosts_.end()) return PlannedKernel{std::move(kernel), e.regions[0]};
      std::vector<FunctionRef> regions;
      for (const Memory& m : host->second.regions) regions.push_back(m.function);
      return PlannedKernel{std::move(kernel), with_regions(*e.regions[0], std::move(regions))};
    });
    return {.function = std::move(placed), .arena_bytes = arena_.high(), .alias = alias_};
  }

 private:
  // An offered buffer is free for a result written after its last read, or in the same kernel position by position.
  void choose_aliases(const Offers& offers) {
    alias_.assign(f_.results().size(), -1);
    std::vector<bool> taken(f_.params().size());
    for (std::size_t j = 0; j < f_.results().size(); ++j) {
      const Value r = f_.results()[j];
      for (int i : offers[j]) {
        const Value p = f_.params()[i];
        if (alias_[j] >= 0 || taken[i] || p.type().bytes() != r.type().bytes() || r.type().bytes() == 0) continue;
        if (last_use_[p] > writer_[r] || (last_use_[p] == writer_[r] && !in_place_ok(*r.eqn(), p, r.index()))) continue;
        alias_[j] = i;
        taken[i] = true;
      }
    }
  }

  bool in_place_ok(const Eqn& e, Value operand, int result) const {
    if (const auto host = hosts_.find(&e); host != hosts_.end()) return carry_in_place_ok(e, host->second, operand, result);
    for (int k = 0; k < e.num_in(); ++k)
      if (e.in(k) == operand && !may_overwrite(*e.regions[0], e.attrs<ops::Kernel>().schedule, k, result)) return false;
    return true;
  }

  // The loop overwrites the carry's start itself, if nothing else in it reads that.
  static bool carry_in_place_ok(const Eqn& e, const HostStep& host, Value operand, int result) {
    if (result >= host.carry || !host.carry_in_place[result]) return false;
    const Value start = host.eqn->in(host.first_carry + result);
    int reads = 0;
    for (Value v : host.eqn->operands) reads += v == start;
    for (int k = 0; k < e.num_in(); ++k)
      if (e.in(k) == operand && e.regions[0]->params()[k] != start) return false;
    return reads == 1;
  }

  // While the step runs: spare buffers of carries, the condition, the regions' own arenas.
  void place_host(const HostStep& host, ops::Kernel& kernel) {
    std::vector<std::int64_t> held;
    const auto hold = [&](std::int64_t bytes) {
      held.push_back(arena_.allocate(bytes));
      return held.back();
    };
    kernel.spares.clear();
    for (int j = 0; j < host.carry; ++j)
      kernel.spares.push_back(host.carry_in_place[j] ? -1 : hold(host.eqn->out(j).type().bytes()));
    if (host.has_condition) kernel.spares.push_back(hold(1));
    std::int64_t frame = 0;
    for (const Memory& m : host.regions) frame = std::max(frame, m.arena_bytes);  // one runs at a time
    kernel.frame = hold(frame);
    for (std::int64_t offset : held) arena_.release(offset);
  }

  ops::Kernel place(const Eqn& e, int k) {
    ops::Kernel kernel = e.attrs<ops::Kernel>();
    kernel.offsets.clear();
    kernel.in_place.clear();
    std::vector<bool> overwritten(e.num_in());
    for (Value r : e.outs()) {
      kernel.in_place.push_back(-1);
      if (is_result_[r]) {
        kernel.offsets.push_back(-1);
        continue;
      }
      for (int i = 0; i < e.num_in() && kernel.in_place.back() < 0; ++i) {
        if (offset_[e.in(i)] < 0 || last_use_[e.in(i)] != k || overwritten[i] || !in_place_ok(e, e.in(i), r.index())) continue;
        kernel.in_place.back() = i;
        overwritten[i] = true;
        offset_[r] = offset_[e.in(i)];
        offset_[e.in(i)] = -1;  // the slot is r's now
      }
      if (kernel.in_place.back() < 0) offset_[r] = arena_.allocate(r.type().bytes());
      kernel.offsets.push_back(offset_[r]);
    }
    if (const auto host = hosts_.find(&e); host != hosts_.end()) place_host(host->second, kernel);
    for (Value v : e.operands) {
      if (last_use_[v] != k || offset_[v] < 0) continue;
      arena_.release(offset_[v]);
      offset_[v] = -1;
    }
    for (Value r : e.outs())
      if (!is_result_[r] && last_use_[r] < 0) arena_.release(offset_[r]);
    return kernel;
  }

  const Function& f_;
  ValueTable<int> last_use_;
  ValueTable<std::int64_t> offset_;
  ValueTable<int> writer_;
  ValueTable<char> is_result_;
  std::vector<int> alias_;
  Arena arena_;
  absl::flat_hash_map<const Eqn*, HostStep> hosts_;
};

Memory assign(const FunctionRef& plan, const Offers& offers) { return Assignment(*plan, offers).run(); }

}  // namespace

bool may_overwrite(const Function& body, Schedule schedule, int i, int j) {
  if (schedule != Schedule::map) return false;
  const Value p = body.params()[i];
  if (body.results()[j].dims() != p.dims() || size_bytes(body.results()[j].dtype()) != size_bytes(p.dtype())) return false;
  // What depends on p must stay at p's position: elementwise equations of p's shape only.
  ValueTable<char> at_position(body, 0);
  at_position[p] = 1;
  for (const Eqn* e : body.eqns()) {
    bool reads = false;
    for (Value v : e->operands) reads |= at_position[v] != 0;
    if (!reads) continue;
    if (!std::holds_alternative<lowering::Map>(e->op->lower(*e)) || e->out().dims() != p.dims()) return false;
    at_position[e->out()] = 1;
  }
  return true;
}

Memory assign_memory(const FunctionRef& plan, const std::vector<bool>& donated) {
  std::vector<int> all;
  for (std::size_t i = 0; i < donated.size(); ++i)
    if (donated[i]) all.push_back(static_cast<int>(i));
  return assign(plan, Offers(plan->results().size(), all));
}

}  // namespace sheaf::passes
