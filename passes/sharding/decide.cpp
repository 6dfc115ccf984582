// Forward: each equation chooses knowing where its operands are and what earlier equations asked of them; a tie keeps
// a sum unmade. Backward: a sum that nobody takes unmade is made before the equation again, where its operand may
// serve others too.
#include "passes/sharding/decide.h"

#include <algorithm>
#include <string_view>

#include "ir/check.h"
#include "ir/ops/attrs.h"
#include "passes/sharding/partition_regions.h"

namespace sheaf::passes {

using namespace ir;

namespace {

constexpr std::size_t kMaxAvailable = 6;
constexpr double kTie = 1 + 1e-9;

bool holds(const Atoms& atoms, int a) { return std::find(atoms.begin(), atoms.end(), a) != atoms.end(); }

bool is_of_transposed(const Eqn& e) { return std::string_view(e.how).find("transpose") != std::string_view::npos; }

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

bool is_edge(const Eqn& e) { return e.op == &ops::barrier || e.op == &ops::with_sharding || e.op == &ops::pvary; }

Decisions::Decisions(const Function& f, std::vector<Sharding> params, const std::vector<Sharding>& results,
                     const MeshAtoms& mesh, Chooser& chooser)
    : mesh_(mesh), chooser_(chooser), made_(f), uses_(f), is_made_again_(f) {
  for (std::size_t i = 0; i < params.size(); ++i) made_[f.params()[i]] = std::move(params[i]);
  for (const Eqn* e : f.eqns()) decide(*e);
  for (std::size_t j = 0; j < results.size(); ++j)
    uses_[f.results()[j]].push_back({.user = nullptr, .operand = static_cast<int>(j), .layout = results[j]});
  for (std::size_t i = f.eqns().size(); i-- > 0;) make_sums_early(*f.eqns()[i]);
}

void Decisions::decide(const Eqn& e) {
  Decision d{.is_backward = is_of_transposed(e)};
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
  } else {
    d = decide_region(e, mesh_, chooser_);
    d.is_backward = is_of_transposed(e);
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
  for (const Value v : e.operands) q.have.push_back(available(v, is_backward));
  for (const Value v : e.outs()) q.want.push_back(wanted_layout(v, mesh_));
  return q;
}

Decision Decisions::by_factors(const Eqn& e) const {
  const absl::StatusOr<Factors> f = e.op->factors(e);
  SHEAF_CHECK(f.ok(), std::string(f.status().message()));
  Decision d{.is_backward = is_of_transposed(e)};
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
    return is_linear_in(linear, k) && s.kind == ReduceKind::sum ? s.unreduced : Atoms{};
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

void Decisions::make_sums_early(const Eqn& e) {
  const Decision& now = of(e);
  if (now.choice.partial.empty()) return;
  for (const Value v : e.outs())
    for (const Use& use : uses_[v])
      for (const int a : now.choice.partial)
        if (holds(use.layout.unreduced, a)) return;
  for (const Value v : e.operands) std::erase_if(uses_[v], [&](const Use& use) { return use.user == &e; });
  const Factors f = *e.op->factors(e);
  Question q = question(e, f, now.is_backward);
  const Choice early = chooser_.choose(q);
  q.partial = now.choice.partial;
  q.is_partial = now.choice.is_partial;
  const Choice late = chooser_.choose(q);
  Decision d{.choice = early.cost <= late.cost * kTie ? early : now.choice, .is_backward = now.is_backward};
  for (int k = 0; k < e.num_in(); ++k) d.in.push_back(operand_layout(f, d.choice, k));
  for (int j = 0; j < e.num_out(); ++j) d.out.push_back(result_layout(f, d.choice, j));
  record(e, std::move(d));
}

}  // namespace sheaf::passes
