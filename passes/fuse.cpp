// Fusion, greedily and in one pass over the program. A group has an iteration space `full` and, once it holds a
// reduction, the set of dims it reduces; its values are either full (an element per point of the space), rows (an
// element per point of the kept dims), or inner (read through an index map by another member and never stored).
//   x -> exp -> reduce_sum -> broadcast -> div     one group: full, row, (view), full
// Views and constants belong to no group: every group that reads one makes it again as an index map.
// Acyclic by construction: an equation may only join the latest group any of its operands comes from, so groups depend
// on earlier groups only.
#include "passes/fuse.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <optional>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::size_t kMaxMembers = 128;  // of a group: register pressure and compile time grow with it
constexpr std::int64_t kMaxRow = 32768;  // elements of a row that stays in cache between the passes of a row kernel

enum class Kind { free, map, indexed, reduce, hero };

// free: constants and pure index maps. map: elementwise. indexed: reads operands at other positions than its own.
// hero: a kernel of its own.
Kind kind_of(const Lowering& l) {
  using namespace lowering;
  return std::visit(
      [](const auto& x) {
        using L = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<L, Map>) return Kind::map;
        else if constexpr (std::is_same_v<L, View> || std::is_same_v<L, Reshape> || std::is_same_v<L, Iota>) return Kind::free;
        else if constexpr (std::is_same_v<L, Pad> || std::is_same_v<L, Concatenate> || std::is_same_v<L, RandomBits> ||
                           std::is_same_v<L, Gather> || std::is_same_v<L, UpdateSlice>) return Kind::indexed;
        else if constexpr (std::is_same_v<L, Reduce>) return Kind::reduce;
        else return Kind::hero;
      },
      l);
}

Shape without_ones(const Shape& dims) {
  Shape s;
  for (std::int64_t d : dims)
    if (d != 1) s.push_back(d);
  return s;
}

enum class Role { none, full, row, inner };

struct Group {
  Shape full;                         // the iteration space
  std::vector<std::int64_t> reduced;  // dims of it, once there is a reduction
  bool has_reduce = false;
  bool has_row_consumer = false;      // a full value made from a row: needs the row kernel
  bool is_closed = false;             // heroes take no company
  bool is_expensive = false;          // holds more than a few operations an element: not to be recomputed
  std::vector<const Eqn*> members;
  absl::flat_hash_set<int> sources, readers;  // groups whose values it reads, and that read its values

  Shape row() const {
    Shape s;
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(full.size()); ++d)
      if (std::find(reduced.begin(), reduced.end(), d) == reduced.end()) s.push_back(full[d]);
    return s;
  }
  // The reduced dims are the last ones and a row fits in cache.
  bool has_rows() const {
    std::int64_t length = 1;
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      if (reduced[i] != static_cast<std::int64_t>(full.size() - reduced.size() + i)) return false;
      length *= full[reduced[i]];
    }
    return length <= kMaxRow;
  }
};

class Fusion {
 public:
  explicit Fusion(const Function& f) : f_(f), group_(f, -1), role_(f, Role::none), lowering_kind_(f, Kind::free),
                                       users_(f), is_result_(f, 0) {
    for (const Eqn* e : f.eqns())
      for (Value v : e->operands) users_[v].push_back(e);
    for (Value r : f.results()) is_result_[r] = 1;
    for (const Eqn* e : f.eqns()) lowering_kind_[e->out()] = is_constant(*e) ? Kind::free : kind_of(e->op->lower(*e));
    for (const Eqn* e : f.eqns()) place(*e);
  }

  FunctionRef emit();

 private:
  static bool is_constant(const Eqn& e) { return e.op == &ops::constant; }
  Kind kind(const Eqn& e) const { return lowering_kind_[e.out()]; }
  bool is_free(Value v) const { return v.eqn() && group_[v] < 0; }

  // --- placing -----------------------------------------------------------------------------------------------------

  void place(const Eqn& e) {
    if (kind(e) == Kind::free && !must_store(e)) return;
    const int g = kind(e) == Kind::hero ? -1 : latest_group(e);
    const bool is_open = g >= 0 && !groups_[g].is_closed && groups_[g].members.size() < kMaxMembers;
    if (!is_open || !(join(e, g) || absorb(e, g))) start(e);
    const int index = group_[e.out()];
    const std::vector<int> fresh = read_first_here(e, index);
    if (kind(e) == Kind::map && role_[e.out()] == Role::full)
      for (int h : fresh) merge(h, index);
  }

