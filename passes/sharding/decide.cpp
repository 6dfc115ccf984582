// Each equation chooses knowing where its operands are and what earlier equations asked of them, and a tie keeps a sum
// unmade. Where that lets a sum go several ways, to be made on each, or farther than it needs to, all choose once more
// with sums made where a cut says.
#include "passes/sharding/decide.h"

#include <algorithm>
#include <cmath>

#include "ir/check.h"
#include "ir/ops/attrs.h"
#include "passes/sharding/partition_regions.h"
#include "passes/sharding/reasons.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::size_t kMaxAvailable = 6;
constexpr double kTie = 1 + 1e-9;

bool holds(const Atoms& atoms, int a) { return std::find(atoms.begin(), atoms.end(), a) != atoms.end(); }

// Rounding is no linear map: a sum is made before it.
bool rounds(const Eqn& e) {
  if (e.op != &ops::convert) return false;
  const DType from = e.in(0).dtype(), to = e.out().dtype();
  return !is_float(from) || !is_float(to) || size_bytes(to) < size_bytes(from);
}

}  // namespace

bool is_gathered(const Sharding& from, const Sharding& to) {
  for (const Atoms& dim : from.dims)
    for (const int a : dim)
      if (std::none_of(to.dims.begin(), to.dims.end(), [&](const Atoms& d) { return holds(d, a); })) return true;
  return false;
}

Sharding cut_to_dividing(Sharding s, const Shape& dims, const MeshAtoms& mesh) {
  for (std::size_t d = 0; d < dims.size(); ++d)
    while (dims[d] % mesh.size(s.dims[d]) != 0) s.dims[d].pop_back();
  return s;
}

Sharding wanted_layout(Value v, const MeshAtoms& mesh) {
  return cut_to_dividing(sharding_of(v.type(), mesh), v.dims(), mesh);
}

bool is_edge(const Eqn& e) { return e.op == &ops::barrier || e.op == &ops::with_sharding || e.op == &ops::pcast; }

Decisions::Decisions(const Function& f, std::vector<Sharding> params, const std::vector<Sharding>& results,
                     const MeshAtoms& mesh, Chooser& chooser)
    : mesh_(mesh), chooser_(chooser), made_(f), uses_(f), is_made_again_(f), is_summed_(f) {
  for (std::size_t i = 0; i < params.size(); ++i) made_[f.params()[i]] = std::move(params[i]);
  decide_all(f, results);
  if (find_sums_to_make(f)) decide_all(f, results);
}

void Decisions::decide_all(const Function& f, const std::vector<Sharding>& results) {
  uses_ = ValueTable<std::vector<Use>>(f);
  for (const Eqn* e : f.eqns()) decide(*e);
  for (std::size_t j = 0; j < results.size(); ++j)
    uses_[f.results()[j]].push_back({.user = nullptr, .operand = static_cast<int>(j), .layout = results[j]});
}

void Decisions::decide(const Eqn& e) {
  Decision d{.is_backward = is_of_derivative(e.how)};
  if (is_edge(e)) {
    for (const Value v : e.outs()) d.out.push_back(wanted_layout(v, mesh_));
    d.in = d.out;
  } else if (e.op == &ops::check || e.op == &ops::callback) {
    for (const Value v : e.operands) d.in.push_back(Sharding::replicated(v.rank()));
    for (const Value v : e.outs()) d.out.push_back(Sharding::replicated(v.rank()));
  } else if (e.regions.empty() && e.op->factors) {
    d = by_factors(e);
  } else if (e.regions.empty()) {
    for (const Value v : e.outs()) d.out.push_back(Sharding::replicated(v.rank()));
  } else if (const auto before = decisions_.find(&e); before != decisions_.end()) {
    d = before->second;  // of types alone, which have not changed
  } else {
    d = decide_region(e, mesh_, chooser_);
    d.is_backward = is_of_derivative(e.how);
  }
  record(e, std::move(d));
}

std::vector<Sharding> Decisions::available(Value v, bool is_backward) const {
  std::vector<Sharding> forms{made_[v]};
  const auto add = [&](const Sharding& s) {
    if (forms.size() < kMaxAvailable && std::find(forms.begin(), forms.end(), s) == forms.end()) forms.push_back(s);
  };
  if (made_[v].unreduced.empty()) {
    const Sharding wanted = wanted_layout(v, mesh_);
    if (!is_gathered(made_[v], wanted)) add(wanted);
  }
  for (Value same = v; same.eqn() && same.eqn()->op == &ops::with_sharding;) {
    same = same.eqn()->in(0);
    if (made_[same].unreduced.empty() && !is_gathered(made_[v], made_[same])) add(made_[same]);
  }
  for (const Use& use : uses_[v])
    if (use.backward == is_backward || is_made_again_[v] || !is_gathered(made_[v], use.layout)) add(use.layout);
  return forms;
}

Question Decisions::question(const Eqn& e, const Factors& f, bool is_backward) const {
  Question q{.eqn = e, .factors = f, .have = {}, .want = {}};
  for (const Value v : e.operands) {
    q.have.push_back(available(v, is_backward));
    q.is_weight.push_back(chooser_.weights().is_weight(v));
  }
  for (const Value v : e.outs()) {
    q.want.push_back(wanted_layout(v, mesh_));
    q.is_gradient.push_back(chooser_.weights().is_gradient(v));
  }
  return q;
}

