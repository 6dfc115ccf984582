// Groups of collectives that no path joins, kept acyclic by looking at the program with each group as one node.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "ir/op.h"
#include "ir/ops/rules.h"
#include "passes/emit.h"
#include "passes/sharding/collectives.h"
#include "passes/sharding/cost.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// A group is one message of at most so many values and bytes, for the first of them waits for the last.
constexpr std::size_t kMaxCount = 64;
constexpr double kMaxBytes = 4 << 20;

using Bits = std::vector<bool>;

void join(Bits& a, const Bits& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
}

struct Group {
  std::vector<std::size_t> members;
  double bytes = 0;
  Bits before;  // members that must be done before some member, all members included
};

/// The all_reduces of a function that are worth it, and which of them go together.
class Groups {
 public:
  Groups(const Function& f, const MeshAtoms& mesh, const Profile& profile) {
    for (const Eqn* e : f.eqns())
      if (is_small(*e, mesh, profile)) members_.push_back(e);
    find_paths(f);
    for (std::size_t i = 0; i < members_.size(); ++i) place(i);
  }

  /// Of two or more.
  std::vector<std::vector<const Eqn*>> take() {
    std::vector<std::vector<const Eqn*>> out;
    for (const Group& g : groups_)
      if (g.members.size() > 1)
        for (out.emplace_back(); const std::size_t i : g.members) out.back().push_back(members_[i]);
    return out;
  }

 private:
  // A value is copied to lie beside the others and back, which is read and written twice.
  static bool is_small(const Eqn& e, const MeshAtoms& mesh, const Profile& profile) {
    if (e.op != &ops::all_reduce) return false;
    const double bytes = static_cast<double>(e.out().type().bytes());
    const Atoms axes = mesh.of(e.attrs<ops::AllReduce>().axes);
    const double latency = cost_of(CollectiveKind::all_reduce, 0, mesh, axes, profile).seconds;
    return bytes > 0 && 4 * bytes / profile.memory < latency && bytes <= kMaxBytes / 2;
  }

  void find_paths(const Function& f) {
    const Bits none(members_.size(), false);
    ValueTable<Bits> before(f, none);
    std::size_t next = 0;
    for (const Eqn* e : f.eqns()) {
      Bits all = none;
      for (const Value v : e->operands) join(all, before[v]);
      if (next < members_.size() && members_[next] == e) {
        before_.push_back(all);
        all[next++] = true;
      }
      for (const Value v : e->outs()) before[v] = all;
    }
  }

  static auto key(const Eqn& e) {
    const ops::AllReduce& a = e.attrs<ops::AllReduce>();
    return std::tuple(a.axes, a.kind, e.out().dtype());
  }

  // Into the first group that it neither waits for nor is waited for by.
  void place(std::size_t i) {
    const Eqn& e = *members_[i];
    const double bytes = static_cast<double>(e.out().type().bytes());
    Bits waits_for = before_[i];
    for (const Group& g : groups_)
      if (touches(waits_for, g)) join(waits_for, g.before);
    waits_for[i] = true;
    for (Group& g : groups_) {
      if (key(*members_[g.members[0]]) != key(e) || g.members.size() >= kMaxCount || g.bytes + bytes > kMaxBytes)
        continue;
      if (touches(waits_for, g) || is_awaited(g, waits_for)) continue;
      g.members.push_back(i);
      g.bytes += bytes;
      join(g.before, waits_for);
      spread();
      return;
    }
    groups_.push_back({.members = {i}, .bytes = bytes, .before = std::move(waits_for)});
  }

  static bool touches(const Bits& set, const Group& g) {
    return std::any_of(g.members.begin(), g.members.end(), [&](std::size_t i) { return set[i]; });
  }
  /// Whether something in the set waits for the group, by way of other groups.
  bool is_awaited(const Group& g, const Bits& set) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const Group& other) {
      return &other != &g && touches(set, other) && touches(other.before, g);
    });
  }
  // Who waits for one member of a group waits for all, and for what they wait for.
  void spread() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Group& g : groups_) {
        const Bits was = g.before;
        for (const Group& other : groups_)
          if (touches(g.before, other)) join(g.before, other.before);
        changed |= g.before != was;
      }
    }
  }

  std::vector<const Eqn*> members_;
  std::vector<Bits> before_;  // per member, by paths of the program
  std::vector<Group> groups_;
};