  // Records which groups e reads; gives those its group did not read before and e reads only in place, without a view.
  std::vector<int> read_first_here(const Eqn& e, int index) {
    absl::flat_hash_set<int> through_view, in_place;
    for (Value v : e.operands)
      for_each_base(v, [&](Value base) { (base == v ? in_place : through_view).insert(group_[base]); });
    std::vector<int> fresh;
    for (const absl::flat_hash_set<int>* set : {&in_place, &through_view})
      for (int h : *set) {
        if (h == index || !groups_[index].sources.insert(h).second) continue;
        groups_[h].readers.insert(index);
        if (!through_view.contains(h)) fresh.push_back(h);
      }
    std::sort(fresh.begin(), fresh.end());
    return fresh;
  }

  // Moves an earlier elementwise group into the later one that reads it at the same positions:
  //   a = x * 2 | b = y * 3; c = a + b     one group instead of two
  // Still acyclic if nobody between the two reads the earlier one.
  void merge(int from, int to) {
    Group& g = groups_[from];
    Group& into = groups_[to];
    if (g.is_closed || g.has_reduce || g.full != into.full || g.members.size() + into.members.size() > kMaxMembers) return;
    if (into.has_reduce && !into.has_rows()) return;
    for (int r : g.readers)
      if (r < to) return;
    into.members.insert(into.members.end(), g.members.begin(), g.members.end());
    std::sort(into.members.begin(), into.members.end(), [&](const Eqn* a, const Eqn* b) { return a->out().id() < b->out().id(); });
    into.is_expensive |= g.is_expensive;
    for (const Eqn* m : g.members)
      for (Value v : m->outs()) group_[v] = to;
    for (int h : g.sources) {
      groups_[h].readers.erase(from);
      groups_[h].readers.insert(to);
      into.sources.insert(h);
    }
    for (int r : g.readers) {
      groups_[r].sources.erase(from);
      if (r == to) continue;
      groups_[r].sources.insert(to);
      into.readers.insert(r);
    }
    into.sources.erase(from);
    g = Group{};
  }

  // A view or dense result has to exist in memory when the program returns it or a hero reads it.
  bool must_store(const Eqn& e) const {
    if (is_constant(e)) return false;
    if (is_result_[e.out()]) return true;
    for (const Eqn* user : users_[e.out()])
      if (kind(*user) == Kind::hero) return true;
    return false;
  }

  // Groups of everything `v` reads, through free values.
  template <class F>
  void for_each_base(Value v, F f) const {
    if (!v.eqn()) return;
    if (group_[v] >= 0) return f(v);
    for (Value in : v.eqn()->operands) for_each_base(in, f);
  }

  int latest_group(const Eqn& e) const {
    int g = -1;
    for (Value v : e.operands) for_each_base(v, [&](Value base) { g = std::max(g, group_[base]); });
    return g;
  }

  void start(const Eqn& e) {
    Group g;
    g.members = {&e};
    if (kind(e) == Kind::reduce) {
      g.full = e.in(0).dims();
      g.reduced = e.attrs<ops::Reduce>().dims;
      std::sort(g.reduced.begin(), g.reduced.end());
      g.has_reduce = true;
    } else {
      g.full = e.out().dims();
    }
    g.is_closed = kind(e) == Kind::hero;
    g.is_expensive = kind(e) != Kind::free && is_costly(e);
    groups_.push_back(std::move(g));
    assign(e, static_cast<int>(groups_.size()) - 1, kind(e) == Kind::reduce ? Role::row : Role::full);
  }

  void assign(const Eqn& e, int g, Role role) {
    for (Value v : e.outs()) {
      group_[v] = g;
      role_[v] = role;
    }
  }

  bool is_costly(const Eqn& e) const {
    if (kind(e) == Kind::reduce || kind(e) == Kind::indexed) return true;
    const Lowering l = e.op->lower(e);
    const auto* map = std::get_if<lowering::Map>(&l);
    return map && map->fn.nodes.size() > 8;
  }

