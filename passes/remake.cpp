// Group by group, in the order of the program: each value that is stored for elementwise readers alone is expanded down
// to what else is stored, and left out if that is few operations and nothing that its readers would have to read in
// addition. Then what is not stored is tried in place of several that could be made of it.
#include "passes/remake.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <optional>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "ir/work.h"
#include "passes/open_group.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr int kFewOperations = 4;  // less than it takes to write an element and read it
constexpr int kSlow = 3;  // as a division is

bool is_elementwise(const Eqn& e) {
  return e.op != &ops::constant && e.op->lower && std::holds_alternative<lowering::Map>(e.op->lower(e));
}

/// Of an elementwise equation; nullopt for others, and for those that take long.
std::optional<int> few_operations_of(const Eqn& e) {
  if (!is_elementwise(e)) return std::nullopt;
  const Lowering l = e.op->lower(e);
  const int count = operations_of(std::get<lowering::Map>(l).fn, kSlow);
  return count <= kFewOperations ? std::optional(count) : std::nullopt;
}

class Remaker {
 public:
  Remaker(const Function& f, Grouping& grouping) : grouping_(grouping), users_(f), is_result_(f, 0), is_stored_(f, 0) {
    for (const Eqn* e : f.eqns())
      for (Value v : e->operands) users_[v].push_back(e);
    for (Value r : f.results()) is_result_[r] = 1;
    for (const Group& g : grouping.groups)
      for (Value v : g.stored) is_stored_[v] = 1;
    reads_.resize(grouping.groups.size());
    for (std::size_t g = 0; g < reads_.size(); ++g)
      for (const Eqn* m : grouping.groups[g].members)
        for (Value v : m->operands) add_reads(v, static_cast<int>(g));
  }

  void run() {
    for (const Group& g : grouping_.groups) {
      for (const Eqn* m : g.members)
        if (may_leave_out(*m)) leave_out(m->out());
      const Values kept = kept_of(g);
      if (kept.size() < 2) continue;
      for (const Eqn* m : g.members)
        if (is_elementwise(*m) && !is_stored_[m->out()]) try_instead(*m, kept);
    }
    for (int g : changed_) clean(g);
  }

 private:
  /// What one value takes to be made again.
  struct Recipe {
    int operations = 0;
    absl::flat_hash_set<Value> sources, made;  // in memory; on the way
  };

  int group_of(Value v) const { return v.eqn() ? grouping_.group[v] : -1; }
  bool is_in_memory(Value v) const { return !v.eqn() || is_stored_[v]; }
  static double bytes(Value v) { return static_cast<double>(v.type().bytes()); }

  void add_reads(Value v, int g) {
    count_work();
    if (v.eqn() && (v.eqn()->op == &ops::constant || grouping_.group[v] == g)) return;
    if (is_in_memory(v)) return void(reads_[g].insert(v));
    for (Value in : v.eqn()->operands) add_reads(in, g);
  }

  /// Stored, of an elementwise equation, for others alone that read it at their own places.
  bool may_leave_out(const Eqn& m) const {
    if (m.num_out() != 1 || !is_stored_[m.out()] || is_result_[m.out()]) return false;
    return recipe_of(m).has_value() && is_better_made(m.out(), *recipe_of(m));
  }

  std::optional<Recipe> recipe_of(const Eqn& m) const {
    Recipe recipe;
    return add_to(recipe, m.out(), true) ? std::optional(std::move(recipe)) : std::nullopt;
  }

  bool add_to(Recipe& recipe, Value v, bool is_wanted = false) const {
    count_work();
    if (v.eqn() && v.eqn()->op == &ops::constant) return true;
    if (!is_wanted && is_in_memory(v)) return recipe.sources.insert(v), true;
    if (!recipe.made.insert(v).second) return true;
    const Eqn& e = *v.eqn();
    if (grouping_.group[v] >= 0) {
      const std::optional<int> operations = few_operations_of(e);
      if (!operations || (recipe.operations += *operations) > kFewOperations) return false;
    }
    return std::all_of(e.operands.begin(), e.operands.end(), [&](Value in) { return add_to(recipe, in); });
  }

