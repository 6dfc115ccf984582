// Equations of two programs are paired in order; constants where they are used.
#include "passes/lengths.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "passes/inline.h"
#include "passes/transforms.h"

namespace sheaf::passes {

using namespace ir;

FunctionRef plain_for_lengths(const FunctionRef& f) {
  static constexpr Op kWithRules[] = {&ops::conv, &ops::reduce_window, &ops::top_k};  // passes/length_rules.cpp
  return expand_ops_but(inline_calls(f), kWithRules);
}

namespace {

class Marker {
 public:
  Marker(const std::vector<std::int64_t>& own, const std::vector<std::int64_t>& others, bool may_mark,
         std::vector<Extent>& extents)
      : lengths_(own),
        other_lengths_(others),
        may_mark_(may_mark),
        extents_(extents),
        own_(extents_at(extents, own)),
        others_(extents_at(extents, others)) {}

  // Equations are compared in order, but for constants, which are where they are used.
  bool function(const Function& f, const Function& g, LengthMarks& m) {
    if (f.params().size() != g.params().size()) return fail_at({}, "it has other parameters for other lengths");
    m.constants.resize(f.eqns().size() + 1);
    m.trips.resize(f.eqns().size(), -1);
    m.starts.resize(f.eqns().size());
    if (m.regions.empty())
      for (const Eqn* e : f.eqns()) {
        std::vector<LengthMarks>& regions = m.regions.emplace_back();
        for (const FunctionRef& r : e->regions) regions.emplace_back(*r);
      }
    ValueTable<int> ids(f, -1), other_ids(g, -1);
    int next = 0;
    const auto pair = [&](Value x, Value y, Loc loc) {
      ids[x] = other_ids[y] = next++;
      return value(x, y, m, loc);
    };
    const auto is_same = [&](Value x, Value y, ConstantUse use, std::vector<bool>& marks) {
      const Eqn *c = x.eqn(), *o = y.eqn();
      if (!c || !o || c->op != &ops::constant || o->op != &ops::constant) return ids[x] >= 0 && ids[x] == other_ids[y];
      return constant(*c, *o, m, use, marks);
    };
    const auto same = [&](const Values& x, const Values& y, const void* user, std::vector<bool>& marks) {
      marks.resize(x.size());
      bool all = x.size() == y.size();
      for (std::size_t i = 0; all && i < x.size(); ++i) all = is_same(x[i], y[i], {user, i}, marks);
      return all;
    };
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
      const bool is_pair = o && e.op == o->op && same(e.operands, o->operands, &e, m.constants[k]) &&
                           e.regions.size() == o->regions.size();
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
    if (same(f.results(), g.results(), &f, m.constants.back())) return true;
    return !error.why.empty() ? false : fail_at({}, "the program for other lengths has other results");
  }

  OtherConstants constants;
  LengthError error;

 private:
  bool value(Value x, Value y, LengthMarks& m, Loc loc) {
    const Shape &a = x.dims(), &b = y.dims();
    if (x.dtype() != y.dtype() || a.size() != b.size()) return fail_at(loc, "a value is of another dtype or rank");
    std::vector<int>& dims = m.dims[x];
    for (std::size_t d = 0; d < a.size(); ++d)
      if (!goes_along(dims, a.size(), d, a[d], b[d]))
        return fail_at(loc, fmt::format("an extent is {} for a length of {} and {} for {}", a[d],
                                        lengths_text(lengths_), b[d], lengths_text(other_lengths_)));
    return true;
  }

  // Whether what is `a` here and `b` there is what the mark says, or can be marked.
  bool goes_along(int& mark, std::int64_t a, std::int64_t b) {
    if (mark >= 0 ? b == others_[mark] : a == b) return true;
    const std::optional<int> extent = extent_of(mark, a, b);
    if (extent) mark = *extent;
    return extent.has_value();
  }
  bool goes_along(std::vector<int>& marks, std::size_t size, std::size_t i, std::int64_t a, std::int64_t b) {
    int mark = marks.empty() ? -1 : marks[i];
    if (!goes_along(mark, a, b)) return false;
    if (marks.empty() && mark >= 0) marks.resize(size, -1);
    if (mark >= 0) marks[i] = mark;
    return true;
  }

