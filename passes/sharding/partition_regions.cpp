// One pair of functions per region op: which layouts its edges have, and the equation with local regions.
#include "passes/sharding/partition_regions.h"

#include <algorithm>

#include "ir/check.h"
#include "ir/ops/attrs.h"
#include "passes/sharding/local.h"

namespace sheaf::passes {

using namespace ir;

namespace {

using Layouts = std::vector<Sharding>;

Layouts part(const Layouts& all, std::size_t from, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(from + count)};
}
Layouts operator+(Layouts a, const Layouts& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Layouts wanted(const Values& values, const MeshAtoms& mesh) {
  Layouts all;
  for (const Value v : values) all.push_back(wanted_layout(v, mesh));
  return all;
}

// scan: operands are consts, carry, stacks; results are carry, stacks. Rows of a stack lie as the body has them.

Sharding stacked(Sharding row) {
  row.dims.insert(row.dims.begin(), Atoms{});
  return row;
}
Layouts stacked(Layouts rows) {
  for (Sharding& s : rows) s = stacked(std::move(s));
  return rows;
}
Layouts rows_of(Layouts stacks) {
  for (Sharding& s : stacks) s.dims.erase(s.dims.begin());
  return stacks;
}

// A carry that the body only adds to.
bool is_only_added_to(Value carried, Value next) {
  return next.eqn() && next.eqn()->op == &ops::add && (next.eqn()->in(0) == carried) != (next.eqn()->in(1) == carried);
}

// If what is added are sums that are split over devices, the carry is such a sum too until the loop is over, unless its
// dims are split over that.
Sharding as_running_sum(Value carried, Value next, Sharding layout, const Decisions& body) {
  if (!is_only_added_to(carried, next) || body.uses(carried).size() != 1) return layout;
  const Eqn& e = *next.eqn();
  const Sharding& term = body.made(e.in(0) == carried ? e.in(1) : e.in(0));
  const Atoms used = layout.used();
  for (const int a : term.unreduced)
    if (term.kind != ReduceKind::sum || std::find(used.begin(), used.end(), a) != used.end()) return layout;
  layout.unreduced = term.unreduced;
  return layout;
}

Layouts carry_of(const Eqn& e, const Layouts& params, const Layouts& results, const MeshAtoms& mesh, Chooser& chooser) {
  const auto& a = e.attrs<ops::Scan>();
  const Function& body = *e.regions[0];
  Layouts carry = part(params, a.consts, a.carry);
  bool has_sums = false;
  for (int i = 0; i < a.carry; ++i) has_sums |= is_only_added_to(body.params()[a.consts + i], body.results()[i]);
  if (!has_sums) return carry;
  const Decisions once(body, params, carry + part(results, a.carry, results.size() - a.carry), mesh, chooser);
  for (int i = 0; i < a.carry; ++i)
    carry[i] = as_running_sum(body.params()[a.consts + i], body.results()[i], carry[i], once);
  return carry;
}

Decision decide_scan(const Eqn& e, const MeshAtoms& mesh, Chooser& chooser) {
  const auto& a = e.attrs<ops::Scan>();
  const Function& body = *e.regions[0];
  const Layouts params = wanted(body.params(), mesh), results = wanted(body.results(), mesh);
  const std::size_t fixed = a.consts + a.carry;
  const Layouts carry = carry_of(e, params, results, mesh, chooser);
  Decision d;
  d.in = part(params, 0, a.consts) + carry + stacked(part(params, fixed, params.size() - fixed));
  d.out = carry + stacked(part(results, a.carry, results.size() - a.carry));
  return d;
}

Values emit_scan(Localizer& l, Builder& b, const Eqn& e, const Decision& d, Values operands) {
  const auto& a = e.attrs<ops::Scan>();
  const std::size_t fixed = a.consts + a.carry;
  const Layouts params = part(d.in, 0, fixed) + rows_of(part(d.in, fixed, d.in.size() - fixed));
  const Layouts results = part(d.out, 0, a.carry) + rows_of(part(d.out, a.carry, d.out.size() - a.carry));
  return b.emit_all(e.op, std::move(operands), e.attributes, {l.localized(e.regions[0], params, results, {})});
}

// while: operands are the condition's consts, the body's consts, the carry.

Decision decide_while(const Eqn& e, const MeshAtoms& mesh, Chooser&) {
  const auto& a = e.attrs<ops::While>();
  const Layouts condition = wanted(e.regions[0]->params(), mesh), body = wanted(e.regions[1]->params(), mesh);
  Decision d;
  d.in = part(condition, 0, a.cond_consts) + body;
  d.out = part(body, a.body_consts, body.size() - a.body_consts);
  return d;
}

Values emit_while(Localizer& l, Builder& b, const Eqn& e, const Decision& d, Values operands) {
  const auto& a = e.attrs<ops::While>();
  const Layouts body = part(d.in, a.cond_consts, d.in.size() - a.cond_consts);
  const Axes& chosen_along = e.regions[0]->results()[0].type().varying();
  return b.emit_all(
      e.op, std::move(operands), e.attributes,
      {l.localized(e.regions[0], part(d.in, 0, a.cond_consts) + d.out, {Sharding::replicated(0)}, chosen_along),
       l.localized(e.regions[1], body, d.out, chosen_along)});
}

// cond: the branch is chosen alike on all devices, because branches may hold collectives.

Decision decide_cond(const Eqn& e, const MeshAtoms& mesh, Chooser&) {
  Decision d;
  d.in = wanted(e.operands, mesh);
  d.in[0] = Sharding::replicated(0);
  d.out = wanted(e.outs(), mesh);
  return d;
}

Values emit_cond(Localizer& l, Builder& b, const Eqn& e, const Decision& d, Values operands) {
  std::vector<FunctionRef> branches;
  for (const FunctionRef& r : e.regions)
    branches.push_back(l.localized(r, part(d.in, 1, d.in.size() - 1), d.out, e.in(0).type().varying()));
  return b.emit_all(e.op, std::move(operands), e.attributes, std::move(branches));
}

// shard_map: a dim is split over the axes of its spec and then over those that the body leaves to the compiler.

Sharding behind(const std::string& spec, const Sharding& free, const MeshAtoms& mesh) {
  Spec dims = *parse_spec(spec);
  dims.resize(free.dims.size());
  Sharding s = Sharding::replicated(static_cast<int>(free.dims.size()));
  for (std::size_t d = 0; d < s.dims.size(); ++d) {
    s.dims[d] = mesh.of(dims[d].axes);
    s.dims[d].insert(s.dims[d].end(), free.dims[d].begin(), free.dims[d].end());
  }
  return s;
}

Decision decide_shard_map(const Eqn& e, const MeshAtoms& mesh, Chooser&) {
  const auto& a = e.attrs<ops::ShardMap>();
  const Function& body = *e.regions[0];
  Decision d;
  for (int k = 0; k < e.num_in(); ++k) d.in.push_back(behind(a.in[k], wanted_layout(body.params()[k], mesh), mesh));
  for (int j = 0; j < e.num_out(); ++j) d.out.push_back(behind(a.out[j], wanted_layout(body.results()[j], mesh), mesh));
  return d;
}

Values emit_shard_map(Localizer& l, Builder& b, const Eqn& e, const Decision&, Values operands) {
  const Function& body = *e.regions[0];
  return l.inlined(b, e.regions[0], wanted(body.params(), l.mesh()), wanted(body.results(), l.mesh()),
                   std::move(operands));
}

struct RegionPartition {
  Op op;
  Decision (*decide)(const Eqn& e, const MeshAtoms& mesh, Chooser& chooser);
  Values (*emit)(Localizer& l, Builder& b, const Eqn& e, const Decision& d, Values operands);
};

const RegionPartition& partition_of(const Eqn& e) {
  static constexpr RegionPartition kAll[] = {{&ops::scan, decide_scan, emit_scan},
                                             {&ops::while_, decide_while, emit_while},
                                             {&ops::cond, decide_cond, emit_cond},
                                             {&ops::shard_map, decide_shard_map, emit_shard_map}};
  const auto* it =
      std::find_if(std::begin(kAll), std::end(kAll), [&](const RegionPartition& r) { return r.op == e.op; });
  SHEAF_CHECK(it != std::end(kAll), "a program to be partitioned holds " + std::string(e.op->name));
  return *it;
}

}  // namespace

Decision decide_region(const Eqn& e, const MeshAtoms& mesh, Chooser& chooser) {
  return partition_of(e).decide(e, mesh, chooser);
}

Values emit_region(Localizer& l, Builder& b, const Eqn& e, const Decision& d, Values operands) {
  return partition_of(e).emit(l, b, e, d, std::move(operands));
}

}  // namespace sheaf::passes
