// Grouping, greedily and in one pass over the program. A group has an iteration space `full` and, once it holds a
// reduction, the set of dims it reduces; its values are either full (an element per point of the space), rows (an
// element per point of the kept dims), or inner (read through an index map by another member and never stored).
//   x -> exp -> reduce_sum -> broadcast -> div     one group: full, row, (view), full
// Views and constants belong to no group: every group that reads one makes it again as an index map.
// Acyclic by construction: an equation may only join the latest group any of its operands comes from, so groups depend
// on earlier groups only.
#include "passes/grouping.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <optional>

#include "ir/columns.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/attrs.h"
#include "ir/schedule.h"
#include "ir/work.h"
#include "passes/contraction_layout.h"
#include "passes/emit.h"
#include "passes/open_group.h"
#include "passes/product_cost.h"
#include "passes/short_rows.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::size_t kMaxMembers = 128;  // of a group: register pressure and compile time grow with it
constexpr std::int64_t kMaxWays = 32;  // in which a group reads one array: each is code of its own

class Grouper {
 public:
  Grouper(const Function& f, const Target& target)
      : target_(target),
        group_(f, -1),
        role_(f, Role::none),
        lowering_kind_(f, Kind::free),
        users_(f),
        is_result_(f, 0) {
    for (const Eqn* e : f.eqns())
      for (Value v : e->operands) users_[v].push_back(e);
    for (Value r : f.results()) is_result_[r] = 1;
    for (const Eqn* e : f.eqns()) lowering_kind_[e->out()] = is_constant(*e) ? Kind::free : kind_of(e->op->lower(*e));
    for (const Eqn* e : f.eqns()) place(*e);
  }

  Grouping result() {
    std::vector<Group> groups;
    for (const OpenGroup& g : groups_) groups.push_back(closed(g));
    return {.groups = std::move(groups), .group = std::move(group_)};
  }

 private:
  static bool is_constant(const Eqn& e) { return e.op == &ops::constant; }
  Kind kind(const Eqn& e) const { return lowering_kind_[e.out()]; }
  static bool stands_alone(Kind k) { return k == Kind::hero || k == Kind::host; }
  bool is_free(Value v) const { return v.eqn() && group_[v] < 0; }

  // --- placing -----------------------------------------------------------------------------------------------------

  void place(const Eqn& e) {
    if (writes_for(e)) return assign_to_hero(e, group_[e.in(0)]);
    if (kind(e) == Kind::free && (!must_store(e) || stores_rows_anew(e))) return;
    if (is_read_before(e) || is_made_again(e)) return;
    const int g = stands_alone(kind(e)) ? -1 : latest_group(e);
    const bool is_open = g >= 0 && !groups_[g].is_closed && groups_[g].members.size() < kMaxMembers;
    if (!is_open || !(join(e, g) || absorb(e, g)))
      if (!joins_rows_of(e)) start(e);
    const int index = group_[e.out()];
    if (nest_of(e) == Nest::contract) target_.is_gpu() ? take_prologues(e, index) : take_padding(e, index);
    for (int h : read_first_here(e, index)) {
      merge(h, group_[e.out()]);
      absorb_too(e, h);
    }
    if (kind(e) == Kind::reduce && !groups_[group_[e.out()]].is_contraction) meet_siblings(e);
  }

  // Records which groups e reads; gives those its group did not read before.
  std::vector<int> read_first_here(const Eqn& e, int index) {
    absl::flat_hash_set<int> read;
    for (Value v : e.operands) for_each_base(v, [&](Value base) { read.insert(group_[base]); });
    std::vector<int> fresh;
    for (int h : read) {
      if (h == index || !groups_[index].sources.insert(h).second) continue;
      groups_[h].readers.insert(index);
      fresh.push_back(h);
    }
    std::sort(fresh.begin(), fresh.end());
    return fresh;
  }

  // A reshape that has to exist of what a row kernel makes is what that stores.
  bool stores_rows_anew(const Eqn& e) {
    if (e.op != &ops::reshape) return false;
    const Value v = e.in(0);
    const int g = group_of(v);
    if (g < 0 || role_[v] != Role::full || groups_[g].is_closed || !groups_[g].has_reduce || !groups_[g].has_rows())
      return false;
    add(e, g, Role::inner);
    return true;
  }