  // The role of operand v as e would see it in group g; none: v is in g, at positions e cannot use; nullopt: not in g.
  std::optional<Role> seen(Value v, const Group& g, int index) const {
    if (!v.eqn()) return std::nullopt;
    if (group_[v] == index) return role_[v] == Role::inner ? Role::none : role_[v];
    if (group_[v] >= 0) return std::nullopt;
    bool reads_group = false;
    for_each_base(v, [&](Value base) { reads_group |= group_[base] == index; });
    if (!reads_group) return std::nullopt;
    if (v.eqn()->op == &ops::reshape) {
      const std::optional<Role> in = seen(v.eqn()->in(0), g, index);
      const bool only_ones = without_ones(v.dims()) == without_ones(v.eqn()->in(0).dims());
      return in && only_ones ? in : Role::none;
    }
    if (v.eqn()->op == &ops::broadcast && g.has_reduce) return broadcast_role(*v.eqn(), g, index);
    return Role::none;
  }

  // A broadcast of a row back over the dims that were reduced is full.
  Role broadcast_role(const Eqn& e, const Group& g, int index) const {
    const std::optional<Role> in = seen(e.in(0), g, index);
    if (!in || *in != Role::row || e.out().dims() != g.full) return Role::none;
    const auto& dims = e.attrs<ops::Broadcast>().dims;
    std::vector<std::int64_t> kept;  // result dims the operand's extents lie along
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (e.in(0).dims()[d] != 1) kept.push_back(dims[d]);
    std::vector<std::int64_t> wanted;
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(g.full.size()); ++d)
      if (g.full[d] != 1 && std::find(g.reduced.begin(), g.reduced.end(), d) == g.reduced.end()) wanted.push_back(d);
    return kept == wanted ? Role::full : Role::none;
  }

  // Joining keeps every member at its place.
  bool join(const Eqn& e, int index) {
    Group& g = groups_[index];
    if (kind(e) == Kind::indexed || kind(e) == Kind::free) return false;
    bool reads_row = false, reads_full = false, row_as_full = false;
    for (Value v : e.operands) {
      const std::optional<Role> role = seen(v, g, index);
      if (!role) continue;
      if (*role == Role::none) return false;
      const bool is_row = *role == Role::row;
      reads_row |= is_row;
      reads_full |= !is_row;
      row_as_full |= !is_row && group_[v] != index && broadcasts_row(v, index);
    }
    if (kind(e) == Kind::reduce) return !reads_row && join_reduce(e, index);
    if (reads_full == reads_row) {
      // A scalar row beside full values, as in x - mean(x): the row is read as if broadcast.
      if (!reads_full || !g.row().empty()) return false;
      row_as_full = true;
      reads_row = false;
    }
    const Shape space = reads_row ? g.row() : g.full;
    if (without_ones(e.out().dims()) != without_ones(space)) {
      if (!(reads_row && e.out().dims() == g.full && g.row().empty())) return false;
      row_as_full = true;  // scalar row combined with outside full values
      reads_row = false;
    }
    if (!reads_row && e.out().dims() != g.full) return false;
    // A full value beside a reduction is stored by the row kernel alone.
    if (!reads_row && g.has_reduce && !g.has_rows()) return false;
    g.has_row_consumer |= row_as_full;
    add(e, index, reads_row ? Role::row : Role::full);
    return true;
  }

  bool broadcasts_row(Value v, int index) const {
    bool row = false;
    for_each_base(v, [&](Value base) { row |= group_[base] == index && role_[base] == Role::row; });
    return row;
  }

  bool join_reduce(const Eqn& e, int index) {
    Group& g = groups_[index];
    if (e.in(0).dims() != g.full) return false;
    std::vector<std::int64_t> dims = e.attrs<ops::Reduce>().dims;
    std::sort(dims.begin(), dims.end());
    if (g.has_reduce && g.reduced != dims) return false;
    Group with = g;
    with.reduced = dims;
    // Full values that others need as well are stored on the way only by the row kernel.
    if (!with.has_rows() && stores_full_values(g, index, e)) return false;
    g.reduced = std::move(dims);
    g.has_reduce = true;
    add(e, index, Role::row);
    return true;
  }

  bool stores_full_values(const Group& g, int index, const Eqn& reader) const {
    for (const Eqn* m : g.members) {
      if (role_[m->out()] != Role::full) continue;
      if (is_result_[m->out()]) return true;
      for (const Eqn* user : users_[m->out()])
        if (user != &reader && (!user->num_out() || group_[user->out()] != index)) return true;
    }
    return false;
  }

  // Absorbing re-indexes a whole elementwise group by e's space: nothing of it is stored but what e reads.
  bool absorb(const Eqn& e, int index) {
    Group& g = groups_[index];
    if (kind(e) == Kind::reduce || g.has_reduce) return false;
    if (e.out().type().num_elements() > sheaf::num_elements(g.full) && g.is_expensive) return false;
    for (const Eqn* m : g.members) {
      if (is_result_[m->out()]) return false;
      if (!only_read_by(m->out(), e, index)) return false;
    }
    for (const Eqn* m : g.members) assign(*m, index, Role::inner);
    g.full = e.out().dims();
    add(e, index, Role::full);
    return true;
  }

  // Every user of v is e, a member of the group, or a view of which the same holds.
  bool only_read_by(Value v, const Eqn& e, int index) const {
    for (const Eqn* user : users_[v]) {
      if (user == &e || (user->num_out() && group_[user->out()] == index)) continue;
      if (kind(*user) != Kind::free || is_result_[user->out()] || group_[user->out()] >= 0 || !only_read_by(user->out(), e, index))
        return false;
    }
    return true;
  }

  void add(const Eqn& e, int index, Role role) {
    groups_[index].members.push_back(&e);
    groups_[index].is_expensive |= kind(e) != Kind::free && is_costly(e);
    assign(e, index, role);
  }

  // --- emission ----------------------------------------------------------------------------------------------------

  struct Body;
  bool is_stored(Value v) const;
  void emit_group(Builder& plan, const Group& g, int index);

  const Function& f_;
  ValueTable<int> group_;
  ValueTable<Role> role_;
  ValueTable<Kind> lowering_kind_;
  ValueTable<std::vector<const Eqn*>> users_;
  ValueTable<char> is_result_;
  std::vector<Group> groups_;

  absl::flat_hash_map<Value, Value> plan_value_;  // stored values, parameters and dense constants, in the plan
};

