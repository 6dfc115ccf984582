// Each equation by its rule (passes/length_rules.h). Regions get the lengths and their constants as operands; loops
// over a length keep their carry at the steps beyond it.
#include "passes/buckets.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"
#include "passes/length_rules.h"

namespace sheaf::passes {

using namespace ir;

namespace {

bool any_mark(const std::vector<int>& dims) {
  return std::ranges::any_of(dims, [](int s) { return s >= 0; });
}

class Padder {
 public:
  Padder(const std::vector<Extent>& extents, int num_lengths) : extents_(extents), num_lengths_(num_lengths) {}

  // The results of f, given its parameters and the lengths in b. Literals take the place of marked constants where they
  // are used, in its regions too.
  Values emit(Builder& b, const Function& f, const LengthMarks& m, const Values& args, const Values& lengths,
              const Values& literals) {
    ValueTable<Value> map(f);
    for (std::size_t i = 0; i < f.params().size(); ++i) map[f.params()[i]] = args[i];
    const Values extents = extents_of(b, lengths);
    auto literal = literals.begin();
    const auto operands_of = [&](const Values& values, const std::vector<bool>& marked) {
      Values operands;
      for (std::size_t i = 0; i < values.size(); ++i) operands.push_back(marked[i] ? *literal++ : map[values[i]]);
      return operands;
    };
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      const Eqn& e = *f.eqns()[k];
      Values operands = operands_of(e.operands, m.constants[k]);
      b.set_loc(e.loc, e.how);
      Values outs;
      std::vector<Values> extras;  // of each region: the lengths, then its literals
      for (std::size_t r = 0; r < e.regions.size(); ++r) {
        extras.push_back(lengths);
        for (std::size_t n = marked_constants(*e.regions[r], m.regions[k][r]).size(); n > 0; --n)
          extras.back().push_back(*literal++);
      }
      if (!depends(e, m, k)) outs = b.clone(e, std::move(operands));
      else if (!e.regions.empty()) outs = with_regions(b, e, m, k, std::move(operands), extras);
      else outs = equation(b, e, m, k, std::move(operands), extents);
      if (!error.why.empty()) return {};
      for (int j = 0; j < e.num_out(); ++j) map[e.out(j)] = outs[j];
    }
    return operands_of(f.results(), m.constants.back());
  }

  LengthError error;

 private:
  static bool depends(const Eqn& e, const LengthMarks& m, std::size_t k) {
    if (m.trips[k] >= 0) return true;
    for (Value v : e.operands)
      if (any_mark(m.dims[v])) return true;
    for (Value v : e.outs())
      if (any_mark(m.dims[v])) return true;
    for (std::size_t r = 0; r < e.regions.size(); ++r) {
      if (has_marked_constants(m.regions[k][r])) return true;
      for (std::size_t i = 0; i < e.regions[r]->eqns().size(); ++i)
        if (depends(*e.regions[r]->eqns()[i], m.regions[k][r], i)) return true;
    }
    return false;
  }

  Values refuse(const Eqn& e, std::string_view why) {
    error = {fmt::format("{}: {}", e.op->name, why), e.loc};
    return {};
  }

  // By number.
  Values extents_of(Builder& b, Values lengths) const {
    const auto number = [&](std::int64_t n) {
      Literal x(Type(DType::i32, {}));
      x.set_int(0, n);
      return b.constant(x);
    };
    for (std::size_t k = lengths.size(); k < extents_.size(); ++k) {
      Value sum = number(extents_[k].plus);
      for (std::size_t s = 0; s < extents_[k].times.size(); ++s)
        if (extents_[k].times[s] != 0) sum = sum + lengths[s] * number(extents_[k].times[s]);
      lengths.push_back(sum);
    }
    return lengths;
  }

  Values equation(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
                  const Values& extents) {
    absl::StatusOr<Values> outs = padded_equation(b, e, m, k, std::move(operands), extents_, extents);
    return outs.ok() ? *std::move(outs) : refuse(e, std::string(outs.status().message()));
  }

  Values with_regions(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
                      const std::vector<Values>& extras) {
    if (e.op == &ops::scan) return scan(b, e, m, k, std::move(operands), extras[0]);
    if (e.op == &ops::cond) return branches(b, e, m, k, std::move(operands), extras);
    if (e.op == &ops::while_) return loop(b, e, m, k, std::move(operands), extras);
    return refuse(e, "it has no rule for arrays of a length that varies");
  }

  // ---- Regions: they get the lengths and their literals as operands of their own ----

  static Values region_params(Builder& b, const Function& f, std::size_t from, std::size_t to) {
    Values params;
    for (std::size_t i = from; i < to; ++i) params.push_back(b.param(f.params()[i].type(), f.params()[i].name()));
    return params;
  }
  static Values params_like(Builder& b, const Values& extras) {
    Values params;
    for (Value x : extras) params.push_back(b.param(x.type()));
    return params;
  }
  Values emit_region(Builder& b, const Function& f, const LengthMarks& m, const Values& args, const Values& extras) {
    const auto lengths_end = extras.begin() + num_lengths_;
    return emit(b, f, m, args, Values(extras.begin(), lengths_end), Values(lengths_end, extras.end()));
  }