Decision Decisions::by_factors(const Eqn& e) const {
  const absl::StatusOr<Factors> f = e.op->factors(e);
  SHEAF_CHECK(f.ok(), std::string(f.status().message()));
  Decision d{.is_backward = is_of_derivative(e.how)};
  const Question q = question(e, *f, d.is_backward);
  d.choice = chooser_.choose(q);
  keep_sums(q, d.choice);
  for (int k = 0; k < e.num_in(); ++k) d.in.push_back(operand_layout(*f, d.choice, k));
  for (int j = 0; j < e.num_out(); ++j) d.out.push_back(result_layout(*f, d.choice, j));
  return d;
}

// The alternatives to making all sums first: all linear operands stay sums, or, of a product, one.
void Decisions::keep_sums(Question q, Choice& best) const {
  const Linear linear = linear_of(q.eqn);
  if (linear.kind == Linear::Kind::none || rounds(q.eqn)) return;
  const int n = q.eqn.num_in();
  const auto sum_in = [&](int k) -> Atoms {
    const Sharding& s = made_[q.eqn.in(k)];
    const bool may_wait = is_linear_in(linear, k) && s.kind == ReduceKind::sum && !is_summed_[q.eqn.in(k)];
    return may_wait ? s.unreduced : Atoms{};
  };
  const auto consider = [&](Atoms partial, std::vector<bool> which) {
    if (partial.empty()) return;
    q.partial = std::move(partial);
    q.is_partial = std::move(which);
    Choice c = chooser_.choose(q);
    if (c.cost <= best.cost * kTie) best = std::move(c);
  };
  if (linear.kind == Linear::Kind::separately) {
    for (int k = 0; k < n; ++k) {
      std::vector<bool> only(n);
      only[k] = true;
      consider(sum_in(k), std::move(only));
    }
    return;
  }
  Atoms all;
  std::vector<bool> which(n);
  for (int k = 0; k < n; ++k) {
    which[k] = is_linear_in(linear, k);
    for (const int a : sum_in(k))
      if (!holds(all, a)) all.push_back(a);
  }
  std::sort(all.begin(), all.end());
  consider(std::move(all), std::move(which));
}

void Decisions::record(const Eqn& e, Decision d) {
  for (int k = 0; k < e.num_in(); ++k)
    uses_[e.in(k)].push_back({.user = &e, .operand = k, .layout = d.in[k], .backward = d.is_backward});
  // A checkpoint computes again behind a barrier.
  const bool reads_again =
      std::any_of(e.operands.begin(), e.operands.end(), [&](Value v) { return is_made_again_[v]; });
  const bool is_again = e.op == &ops::barrier || (!d.is_backward && reads_again);
  for (int j = 0; j < e.num_out(); ++j) {
    made_[e.out(j)] = d.out[j];
    is_made_again_[e.out(j)] = is_again;
  }
  decisions_.insert_or_assign(&e, std::move(d));
}

Settlement Decisions::settlement(Value v) const {
  std::vector<const Sharding*> asked;
  for (const Use& use : uses_[v])
    if (use.layout.unreduced.empty() &&
        std::none_of(asked.begin(), asked.end(), [&](const Sharding* s) { return *s == use.layout; }))
      asked.push_back(&use.layout);
  const auto cost = [&](const Sharding& from, const Sharding& to) {
    return from == to ? 0 : chooser_.price(v.type(), from, to);
  };
  Settlement best;
  for (const Sharding* to : asked) best.seconds += cost(made_[v], *to);
  if (asked.size() < 2) return best;
  for (const Sharding* first : asked) {
    double all = cost(made_[v], *first);
    for (const Sharding* to : asked) all += cost(*first, *to);
    if (all < best.seconds) best = {.first = first, .seconds = all};
  }
  return best;
}

namespace {

bool is_sum(const Sharding& s) { return !s.unreduced.empty() && s.kind == ReduceKind::sum; }

bool contains(const Atoms& all, const Atoms& some) {
  return std::all_of(some.begin(), some.end(), [&](int a) { return holds(all, a); });
}

}  // namespace

// What flows from one value to the next are the terms that wait to be added up.
std::vector<UnmadeSum> Decisions::unmade_sums(const Function& f, const Values& sums) const {
  ValueTable<int> number(f, -1);
  for (std::size_t i = 0; i < sums.size(); ++i) number[sums[i]] = static_cast<int>(i);
  std::vector<UnmadeSum> all(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const Value v = sums[i];
    UnmadeSum& sum = all[i];
    sum.begins = !v.eqn() || !contains(of(*v.eqn()).choice.partial, made_[v].unreduced);
    bool is_asked = false;
    for (const Use& use : uses_[v]) {
      is_asked = is_asked || use.layout.unreduced.empty();
      if (!contains(use.layout.unreduced, made_[v].unreduced)) sum.is_taken_whole = true;
      else if (use.user)
        for (const Value out : use.user->outs())
          if (number[out] >= 0) sum.flows_to.push_back(number[out]);
    }
    Sharding wanted = wanted_layout(v, mesh_);
    wanted.unreduced.clear();
    const double seconds = is_asked ? settlement(v).seconds : chooser_.price(v.type(), made_[v], wanted);
    sum.cost = std::llround(seconds * 1e12);
  }
  return all;
}

// Whether somebody who takes a sum unmade now is to take it made.
bool Decisions::find_sums_to_make(const Function& f) {
  Values sums;
  for (const Value p : f.params())
    if (is_sum(made_[p])) sums.push_back(p);
  for (const Eqn* e : f.eqns())
    for (const Value v : e->outs())
      if (is_sum(made_[v])) sums.push_back(v);
  const std::vector<bool> cut = cheapest_cut(unmade_sums(f, sums));
  bool changes = false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    if (!cut[i]) continue;
    is_summed_[sums[i]] = true;
    for (const Use& use : uses_[sums[i]]) changes = changes || (use.user && !use.layout.unreduced.empty());
  }
  return changes;
}

}  // namespace sheaf::passes