  // Two groups over the same space, or of which one makes what the other's rows read, become one if what they read of
  // each other they read in place:
  //   a = x * 2 | b = y * 3; c = a + b                 one group instead of two
  //   m = 0.9 * v | p = dot(x, y); u = m + p
  //   t = max(x) | m = (label == iota); s = sum(m ? x - t : 0)
  void merge(int g, int h) {
    const int first = std::min(g, h), last = std::max(g, h);
    const std::optional<OpenGroup> both = as_one(groups_[first], groups_[last]);
    if (!both || !fits_into(first, last, *both) || !fits_into(last, first, *both)) return;
    // Only of rows that are in cache can one reduction wait for another.
    if (both->has_reduce && !both->has_rows() && groups_[last].sources.contains(first)) return;
    // Acyclic still, if nobody between the two reads the earlier one, or the later one reads nobody between.
    const OpenGroup &a = groups_[first], &b = groups_[last];
    count_work(std::ssize(a.readers) + std::ssize(b.sources));
    const bool into_last = std::all_of(a.readers.begin(), a.readers.end(), [&](int r) { return r >= last; });
    const bool into_first = std::all_of(b.sources.begin(), b.sources.end(), [&](int s) { return s <= first; });
    if (!into_last && !into_first) return;
    for (const OpenGroup* part : {&a, &b}) {
      const bool are_rows = part->full != both->full, are_columns = part->has_reduce && part->reduced != both->reduced;
      for (const Eqn* m : part->members) {
        Role& role = role_[m->out()];
        if (are_rows && role == Role::full) role = Role::row;
        if (are_columns && role == Role::row) role = Role::inner;
      }
    }
    const int to = into_last ? last : first;
    pour(into_last ? first : last, to);
    groups_[to].full = both->full;
    groups_[to].reduced = both->reduced;
    groups_[to].has_reduce = both->has_reduce;
    groups_[to].is_contraction = both->is_contraction;
    if (both->is_contraction) groups_[to].first = both->first;
  }

  // The space of the two together, if it is one.
  std::optional<OpenGroup> as_one(const OpenGroup& a, const OpenGroup& b) const {
    if (a.is_closed || b.is_closed) return std::nullopt;
    if (a.is_contraction || b.is_contraction) return product_and_rest(a, b);
    if (a.members.size() + b.members.size() > kMaxMembers) return std::nullopt;
    if (a.has_reduce && b.has_reduce && a.reduced != b.reduced) {
      if (are_columns_of(a, b)) return b.space();
      if (are_columns_of(b, a)) return a.space();
      return std::nullopt;
    }
    const OpenGroup &wide = b.has_reduce || !a.has_reduce ? b : a, &other = &wide == &a ? b : a;
    const bool is_of_rows = wide.has_reduce && !other.has_reduce && !other.is_expensive &&
                            without_ones(other.full) == without_ones(wide.row());
    if (other.full != wide.full && !is_of_rows) return std::nullopt;
    const bool are_few = a.count_reductions() + b.count_reductions() <= kMostReductions;
    if (wide.has_reduce && !wide.has_rows() && !(other.has_reduce && are_few)) return std::nullopt;
    return wide.space();
  }

  // Nothing but totals of columns of what the other group takes row by row.
  bool are_columns_of(const OpenGroup& g, const OpenGroup& rows) const {
    return g.full == rows.full && rows.has_rows() && std::all_of(g.members.begin(), g.members.end(), [&](const Eqn* m) {
             return kind(*m) == Kind::reduce ? row_below(*m) == rows.reduced : role_[m->out()] != Role::row;
           });
  }

  // One is a contraction, with what follows it, and the other can be done to each of its elements, or to each of the
  // totals of its columns.
  std::optional<OpenGroup> product_and_rest(const OpenGroup& a, const OpenGroup& b) const {
    const OpenGroup& product = a.is_contraction ? a : b;
    const OpenGroup& rest = a.is_contraction ? b : a;
    const bool is_of_columns = !product.reduced.empty() && without_ones(rest.full) == without_ones(product.row());
    const bool fits = !rest.is_contraction && !rest.has_reduce && (rest.full == product.full || is_of_columns) &&
                      kind(*product.members.back()) != Kind::free && a.members.size() + b.members.size() <= kMaxMembers;
    const bool are_maps = std::all_of(rest.members.begin(), rest.members.end(), [&](const Eqn* m) {
      return kind(*m) == Kind::map || std::holds_alternative<lowering::RandomBits>(m->op->lower(*m));
    });
    if (!fits || !are_maps) return std::nullopt;
    OpenGroup both = product.space();
    both.is_contraction = true;
    both.first = product.first;
    return both;
  }

  // Reductions that one pass over memory can carry.
  static constexpr std::ptrdiff_t kMostReductions = 4;