// The region of one kernel under construction: members, the free values they read, and parameters for everything else.
struct Fusion::Body {
  Body(const Fusion& of, int group) : fusion(of), index(group), b("body") {}

  Value read(Value v) {
    if (auto it = map.find(v); it != map.end()) return it->second;
    const bool dense = v.eqn() && is_constant(*v.eqn()) && v.rank() > 0;
    if (!v.eqn() || dense || (fusion.group_[v] >= 0 && fusion.group_[v] != index)) {
      operands.push_back(v);
      return map[v] = b.param(v.type(), v.name());
    }
    const Value made = copy(*v.eqn())[v.index()];
    return map[v] = made;
  }

  Values copy(const Eqn& e) {
    Values in;
    for (Value v : e.operands) in.push_back(read(v));
    b.set_loc(e.loc, e.how);
    const Values outs = b.clone(e, std::move(in));
    for (int j = 0; j < e.num_out(); ++j) map[e.out(j)] = outs[j];
    return outs;
  }

  const Fusion& fusion;
  int index;
  Builder b;
  absl::flat_hash_map<Value, Value> map;
  Values operands;  // of the kernel, as values of the program
};

// Read outside its group, directly or through views made again elsewhere, or returned.
bool Fusion::is_stored(Value v) const {
  if (is_result_[v]) return true;
  std::vector<Value> work{v};
  absl::flat_hash_set<Value> seen;
  while (!work.empty()) {
    const Value x = work.back();
    work.pop_back();
    for (const Eqn* user : users_[x]) {
      const int g = group_[user->out()];
      if (g == group_[v]) continue;
      if (g >= 0) return true;
      if (seen.insert(user->out()).second) work.push_back(user->out());
    }
  }
  return false;
}

std::string schedule_name(const Function& body, bool has_reduce, bool has_rows) {
  if (has_rows) return "row";
  if (has_reduce) return "reduce";
  for (const Eqn* e : body.eqns()) {
    if (is_constant_like(e->out())) continue;
    const Lowering l = e->op->lower(*e);
    if (std::holds_alternative<lowering::Contract>(l)) return "contract";
    if (std::holds_alternative<lowering::Scatter>(l)) return "scatter";
    if (std::holds_alternative<lowering::Sort>(l)) return "sort";
    if (std::holds_alternative<lowering::ArgReduce>(l)) return "reduce";
  }
  for (const Eqn* e : body.eqns())
    if (e->op == &ops::transpose && e->attrs<ops::Transpose>().perm.back() != e->out().rank() - 1) return "tile_transpose";
  return "map";
}

