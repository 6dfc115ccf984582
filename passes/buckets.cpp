// What each op does with a dim of which the end is padding comes from its factors: along a dim that passes through,
// padding stays padding; before one is reduced, padding becomes what changes nothing; other ops have a rule here or are
// refused. Loops over a length keep their carry at the steps beyond it.
#include "passes/buckets.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "ir/builder.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/emit.h"
#include "passes/transforms.h"

namespace sheaf::passes {

using namespace ir;

FunctionRef plain_for_lengths(const FunctionRef& f) { return expand_ops(inline_calls(f)); }

// ---- What depends on a length ----

namespace {

class Marker {
 public:
  Marker(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& others, bool may_mark)
      : own_(own), others_(others), may_mark_(may_mark) {}

  // Equations are compared in order, but for constants, which are where they are used: two that are equal for some
  // lengths are one there.
  bool function(const Function& f, const Function& g, LengthMarks& m) {
    if (f.params().size() != g.params().size()) return fail_at({}, "it has other parameters for other lengths");
    m.literals.resize(f.eqns().size());
    m.trips.resize(f.eqns().size(), -1);
    if (m.regions.empty())
      for (const Eqn* e : f.eqns()) {
        std::vector<LengthMarks>& regions = m.regions.emplace_back();
        for (const FunctionRef& r : e->regions) regions.emplace_back(*r);
      }
    absl::flat_hash_map<const Eqn*, std::size_t> constants_of_f;
    for (std::size_t k = 0; k < f.eqns().size(); ++k)
      if (f.eqns()[k]->op == &ops::constant) constants_of_f[f.eqns()[k]] = k;
    ValueTable<int> ids(f, -1), other_ids(g, -1);
    int next = 0;
    const auto pair = [&](Value x, Value y, Loc loc) {
      ids[x] = other_ids[y] = next++;
      return value(x, y, m, loc);
    };
    const auto is_same = [&](Value x, Value y) {
      const Eqn *c = x.eqn(), *o = y.eqn();
      if (!c || !o || c->op != &ops::constant || o->op != &ops::constant) return ids[x] >= 0 && ids[x] == other_ids[y];
      return constant(*c, *o, m, constants_of_f.at(c));
    };
    const auto same = [&](const Values& x, const Values& y) { return std::ranges::equal(x, y, is_same); };
    for (std::size_t i = 0; i < f.params().size(); ++i)
      if (!pair(f.params()[i], g.params()[i], {})) return false;
    std::size_t at = 0;  // in g
    const auto skip_constants = [&] {
      while (at < g.eqns().size() && g.eqns()[at]->op == &ops::constant) ++at;
    };
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      const Eqn& e = *f.eqns()[k];
      if (e.op == &ops::constant) continue;
      skip_constants();
      const Eqn* const o = at < g.eqns().size() ? g.eqns()[at] : nullptr;
      const bool is_pair = o && e.op == o->op && same(e.operands, o->operands) && e.regions.size() == o->regions.size();
      if (!is_pair && !error.why.empty()) return false;
      if (!is_pair && does_nothing(e, m) && e.in(0).eqn() != nullptr && ids[e.in(0)] >= 0) {
        ids[e.out()] = ids[e.in(0)];
        continue;
      }
      if (!is_pair)
        return fail_at(e.loc, fmt::format("{}: for other lengths the program has {} there", e.op->name,
                                          o ? o->op->name : "its end"));
      if (!equation(e, *o, m, k)) return false;
      for (int j = 0; j < e.num_out(); ++j)
        if (!pair(e.out(j), o->out(j), e.loc)) return false;
      ++at;
    }
    skip_constants();
    if (at < g.eqns().size()) return fail_at(g.eqns()[at]->loc, "the program for other lengths goes on there");
    if (same(f.results(), g.results())) return true;
    return !error.why.empty() ? false : fail_at({}, "the program for other lengths has other results");
  }