  // Whether members of group `index` that read group `other` could stand where they do in a group of both.
  bool fits_into(int index, int other, const OpenGroup& both) const {
    const OpenGroup& g = groups_[index];
    if (!g.sources.contains(other)) return true;
    const bool is_narrow = g.full != both.full;
    return std::all_of(g.members.begin(), g.members.end(), [&](const Eqn* m) {
      bool reads_other = false;
      for (Value v : m->operands) for_each_base(v, [&](Value base) { reads_other |= group_[base] == other; });
      if (!reads_other) return true;
      if (stands_alone(kind(*m))) return false;  // a contraction, which reads all of what it is made of
      const Role role = role_[m->out()] == Role::full && is_narrow ? Role::row : role_[m->out()];
      return role_in(*m, {both, other}) == role;
    });
  }

  // A reduction down the columns of an array goes with what takes its rows already.
  bool joins_rows_of(const Eqn& e) {
    if (kind(e) != Kind::reduce) return false;
    const auto it = reduction_of_.find(e.in(0));
    if (it == reduction_of_.end()) return false;
    const int index = group_[it->second->out()];
    return latest_group(e) <= index && groups_[index].has_reduce && groups_[index].members.size() < kMaxMembers &&
           join_columns(e, index);
  }

  // A reduction goes with what already reads the same array to reduce it along the same dims:
  //   max(x) | min(x) | sum(x * y)
  void meet_siblings(const Eqn& e) {
    absl::flat_hash_set<Value> arrays;
    for (const Eqn* m : groups_[group_[e.out()]].members) find_arrays(*m, e.in(0).dims(), group_[e.out()], arrays);
    for (Value v : arrays) {
      const auto [it, is_first] = reduction_of_.try_emplace(v, &e);
      const int sibling = group_[it->second->out()], index = group_[e.out()];
      it->second = &e;
      if (!is_first && sibling != index) merge(sibling, index);
    }
  }

  // Those of these dims that m, of group `index`, reads in place.
  void find_arrays(const Eqn& m, const Shape& dims, int index, absl::flat_hash_set<Value>& arrays) const {
    for (Value v : m.operands) {
      if (v.dims() != dims) continue;
      if (is_free(v) && kind(*v.eqn()) == Kind::map) find_arrays(*v.eqn(), dims, index, arrays);
      if (!is_free(v) && group_of(v) != index) arrays.insert(v);
    }
  }

  int group_of(Value v) const { return v.eqn() ? group_[v] : -1; }

