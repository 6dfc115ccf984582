// Buffers: kernel results that stay inside the program get offsets in one arena by liveness, first fit; a kernel that
// is elementwise, or changes a part of an operand, may write over an operand that dies in it, as an all_reduce may, and
// results may take the buffers of donated parameters. The regions of a loop or branch have arenas of their own, which
// lie in the outer one while the step runs; a loop's carry is overwritten in place where its body can, and alternates
// between two buffers where it cannot.
#include "passes/memory.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <limits>
#include <map>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/work.h"
#include "passes/emit.h"
#include "passes/flights.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::int64_t kAlign = 256;  // bytes; vector loads and GPU transactions want no less

std::int64_t aligned(std::int64_t bytes) { return (std::max<std::int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign; }

// First fit. What is kept in order is the gaps: of a program that fills its memory there are few, whatever lives.
class Arena {
 public:
  std::int64_t allocate(std::int64_t bytes) {
    bytes = aligned(bytes);
    auto gap = gaps_.begin();
    for (; gap->second - gap->first < bytes; ++gap) count_work();
    const auto [at, end] = *gap;
    gaps_.erase(gap);
    if (at + bytes < end) gaps_.emplace(at + bytes, end);
    live_.emplace(at, at + bytes);
    high_ = std::max(high_, at + bytes);
    return at;
  }
  void release(std::int64_t at) {
    const auto live = live_.find(at);
    if (live == live_.end()) return;
    std::int64_t begin = live->first, end = live->second;
    live_.erase(live);
    auto next = gaps_.lower_bound(begin);  // there is one always, behind all that lives
    if (next != gaps_.begin() && std::prev(next)->second == begin) {
      begin = std::prev(next)->first;
      gaps_.erase(std::prev(next));
    }
    if (next->first == end) {
      end = next->second;
      gaps_.erase(next);
    }
    gaps_.emplace(begin, end);
  }
  std::int64_t high() const { return high_; }

 private:
  std::map<std::int64_t, std::int64_t> gaps_{{0, std::numeric_limits<std::int64_t>::max()}};  // begin, end
  absl::flat_hash_map<std::int64_t, std::int64_t> live_;
  std::int64_t high_ = 0;
};

// What each result may take the buffer of: parameters, in order of preference.
using Offers = std::vector<std::vector<int>>;

// A loop or branch with its regions' buffers assigned.
struct HostStep {
  const Eqn* eqn = nullptr;
  std::vector<Memory> regions;
  int first_carry = 0, carry = 0;  // of a loop: operands
  std::vector<int> carry_in_place;  // per carry: does the body overwrite it
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
    for (const FunctionRef& branch : step.regions)
      host.regions.push_back(assign(branch, Offers(branch->results().size())));
  }
  return host;
}