  absl::flat_hash_map<const Eqn*, const Eqn*> constants;  // of the other program, by those of this
  LengthError error;

 private:
  bool value(Value x, Value y, LengthMarks& m, Loc loc) {
    const Shape &a = x.dims(), &b = y.dims();
    if (x.dtype() != y.dtype() || a.size() != b.size()) return fail_at(loc, "a value is of another dtype or rank");
    std::vector<int>& dims = m.dims[x];
    for (std::size_t d = 0; d < a.size(); ++d) {
      const int known = dims.empty() ? -1 : dims[d];
      if (known >= 0 ? b[d] == others_[known] : a[d] == b[d]) continue;
      const std::optional<int> length = known < 0 ? length_of(a[d], b[d]) : std::nullopt;
      if (!length)
        return fail_at(loc, fmt::format("an extent is {} for a length of {} and {} for {}", a[d], lengths_text(own_),
                                        b[d], lengths_text(others_)));
      if (dims.empty()) dims.assign(a.size(), -1);
      dims[d] = *length;
    }
    return true;
  }

  // The one that is `a` here and `b` there.
  std::optional<int> length_of(std::int64_t a, std::int64_t b) const {
    for (std::size_t s = 0; may_mark_ && s < own_.size(); ++s)
      if (own_[s] != others_[s] && own_[s] == a && others_[s] == b) return static_cast<int>(s);
    return std::nullopt;
  }
  bool is_length(std::int64_t a, std::int64_t b) const {
    for (std::size_t s = 0; s < own_.size(); ++s)
      if (own_[s] == a && others_[s] == b) return true;
    return false;
  }

  // Where a constant of f is used, and what is there in g.
  bool constant(const Eqn& c, const Eqn& o, LengthMarks& m, std::size_t k) {
    const auto [known, is_new] = constants.try_emplace(&c, &o);
    const bool is_one =
        is_new || known->second == &o || o.op->attrs.equal(known->second->attributes.get(), o.attributes.get());
    if (!is_one) return fail_at(c.loc, "two constants that are equal for the bucket's length differ for others");
    m.literals[k] = m.literals[k] || !c.op->attrs.equal(c.attributes.get(), o.attributes.get());
    return value(c.out(), o.out(), m, c.loc);
  }

  // To a shape that is the operand's own for the other lengths, where some are 1.
  bool does_nothing(const Eqn& e, const LengthMarks& m) const {
    if (e.op != &ops::broadcast || e.in(0).rank() != e.out().rank()) return false;
    const std::vector<int>& marks = m.dims[e.out()];
    for (int d = 0; d < e.out().rank(); ++d) {
      const int s = marks.empty() ? -1 : marks[static_cast<std::size_t>(d)];
      if (e.attrs<ops::Broadcast>().dims[static_cast<std::size_t>(d)] != d) return false;
      if (e.in(0).dims()[d] != e.out().dims()[d] && (s < 0 || others_[s] != 1)) return false;
    }
    return true;
  }

  bool equation(const Eqn& e, const Eqn& o, LengthMarks& m, std::size_t k) {
    for (std::size_t r = 0; r < e.regions.size(); ++r)
      if (!function(*e.regions[r], *o.regions[r], m.regions[k][r])) return false;
    if (e.op == &ops::scan) {
      const auto &a = e.attrs<ops::Scan>(), &b = o.attrs<ops::Scan>();
      if (m.trips[k] < 0 && a.length != b.length) m.trips[k] = length_of(a.length, b.length).value_or(-1);
      const bool is_good = m.trips[k] < 0 ? a.length == b.length : b.length == others_[m.trips[k]];
      const bool is_same = a.consts == b.consts && a.carry == b.carry && a.reverse == b.reverse;
      return (is_good && is_same) || fail_at(e.loc, fmt::format("its scan takes {} steps for other lengths", b.length));
    }
    if (e.op == &ops::slice) {
      const auto &a = e.attrs<ops::Slice>(), &b = o.attrs<ops::Slice>();
      const bool is_same = a.start == b.start && a.stride == b.stride;
      return is_same || fail_at(e.loc, "slice begins elsewhere for other lengths");
    }
    const bool moves = e.op == &ops::pad || e.op == &ops::dynamic_slice || e.op == &ops::reduce_window;
    if (moves && !e.op->attrs.equal(e.attributes.get(), o.attributes.get()))
      return fail_at(e.loc, fmt::format("{} is another one for other lengths", e.op->name));
    return attributes(e, o);
  }

