// Groups of equations to kernels of a plan. Invariant: a kernel's region holds its group's members and, made again, the
// views and constants they read; everything else comes in as an operand that an earlier kernel stored.
#include "passes/fuse.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/check.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"
#include "passes/grouping.h"
#include "passes/remake.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool is_constant(Value v) { return v.eqn() && v.eqn()->op == &ops::constant; }

bool is_float_number(Value v) { return is_constant(v) && v.rank() == 0 && is_float(v.dtype()); }

// So many different numbers that kernels which would differ in one of them alone had better read it from memory, and be
// one kernel.
bool has_many_numbers(const Function& f) {
  constexpr std::size_t kMany = 64;
  absl::flat_hash_set<std::string> numbers;
  for (const Eqn* e : f.eqns()) {
    if (e->num_out() == 0 || !is_float_number(e->out())) continue;
    const Literal value = literal_of(*e);
    const auto* bytes = reinterpret_cast<const char*>(value.data());
    numbers.insert(std::string(name(e->out().dtype())) + std::string(bytes, static_cast<std::size_t>(value.bytes())));
    if (numbers.size() > kMany) return true;
  }
  return false;
}

Grouping grouping_of(const Function& f, const Target& target) {
  Grouping grouping = group_equations(f, target);
  make_again(f, grouping);
  return grouping;
}

bool is_barrier(const Eqn& e) { return std::holds_alternative<lowering::Barrier>(e.op->lower(e)); }

// The ops of a kernel, for profiles.
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

// The region of one kernel under construction: members, the free values they read, and parameters for everything else.
class Body {
 public:
  Body(const Grouping& grouping, int index, const Target& target, bool reads_numbers)
      : grouping_(grouping), index_(index), target_(target), b_("body") {
    const std::vector<const Eqn*>& members = grouping.groups[index].members;
    const auto is_contraction = [](const Eqn* m) { return nest_of(*m) == Nest::contract; };
    const bool has_contraction = std::any_of(members.begin(), members.end(), is_contraction);
    reads_numbers_ = reads_numbers && !has_contraction;  // zeros around what it reads are to be seen as such
    if (members.size() > 1 && has_contraction) read_in_order(members);
    for (const Eqn* m : members) {
      reads_in_memory_ = is_contraction(m) || nest_of(*m) == Nest::host;
      copy(*m);
    }
  }

  FunctionRef finish() {
    Values results;
    for (Value v : grouping_.groups[index_].stored) results.push_back(map_.at(v));
    return b_.finish(std::move(results));
  }
  // Of the kernel, as values of the program.
  const Values& operands() const { return operands_; }

 private:
  // Operands in the order in which they are made. Kernels come in the order of their operands, and what follows a
  // product may be older than what it multiplies:
  //   sum3 = sum2 + dot(y3, dz3)     sum2 has to be done before dz3 is begun, or all of dz1, dz2, .. are kept
  void read_in_order(const std::vector<const Eqn*>& members) {
    Values all;
    absl::flat_hash_set<Value> seen;
    for (const Eqn* m : members)
      for (Value v : m->operands) add_sources(v, seen, all);
    std::stable_sort(all.begin(), all.end(), [&](Value a, Value b) { return grouping_.group[a] < grouping_.group[b]; });
    for (Value v : all) read(v);
  }

  void add_sources(Value v, absl::flat_hash_set<Value>& seen, Values& all) const {
    if (!seen.insert(v).second) return;
    if (!v.eqn()) return all.push_back(v);
    if (grouping_.group[v] == index_ || is_constant(v)) return;
    if (is_elsewhere(v)) return all.push_back(v);
    for (Value in : v.eqn()->operands) add_sources(in, seen, all);
  }

  // What another group stores.
  bool is_elsewhere(Value v) const {
    const int group = grouping_.group[v];
    return group >= 0 && group != index_ && !grouping_.made_again.contains(v);
  }

  Value read(Value v) {
    if (auto it = map_.find(v); it != map_.end()) return it->second;
    const bool is_dense =
        is_constant(v) && (v.rank() > 0 || reads_in_memory_ || (reads_numbers_ && is_float(v.dtype())));
    if (!v.eqn() || is_dense || is_elsewhere(v)) {
      operands_.push_back(v);
      return map_[v] = b_.param(v.type(), v.name());
    }
    const Value made = copy(*v.eqn())[v.index()];
    return map_[v] = made;
  }