  /// Every reader may make it, and reads no more bytes for that.
  bool is_better_made(Value v, const Recipe& recipe) const {
    absl::flat_hash_set<int> readers;
    if (!find_readers(v, group_of(v), readers)) return false;
    return std::all_of(readers.begin(), readers.end(), [&](int r) {
      double more = 0;
      for (Value s : recipe.sources) {
        if (reads_[r].contains(s)) continue;
        if (group_of(s) != group_of(v)) return false;  // who knows what is to take its place in memory
        more += bytes(s);
      }
      return more <= bytes(v);
    });
  }

  bool find_readers(Value v, int home, absl::flat_hash_set<int>& readers) const {
    return std::all_of(users_[v].begin(), users_[v].end(), [&](const Eqn* user) {
      count_work();
      const int g = user->num_out() ? group_of(user->out()) : -2;
      if (g == home) return true;
      if (g == -1) return !is_result_[user->out()] && find_readers(user->out(), home, readers);
      if (g < 0 || !is_elementwise_reader(*user, g)) return false;
      readers.insert(g);
      return true;
    });
  }

  bool is_elementwise_reader(const Eqn& user, int g) const {
    if (!is_elementwise(user) && !std::holds_alternative<lowering::Reduce>(user.op->lower(user))) return false;
    const std::vector<const Eqn*>& members = grouping_.groups[g].members;
    return std::none_of(members.begin(), members.end(), [&](const Eqn* m) {
      return nest_of(*m) == Nest::contract && user.out().id() < m->out().id();  // an operand, read again and again
    });
  }

  void leave_out(Value v) {
    const Recipe recipe = *recipe_of(*v.eqn());
    changed_.insert(group_of(v));
    absl::flat_hash_set<int> readers;
    find_readers(v, group_of(v), readers);
    is_stored_[v] = 0;
    grouping_.made_again.insert(recipe.made.begin(), recipe.made.end());
    for (int r : readers) {
      reads_[r].erase(v);
      reads_[r].insert(recipe.sources.begin(), recipe.sources.end());
    }
    sources_.insert(recipe.sources.begin(), recipe.sources.end());
  }

  /// Of group g, what might be left out if something else were stored.
  Values kept_of(const Group& g) const {
    Values kept;
    for (const Eqn* m : g.members)
      if (m->num_out() == 1 && is_stored_[m->out()] && !is_result_[m->out()] && !sources_.contains(m->out()) &&
          few_operations_of(*m))
        kept.push_back(m->out());
    return kept;
  }

  /// Stores u instead of what can be made of it, if that is more.
  void try_instead(const Eqn& u, const Values& kept) {
    Values instead;
    double saved = 0;
    is_stored_[u.out()] = 1;
    for (Value v : kept) {
      if (!is_stored_[v] || v.dims() != u.out().dims() || !may_leave_out(*v.eqn())) continue;
      if (!recipe_of(*v.eqn())->sources.contains(u.out())) continue;
      instead.push_back(v);
      is_stored_[v] = 0;
      saved += bytes(v);
    }
    for (Value v : instead) is_stored_[v] = 1;
    if (saved <= bytes(u.out())) return void(is_stored_[u.out()] = 0);
    for (Value v : instead) leave_out(v);
    grouping_.made_again.erase(u.out());
  }

  /// Members that are needed for what is still stored.
  void clean(int index) {
    Group& g = grouping_.groups[index];
    absl::flat_hash_set<Value> needed;
    const auto need = [&](auto& self, Value v) -> void {
      count_work();
      if (!v.eqn() || (group_of(v) != index && group_of(v) >= 0) || !needed.insert(v).second) return;
      for (Value in : v.eqn()->operands) self(self, in);
    };
    g.stored.clear();
    for (const Eqn* m : g.members)
      for (Value v : m->outs())
        if (is_stored_[v]) g.stored.push_back(v);
    for (Value v : g.stored) need(need, v);
    std::erase_if(g.members, [&](const Eqn* m) {
      return std::none_of(m->outs().begin(), m->outs().end(), [&](Value v) { return needed.contains(v); });
    });
  }

  Grouping& grouping_;
  ValueTable<std::vector<const Eqn*>> users_;
  ValueTable<char> is_result_, is_stored_;
  std::vector<absl::flat_hash_set<Value>> reads_;  // by group: from memory
  absl::flat_hash_set<Value> sources_;  // of what has been left out
  absl::flat_hash_set<int> changed_;  // groups that store less
};

}  // namespace

void make_again(const Function& f, Grouping& grouping) { Remaker(f, grouping).run(); }

}  // namespace sheaf::passes