  Values scan(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands, const Values& extras) {
    ops::Scan a = e.attrs<ops::Scan>();
    const Function& body = *e.regions[0];
    const auto consts = static_cast<std::size_t>(a.consts), carry = static_cast<std::size_t>(a.carry);
    const int trips = m.trips[k];
    if (trips >= 0 && body.effects() != Effects::none)
      return refuse(e, "what happens in its steps would happen in those of the padding too");
    Builder rb(body.name());
    Values args = region_params(rb, body, 0, consts);
    const Values inner = params_like(rb, extras);
    args = args + region_params(rb, body, consts, body.params().size());
    const Value step = rb.param(Type(DType::i32, {}));
    Values results = emit_region(rb, body, m.regions[k][0], args, inner);
    if (!error.why.empty()) return {};
    const Values extents = extents_of(rb, Values(inner.begin(), inner.begin() + num_lengths_));
    for (std::size_t c = 0; trips >= 0 && c < carry; ++c)
      results[c] = rb.emit(ops::select, {rb.emit(ops::lt, {step, extents[trips]}), results[c], args[consts + c]});
    Values all(operands.begin(), operands.begin() + a.consts);
    all = all + extras;
    all.insert(all.end(), operands.begin() + a.consts, operands.end());
    all.push_back(b.emit(ops::iota, {}, ops::Iota{.shape = {a.length}, .dim = {0}, .dtype = DType::i32}));
    a.consts += static_cast<int>(extras.size());
    return b.emit_all(e.op, std::move(all), std::make_shared<const ops::Scan>(std::move(a)), {rb.finish(results)});
  }

  // All branches take the same operands: each finds its own extras among those of all.
  Values branches(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
                  const std::vector<Values>& extras) {
    Values all;
    for (const Values& x : extras) all = all + x;
    std::vector<FunctionRef> regions;
    std::ptrdiff_t before = 0;
    for (std::size_t r = 0; r < e.regions.size(); ++r) {
      const Function& branch = *e.regions[r];
      Builder rb(branch.name());
      const Values args = region_params(rb, branch, 0, branch.params().size()), given = params_like(rb, all);
      const auto own = given.begin() + before;
      const std::ptrdiff_t count = std::ssize(extras[r]);
      Values results = emit_region(rb, branch, m.regions[k][r], args, Values(own, own + count));
      if (!error.why.empty()) return {};
      regions.push_back(rb.finish(std::move(results)));
      before += count;
    }
    return b.emit_all(e.op, operands + all, e.attributes, std::move(regions));
  }

  Values loop(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
              const std::vector<Values>& extras) {
    ops::While a = e.attrs<ops::While>();
    const int counts[] = {a.cond_consts, a.body_consts};
    std::vector<FunctionRef> regions;
    for (std::size_t r = 0; r < 2; ++r) {
      const Function& f = *e.regions[r];
      const auto consts = static_cast<std::size_t>(counts[r]);
      Builder rb(f.name());
      Values args = region_params(rb, f, 0, consts);
      const Values inner = params_like(rb, extras[r]);
      args = args + region_params(rb, f, consts, f.params().size());
      Values results = emit_region(rb, f, m.regions[k][r], args, inner);
      if (!error.why.empty()) return {};
      regions.push_back(rb.finish(std::move(results)));
    }
    const auto cond_end = operands.begin() + a.cond_consts, body_end = cond_end + a.body_consts;
    Values all(operands.begin(), cond_end);
    all = all + extras[0];
    all.insert(all.end(), cond_end, body_end);
    all = all + extras[1];
    all.insert(all.end(), body_end, operands.end());
    a.cond_consts += static_cast<int>(extras[0].size());
    a.body_consts += static_cast<int>(extras[1].size());
    return b.emit_all(e.op, std::move(all), std::make_shared<const ops::While>(std::move(a)), std::move(regions));
  }

  const std::vector<Extent>& extents_;
  const int num_lengths_;
};

}  // namespace

Padded padded_program(const Function& f, const LengthMarks& marks, int num_lengths) {
  Builder b(f.name());
  const Values params = clone_params(b, f, Mask(f.params().size(), true));
  Values lengths, literals;
  for (int s = 0; s < num_lengths; ++s) lengths.push_back(b.param(Type(DType::i32, {}), fmt::format("length{}", s)));
  for (const MarkedConstant& c : marked_constants(f, marks)) literals.push_back(b.param(c.constant->out().type()));
  Padder padder(marks.extents, num_lengths);
  Values results = padder.emit(b, f, marks, params, lengths, literals);
  if (!padder.error.why.empty()) return {nullptr, std::move(padder.error)};
  return {b.finish(std::move(results)), {}};
}

}  // namespace sheaf::passes