  // All members, and what is known of who reads whom.
  void pour(int from, int to) {
    OpenGroup& g = groups_[from];
    OpenGroup& into = groups_[to];
    into.members.insert(into.members.end(), g.members.begin(), g.members.end());
    std::sort(into.members.begin(), into.members.end(),
              [&](const Eqn* a, const Eqn* b) { return a->out().id() < b->out().id(); });
    into.is_expensive |= g.is_expensive;
    into.ways = std::max(into.ways, g.ways);
    count_work(std::ssize(g.members) + std::ssize(g.sources) + std::ssize(g.readers));
    for (const Eqn* m : g.members)
      for (Value v : m->outs()) group_[v] = to;
    for (int h : g.sources) {
      groups_[h].readers.erase(from);
      if (h == to) continue;
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
    g = OpenGroup{};
  }

  // What makes an operand of a product, and is read by nobody else, is computed where the product's tiles are filled,
  // if that pays:
  //   y = convert(x) * scale; z = dot(y, w)     one group instead of two
  void take_prologues(const Eqn& e, int index) {
    const ProductSize size(e);
    if (size.is_empty() || !size.is_small()) return;
    for (int k = 0; k < e.num_in(); ++k) {
      const Value v = behind_views(e.in(k));
      const int h = v.eqn() && !is_strided_view(*v.eqn()) ? group_[v] : -1;  // a view that is stored is to be
      if (h < 0 || h == index || !can_be_made(e, h) || !pays(e, h)) continue;
      for (const Eqn* m : groups_[h].members) assign(*m, index, Role::inner);
      pour(h, index);
    }
  }

  // Zeros around what the windows of a CPU's product slide over are added where it reads them:
  //   y = pad(x); z = dot(windows(y), w)     one group instead of two
  void take_padding(const Eqn& e, int index) {
    if (!is_sliding(e.in(0))) return;
    const Value v = behind_views(e.in(0));
    const int h = v.eqn() && v.eqn()->op == &ops::pad ? group_[v] : -1;
    if (h < 0 || groups_[h].members.size() != 1 || !surrounds_with_zeros(*v.eqn())) return;
    if (is_free(v.eqn()->in(0))) return;  // it lies in no memory
    if (is_result_[v] || !only_read_by(v, e, h)) return;
    assign(*v.eqn(), index, Role::inner);
    pour(h, index);
  }

  Value behind_views(Value v) const {
    while (is_free(v) && is_strided_view(*v.eqn())) v = v.eqn()->in(0);
    return v;
  }

  bool can_be_made(const Eqn& e, int h) const {
    const OpenGroup& g = groups_[h];
    if (g.is_closed || g.has_reduce || g.is_contraction || g.members.size() >= kMaxMembers) return false;
    return std::all_of(g.members.begin(), g.members.end(), [&](const Eqn* m) {
      const Lowering l = m->op->lower(*m);
      if (std::holds_alternative<lowering::Gather>(l) || std::holds_alternative<lowering::UpdateSlice>(l)) return false;
      const Values outs = m->outs();
      return std::none_of(outs.begin(), outs.end(), [&](Value v) { return is_result_[v] || !only_read_by(v, e, h); });
    });
  }

  // Of each operand of e that the group makes.
  bool pays(const Eqn& e, int h) const {
    for (int k = 0; k < e.num_in(); ++k) {
      const Value made = behind_views(e.in(k));
      if (!made.eqn() || group_[made] != h) continue;
      PrologueCost cost(e, k, made);
      absl::flat_hash_set<Value> seen;
      for (const Eqn* m : groups_[h].members) {
        cost.computes(*m);
        for (Value v : m->operands)
          for_each_source(v, h, [&](Value source) {
            if (seen.insert(source).second) cost.reads(source);
          });
      }
      if (!cost.pays()) return false;
    }
    return true;
  }

  // Every value in memory that `v` is made of, outside group h.
  template <class F>
  void for_each_source(Value v, int h, F f) const {
    count_work();
    if (v.eqn() && group_[v] == h) return;
    if (!is_free(v)) return f(v);
    for (Value in : v.eqn()->operands) for_each_source(in, h, f);
  }

  // A conversion that a hero does on its own is made again by everyone else who reads it, and never stored; but a
  // contraction, of itself or of a view of it, makes nothing again.
  bool is_read_before(const Eqn& e) const {
    if (e.op != &ops::convert || is_result_[e.out()]) return false;
    if (e.in(0).eqn() && kind(*e.in(0).eqn()) == Kind::free) return false;
    bool is_read = false;
    for (const Eqn* user : users_[e.out()]) {
      if (feeds_contraction(*user)) return false;
      for (int k = 0; k < user->num_in(); ++k) {
        if (user->in(k) != e.out() || !stands_alone(kind(*user))) continue;
        if (!ops::converts(*user, k)) return false;
        is_read = true;
      }
    }
    return is_read;
  }

  // What a few operations make of one array and of totals of it is made again by everyone who reads it, instead of
  // being written beside what it is made of:
  //   m = mean(x) | c = x - m (never stored) | v = mean(c * c) | y = c * rsqrt(v)
  bool is_made_again(const Eqn& e) const {
    if (kind(e) != Kind::map || must_store(e)) return false;
    bool reads_total = false;
    for (Value v : e.operands) for_each_base(v, [&](Value base) { reads_total |= is_of_totals(e, base); });
    constexpr int kFewOperations = 6;
    absl::flat_hash_set<Value> arrays;
    return reads_total && operations_again(e, e.out().type().num_elements(), arrays) <= kFewOperations &&
           arrays.size() == 1;
  }
  // e goes over all that the group of `base` adds up.
  bool is_of_totals(const Eqn& e, Value base) const {
    const OpenGroup& g = groups_[group_[base]];
    const bool has_totals = g.is_contraction ? role_[base] == Role::row : g.has_reduce && !g.has_rows();
    return has_totals && e.out().dims() == g.full;
  }

  // Those behind e that are not stored, and which arrays of `count` elements they read.
  int operations_again(const Eqn& e, std::int64_t count, absl::flat_hash_set<Value>& arrays) const {
    constexpr int kTooMany = 1000;
    int operations = 0;
    if (kind(e) == Kind::map) {
      if (is_costly(e)) return kTooMany;
      const Lowering l = e.op->lower(e);
      operations = operations_of(std::get<lowering::Map>(l).fn, kTooMany);
      if (operations >= kTooMany) return kTooMany;
    }
    for (Value v : e.operands) {
      if (is_free(v)) {
        operations += operations_again(*v.eqn(), count, arrays);
      } else if (v.type().num_elements() == count) {
        arrays.insert(v);
      }
    }
    return operations;
  }

  // A view, or a reshape of what lies in memory, which is the same memory. A GPU's products make their operands, and so
  // had better have the reshape with what makes it.
  bool is_strided(const Eqn& e) const {
    if (e.op != &ops::reshape || target_.is_gpu()) return is_strided_view(e);
    return !e.in(0).eqn() || group_[e.in(0)] >= 0;
  }

  // A view or dense result has to exist in memory when the program returns it or a hero reads it. A contraction reads
  // through strides, so it needs no view of what is in memory, but everything else behind its views.
  bool must_store(const Eqn& e) const {
    if (is_constant(e)) return false;
    if (is_result_[e.out()]) return true;
    const bool is_view = is_strided(e);
    for (const Eqn* user : users_[e.out()]) {
      if (stands_alone(kind(*user)) && !(is_view && reads_through(*user, e))) return true;
      if (!is_view && feeds_contraction(*user)) return true;
    }
    return false;
  }

  // A contraction writes its result as a permutation that keeps its vectors wants it, or as a reshape that has to exist
  // wants it, instead of a copy being made of it.
  bool writes_for(const Eqn& e) const {
    if (e.op != &ops::transpose && e.op != &ops::reshape) return false;
    const Value from = e.in(0);
    if (!from.eqn() || group_[from] < 0 || is_result_[from] || users_[from].size() != 1) return false;
    const std::vector<const Eqn*>& members = groups_[group_[from]].members;
    const bool is_followed = kind(*members.back()) == Kind::map || kind(*members.back()) == Kind::reduce;
    if (groups_[group_[from]].first->op != &ops::dot || is_followed) return false;
    if (e.op == &ops::reshape) return must_store(e);
    return members.back()->op != &ops::reshape &&
           keeps_columns(*groups_[group_[from]].first, e, [&](Value v) { return group_[v] >= 0; });
  }

  void assign_to_hero(const Eqn& e, int index) {
    groups_[index].members.push_back(&e);
    assign(e, index, Role::full);
  }

  // What sliding windows meet is read so often that its own layout is worth a copy; but a kernel that all windows meet
  // is packed by a CPU's product anyway.
  bool reads_through(const Eqn& hero, const Eqn& view) const {
    if (nest_of(hero) != Nest::contract) return false;
    const bool meets_windows = is_sliding(hero.in(0)) || is_sliding(hero.in(1));
    if (!meets_windows || is_sliding(view.out())) return true;
    return !target_.is_gpu() && ProductSize(hero).batch == 1 && has_short_windows(hero.in(0));
  }

  bool feeds_contraction(const Eqn& e) const {
    if (kind(e) == Kind::hero) return nest_of(e) == Nest::contract;
    const std::vector<const Eqn*>& users = users_[e.out()];
    return is_strided(e) &&
           std::any_of(users.begin(), users.end(), [&](const Eqn* u) { return feeds_contraction(*u); });
  }

  // Groups of everything `v` reads, through free values.
  template <class F>
  void for_each_base(Value v, F f) const {
    count_work();
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
    OpenGroup g;
    g.members = {&e};
    g.first = &e;
    if (kind(e) == Kind::reduce) {
      g.full = e.in(0).dims();
      g.reduced = e.attrs<ops::Reduce>().dims;
      std::sort(g.reduced.begin(), g.reduced.end());
      g.has_reduce = true;
    } else {
      g.full = e.out().dims();
    }
    g.is_contraction = takes_epilogue(e, target_);
    g.is_closed = (stands_alone(kind(e)) && !g.is_contraction) || is_kept_update(e);
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

  // The space of a group, or of what it is to be part of, and which group's values are looked for in it.
  struct Space {
    const OpenGroup& g;
    int index;
  };

  // Of a value in `in`, whose own group may be narrower: of its rows alone.
  Role role_of(Value v, const Space& in) const {
    const bool is_narrow = role_[v] == Role::full && groups_[group_[v]].full != in.g.full;
    return role_[v] == Role::inner ? Role::none : is_narrow ? Role::row : role_[v];
  }

  // The role of operand v as e would see it in a group; none: v is in it, at positions e cannot use; nullopt: not in
  // it.
  std::optional<Role> seen(Value v, const Space& in) const {
    if (!v.eqn()) return std::nullopt;
    if (group_[v] == in.index) return role_of(v, in);
    if (group_[v] >= 0) return std::nullopt;
    bool reads_group = false;
    for_each_base(v, [&](Value base) { reads_group |= group_[base] == in.index; });
    if (!reads_group) return std::nullopt;
    if (v.eqn()->op == &ops::reshape) {
      const std::optional<Role> role = seen(v.eqn()->in(0), in);
      const bool only_ones = without_ones(v.dims()) == without_ones(v.eqn()->in(0).dims());
      return role && only_ones ? role : Role::none;
    }
    if (v.eqn()->op == &ops::broadcast && in.g.has_reduce) return broadcast_role(*v.eqn(), in);
    return Role::none;
  }

  // A broadcast of a row back over the dims that were reduced is full.
  Role broadcast_role(const Eqn& e, const Space& in) const {
    const OpenGroup& g = in.g;
    if (seen(e.in(0), in) != Role::row || e.out().dims() != g.full) return Role::none;
    const auto& dims = e.attrs<ops::Broadcast>().dims;
    std::vector<std::int64_t> kept;  // result dims the operand's extents lie along
    for (std::size_t d = 0; d < dims.size(); ++d)
      if (e.in(0).dims()[d] != 1) kept.push_back(dims[d]);
    std::vector<std::int64_t> wanted;
    for (std::int64_t d = 0; d < static_cast<std::int64_t>(g.full.size()); ++d)
      if (g.full[d] != 1 && std::find(g.reduced.begin(), g.reduced.end(), d) == g.reduced.end()) wanted.push_back(d);
    return kept == wanted ? Role::full : Role::none;
  }

  // What e is in a group of this space, if it can be there: an elementwise equation or a reduction that reads the
  // group's values in place.
  std::optional<Role> role_in(const Eqn& e, const Space& in) const {
    const OpenGroup& g = in.g;
    if (kind(e) == Kind::indexed || kind(e) == Kind::free) return std::nullopt;
    bool reads_row = false, reads_full = false;
    for (Value v : e.operands) {
      const std::optional<Role> role = seen(v, in);
      if (!role) continue;
      if (*role == Role::none) return std::nullopt;
      const bool is_row = *role == Role::row;
      reads_row |= is_row;
      reads_full |= !is_row;
    }
    if (kind(e) == Kind::reduce) return reads_row ? std::nullopt : std::optional(Role::row);
    if (reads_full == reads_row) {
      // A scalar row beside full values, as in x - mean(x): the row is read as if broadcast.
      if (!reads_full || !g.row().empty()) return std::nullopt;
      reads_row = false;
    }
    const Shape space = reads_row ? g.row() : g.full;
    if (without_ones(e.out().dims()) != without_ones(space)) {
      if (!(reads_row && e.out().dims() == g.full && g.row().empty())) return std::nullopt;
      reads_row = false;  // scalar row combined with outside full values
    }
    if (!reads_row && e.out().dims() != g.full) return std::nullopt;
    return reads_row ? Role::row : Role::full;
  }

  // Joining keeps every member at its place.
  bool join(const Eqn& e, int index) {
    OpenGroup& g = groups_[index];
    if (g.is_contraction && kind(*g.members.back()) == Kind::free) return false;
    if (g.is_contraction && kind(e) == Kind::reduce) return join_columns_of_product(e, index);
    if (g.is_contraction && kind(e) != Kind::map) return false;
    const std::optional<Role> role = role_in(e, {g, index});
    if (!role) return false;
    if (kind(e) == Kind::reduce) return join_reduce(e, index);
    // A full value beside a reduction is stored by the row kernel alone.
    if (*role == Role::full && g.has_reduce && !g.has_rows()) return false;
    add(e, index, *role);
    return true;
  }

  bool join_reduce(const Eqn& e, int index) {
    OpenGroup& g = groups_[index];
    if (e.in(0).dims() != g.full) return false;
    if (join_columns(e, index)) return true;
    const std::vector<std::int64_t> dims = reduced_by(e);
    if (g.has_reduce && g.reduced != dims) return false;
    OpenGroup with = g;
    with.reduced = dims;
    // Full values that others need as well are stored on the way only by the row kernel.
    if (!with.has_rows() && stores_full_values(g, index, e)) return false;
    g.reduced = dims;
    g.has_reduce = true;
    add(e, index, Role::row);
    return true;
  }

  // A CPU adds up columns while rows pass, each in a lane of its own:
  //   g -> where(x > 0, g, 0) (which a product reads) -> reduce_sum over the first dim
  bool join_columns(const Eqn& e, int index) {
    OpenGroup& g = groups_[index];
    const std::optional<std::vector<std::int64_t>> row = row_below(e);
    if (!row || g.is_closed || g.is_contraction || e.in(0).dims() != g.full) return false;
    if (g.has_reduce ? g.reduced != *row || !g.has_rows() : !stores_full_values(g, index, e)) return false;
    g.reduced = *row;
    g.has_reduce = true;
    add(e, index, Role::inner);
    return true;
  }

  // The same of what follows a product, and then of what becomes of the totals:
  //   dy = where(x > 0, dot(dz, w), 0) (which others read) -> reduce_sum over the first dim -> b - 0.1 * it
  bool join_columns_of_product(const Eqn& e, int index) {
    OpenGroup& g = groups_[index];
    const bool is_element = group_of(e.in(0)) == index && role_[e.in(0)] == Role::full;
    if (g.is_closed || !is_element || !adds_columns(*g.first, e, target_)) return false;
    if (g.count_reductions() >= kMostReductions) return false;
    g.reduced = reduced_by(e);
    add(e, index, Role::row);
    return true;
  }

  // The dims of the rows that e could go along with, if it reduces the columns of many rows that stay in cache.
  std::optional<std::vector<std::int64_t>> row_below(const Eqn& e) const {
    constexpr std::int64_t kManyRows = 256;  // four for each lane
    const Shape& dims = e.in(0).dims();
    const std::vector<std::int64_t> over = reduced_by(e);
    if (target_.is_gpu() || nest_of(e) != Nest::reduction || !are_leading(over, dims.size())) return std::nullopt;
    OpenGroup g;
    g.full = dims;
    for (auto d = std::ssize(over); d < std::ssize(dims); ++d) g.reduced.push_back(d);
    if (!g.has_rows() || sheaf::num_elements(g.row()) < kManyRows) return std::nullopt;
    return g.reduced;
  }

  bool stores_full_values(const OpenGroup& g, int index, const Eqn& reader) const {
    for (const Eqn* m : g.members) {
      count_work(1 + std::ssize(users_[m->out()]));
      if (role_[m->out()] != Role::full) continue;
      if (is_result_[m->out()]) return true;
      for (const Eqn* user : users_[m->out()])
        if (user != &reader && (!user->num_out() || group_[user->out()] != index)) return true;
    }
    return false;
  }

  // Absorbing re-indexes a whole elementwise group by e's space: nothing of it is stored but what e reads.
  bool absorb(const Eqn& e, int index) {
    if (kind(e) == Kind::reduce || !can_be_inside(e, index)) return false;
    OpenGroup& g = groups_[index];
    g.ways = ways_inside(e, index);
    for (const Eqn* m : g.members) assign(*m, index, Role::inner);
    g.full = e.out().dims();
    g.reduced.clear();
    g.has_reduce = false;
    g.is_closed = is_kept_update(e);
    add(e, index, Role::full);
    return true;
  }

  // The same of a further group that e reads, once it has a place:
  //   a = x * 2 | b = y + 1; c = concatenate(a, b)     one group instead of two
  void absorb_too(const Eqn& e, int h) {
    const int index = group_[e.out()];
    if (h == index || groups_[h].members.empty() || stands_alone(kind(e)) || role_[e.out()] != Role::full) return;
    const OpenGroup &g = groups_[h], &into = groups_[index];
    const bool is_made_twice = into.has_reduce && g.is_expensive;
    if (is_made_twice || into.is_contraction || into.members.size() + g.members.size() > kMaxMembers) return;
    if (kind(e) == Kind::reduce || !can_be_inside(e, h)) return;
    for (const Eqn* m : g.members) assign(*m, h, Role::inner);
    groups_[index].ways = std::max(into.ways, ways_inside(e, h));
    pour(h, index);
  }

  // In how many ways what group h reads is read, where e makes it. They multiply: of x = roll(x, 1) * 0.5, forty times,
  // the last element would be made of 2^40 reads.
  std::int64_t ways_inside(const Eqn& e, int h) const {
    absl::flat_hash_set<Value> operands(e.operands.begin(), e.operands.end());
    std::int64_t ways = 0;
    for (Value v : operands) for_each_base(v, [&](Value base) { ways += group_[base] == h; });
    return ways * groups_[h].ways;
  }

  // Whether e may be who alone makes what group h does, where it reads it.
  bool can_be_inside(const Eqn& e, int h) const {
    const OpenGroup& g = groups_[h];
    if (g.is_closed || g.is_contraction || spoils_update(e, g)) return false;
    if (g.has_reduce && !may_make_rows(e, h)) return false;
    if (ways_inside(e, h) > kMaxWays) return false;
    const std::int64_t count = sheaf::num_elements(g.full);
    if (computed_elements(e, h) > count + count / 8 && g.is_expensive) return false;  // a border is no matter
    return std::all_of(g.members.begin(), g.members.end(),
                       [&](const Eqn* m) { return !is_result_[m->out()] && only_read_by(m->out(), e, h); });
  }

  // Whether what group h reduces is short rows that e may make again, reading across them.
  bool may_make_rows(const Eqn& e, int h) const {
    const std::vector<const Eqn*>& members = groups_[h].members;
    return std::all_of(members.begin(), members.end(), [](const Eqn* m) { return nest_of(*m) == Nest::none; }) &&
           may_make_rows_again(e, [&](Value v) { return v.eqn() && (group_[v] == h || group_[v] < 0); });
  }

  // How many elements of its operands' makers e computes: an update of what lies in memory writes its window alone.
  std::int64_t computed_elements(const Eqn& e, int index) const {
    const bool is_in_memory = e.num_in() > 0 && (!e.in(0).eqn() || (group_[e.in(0)] >= 0 && group_[e.in(0)] != index));
    return (is_small_update(e) && is_in_memory ? e.in(1) : e.out()).type().num_elements();
  }

  // An update whose result has to exist: with company, its kernel would write all of it instead of the window.
  bool is_kept_update(const Eqn& e) const {
    return is_small_update(e) && (is_result_[e.out()] || users_[e.out()].size() > 1);
  }

  // An update happens in place only where nothing beside it reads what it overwrites, and that exists.
  bool spoils_update(const Eqn& e, const OpenGroup& g) const {
    if (!is_small_update(e)) return false;
    for (const Eqn* m : g.members) {
      if (is_small_update(*m) && m->out() == e.in(0)) return true;
      for (Value v : m->operands)
        if (reads(v, e.in(0))) return true;
    }
    return false;
  }

  // v is `wanted` or made of it by views.
  bool reads(Value v, Value wanted) const {
    count_work();
    if (v == wanted) return true;
    if (!is_free(v)) return false;
    return std::any_of(v.eqn()->operands.begin(), v.eqn()->operands.end(), [&](Value in) { return reads(in, wanted); });
  }

  // Every user of v is e, a member of the group, or a view of which the same holds.
  bool only_read_by(Value v, const Eqn& e, int index) const {
    for (const Eqn* user : users_[v]) {
      count_work();
      if (user == &e || (user->num_out() && group_[user->out()] == index)) continue;
      if (kind(*user) != Kind::free || is_result_[user->out()] || group_[user->out()] >= 0 ||
          !only_read_by(user->out(), e, index))
        return false;
    }
    return true;
  }

  void add(const Eqn& e, int index, Role role) {
    groups_[index].members.push_back(&e);
    groups_[index].is_expensive |= kind(e) != Kind::free && is_costly(e);
    assign(e, index, role);
  }

  // --- what leaves -------------------------------------------------------------------------------------------------

  Group closed(const OpenGroup& g) const {
    Group group{.members = g.members, .hero = g.members.empty() ? nullptr : g.members.back(), .stored = {}};
    for (const Eqn* m : g.members) {
      if (stands_alone(kind(*m)) || (kind(*m) == Kind::reduce && !g.is_contraction)) group.hero = m;
      for (Value v : m->outs())
        if (kind(*m) == Kind::host || is_stored(v)) group.stored.push_back(v);
    }
    return group;
  }

  // Read outside its group, directly or through views made again elsewhere, or returned.
  bool is_stored(Value v) const {
    if (is_result_[v]) return true;
    std::vector<Value> work{v};
    absl::flat_hash_set<Value> seen;
    while (!work.empty()) {
      const Value x = work.back();
      work.pop_back();
      for (const Eqn* user : users_[x]) {
        count_work();
        const int g = group_[user->out()];
        if (g == group_[v]) continue;
        if (g >= 0) return true;
        if (seen.insert(user->out()).second) work.push_back(user->out());
      }
    }
    return false;
  }

  const Target& target_;
  ValueTable<int> group_;
  ValueTable<Role> role_;
  ValueTable<Kind> lowering_kind_;
  ValueTable<std::vector<const Eqn*>> users_;
  ValueTable<char> is_result_;
  std::vector<OpenGroup> groups_;
  absl::flat_hash_map<Value, const Eqn*> reduction_of_;  // the last, of a value in memory
};

}  // namespace

Grouping group_equations(const Function& f, const Target& target) { return Grouper(f, target).result(); }

}  // namespace sheaf::passes
