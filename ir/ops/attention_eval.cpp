// The reference of attention and its derivatives: row by row, in f64, by the formulas of attention.cpp. A weight of 0
// takes part, as in kernels, but for keys in blocks that are not read.
#include <cmath>
#include <limits>

#include "ir/ops/attention_blocks.h"

namespace sheaf::ir::ops {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

// Elements by what they are about. `at` is the index of one row, [batch.., n, t].
struct Row {
  const Eqn& e;
  std::span<const Literal> in;
  AttentionSizes n;
  Attention a;
  AttentionRoles roles;
  BlockedAttention blocks;
  DimList at;

  Row(const Eqn& equation, std::span<const Literal> operands)
      : e(equation),
        in(operands),
        n(e),
        a(with_near_window(e)),
        roles(a),
        blocks(e, e.operands, AttentionGrid::of(e)),
        at(n.batch.size() + 2) {}

  std::int64_t head() const { return at[at.size() - 2]; }
  std::int64_t time() const { return at[at.size() - 1]; }
  Shape extents() const {
    Shape shape = n.batch;
    shape.insert(shape.end(), {n.heads(), n.queries});
    return shape;
  }
  std::int64_t batch() const { return flatten({at.begin(), at.end() - 2}, strides_of(n.batch)); }
  /// [batch.., T, N, F]
  std::int64_t query(std::int64_t features, std::int64_t f) const {
    return ((batch() * n.queries + time()) * n.heads() + head()) * features + f;
  }
  /// [batch.., S, K, F]
  std::int64_t key(std::int64_t s, std::int64_t features, std::int64_t f) const {
    return ((batch() * n.keys + s) * n.key_heads + head() / n.group) * features + f;
  }
  /// [batch.., N, T]
  std::int64_t sum() const { return flatten(at, strides_of(extents())); }
  /// As bias and mask lie, whose dims of 1 are read for every index.
  std::int64_t score(const Shape& dims, std::int64_t s) const {
    const DimList strides = strides_of(dims);
    std::int64_t position = dims.back() == 1 ? 0 : s;
    for (std::size_t d = 0; d < at.size(); ++d) position += dims[d] == 1 ? 0 : at[d] * strides[d];
    return position;
  }

  /// x[query] . y[key s]
  double product(const Literal& x, const Literal& y, std::int64_t s, std::int64_t features) const {
    double sum = 0;
    for (std::int64_t f = 0; f < features; ++f) sum += x.get(query(features, f)) * y.get(key(s, features, f));
    return sum;
  }
  bool reads(std::int64_t s) const {
    return blocks.meet_somewhere(time() / blocks.grid().rows, s / blocks.grid().columns);
  }
  double scored(std::int64_t s) const {
    if (!meet(a, time(), s)) return kNone;
    if (a.mask && in[roles.mask].bits(score(in[roles.mask].dims(), s)) == 0) return kNone;
    const double bias = a.bias ? in[roles.bias].get(score(in[roles.bias].dims(), s)) : 0;
    return a.scale * product(in[0], in[1], s, n.features) + bias;
  }
  /// By the log of the sum, which the derivatives are given.
  double weight(std::int64_t s) const {
    const double lse = in[roles.lse].get(sum());
    return lse == kNone ? 0 : std::exp(scored(s) - lse);
  }

  template <class F>
  void for_each(F f) {
    if (num_elements(extents()) == 0) return;
    do f();
    while (next_index(at, extents()));
  }
};

// Sums in f64, rounded once.
struct Sums {
  explicit Sums(Literal& to) : out(to), sums(static_cast<std::size_t>(to.size())) {}
  ~Sums() {
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, sums[i]);
  }
  double& operator[](std::int64_t i) { return sums[i]; }
  Literal& out;
  std::vector<double> sums;
};

}  // namespace

void eval_attention(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  Row row(e, in);
  const std::int64_t values = row.n.values;
  Sums mean(out[0]);
  row.for_each([&] {
    std::vector<double> p;
    double top = kNone, total = 0;
    for (std::int64_t s = 0; s < row.n.keys; ++s) {
      p.push_back(row.scored(s));
      top = std::isnan(top) ? top : std::isnan(p[s]) ? p[s] : std::max(top, p[s]);
    }
    out[1].set(row.sum(), kNone);
    if (top == kNone) return;
    for (double& x : p) total += x = std::exp(x - top);
    for (std::int64_t s = 0; s < row.n.keys; ++s) {
      if (!row.reads(s)) continue;
      for (std::int64_t v = 0; v < values; ++v)
        mean[row.query(values, v)] += p[s] / total * in[2].get(row.key(s, values, v));
    }
    out[1].set(row.sum(), top + std::log(total));
  });
}

void eval_attention_tangent(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  Row row(e, in);
  const std::int64_t values = row.n.values;
  const std::span<const Literal> d = in.subspan(row.roles.linear);
  Sums mean(out[0]), total(out[1]);
  row.for_each([&] {
    for (std::int64_t s = 0; s < row.n.keys; ++s) {
      if (!row.reads(s)) continue;
      const double p = row.weight(s);
      double ds =
          row.a.scale * (row.product(d[0], in[1], s, row.n.features) + row.product(in[0], d[1], s, row.n.features));
      if (row.a.derives_bias) ds += d[3].get(row.score(d[3].dims(), s));
      total[row.sum()] += p * ds;
      for (std::int64_t v = 0; v < values; ++v) {
        const std::int64_t at = row.key(s, values, v);
        mean[row.query(values, v)] += p * ds * in[2].get(at) + p * d[2].get(at);
      }
    }
  });
}

void eval_attention_backward(const Eqn& e, std::span<const Literal> in, std::span<Literal> out) {
  Row row(e, in);
  const std::int64_t features = row.n.features, values = row.n.values;
  const Literal &ct = in[row.roles.linear], &ct_sum = in[row.roles.linear + 1];
  Sums query(out[0]), key(out[1]), value(out[2]);
  Literal none;
  Sums bias(row.a.derives_bias ? out[3] : none);
  row.for_each([&] {
    for (std::int64_t s = 0; s < row.n.keys; ++s) {
      if (!row.reads(s)) continue;
      const double p = row.weight(s);
      const double ds = p * (row.product(ct, in[2], s, values) + ct_sum.get(row.sum()));
      if (row.a.derives_bias) bias[row.score(out[3].dims(), s)] += ds;
      for (std::int64_t f = 0; f < features; ++f) {
        query[row.query(features, f)] += row.a.scale * ds * in[1].get(row.key(s, features, f));
        key[row.key(s, features, f)] += row.a.scale * ds * in[0].get(row.query(features, f));
      }
      for (std::int64_t v = 0; v < values; ++v) value[row.key(s, values, v)] += p * ct.get(row.query(values, v));
    }
  });
}

}  // namespace sheaf::ir::ops