class Assignment {
 public:
  Assignment(const Function& f, const Offers& offers)
      : f_(f),
        offers_(offers),
        last_use_(f, -1),
        writer_(f, -1),
        is_result_(f, 0),
        output_(f, -1),
        offset_(f, -1),
        replaced_(f),
        reduced_to_(f) {
    for (const Eqn* e : f.eqns())
      if (e->op == &ops::kernel && e->attrs<ops::Kernel>().schedule == Schedule::host)
        hosts_.emplace(e, assign_host(host_step(*e->regions[0])));
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      for (Value v : f.eqns()[k]->operands) last_use_[v] = static_cast<int>(k);
      for (Value v : f.eqns()[k]->outs()) writer_[v] = static_cast<int>(k);
    }
    for (Value r : f.results()) is_result_[r] = 1;
    hold_for_collectives();
    choose_outputs();
  }

  Memory run() {
    FunctionRef placed = with_kernels(f_, [this](const Eqn& e) {
      ops::Kernel kernel = place(e);
      const auto host = hosts_.find(&e);
      if (host == hosts_.end()) return PlannedKernel{std::move(kernel), e.regions[0]};
      std::vector<FunctionRef> regions;
      for (const Memory& m : host->second.regions) regions.push_back(m.function);
      return PlannedKernel{std::move(kernel), with_regions(*e.regions[0], std::move(regions))};
    });
    return {.function = std::move(placed), .arena_bytes = arena_.high(), .alias = alias_, .not_taken = not_taken()};
  }

 private:
  // What a collective reads stays until it is done, where that is later than the next step; but an all_reduce may have
  // its result there.
  void hold_for_collectives() {
    const std::vector<Flight> all = flights(f_);
    released_.resize(all.size() + 1);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const int done = all[k].done;
      if (done <= static_cast<int>(k) + 1) continue;
      const Eqn& e = *f_.eqns()[k];
      for (Value v : e.operands) {
        if (last_use_[v] >= done) continue;
        if (last_use_[v] == static_cast<int>(k)) reduced_to_[v] = e.out();
        last_use_[v] = done;
        released_[done].push_back(v);
      }
    }
  }

  // ---- what became of what was offered ----

  std::vector<NotTaken> not_taken() const {
    std::vector<NotTaken> all;
    std::vector<int> offered;
    for (const std::vector<int>& of_result : offers_) offered.insert(offered.end(), of_result.begin(), of_result.end());
    std::sort(offered.begin(), offered.end());
    offered.erase(std::unique(offered.begin(), offered.end()), offered.end());
    for (const int i : offered)
      if (!taken_[i]) all.push_back(why_not_taken(i));
    return all;
  }

  NotTaken why_not_taken(int i) const {
    const Value p = f_.params()[i];
    if (p.type().bytes() == 0) return {i, NotTaken::Why::is_empty};
    bool is_as_large = false;
    for (int j = 0; j < std::ssize(f_.results()); ++j) {
      if (f_.results()[j].type().bytes() != p.type().bytes()) continue;
      is_as_large = true;
      if (alias_[j] < 0)
        return {i, NotTaken::Why::is_read_too_late, j, last_use_[p] < 0 ? Loc{} : f_.eqns()[last_use_[p]]->loc};
    }
    return {i, is_as_large ? NotTaken::Why::results_took_others : NotTaken::Why::no_result_is_as_large};
  }

  // v's step is the last that reads the operand.
  bool dies_in(Value operand, Value v) const { return last_use_[operand] == writer_[v] || reduced_to_[operand] == v; }

  // ---- buffers of results ----

  // Results first take what their kernels overwrite, so that no other result is given that buffer; then what was read
  // for the last time before they are written.
  void choose_outputs() {
    alias_.assign(f_.results().size(), -1);
    taken_.assign(f_.params().size(), false);
    Values first;
    for (int j = 0; j < std::ssize(f_.results()); ++j) first.push_back(grow_backwards(j));
    for (int j = 0; j < std::ssize(f_.results()); ++j)
      take_offer(j, first[j], [&](Value p) { return last_use_[p] < writer_[first[j]]; });
  }

  // What result j was before its last change lies in its buffer already, and so on back to what was made anew:
  //   c1 = update c0, ..; c2 = update c1, ..; return c2      c1 in c2's buffer, which is c0's if that is offered
  // Gives the first value in the buffer.
  Value grow_backwards(int j) {
    Value v = f_.results()[j];
    output_[v] = j;
    while (!take_offer(j, v, [&](Value p) { return is_replaced(p, v); })) {
      const Value before = changed_operand(v);
      if (!before) break;
      output_[before] = j;
      replaced_[v] = before;
      v = before;
    }
    return v;
  }

  // Result j, which v is the first value of, gets the first offered buffer of its size for which `is_free` holds.
  template <class IsFree>
  bool take_offer(int j, Value v, IsFree is_free) {
    for (int i : offers_[j]) {
      count_work();
      const Value p = f_.params()[i];
      if (alias_[j] >= 0 || taken_[i] || p.type().bytes() != v.type().bytes() || v.type().bytes() == 0) continue;
      if (!is_free(p)) continue;
      alias_[j] = i;
      taken_[i] = true;
      if (dies_in(p, v)) replaced_[v] = p;
    }
    return alias_[j] >= 0;
  }

  // v's kernel may write v over `operand`, which nobody reads later.
  bool is_replaced(Value operand, Value v) const {
    return dies_in(operand, v) && in_place_ok(*v.eqn(), operand, v.index());
  }

  // What v's step changes rather than makes anew, if that dies there and has no other home; else null.
  Value changed_operand(Value v) const {
    const Eqn& e = *v.eqn();
    const int changed = hosts_.contains(&e) ? -1 : changed_param(*e.regions[0], v.index());
    for (int k = 0; k < e.num_in(); ++k) {
      const Value operand = e.in(k);
      if (k != changed && !hosts_.contains(&e)) continue;
      if (!operand.eqn() || operand.eqn()->op != &ops::kernel || is_result_[operand] || output_[operand] >= 0) continue;
      if (is_replaced(operand, v)) return operand;
    }
    return {};
  }

  bool in_place_ok(const Eqn& e, Value operand, int result) const {
    if (const auto host = hosts_.find(&e); host != hosts_.end())
      return is_all_reduce(*host->second.eqn) || carry_in_place_ok(e, host->second, operand, result);
    for (int k = 0; k < e.num_in(); ++k)
      if (e.in(k) == operand && !may_overwrite(*e.regions[0], e.attrs<ops::Kernel>().schedule, k, result)) return false;
    return true;
  }

  // ---- host steps ----

  // It sums each part of the elements before it writes it (runtime/collectives.h); other collectives may still read for
  // one device what another has its result in.
  static bool is_all_reduce(const Eqn& step) { return step.op == &ops::all_reduce; }

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

  ops::Kernel place(const Eqn& e) {
    ops::Kernel kernel = e.attrs<ops::Kernel>();
    kernel.outputs.clear();
    kernel.offsets.clear();
    kernel.in_place.clear();
    for (Value r : e.outs()) {
      if (output_[r] < 0) place_in_arena(e, r);
      kernel.outputs.push_back(output_[r]);
      kernel.offsets.push_back(offset_[r]);
      const auto replaced = std::find(e.operands.begin(), e.operands.end(), replaced_[r]);
      kernel.in_place.push_back(replaced == e.operands.end() ? -1 : replaced - e.operands.begin());
    }
    if (const auto host = hosts_.find(&e); host != hosts_.end()) place_host(host->second, kernel);
    for (Value v : e.operands)
      if (last_use_[v] == writer_[e.out()]) release(v);
    for (Value v : released_[writer_[e.out()]])
      if (last_use_[v] == writer_[e.out()]) release(v);
    for (Value r : e.outs())
      if (last_use_[r] < 0) release(r);
    return kernel;
  }

  void place_in_arena(const Eqn& e, Value r) {
    for (Value v : e.operands) {
      if (offset_[v] < 0 || !is_replaced(v, r)) continue;
      replaced_[r] = v;
      offset_[r] = offset_[v];
      offset_[v] = -1;  // the slot is r's now
      return;
    }
    offset_[r] = arena_.allocate(r.type().bytes());
  }

  void release(Value v) {
    if (offset_[v] < 0) return;
    arena_.release(offset_[v]);
    offset_[v] = -1;
  }

  const Function& f_;
  const Offers& offers_;
  ValueTable<int> last_use_, writer_;  // equations, by number
  std::vector<Values> released_;  // by each, though it does not read them
  ValueTable<char> is_result_;
  ValueTable<int> output_;  // the result in whose buffer a value lies; -1: in the arena
  ValueTable<std::int64_t> offset_;  // in the arena, while it lives there
  ValueTable<Value> replaced_;  // the operand whose place a value takes
  ValueTable<Value> reduced_to_;  // the result of the collective that reads a value last, and is under way after that
  std::vector<int> alias_;
  std::vector<bool> taken_;  // parameters
  Arena arena_;
  absl::flat_hash_map<const Eqn*, HostStep> hosts_;
};

Memory assign(const FunctionRef& plan, const Offers& offers) { return Assignment(*plan, offers).run(); }

}  // namespace

bool may_overwrite(const Function& body, Schedule schedule, int i, int j) {
  if (schedule == Schedule::update || schedule == Schedule::scatter) return changed_param(body, j) == i;
  if (schedule != Schedule::map && schedule != Schedule::contract) return false;
  const Value p = body.params()[i];
  // A contraction's own elements are stored before what follows reads anything.
  const Value result = body.results()[j];
  if (result.eqn() && nest_of(*result.eqn()) == Nest::contract) return false;
  if (body.results()[j].dims() != p.dims() || size_bytes(body.results()[j].dtype()) != size_bytes(p.dtype()))
    return false;
  // What depends on p must stay at p's position: elementwise equations of p's shape only.
  ValueTable<char> at_position(body, 0);
  at_position[p] = 1;
  for (const Eqn* e : body.eqns()) {
    bool reads = false;
    for (Value v : e->operands) reads |= at_position[v] != 0;
    if (!reads) continue;
    // Elements are in totals of columns before they are stored, and what is made of those lies elsewhere.
    if (schedule == Schedule::contract && nest_of(*e) == Nest::reduction) continue;
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