  // The same, but for entries of lists that are a length.
  bool attributes(const Eqn& e, const Eqn& o) {
    const AttrsDef& def = e.op->attrs;
    if (!e.attributes || !o.attributes || def.equal(e.attributes.get(), o.attributes.get())) return true;
    const std::shared_ptr<void> ours = def.clone(e.attributes.get()), theirs = def.clone(o.attributes.get());
    std::vector<std::vector<std::int64_t>*> lists;
    def.visit(ours.get(), [&](const Field& f) {
      if (f.values) lists.push_back(f.values);
    });
    std::size_t next = 0;
    bool is_good = true;
    def.visit(theirs.get(), [&](const Field& f) {
      if (!f.values || next >= lists.size()) return;
      std::vector<std::int64_t>& a = *lists[next++];
      if (a.size() != f.values->size()) return;
      for (std::size_t i = 0; i < a.size(); ++i) {
        is_good &= a[i] == (*f.values)[i] || is_length(a[i], (*f.values)[i]);
        a[i] = (*f.values)[i];
      }
    });
    is_good &= def.equal(ours.get(), theirs.get());
    return is_good || fail_at(e.loc, fmt::format("{} depends on the length in another way than having it as an extent",
                                                 e.op->name));
  }

  static std::string lengths_text(const std::vector<std::int64_t>& lengths) {
    return fmt::format("{}", fmt::join(lengths, " and "));
  }
  bool fail_at(Loc loc, std::string why) {
    error = {std::move(why), loc};
    return false;
  }

  const std::vector<std::int64_t>&own_, &others_;
  const bool may_mark_;
};

}  // namespace

LengthError mark_lengths(const Function& f, const std::vector<std::int64_t>& own, const Function& other,
                         const std::vector<std::int64_t>& others, bool may_mark, LengthMarks& marks,
                         OtherConstants* constants) {
  Marker marker(own, others, may_mark);
  marker.function(f, other, marks);
  if (constants) *constants = std::move(marker.constants);
  return std::move(marker.error);
}

std::vector<const Eqn*> marked_literals(const Function& f, const LengthMarks& marks) {
  std::vector<const Eqn*> all;
  for (std::size_t k = 0; k < f.eqns().size(); ++k) {
    if (marks.literals[k]) all.push_back(f.eqns()[k]);
    for (std::size_t r = 0; r < marks.regions[k].size(); ++r)
      for (const Eqn* e : marked_literals(*f.eqns()[k]->regions[r], marks.regions[k][r])) all.push_back(e);
  }
  return all;
}

// ---- A program of any length ----

namespace {

// What changes nothing when it is combined.
Value neutral(Builder& b, DType t, Combine combine) {
  Literal x(Type(t, {}));
  const bool lowest = combine == Combine::max, largest = combine == Combine::min;
  if (is_float(t) || is_complex(t)) {
    const double inf = std::numeric_limits<double>::infinity();
    return b.constant(t, lowest ? -inf : largest ? inf : combine == Combine::prod ? 1.0 : 0.0);
  }
  if (is_bool(t)) {
    x.set_bits(0, combine == Combine::and_ || combine == Combine::prod || largest ? 1 : 0);
    return b.constant(x);
  }
  const int bits = 8 * size_bytes(t);
  const std::uint64_t ones = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  const std::uint64_t sign = std::uint64_t{1} << (bits - 1);
  const bool is_signed = is_signed_int(t);
  if (combine == Combine::and_) x.set_bits(0, ones);
  else if (combine == Combine::prod) x.set_bits(0, 1);
  else if (lowest) x.set_bits(0, is_signed ? sign : 0);
  else if (largest) x.set_bits(0, is_signed ? ones ^ sign : ones);
  return b.constant(x);
}

bool any_mark(const std::vector<int>& dims) {
  return std::ranges::any_of(dims, [](int s) { return s >= 0; });
}

class Padder {
 public:
  explicit Padder(int num_lengths) : num_lengths_(num_lengths) {}

