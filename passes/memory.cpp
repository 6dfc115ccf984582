// Buffers: kernel results that stay inside the program get offsets in one arena by liveness, first fit; an elementwise
// kernel may write over an operand that dies in it, and results may take the buffers of donated parameters.
#include "passes/memory.h"

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

class Assignment {
 public:
  Assignment(const Function& f, const std::vector<bool>& donated)
      : f_(f), last_use_(f, -1), offset_(f, -1), writer_(f, -1), is_result_(f, 0) {
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      for (Value v : f.eqns()[k]->operands) last_use_[v] = static_cast<int>(k);
      for (Value v : f.eqns()[k]->outs()) writer_[v] = static_cast<int>(k);
    }
    for (Value r : f.results()) is_result_[r] = 1;
    choose_aliases(donated);
  }

  Memory run() {
    FunctionRef placed = with_kernels(f_, [this](const Eqn& e) { return place(e, writer_[e.out()]); });
    return {.function = std::move(placed), .arena_bytes = arena_.high(), .alias = alias_};
  }

 private:
  // A donated buffer is free for a result written after its last read, or in the same kernel position by position.
  void choose_aliases(const std::vector<bool>& donated) {
    alias_.assign(f_.results().size(), -1);
    std::vector<bool> taken(f_.params().size());
    for (std::size_t j = 0; j < f_.results().size(); ++j) {
      const Value r = f_.results()[j];
      for (std::size_t i = 0; i < donated.size() && alias_[j] < 0; ++i) {
        const Value p = f_.params()[i];
        if (!donated[i] || taken[i] || p.type().bytes() != r.type().bytes() || r.type().bytes() == 0) continue;
        if (last_use_[p] > writer_[r] || (last_use_[p] == writer_[r] && !in_place_ok(*r.eqn(), p, r.index()))) continue;
        alias_[j] = static_cast<int>(i);
        taken[i] = true;
      }
    }
  }

  static bool in_place_ok(const Eqn& e, Value operand, int result) {
    for (int k = 0; k < e.num_in(); ++k)
      if (e.in(k) == operand && !may_overwrite(*e.regions[0], e.attrs<ops::Kernel>().schedule, k, result)) return false;
    return true;
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
};

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

Memory assign_memory(const FunctionRef& plan, const std::vector<bool>& donated) { return Assignment(*plan, donated).run(); }

}  // namespace sheaf::passes
