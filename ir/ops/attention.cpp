// Attention, softmax(q k^T) v, and its two derivatives, which are each other's transposes. None of the three holds all
// scores at once: the log of each row's sum (`lse`) is all that a derivative needs to make the weights of a block
// again, p = exp(score - lse) (Dao et al., arXiv:2205.14135).
//   attention:  out = p v                        tangent:  w = p ds;  sum(w) and w v + p dv,  ds = dq k^T + q dk^T + db
//   backward:   ds = p (ct v^T + ct_sum);  dq = ds k, dk = ds^T q, dv = p^T ct, db = ds
// With sum(w) = d lse the tangent of out is (w v + p dv) - d lse out.
#include "ir/ops/attention.h"

#include <fmt/format.h>

#include "ir/ops/sheet.h"

namespace sheaf::ir::ops {

AttentionSizes::AttentionSizes(Type query, Type key, Type value)
    : batch(query.dims().begin(), query.dims().end() - 3),
      queries(query.dim(query.rank() - 3)),
      keys(key.dim(key.rank() - 3)),
      key_heads(key.dim(key.rank() - 2)),
      group(key_heads == 0 ? 1 : query.dim(query.rank() - 2) / key_heads),
      features(query.dim(query.rank() - 1)),
      values(value.dim(value.rank() - 1)) {}

Attention with_near_window(const Eqn& e) {
  const AttentionSizes n(e);
  const std::int64_t widest = std::max(n.queries, n.keys);
  Attention a = e.attrs<Attention>();
  a.before = std::min(a.before, widest);
  a.after = std::min(a.after, widest);
  return a;
}

absl::Status check_attention_dtypes(Type query, Type key, Type value, Type bias, Type mask) {
  const DType t = query.dtype();
  const bool is_known = t == DType::f16 || t == DType::bf16 || t == DType::f32 || t == DType::f64;
  if (!is_known || key.dtype() != t || value.dtype() != t)
    return absl::InvalidArgumentError(
        fmt::format("query, key and value must be all f16, bf16, f32 or f64, not {}, {} and {}", name(t),
                    name(key.dtype()), name(value.dtype())));
  if (bias && !is_float(bias.dtype()))
    return absl::InvalidArgumentError(fmt::format("bias must be floating point, not {}", name(bias.dtype())));
  if (mask && !is_bool(mask.dtype()))
    return absl::InvalidArgumentError(fmt::format("mask must be bool, not {}", name(mask.dtype())));
  return absl::OkStatus();
}

namespace {

using Named = std::pair<std::string_view, Type>;

absl::Status check_same(const Named& x, int dx, const Named& y, int dy) {
  const std::int64_t m = x.second.dim(dx), n = y.second.dim(dy);
  if (m == n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} dim {} ({}) and {} dim {} ({}) must match", x.first, dx, m, y.first, dy, n));
}

absl::Status check_scores(const Named& x, const Shape& full) {
  const Type t = x.second;
  if (t.rank() != std::ssize(full))
    return absl::InvalidArgumentError(
        fmt::format("{} must have the dims [batch.., heads, queries, keys] of {}, or 1, not {}", x.first,
                    to_string(full), to_string(t.dims())));
  for (int d = 0; d < t.rank(); ++d)
    if (t.dim(d) != 1 && t.dim(d) != full[d])
      return absl::InvalidArgumentError(fmt::format("{} dim {} ({}) must be 1 or {}", x.first, d, t.dim(d), full[d]));
  return absl::OkStatus();
}

Shape score_dims(const AttentionSizes& n) {
  Shape dims = n.batch;
  dims.insert(dims.end(), {n.heads(), n.queries, n.keys});
  return dims;
}

absl::Status check_queries_and_keys(const Named& q, const Named& k, const Named& v) {
  const int rank = q.second.rank();
  for (const Named* x : {&q, &k, &v})
    if (x->second.rank() < 3 || x->second.rank() != rank)
      return absl::InvalidArgumentError(
          "query, key and value must all have dims [batch.., length, heads, features], and as many");
  for (int d = 0; d + 3 < rank; ++d)
    for (const Named* x : {&k, &v})
      if (absl::Status s = check_same(q, d, *x, d); !s.ok()) return s;
  if (absl::Status s = check_same(q, rank - 1, k, rank - 1); !s.ok()) return s;
  for (const int d : {rank - 3, rank - 2})
    if (absl::Status s = check_same(k, d, v, d); !s.ok()) return s;
  const std::int64_t heads = q.second.dim(rank - 2), key_heads = k.second.dim(rank - 2);
  if (key_heads == 0 ? heads == 0 : heads % key_heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("query heads ({}) must be a multiple of key heads ({})", heads, key_heads));
}

}  // namespace

absl::Status check_attention_dims(const Attention& a, Type query, Type key, Type value, Type bias, Type mask) {
  if (absl::Status s = check_queries_and_keys({"query", query}, {"key", key}, {"value", value}); !s.ok()) return s;
  for (const auto& [field, width] : {std::pair("before", a.before), std::pair("after", a.after)})
    if (width < -1) return absl::InvalidArgumentError(fmt::format("{}={} must be at least -1", field, width));
  const Shape scores = score_dims(AttentionSizes(query, key, value));
  for (const Named& x : {Named("bias", bias), Named("mask", mask)})
    if (x.second)
      if (absl::Status s = check_scores(x, scores); !s.ok()) return s;
  return absl::OkStatus();
}

namespace {

enum class Which { attention, tangent, backward };

Which which(const Eqn& e) {
  return e.op == &attention ? Which::attention : e.op == &attention_tangent ? Which::tangent : Which::backward;
}

Type type_at(const Eqn& e, int k) { return k < 0 ? Type() : e.in(k).type(); }

// --- types -----------------------------------------------------------------------------------------------------------

absl::Status check_count(const Eqn& e) {
  const Attention& a = e.attrs<Attention>();
  const AttentionRoles roles(a);
  int count = roles.lse;
  if (which(e) == Which::tangent) count = roles.linear + 3 + a.derives_bias;
  if (which(e) == Which::backward) count = roles.linear + 2;
  if (e.num_in() != count)
    return absl::InvalidArgumentError(fmt::format("takes {} operands, not {}", count, e.num_in()));
  if (a.derives_bias && (!a.bias || which(e) == Which::attention))
    return absl::InvalidArgumentError("derives_bias is for derivatives with a bias");
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DType>> dtypes(const Eqn& e) {
  if (absl::Status s = check_count(e); !s.ok()) return s;
  const Attention& a = e.attrs<Attention>();
  const AttentionRoles roles(a);
  const Type bias = type_at(e, roles.bias);
  const Type query = e.in(0).type();
  if (absl::Status s = check_attention_dtypes(query, e.in(1).type(), e.in(2).type(), bias, type_at(e, roles.mask));
      !s.ok())
    return s;
  const DType t = query.dtype(), wide = accumulator(t);
  if (which(e) == Which::attention) return std::vector<DType>{t, wide};
  std::vector<DType> primals(3, t);
  if (a.derives_bias) primals.push_back(bias.dtype());
  const bool is_tangent = which(e) == Which::tangent;
  std::vector<DType> wanted{wide};
  for (const DType d : is_tangent ? primals : std::vector<DType>(2, wide)) wanted.push_back(d);
  for (int k = roles.lse; k < e.num_in(); ++k)
    if (e.in(k).dtype() != wanted[k - roles.lse])
      return absl::InvalidArgumentError(
          fmt::format("operand {} must be {}, not {}", k, name(wanted[k - roles.lse]), name(e.in(k).dtype())));
  return is_tangent ? std::vector<DType>(2, wide) : primals;
}

// The dims of operands and results, as factors.
struct Rule {
  Factors all;
  TensorFactors query, key, value, result, sums, scores;

  explicit Rule(const Eqn& e) {
    const AttentionSizes n(e);
    const Attention& a = e.attrs<Attention>();
    const bool is_placed = a.before >= 0 || a.after >= 0;
    const Combine keys = which(e) == Which::attention ? Combine::custom : Combine::sum;
    const bool sums_queries = which(e) == Which::backward;
    TensorFactors batch;
    for (const std::int64_t d : n.batch) batch.push_back({all.add(d)});
    const int t = sums_queries ? all.add(n.queries, FactorClass::R, Combine::sum, is_placed)
                               : all.add(n.queries, FactorClass::P, Combine::none, is_placed);
    const int s = all.add(n.keys, FactorClass::R, keys, is_placed);
    const int heads = all.add(n.key_heads);
    const int group = sums_queries ? all.add(n.group, FactorClass::R, Combine::sum) : all.add(n.group);
    const int h = all.add(n.features, FactorClass::N);
    const int v = all.add(n.values, sums_queries ? FactorClass::N : FactorClass::P);
    const auto with = [&](std::initializer_list<FactorList> last) {
      TensorFactors tensor = batch;
      tensor.insert(tensor.end(), last);
      return tensor;
    };
    query = with({{t}, {heads, group}, {h}});
    key = with({{s}, {heads}, {h}});
    value = with({{s}, {heads}, {v}});
    result = with({{t}, {heads, group}, {v}});
    sums = with({{heads, group}, {t}});
    scores = with({{heads, group}, {t}, {s}});
  }

  /// The cotangent of a bias is a sum over what the bias is read for alike.
  void sum_over_missing(Type bias) {
    const Shape full = all.dims(scores);
    for (int d = 0; d < bias.rank(); ++d)
      for (const int f : scores[d])
        if (bias.dim(d) != full[d] && all.factors[f].cls == FactorClass::P)
          all.factors[f] = {.size = all.factors[f].size, .cls = FactorClass::R, .combine = Combine::sum};
  }

  /// A dim of 1 that is read for every index carries none.
  TensorFactors scores_of(Type x) const {
    TensorFactors tensor = scores;
    const Shape full = all.dims(scores);
    for (int d = 0; d < x.rank(); ++d)
      if (x.dim(d) != full[d]) tensor[d] = {};
    return tensor;
  }
};

absl::StatusOr<Factors> factors(const Eqn& e) {
  if (absl::Status s = check_count(e); !s.ok()) return s;
  const Attention& a = e.attrs<Attention>();
  const AttentionRoles roles(a);
  const Type bias = type_at(e, roles.bias), mask = type_at(e, roles.mask);
  if (absl::Status s = check_attention_dims(a, e.in(0).type(), e.in(1).type(), e.in(2).type(), bias, mask); !s.ok())
    return s;
  Rule rule(e);
  if (which(e) == Which::backward && a.derives_bias) rule.sum_over_missing(bias);
  Factors& r = rule.all;
  r.in = {rule.query, rule.key, rule.value};
  if (bias) r.in.push_back(rule.scores_of(bias));
  if (mask) r.in.push_back(rule.scores_of(mask));
  std::vector<TensorFactors> primals{rule.query, rule.key, rule.value}, results{rule.result, rule.sums};
  if (a.derives_bias) primals.push_back(rule.scores_of(bias));
  if (which(e) != Which::attention) {
    r.in.push_back(rule.sums);
    const auto& linear = which(e) == Which::tangent ? primals : results;
    r.in.insert(r.in.end(), linear.begin(), linear.end());
  }
  r.out = which(e) == Which::backward ? primals : results;
  for (int k = roles.lse; k < e.num_in(); ++k)
    if (e.in(k).dims() != r.dims(r.in[k]))
      return absl::InvalidArgumentError(fmt::format("operand {} must have the shape {}, not {}", k,
                                                    to_string(r.dims(r.in[k])), to_string(e.in(k).dims())));
  return r;
}

}  // namespace

Value along_values(Value sums, const Shape& result) {
  const int batch = sums.rank() - 2;
  DimList dims = dim_range(0, batch);
  dims.insert(dims.end(), {batch + 1, batch});
  return broadcast_to(sums, result, dims);
}

namespace {

// --- derivatives -----------------------------------------------------------------------------------------------------

Values attention_jvp(Builder& b, const Eqn& e, const Values& tangents) {
  Attention a = e.attrs<Attention>();
  const AttentionRoles roles(a);
  a.derives_bias = a.bias && tangents[roles.bias];
  Values operands = e.operands;
  operands.push_back(e.out(1));
  for (const int k : {0, 1, 2}) operands.push_back(or_zeros(b, tangents[k], e.in(k).type()));
  if (a.derives_bias) operands.push_back(tangents[roles.bias]);
  const Values t = b.emit_all(&attention_tangent, operands, std::make_shared<const Attention>(a));
  const Value out = convert_to(e.out(0), t[0].dtype());
  return {convert_to(t[0] - along_values(t[1], out.dims()) * out, e.out(0).dtype()), t[1]};
}

// `op` on what e is not linear in and the given cotangents, in the places of what e is linear in.
Values transposed(Builder& b, const OpDef& op, const Eqn& e, const Values& operands, const Values& cts) {
  const std::size_t fixed = AttentionRoles(e.attrs<Attention>()).linear;
  Values all(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(fixed));
  for (int j = 0; j < e.num_out(); ++j) all.push_back(or_zeros(b, cts[j], e.out(j).type()));
  Values in(fixed);
  const Values outs = b.emit_all(&op, std::move(all), e.attributes);
  in.insert(in.end(), outs.begin(), outs.end());
  return in;
}

Values tangent_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  return transposed(b, attention_backward, e, operands, cts);
}
Values backward_transpose(Builder& b, const Eqn& e, const Values& operands, const Values& cts) {
  return transposed(b, attention_tangent, e, operands, cts);
}

Linear linear_operands(const Eqn& e) {
  const int first = AttentionRoles(e.attrs<Attention>()).linear;
  std::uint32_t operands = 0;
  for (int k = first; k < e.num_in(); ++k) operands |= 1u << k;
  return jointly(operands);
}

// --- batching --------------------------------------------------------------------------------------------------------

Value in_front(Value x, int dim) {
  DimList perm = other_dims({dim}, x.rank());
  perm.insert(perm.begin(), dim);
  return permute(x, perm);
}

Value repeated(Value x, std::int64_t size) {
  Shape dims = x.dims();
  dims.insert(dims.begin(), size);
  return broadcast_to(x, dims, dim_range(1, x.rank()));
}

// One batch dim more, in front. A bias or mask of all needs no copies, unless the bias has a derivative, of each.
std::vector<Batched> batch(Builder& b, const Eqn& e, std::span<const Batched> operands, std::int64_t size) {
  const Attention& a = e.attrs<Attention>();
  const AttentionRoles roles(a);
  Values all;
  for (int k = 0; k < e.num_in(); ++k) {
    const Value x = operands[k].value;
    const bool is_shared = k == roles.mask || (k == roles.bias && !a.derives_bias);
    if (operands[k].dim >= 0) all.push_back(in_front(x, operands[k].dim));
    else all.push_back(repeated(x, is_shared ? 1 : size));
  }
  std::vector<Batched> out;
  for (const Value v : b.emit_all(e.op, std::move(all), e.attributes)) out.push_back({v, 0});
  return out;
}

// --- the rest --------------------------------------------------------------------------------------------------------

Cost cost(const Eqn& e) {
  const AttentionSizes n(e);
  double scores = static_cast<double>(n.heads() * n.queries * n.keys);
  for (const std::int64_t d : n.batch) scores *= static_cast<double>(d);
  const double h = static_cast<double>(n.features), v = static_cast<double>(n.values);
  constexpr double kWeight = 8;  // of a score: exp and what goes with it
  const double products = which(e) == Which::attention ? h + v : 3 * h + 2 * v;
  Cost c{.flops = scores * (2 * products + kWeight), .bytes = 0};
  for (Value x : e.operands) c.bytes += static_cast<double>(x.type().bytes());
  for (Value x : e.outs()) c.bytes += static_cast<double>(x.type().bytes());
  return c;
}

}  // namespace

constinit const OpDef attention = {
    .name = "attention",
    .doc =
        "For each query and head the mean of the values, weighted by softmax over keys of scale query . key + bias, and "
        "the log of the sum the weights were divided by. Only keys that the mask and the window let the query meet "
        "count; where there are none, the result is 0 and the log -inf. Query head n reads key head n / (N / K). "
        "Scores, sums and the log are f32 for f16 and bf16, which round once, the result.",
    .num_results = 2,
    .attrs = attrs_of<Attention>(),
    .factors = factors,
    .dtypes = dtypes,
    .jvp = attention_jvp,
    .batch = batch,
    .localize = localize_attention,
    .lower = lower_attention,
    .expand = expand_attention,
    .has_kernel = attention_has_kernel,
    .eval = eval_attention,
    .cost = cost,
    .ulp = 32,
    .samples =
        [] {
          return Samples{
              "attention f64[2, 2, 2], f64[3, 2, 2], f64[3, 2, 3] {scale=0.5}",
              "attention f32[2, 3, 2, 4], f32[2, 5, 1, 4], f32[2, 5, 1, 4] {scale=0.5, after=0}",
              "attention f64[2, 2, 1], f64[3, 1, 1], f64[3, 1, 2], f64[2, 2, 1], bool[1, 1, 3] {bias=true, mask=true}",
              "attention f64[4, 1, 2], f64[4, 1, 2], f64[4, 1, 2] {before=1, after=1}",
              "attention f16[3, 2, 4], f16[3, 2, 4], f16[3, 2, 4], f32[1, 3, 3] {bias=true, after=0}",
              "attention bf16[2, 4, 2], bf16[3, 2, 2], bf16[3, 2, 2], bool[4, 2, 3] {mask=true}",
              "attention f32[0, 2, 2], f32[3, 2, 2], f32[3, 2, 2]",
              "attention f32[3, 2, 2], f32[0, 2, 2], f32[0, 2, 2]",
              "attention f32[2, 0, 2], f32[3, 0, 2], f32[3, 0, 2]",
              "attention f32[2, 1, 0], f32[3, 1, 0], f32[3, 1, 1]"};
        },
};

constinit const OpDef attention_tangent = {
    .name = "attention_tangent",
    .doc =
        "How attention answers to tangents of query, key, value and, if derives_bias, bias: sum(w v + p dv) and sum(w) "
        "over keys, p being the weights exp(score - lse) and w = p d score.",
    .num_results = 2,
    .attrs = attrs_of<Attention>(),
    .factors = factors,
    .dtypes = dtypes,
    .linear_when = linear_operands,
    .jvp = attention_tangent_jvp,
    .transpose = tangent_transpose,
    .batch = batch,
    .localize = localize_attention,
    .expand = expand_attention_tangent,
    .eval = eval_attention_tangent,
    .cost = cost,
    .ulp = 64,
    .samples =
        [] {
          return Samples{
              "attention_tangent f64[2, 2, 1], f64[3, 1, 1], f64[3, 1, 1], f64[2, 2], f64[2, 2, 1], f64[3, 1, 1], "
              "f64[3, 1, 1] {after=0}",
              "attention_tangent f64[2, 1, 2], f64[2, 1, 2], f64[2, 1, 1], f64[1, 2, 1], bool[1, 2, 2], f64[1, 2], "
              "f64[2, 1, 2], f64[2, 1, 2], f64[2, 1, 1], f64[1, 2, 1] {scale=0.5, bias=true, mask=true, "
              "derives_bias=true}",
              "attention_tangent bf16[2, 1, 2], bf16[2, 1, 2], bf16[2, 1, 2], f32[1, 2], bf16[2, 1, 2], bf16[2, 1, 2], "
              "bf16[2, 1, 2]"};
        },
};

constinit const OpDef attention_backward = {
    .name = "attention_backward",
    .doc =
        "The transpose of attention_tangent: from the cotangents of its two results those of query, key, value and, if "
        "derives_bias, bias.",
    .num_results = -1,
    .attrs = attrs_of<Attention>(),
    .factors = factors,
    .dtypes = dtypes,
    .linear_when = linear_operands,
    .jvp = attention_backward_jvp,
    .transpose = backward_transpose,
    .batch = batch,
    .localize = localize_attention,
    .lower = lower_attention,
    .expand = expand_attention_backward,
    .has_kernel = attention_backward_has_kernel,
    .eval = eval_attention_backward,
    .cost = cost,
    .ulp = 64,
    .samples =
        [] {
          return Samples{
              "attention_backward f64[2, 2, 1], f64[3, 1, 1], f64[3, 1, 1], f64[2, 2], f64[2, 2, 1], f64[2, 2] "
              "{after=0}",
              "attention_backward f64[2, 1, 2], f64[2, 1, 2], f64[2, 1, 1], f64[1, 2, 1], bool[1, 2, 2], f64[1, 2], "
              "f64[2, 1, 1], f64[1, 2] {scale=0.5, bias=true, mask=true, derives_bias=true}",
              "attention_backward f16[2, 1, 2], f16[2, 1, 2], f16[2, 1, 2], f32[1, 2], f32[2, 1, 2], f32[1, 2]"};
        },
};

}  // namespace sheaf::ir::ops