/// Emits a function on demand, so that all operands of a group come before it.
class Combiner {
 public:
  Combiner(const Function& f, Builder& b, const std::vector<std::vector<const Eqn*>>& groups,
           absl::FunctionRef<FunctionRef(const FunctionRef&)> region)
      : f_(f), b_(b), region_(region), made_(f) {
    for (const std::vector<const Eqn*>& group : groups)
      for (const Eqn* e : group) group_of_[e] = &group;
  }

  Values run(const Values& params) {
    for (std::size_t i = 0; i < params.size(); ++i) made_[f_.params()[i]] = params[i];
    for (const Eqn* e : f_.eqns()) emit(*e);
    Values results;
    for (const Value r : f_.results()) results.push_back(made_[r]);
    return results;
  }

 private:
  void emit(const Eqn& root) {
    std::vector<std::pair<const Eqn*, bool>> stack = {{&root, false}};
    while (!stack.empty()) {
      const auto [e, is_ready] = stack.back();
      stack.pop_back();
      if (made_[e->out()]) continue;
      const auto group = group_of_.find(e);
      if (is_ready) {
        if (group == group_of_.end()) emit_one(*e);
        else emit_group(*group->second);
        continue;
      }
      stack.emplace_back(e, true);
      if (group == group_of_.end()) push_operands(*e, stack);
      else
        for (const Eqn* member : *group->second) push_operands(*member, stack);
    }
  }

  void push_operands(const Eqn& e, std::vector<std::pair<const Eqn*, bool>>& stack) const {
    for (std::size_t k = e.operands.size(); k-- > 0;)
      if (e.in(static_cast<int>(k)).eqn() && !made_[e.in(static_cast<int>(k))])
        stack.emplace_back(e.in(static_cast<int>(k)).eqn(), false);
  }

  void emit_one(const Eqn& e) {
    Values operands;
    for (const Value v : e.operands) operands.push_back(made_[v]);
    std::vector<FunctionRef> regions;
    for (const FunctionRef& r : e.regions) regions.push_back(region_(r));
    b_.set_loc(e.loc, e.how);
    const Values outs = b_.emit_all(e.op, std::move(operands), e.attributes, std::move(regions));
    for (int j = 0; j < e.num_out(); ++j) made_[e.out(j)] = outs[j];
  }

  void emit_group(const std::vector<const Eqn*>& group) {
    const Eqn& first = *group[0];
    b_.set_loc(first.loc, extend_how(first.how, fmt::format("{} combined", group.size()).c_str()));
    Values flat;
    for (const Eqn* e : group) flat.push_back(ops::reshape_to(made_[e->in(0)], {e->out().type().num_elements()}));
    const Value all = b_.emit(ops::concatenate, flat, ops::Concatenate{.dim = {0}});
    const Value sum = b_.emit(ops::all_reduce, {all}, first.attrs<ops::AllReduce>());
    std::int64_t at = 0;
    for (const Eqn* e : group) {
      const std::int64_t size = e->out().type().num_elements();
      made_[e->out()] = ops::reshape_to(ops::slice_dim(sum, 0, at, at + size), e->out().dims());
      at += size;
    }
  }

  const Function& f_;
  Builder& b_;
  absl::FunctionRef<FunctionRef(const FunctionRef&)> region_;
  ValueTable<Value> made_;
  absl::flat_hash_map<const Eqn*, const std::vector<const Eqn*>*> group_of_;
};

FunctionRef combined(const FunctionRef& f, const MeshAtoms& mesh, const Profile& profile,
                     absl::flat_hash_map<FunctionRef, FunctionRef>& done) {
  if (const auto it = done.find(f); it != done.end()) return it->second;
  const std::vector<std::vector<const Eqn*>> groups = Groups(*f, mesh, profile).take();
  Builder b(f->name());
  const Values params = clone_params(b, *f, Mask(f->params().size(), true));
  const auto region = [&](const FunctionRef& r) { return combined(r, mesh, profile, done); };
  FunctionRef out = b.finish(Combiner(*f, b, groups, region).run(params));
  if (f->mesh()) out = out->on_mesh(f->mesh());
  return done.emplace(f, std::move(out)).first->second;
}

}  // namespace

FunctionRef combine_collectives(const FunctionRef& local, const Profile& profile) {
  absl::flat_hash_map<FunctionRef, FunctionRef> done;
  return combined(local, MeshAtoms(local->mesh()), profile, done);
}

}  // namespace sheaf::passes