  // The extent that is `a` here and `b` there: what is known of it already, and so many times the length that varies.
  std::optional<int> extent_of(int known, std::int64_t a, std::int64_t b) {
    const auto varies = std::ranges::mismatch(lengths_, other_lengths_).in1 - lengths_.begin();
    if (!may_mark_ || varies == std::ssize(lengths_)) return std::nullopt;
    const auto s = static_cast<std::size_t>(varies);
    const std::int64_t by = other_lengths_[s] - lengths_[s], moved = b - (known < 0 ? a : others_[known]);
    Extent e = known < 0 ? Extent{std::vector<std::int64_t>(lengths_.size()), a} : extents_[known];
    const std::int64_t times = moved / by;
    e.plus -= times * lengths_[s];
    // Two points lie on a line whatever extent it is; that of a square lies far below 0 at length 0.
    if (moved % by != 0 || times <= 0 || e.times[s] != 0 || (times > 1 && e.plus < -times)) return std::nullopt;
    e.times[s] = times;
    const auto at = std::ranges::find(extents_, e) - extents_.begin();
    if (at == std::ssize(extents_)) {
      own_.push_back(e.at(lengths_));
      others_.push_back(e.at(other_lengths_));
      extents_.push_back(std::move(e));
    }
    return static_cast<int>(at);
  }
  bool is_extent(std::int64_t a, std::int64_t b) {
    for (std::size_t s = 0; s < own_.size(); ++s)
      if (own_[s] == a && others_[s] == b) return true;
    return extent_of(-1, a, b).has_value();
  }

  // Where a constant of f is used, and what is there in g.
  bool constant(const Eqn& c, const Eqn& o, LengthMarks& m, ConstantUse use, std::vector<bool>& marks) {
    constants[use] = &o;
    if (!c.op->attrs.equal(c.attributes.get(), o.attributes.get())) marks[use.second] = true;
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
      const bool is_good = goes_along(m.trips[k], a.length, b.length);
      const bool is_same = a.consts == b.consts && a.carry == b.carry && a.reverse == b.reverse;
      return (is_good && is_same) || fail_at(e.loc, fmt::format("its scan takes {} steps for other lengths", b.length));
    }
    if (e.op == &ops::slice) return slice(e.attrs<ops::Slice>(), o.attrs<ops::Slice>(), m.starts[k], e.loc);
    if (e.op == &ops::pad) return pad(e.attrs<ops::Pad>(), o.attrs<ops::Pad>(), m.starts[k], e.loc);
    return attributes(e, o);
  }

  // Where a slice ends, and how much comes behind what is padded, the extents of the result say.
  bool slice(const ops::Slice& a, const ops::Slice& b, std::vector<int>& starts, Loc loc) {
    for (std::size_t d = 0; d < a.start.size(); ++d)
      if (a.stride[d] != b.stride[d] || !goes_along(starts, a.start.size(), d, a.start[d], b.start[d]))
        return fail_at(loc, "slice lies elsewhere for other lengths");
    return true;
  }
  bool pad(const ops::Pad& a, const ops::Pad& b, std::vector<int>& starts, Loc loc) {
    for (std::size_t d = 0; d < a.low.size(); ++d) {
      const bool crops = a.low[d] != b.low[d] && (a.low[d] < 0 || b.low[d] < 0);
      if (crops || a.interior[d] != b.interior[d] || !goes_along(starts, a.low.size(), d, a.low[d], b.low[d]))
        return fail_at(loc, "pad puts its operand elsewhere for other lengths");
    }
    return true;
  }