  // The results of f, given its parameters and the lengths in b. Literals take the place of marked constants, those of
  // its regions too.
  Values emit(Builder& b, const Function& f, const LengthMarks& m, const Values& args, const Values& lengths,
              const Values& literals) {
    ValueTable<Value> map(f);
    for (std::size_t i = 0; i < f.params().size(); ++i) map[f.params()[i]] = args[i];
    std::size_t next_literal = 0;
    for (std::size_t k = 0; k < f.eqns().size(); ++k) {
      const Eqn& e = *f.eqns()[k];
      Values operands;
      for (Value v : e.operands) operands.push_back(map[v]);
      b.set_loc(e.loc, e.how);
      Values outs;
      std::vector<Values> extras;  // of each region: the lengths, then its literals
      for (std::size_t r = 0; r < e.regions.size(); ++r) {
        extras.push_back(lengths);
        for (std::size_t n = marked_literals(*e.regions[r], m.regions[k][r]).size(); n > 0; --n)
          extras.back().push_back(literals[next_literal++]);
      }
      if (m.literals[k]) outs = {literals[next_literal++]};
      else if (!depends(e, m, k)) outs = b.clone(e, std::move(operands));
      else if (!e.regions.empty()) outs = with_regions(b, e, m, k, std::move(operands), extras);
      else outs = equation(b, e, m, std::move(operands), lengths);
      if (!error.why.empty()) return {};
      for (int j = 0; j < e.num_out(); ++j) map[e.out(j)] = outs[j];
    }
    Values results;
    for (Value r : f.results()) results.push_back(map[r]);
    return results;
  }

  LengthError error;

 private:
  static bool depends(const Eqn& e, const LengthMarks& m, std::size_t k) {
    if (m.trips[k] >= 0) return true;
    for (Value v : e.operands)
      if (any_mark(m.dims[v])) return true;
    for (Value v : e.outs())
      if (any_mark(m.dims[v])) return true;
    for (std::size_t r = 0; r < e.regions.size(); ++r)
      for (std::size_t i = 0; i < e.regions[r]->eqns().size(); ++i)
        if (m.regions[k][r].literals[i] || depends(*e.regions[r]->eqns()[i], m.regions[k][r], i)) return true;
    return false;
  }

  Values refuse(const Eqn& e, std::string_view why) {
    error = {fmt::format("{}: {}", e.op->name, why), e.loc};
    return {};
  }

  static int mark(const LengthMarks& m, Value v, std::size_t d) {
    const std::vector<int>& dims = m.dims[v];
    return dims.empty() ? -1 : dims[d];
  }

  // x with `fill` in its padding along the dim.
  static Value masked(Builder& b, Value x, int dim, Value length, Value fill) {
    ops::Iota iota{.shape = x.dims(), .dim = {dim}, .dtype = DType::i32};
    const Value position = b.emit(ops::iota, {}, std::move(iota));
    return b.emit(ops::select, {b.emit(ops::lt, {position, length}), x, fill});
  }

  Values with_regions(Builder& b, const Eqn& e, const LengthMarks& m, std::size_t k, Values operands,
                      const std::vector<Values>& extras) {
    if (e.op == &ops::scan) return scan(b, e, m, k, std::move(operands), extras[0]);
    if (e.op == &ops::cond) return branches(b, e, m, k, std::move(operands), extras);
    if (e.op == &ops::while_) return loop(b, e, m, k, std::move(operands), extras);
    return refuse(e, "it has no rule for arrays of a length that varies");
  }