  Values copy(const Eqn& e) {
    Values in;
    for (Value v : e.operands) in.push_back(read(v));
    b_.set_loc(e.loc, e.how);
    const auto in_target = [&](const FunctionRef& region) { return fuse(region, target_); };
    const Values outs = b_.emit_all(e.op, std::move(in), e.attributes, in_regions(e, in_target));
    for (int j = 0; j < e.num_out(); ++j) map_[e.out(j)] = outs[j];
    return outs;
  }

  const Grouping& grouping_;
  int index_;
  const Target& target_;
  bool reads_numbers_ = false;
  bool reads_in_memory_ = false;  // contractions and what the host runs read no literals
  Builder b_;
  absl::flat_hash_map<Value, Value> map_;
  Values operands_;
};

class Writer {
 public:
  Writer(const Function& f, const Target& target)
      : f_(f),
        target_(target),
        grouping_(grouping_of(f, target)),
        reads_numbers_(has_many_numbers(f)),
        plan_(f.name()) {}

  FunctionRef run() {
    const Values params = clone_params(plan_, f_, Mask(f_.params().size(), true));
    for (std::size_t i = 0; i < params.size(); ++i) stored_[f_.params()[i]] = params[i];
    for (int i = 0; i < std::ssize(grouping_.groups); ++i)
      if (!grouping_.groups[i].stored.empty()) write_group(i);
    Values results;
    for (Value r : f_.results()) results.push_back(result_of(r));
    return plan_.finish(std::move(results))->on_mesh(f_.mesh());
  }

 private:
  void write_group(int index) {
    const Group& g = grouping_.groups[index];
    if (is_barrier(*g.hero)) {
      // It has kept apart what it was to: whoever reads a result reads the operand's memory.
      for (int j = 0; j < g.hero->num_out(); ++j) stored_[g.hero->out(j)] = in_memory(g.hero->in(j));
      return;
    }
    Body body(grouping_, index, target_, reads_numbers_);
    const FunctionRef region = body.finish();
    Values operands;
    for (Value v : body.operands()) operands.push_back(in_memory(v));
    plan_.set_loc(g.hero->loc, g.hero->how);
    const Values outs = kernel(std::move(operands), kernel_name(*region), region);
    for (std::size_t j = 0; j < outs.size(); ++j) stored_[g.stored[j]] = outs[j];
  }

  Values kernel(Values operands, std::string name, const FunctionRef& region) {
    auto attributes = std::make_shared<const ops::Kernel>(ops::Kernel{.name = std::move(name)});
    return plan_.emit_all(&ops::kernel, std::move(operands), std::move(attributes), {region});
  }

  Value in_memory(Value v) {
    auto it = stored_.find(v);
    if (it != stored_.end()) return it->second;
    SHEAF_CHECK(is_constant(v), "a kernel reads a value no kernel stores");
    return stored_[v] = plan_.clone(*v.eqn(), {})[0];
  }

  // Every result has a kernel of its own result: a parameter, a constant and what is a result already are copied.
  Value result_of(Value r) {
    const bool is_literal = is_constant(r) && r.rank() == 0;
    Value v = is_literal ? Value() : in_memory(r);
    if (is_literal || v.is_param() || is_constant(v) || !taken_.insert(v).second) {
      v = copied(is_literal ? r : v);
      taken_.insert(v);
    }
    return v;
  }

  Value copied(Value v) {
    Builder b("body");
    Values operands;
    Value source;
    if (is_constant(v) && v.rank() == 0) {
      source = b.clone(*v.eqn(), {})[0];
    } else {
      source = b.param(v.type());
      operands = {v};
    }
    const Value copy = b.emit(ops::reshape, {source}, ops::Reshape{.shape = source.dims()});
    return kernel(std::move(operands), "copy", b.finish({copy}))[0];
  }

  const Function& f_;
  const Target& target_;
  Grouping grouping_;
  const bool reads_numbers_;
  Builder plan_;
  absl::flat_hash_map<Value, Value> stored_;  // parameters, dense constants and what kernels store, in the plan
  absl::flat_hash_set<Value> taken_;  // results
};

}  // namespace

FunctionRef fuse(const FunctionRef& f, const Target& target) { return Writer(*f, target).run(); }

}  // namespace sheaf::passes
