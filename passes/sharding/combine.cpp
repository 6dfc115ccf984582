// Groups of collectives that no path joins, kept acyclic by looking at the program with each group as one node. They
// are sought among a bounded number at a time, in the order of the program, so that the work is linear in it: what
// comes later is waited for by nothing that comes before.
#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <span>

#include "ir/op.h"
#include "passes/emit.h"
#include "passes/sharding/bundle.h"
#include "passes/sharding/collectives.h"
#include "passes/sharding/cost.h"

namespace sheaf::passes {

using namespace ir;

namespace {

/// A group is one message of at most so many values and bytes, for the first of them waits for the last.
constexpr std::size_t kMaxCount = 64;
constexpr double kMaxBytes = 4 << 20;

constexpr std::size_t kWindow = 256;
using Bits = std::bitset<kWindow>;

struct Member {
  const Eqn* eqn = nullptr;
  std::string key = {};
  double bytes = 0;  // of the larger of operand and result
  Bits before = {};  // members of the window that it waits for
};

struct Group {
  std::string key;
  Bits members, before;  // `before`: what must be done before some member, all members included
  std::vector<const Eqn*> eqns;
  double bytes = 0;
};

// A value is copied to lie beside the others and back, which is read and written twice.
bool is_worth_it(const Eqn& e, CollectiveKind kind, double bytes, const MeshAtoms& mesh, const Profile& profile) {
  const double latency = cost_of(kind, 0, mesh, mesh.of(e.op->axes(e)), profile).seconds;
  return bytes > 0 && 4 * bytes / profile.memory < latency && bytes <= kMaxBytes / 2;
}

/// The collectives of a function that are worth it, in its order. The first gather is none: what needs it first is not
/// to wait for what is needed later.
std::vector<Member> members_of(const Function& f, const MeshAtoms& mesh, const Profile& profile) {
  std::vector<Member> members;
  bool is_first_gather = true;
  for (const Eqn* e : f.eqns()) {
    const std::optional<CollectiveKind> kind = collective_kind(*e);
    if (!kind) continue;
    if (*kind == CollectiveKind::all_gather && std::exchange(is_first_gather, false)) continue;
    const double bytes = static_cast<double>(std::max(e->in(0).type().bytes(), e->out().type().bytes()));
    if (is_worth_it(*e, *kind, bytes, mesh, profile))
      members.push_back({.eqn = e, .key = bundle_key(*e), .bytes = bytes});
  }
  return members;
}

/// Which of the members in a row go together.
class Window {
 public:
  explicit Window(std::span<Member> members) : members_(members) {}

  /// Takes the function's equations up to the last member, from where the window before stopped.
  std::size_t find_paths(const Function& f, std::size_t at) {
    absl::flat_hash_map<Value, Bits> before;
    for (std::size_t next = 0; next < members_.size(); ++at) {
      const Eqn& e = *f.eqns()[at];
      Bits all;
      for (const Value v : e.operands)
        if (const auto it = before.find(v); it != before.end()) all |= it->second;
      if (members_[next].eqn == &e) {
        members_[next].before = all;
        all.set(next++);
      }
      if (all.none()) continue;
      for (const Value v : e.outs()) before[v] = all;
    }
    return at;
  }

  /// Groups of two or more.
  std::vector<std::vector<const Eqn*>> run() {
    for (std::size_t i = 0; i < members_.size(); ++i) place(i);
    std::vector<std::vector<const Eqn*>> out;
    for (Group& g : groups_)
      if (g.eqns.size() > 1) out.push_back(std::move(g.eqns));
    return out;
  }

 private:
  // Into the first group that it neither waits for nor is waited for by.
  void place(std::size_t i) {
    const Member& m = members_[i];
    Bits waits_for = m.before;
    for (const Group& g : groups_)
      if ((waits_for & g.members).any()) waits_for |= g.before;
    waits_for.set(i);
    for (Group& g : groups_) {
      if (g.key != m.key || g.eqns.size() >= kMaxCount || g.bytes + m.bytes > kMaxBytes) continue;
      if ((waits_for & g.members).any() || is_awaited(g, waits_for)) continue;
      g.members.set(i);
      g.eqns.push_back(m.eqn);
      g.bytes += m.bytes;
      g.before |= waits_for;
      spread();
      return;
    }
    groups_.push_back({.key = m.key, .members = Bits().set(i), .before = waits_for, .eqns = {m.eqn}, .bytes = m.bytes});
  }

  /// Whether something in the set waits for the group, by way of other groups.
  bool is_awaited(const Group& g, const Bits& set) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const Group& other) {
      return &other != &g && (set & other.members).any() && (other.before & g.members).any();
    });
  }
  // Who waits for one member of a group waits for all, and for what they wait for.
  void spread() {
    for (bool changed = true; changed;) {
      changed = false;
      for (Group& g : groups_) {
        const Bits was = g.before;
        for (const Group& other : groups_)
          if ((g.before & other.members).any()) g.before |= other.before;
        changed |= g.before != was;
      }
    }
  }

  std::span<Member> members_;
  std::vector<Group> groups_;
};

std::vector<std::vector<const Eqn*>> groups_of(const Function& f, const MeshAtoms& mesh, const Profile& profile) {
  std::vector<Member> members = members_of(f, mesh, profile);
  std::vector<std::vector<const Eqn*>> all;
  std::size_t at = 0;
  for (std::size_t i = 0; i < members.size(); i += kWindow) {
    Window window(std::span<Member>(members).subspan(i, std::min(kWindow, members.size() - i)));
    at = window.find_paths(f, at);
    for (std::vector<const Eqn*>& group : window.run()) all.push_back(std::move(group));
  }
  return all;
}

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
    Values operands;
    for (const Eqn* e : group) operands.push_back(made_[e->in(0)]);
    const Values results = emit_bundle(b_, group, operands);
    for (std::size_t i = 0; i < group.size(); ++i) made_[group[i]->out()] = results[i];
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
  const std::vector<std::vector<const Eqn*>> groups = groups_of(*f, mesh, profile);
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