  Values equation(Builder& b, const Eqn& e, const LengthMarks& m, Values operands, const Values& lengths) {
    if (e.effects != Effects::none && e.op != &ops::check)
      return refuse(e, "what happens outside of the program would see the padding");
    if (e.op == &ops::slice) return slice(b, e, m, std::move(operands));
    if (e.op == &ops::cumulative) return cumulative(b, e, m, std::move(operands), lengths);
    if (e.op == &ops::argmax || e.op == &ops::argmin) return extreme(b, e, m, std::move(operands), lengths);
    if (e.op == &ops::random_bits) return random_bits(b, e, m, std::move(operands));
    return by_factors(b, e, m, std::move(operands), lengths);
  }

  Values by_factors(Builder& b, const Eqn& e, const LengthMarks& m, Values operands, const Values& lengths) {
    if (!e.op->factors) return refuse(e, "it has no rule for arrays of a length that varies");
    const absl::StatusOr<Factors> factors = e.op->factors(e);
    if (!factors.ok()) return refuse(e, "it has no rule for arrays of a length that varies");
    std::vector<int> length(factors->factors.size(), -1);
    for (int k = 0; k < e.num_in(); ++k)
      if (!note(e, m, e.in(k), factors->in[k], length)) return {};
    for (int j = 0; j < e.num_out(); ++j)
      if (!note(e, m, e.out(j), factors->out[j], length)) return {};
    for (std::size_t f = 0; f < length.size(); ++f)
      if (length[f] >= 0 && !is_simple(e, factors->factors[f]))
        return refuse(e, "it has no rule for a dim whose length varies");
    for (int k = 0; k < e.num_in(); ++k)
      for (std::size_t d = 0; d < factors->in[k].size(); ++d) {
        if (mark(m, e.in(k), d) < 0) continue;
        const int f = factors->in[k][d][0];
        if (factors->factors[f].cls != FactorClass::R) continue;
        const Value fill = neutral(b, operands[k].dtype(), factors->factors[f].combine);
        operands[k] = masked(b, operands[k], static_cast<int>(d), lengths[length[f]], fill);
      }
    return b.clone(e, std::move(operands));
  }

  // A dim that is a length is one factor, which is that length wherever it is.
  bool note(const Eqn& e, const LengthMarks& m, Value v, const TensorFactors& dims, std::vector<int>& length) {
    for (std::size_t d = 0; d < dims.size(); ++d) {
      const int s = mark(m, v, d);
      if (s >= 0 && (dims[d].size() != 1 || (length[dims[d][0]] >= 0 && length[dims[d][0]] != s))) {
        refuse(e, "it takes dims apart or together of which the length of one varies");
        return false;
      }
      if (s >= 0) length[dims[d][0]] = s;
    }
    for (std::size_t d = 0; d < dims.size(); ++d)
      for (const int f : dims[d])
        if (length[f] >= 0 && mark(m, v, d) < 0) {
          refuse(e, "it meets a dim whose length varies with one of a fixed size");
          return false;
        }
    return true;
  }

  // Each element of a result comes from the elements at its own place, or from all along the dim by something that has
  // a neutral element.
  static bool is_simple(const Eqn& e, const Factor& f) {
    if (f.cls == FactorClass::P) return !f.absolute || e.op == &ops::iota;
    const bool is_scatter = e.op == &ops::scatter && !e.attrs<ops::Scatter>().unique && !e.attrs<ops::Scatter>().sorted;
    const bool sums = e.op == &ops::reduce || e.op == &ops::dot || is_scatter;
    return f.cls == FactorClass::R && sums && !f.absolute && f.combine != Combine::none && f.combine != Combine::custom;
  }