std::string kernel_name(const Function& body) {
  std::string s;
  int n = 0;
  std::string_view last;
  for (const Eqn* e : body.eqns()) {
    if (e->op == &ops::constant || e->op == &ops::broadcast || e->op->name == last) continue;
    if (++n > 6) return s + "_etc";
    last = e->op->name;
    s += (s.empty() ? "" : "_") + std::string(last);
  }
  return s.empty() ? "fill" : s;
}

void Fusion::emit_group(Builder& plan, const Group& g, int index) {
  Body body(*this, index);
  Values stored, results;
  for (const Eqn* m : g.members) {
    body.copy(*m);
    for (Value v : m->outs())
      if (is_stored(v)) stored.push_back(v);
  }
  if (stored.empty()) return;
  bool stores_full = false;
  for (Value v : stored) {
    results.push_back(body.map.at(v));
    stores_full |= role_[v] == Role::full;
  }
  const Eqn* hero = g.members.back();
  for (const Eqn* m : g.members)
    if (kind(*m) == Kind::reduce || kind(*m) == Kind::hero) hero = m;
  Values operands = body.operands;
  const FunctionRef region = body.b.finish(std::move(results));
  Values args;
  for (Value v : operands) {
    auto it = plan_value_.find(v);
    if (it == plan_value_.end()) {
      SHEAF_CHECK(v.eqn() && is_constant(*v.eqn()), "a kernel reads a value no kernel stores");
      it = plan_value_.emplace(v, plan.clone(*v.eqn(), {})[0]).first;
    }
    args.push_back(it->second);
  }
  const bool rows = g.has_reduce && (g.has_row_consumer || stores_full);
  plan.set_loc(hero->loc, hero->how);
  const Values outs = plan.emit_all(
      &ops::kernel, std::move(args),
      std::make_shared<const ops::Kernel>(ops::Kernel{.name = kernel_name(*region), .schedule = schedule_name(*region, g.has_reduce, rows)}),
      {region});
  for (std::size_t j = 0; j < stored.size(); ++j) plan_value_[stored[j]] = outs[j];
}

// A result that is a parameter, a constant, or a result already: its own kernel writes it.
Value copy_kernel(Builder& plan, Value plan_value, const Eqn* constant) {
  Builder b("body");
  Values args;
  Value source;
  if (constant && constant->out().rank() == 0) {
    source = b.clone(*constant, {})[0];
  } else {
    source = b.param(plan_value.type());
    args = {plan_value};
  }
  const Value copy = b.emit(ops::reshape, {source}, ops::Reshape{.shape = source.dims()});
  const FunctionRef region = b.finish({copy});
  return plan.emit_all(&ops::kernel, std::move(args),
                       std::make_shared<const ops::Kernel>(ops::Kernel{.name = "copy", .schedule = "map"}), {region})[0];
}

FunctionRef Fusion::emit() {
  Builder plan(f_.name());
  const Values params = clone_params(plan, f_, Mask(f_.params().size(), true));
  for (std::size_t i = 0; i < params.size(); ++i) plan_value_[f_.params()[i]] = params[i];
  for (std::size_t i = 0; i < groups_.size(); ++i) emit_group(plan, groups_[i], static_cast<int>(i));
  Values results;
  absl::flat_hash_set<Value> taken;
  for (Value r : f_.results()) {
    const Eqn* constant = r.eqn() && is_constant(*r.eqn()) ? r.eqn() : nullptr;
    Value v;
    if (constant && r.rank() > 0 && !plan_value_.contains(r)) plan_value_[r] = plan.clone(*constant, {})[0];
    if (auto it = plan_value_.find(r); it != plan_value_.end()) v = it->second;
    if (!v || v.is_param() || constant || !taken.insert(v).second) {
      v = copy_kernel(plan, v, constant);
      taken.insert(v);
    }
    results.push_back(v);
  }
  return plan.finish(std::move(results));
}

}  // namespace

FunctionRef fuse(const FunctionRef& f) { return Fusion(*f).emit(); }

}  // namespace sheaf::passes