  // The same, but for extents that go along with a length.
  bool attributes(const Eqn& e, const Eqn& o) {
    const AttrsDef& def = e.op->attrs;
    if (!e.attributes || !o.attributes || def.equal(e.attributes.get(), o.attributes.get())) return true;
    const std::shared_ptr<void> ours = def.clone(e.attributes.get()), theirs = def.clone(o.attributes.get());
    std::vector<std::vector<std::int64_t>*> lists;
    def.visit(ours.get(), [&](const Field& f) {
      if (f.values) lists.push_back(f.values);
    });
    std::size_t next = 0;
    def.visit(theirs.get(), [&](const Field& f) {
      if (!f.values || next >= lists.size()) return;
      std::vector<std::int64_t>& a = *lists[next++];
      if (a.size() != f.values->size()) return;
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (f.neutral == Neutral::size && f.kind == FieldKind::per_dim && is_extent(a[i], (*f.values)[i]))
          a[i] = (*f.values)[i];
      }
    });
    return def.equal(ours.get(), theirs.get()) ||
           fail_at(e.loc,
                   fmt::format("{} depends on the length in another way than having it as an extent", e.op->name));
  }

  static std::string lengths_text(const std::vector<std::int64_t>& lengths) {
    return fmt::format("{}", fmt::join(lengths, " and "));
  }
  bool fail_at(Loc loc, std::string why) {
    error = {std::move(why), loc};
    return false;
  }

  const std::vector<std::int64_t>&lengths_, &other_lengths_;
  const bool may_mark_;  // where the lengths differ in one entry
  std::vector<Extent>& extents_;
  std::vector<std::int64_t> own_, others_;  // per extent
};

}  // namespace

std::int64_t Extent::at(const std::vector<std::int64_t>& lengths) const {
  return std::inner_product(times.begin(), times.end(), lengths.begin(), plus);
}

std::vector<std::int64_t> extents_at(const std::vector<Extent>& extents, const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> all;
  for (const Extent& e : extents) all.push_back(e.at(lengths));
  return all;
}

LengthError mark_lengths(const Function& f, const std::vector<std::int64_t>& own, const Function& other,
                         const std::vector<std::int64_t>& others, bool may_mark, LengthMarks& marks,
                         OtherConstants* constants) {
  for (std::size_t s = marks.extents.size(); s < own.size(); ++s) {
    marks.extents.push_back({std::vector<std::int64_t>(own.size()), 0});
    marks.extents[s].times[s] = 1;
  }
  Marker marker(own, others, may_mark, marks.extents);
  marker.function(f, other, marks);
  if (constants) *constants = std::move(marker.constants);
  return std::move(marker.error);
}

std::vector<MarkedConstant> marked_constants(const Function& f, const LengthMarks& marks) {
  std::vector<MarkedConstant> all;
  const auto add = [&](const void* user, const Values& values, const std::vector<bool>& marked) {
    for (std::size_t i = 0; i < marked.size(); ++i)
      if (marked[i]) all.push_back({{user, i}, values[i].eqn()});
  };
  for (std::size_t k = 0; k < f.eqns().size(); ++k) {
    const Eqn& e = *f.eqns()[k];
    add(&e, e.operands, marks.constants[k]);
    for (std::size_t r = 0; r < e.regions.size(); ++r)
      for (MarkedConstant& c : marked_constants(*e.regions[r], marks.regions[k][r])) all.push_back(std::move(c));
  }
  add(&f, f.results(), marks.constants.back());
  return all;
}

bool has_marked_constants(const LengthMarks& marks) {
  for (const std::vector<bool>& values : marks.constants)
    if (std::ranges::find(values, true) != values.end()) return true;
  for (const std::vector<LengthMarks>& regions : marks.regions)
    if (std::ranges::any_of(regions, has_marked_constants)) return true;
  return false;
}

}  // namespace sheaf::passes