  // From the beginning on padding stays at the end.
  Values slice(Builder& b, const Eqn& e, const LengthMarks& m, Values operands) {
    const ops::Slice& a = e.attrs<ops::Slice>();
    for (std::size_t d = 0; d < a.start.size(); ++d) {
      const int from = mark(m, e.in(0), d), to = mark(m, e.out(), d);
      const bool is_whole = a.start[d] == 0 && a.stride[d] == 1;
      if (from >= 0 && to >= 0 && (!is_whole || from != to))
        return refuse(e, "it moves along a dim whose length varies");
    }
    return b.clone(e, std::move(operands));
  }

  Values cumulative(Builder& b, const Eqn& e, const LengthMarks& m, Values operands, const Values& lengths) {
    using Kind = lowering::Recurrence::Kind;
    const ops::Cumulative& a = e.attrs<ops::Cumulative>();
    const auto dim = static_cast<int>(a.dim[0]);
    const int s = mark(m, e.in(0), static_cast<std::size_t>(dim));
    if (s >= 0 && a.reverse) {
      const Combine combine = a.kind == Kind::sum    ? Combine::sum
                              : a.kind == Kind::prod ? Combine::prod
                              : a.kind == Kind::min  ? Combine::min
                                                     : Combine::max;  // of logsumexp too: exp of it is 0
      operands[0] = masked(b, operands[0], dim, lengths[s], neutral(b, operands[0].dtype(), combine));
    }
    return b.clone(e, std::move(operands));
  }

  // Padding is behind all else, and of equal elements the first counts.
  Values extreme(Builder& b, const Eqn& e, const LengthMarks& m, Values operands, const Values& lengths) {
    const auto dim = static_cast<int>(e.attrs<ops::ArgReduce>().dim[0]);
    const int s = mark(m, e.in(0), static_cast<std::size_t>(dim));
    const Combine combine = e.op == &ops::argmax ? Combine::max : Combine::min;
    if (s >= 0) operands[0] = masked(b, operands[0], dim, lengths[s], neutral(b, operands[0].dtype(), combine));
    return b.clone(e, std::move(operands));
  }

  // Bits go by the position in the whole array, which only the extents behind a dim tell.
  Values random_bits(Builder& b, const Eqn& e, const LengthMarks& m, Values operands) {
    const ops::RandomBits& a = e.attrs<ops::RandomBits>();
    bool is_first = a.whole.empty();
    for (std::size_t d = 0; d < a.shape.size(); ++d) {
      const bool is_batch = std::ranges::find(a.result_batch, static_cast<std::int64_t>(d)) != a.result_batch.end();
      if (!is_batch && mark(m, e.out(), d) >= 0 && !is_first)
        return refuse(e, "its bits would be others: a length that varies has to be its first dim");
      if (!is_batch) is_first &= a.shape[d] == 1;
    }
    return b.clone(e, std::move(operands));
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
    for (std::size_t c = 0; trips >= 0 && c < carry; ++c)
      results[c] = rb.emit(ops::select, {rb.emit(ops::lt, {step, inner[trips]}), results[c], args[consts + c]});
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

  const int num_lengths_;
};

}  // namespace

Padded padded_program(const Function& f, const LengthMarks& marks, int num_lengths) {
  Builder b(f.name());
  const Values params = clone_params(b, f, Mask(f.params().size(), true));
  Values lengths, literals;
  for (int s = 0; s < num_lengths; ++s) lengths.push_back(b.param(Type(DType::i32, {}), fmt::format("length{}", s)));
  for (const Eqn* e : marked_literals(f, marks)) literals.push_back(b.param(e->out().type()));
  Padder padder(num_lengths);
  Values results = padder.emit(b, f, marks, params, lengths, literals);
  if (!padder.error.why.empty()) return {nullptr, std::move(padder.error)};
  return {b.finish(std::move(results)), {}};
}

}  // namespace sheaf::passes
