// Every op x every sample x every way to split one of its factors, or two: what the devices compute on their parts is
// what one device computes on the whole, to the bit where no sum is reordered. A new op is covered by being listed.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>

#include "ir/eval.h"
#include "ir/eval_spmd.h"
#include "ir/mesh.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/verify.h"
#include "passes/sharding/choice.h"
#include "passes/sharding/local.h"
#include "tests/passes/parts.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

const Eqn& equation(const Function& f) { return *f.results()[0].eqn(); }

/// The factor, and those that are split as it is.
std::vector<int> with_neighbours(const Factors& f, int factor) {
  std::vector<int> all{factor};
  for (std::size_t i = 0; i < all.size(); ++i)
    for (const auto& [a, b] : f.neighbours)
      for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)})
        if (x == all[i] && std::find(all.begin(), all.end(), y) == all.end()) all.push_back(y);
  return all;
}

/// One axis of the mesh for each factor of `split`, with as many devices as its part.
struct Split {
  int factor = 0;
  std::int64_t ways = 1;
};

Mesh mesh_of(const std::vector<Split>& splits) {
  std::vector<MeshAxis> axes;
  for (std::size_t i = 0; i < splits.size(); ++i)
    axes.push_back({std::string(1, static_cast<char>('a' + i)), splits[i].ways});
  return *Mesh::make(std::move(axes));
}

/// Null: partitioning does not split so.
std::optional<passes::Choice> choice_of(const Eqn& e, const Factors& f, const std::vector<Split>& splits,
                                        const MeshAtoms& mesh) {
  passes::Choice choice{.factors = std::vector<Atoms>(f.factors.size())};
  for (std::size_t i = 0; i < splits.size(); ++i)
    for (const int factor : with_neighbours(f, splits[i].factor)) {
      const std::int64_t ways = splits[i].ways;
      if (!choice.factors[factor].empty() || f.factors[factor].size % ways != 0) return std::nullopt;
      if (!passes::can_split(e, f, factor, ways)) return std::nullopt;
      choice.factors[factor] = mesh.of(std::string(1, static_cast<char>('a' + i)));
    }
  // A minor factor is split behind majors that are split to the last.
  for (const std::vector<TensorFactors>* tensors : {&f.in, &f.out})
    for (const TensorFactors& tensor : *tensors)
      for (const FactorList& dim : tensor)
        for (std::size_t i = 1; i < dim.size(); ++i)
          if (!choice.factors[dim[i]].empty() && mesh.size(choice.factors[dim[i - 1]]) != f.factors[dim[i - 1]].size)
            return std::nullopt;
  return choice;
}

FunctionRef local_program(const Eqn& e, const Factors& f, const passes::Choice& choice, const MeshAtoms& mesh) {
  Builder b;
  Values operands;
  for (int k = 0; k < e.num_in(); ++k)
    operands.push_back(b.param(local_type(e.in(k).type(), mesh, passes::operand_layout(f, choice, k))));
  Values results = passes::emit_local(b, e, f, choice, mesh, std::move(operands));
  for (int j = 0; j < e.num_out(); ++j) {
    const Sharding layout = passes::result_layout(f, choice, j);
    if (!layout.unreduced.empty())
      results[j] = b.emit(ops::all_reduce, {results[j]},
                          ops::AllReduce{.axes = mesh.names(layout.unreduced), .kind = layout.kind});
  }
  return b.finish(std::move(results))->on_mesh(mesh.mesh());
}

/// Parts are combined in another order than elements are.
bool reorders(const Eqn& e, const Factors& f, const passes::Choice& choice) {
  for (std::size_t i = 0; i < f.factors.size(); ++i) {
    const Factor& x = f.factors[i];
    if (choice.factors[i].empty()) continue;
    if (x.cls == FactorClass::R && (x.combine == Combine::sum || x.combine == Combine::prod)) return true;
    if (e.op == &ops::attention || e.op == &ops::cumulative || e.op == &ops::recurrence) return true;
  }
  return false;
}

double tolerance_of(DType t) {
  switch (part_dtype(t)) {
    case DType::f64: return 1e-12;
    case DType::f32: return 1e-5;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

bool agrees(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) == std::isnan(got);
  return got == want || std::abs(got - want) <= tolerance * (1 + std::abs(want));
}

void check_same(const Literal& got, const Literal& want, bool is_exact) {
  REQUIRE(got.type() == want.type());
  if (is_complex(got.dtype())) return check_same(got.as_parts(), want.as_parts(), is_exact);
  const double tolerance = tolerance_of(got.dtype());
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const bool is_nan = is_float(got.dtype()) && std::isnan(got.get(i)) && std::isnan(want.get(i));
    const bool same =
        is_exact || tolerance == 0 ? is_nan || got.bits(i) == want.bits(i) : agrees(got.get(i), want.get(i), tolerance);
    if (!same && ++wrong == 1) CHECK_MESSAGE(same, "element ", i, ": ", got.get(i), " for ", want.get(i));
  }
}

void check_split(const Sample& sample, const Literals& inputs, const Literals& want, const std::vector<Split>& splits,
                 int& count) {
  const Eqn& e = equation(*sample.function);
  const Factors f = *e.op->factors(e);
  const MeshAtoms mesh(mesh_of(splits));
  const std::optional<passes::Choice> choice = choice_of(e, f, splits, mesh);
  if (!choice) return;
  ++count;
  std::string how;
  for (const Split& s : splits) how += fmt::format("factor {} in {} ", s.factor, s.ways);
  INFO(how, " of ", to_string(f));
  const FunctionRef local = local_program(e, f, *choice, mesh);
  REQUIRE(verify(*local).ok());
  std::vector<Sharding> in, out;
  std::vector<Type> types;
  for (int k = 0; k < e.num_in(); ++k) in.push_back(passes::operand_layout(f, *choice, k));
  for (int j = 0; j < e.num_out(); ++j) {
    out.push_back(passes::result_layout(f, *choice, j));
    out.back().unreduced.clear();
    types.push_back(e.out(j).type());
  }
  const std::vector<Literals> results = eval_spmd(local, tests::parts_of(inputs, in, mesh));
  const Literals got = tests::whole_of(results, types, out, mesh);
  const bool is_exact = !reorders(e, f, *choice);
  for (std::size_t j = 0; j < got.size(); ++j) check_same(got[j], want[j], is_exact);
}

}  // namespace

namespace {

/// Every split of one factor of the sample, and of two.
int check_sample(std::string_view text) {
  INFO("sample: ", std::string(text));
  const absl::StatusOr<Sample> sample = parse_sample(text);
  REQUIRE_MESSAGE(sample.ok(), std::string(sample.status().message()));
  const Eqn& e = equation(*sample->function);
  const Literals inputs = random_inputs(*sample, 7);
  const Literals want = eval(*sample->function, inputs);
  const int n = static_cast<int>(e.op->factors(e)->factors.size());
  int count = 0;
  for (int f = 0; f < n; ++f)
    for (const std::int64_t ways : {2, 3, 4}) {
      check_split(*sample, inputs, want, {{f, ways}}, count);
      for (int g = f + 1; g < n; ++g)
        for (const std::int64_t other : {2, 3}) check_split(*sample, inputs, want, {{f, ways}, {g, other}}, count);
    }
  return count;
}

}  // namespace

TEST_CASE("every op on parts of its operands is the op on the whole, by table") {
  int count = 0;
  for (Op op : all_ops()) {
    if (!op->samples || !op->factors) continue;
    for (const std::string_view text : op->samples()) count += check_sample(text);
  }
  CHECK(count > 2000);
}

TEST_CASE("random bits are the same on 1, 2, 4 and 8 devices, however they lie") {
  for (const std::string_view text : {"random_bits u32[2] {shape=[16, 8, 3]}",
                                      "random_bits u32[8, 2] {shape=[8, 16], key_batch=[0], result_batch=[0]}"}) {
    const absl::StatusOr<Sample> sample = parse_sample(text);
    REQUIRE(sample.ok());
    const Literals inputs = random_inputs(*sample, 3);
    const Literals want = eval(*sample->function, inputs);
    int count = 0;
    for (const int f : {0, 1, 2})
      for (const std::int64_t ways : {2, 4, 8}) {
        check_split(*sample, inputs, want, {{f, ways}}, count);
        for (const int g : {0, 1, 2})
          if (g > f && ways < 8) check_split(*sample, inputs, want, {{f, ways}, {g, 8 / ways}}, count);
      }
    CHECK(count >= 8);
  }
}

TEST_CASE("windows, shifts and padding over parts take what they miss from neighbours near and far") {
  const std::string_view samples[] = {
      "slice f32[12, 4] {start=[0, 0], limit=[6, 4], stride=[1, 1]}",
      "slice f32[12, 4] {start=[6, 0], limit=[12, 2], stride=[1, 1]}",
      "slice f32[24] {start=[3], limit=[15], stride=[1]}",
      "slice f32[24] {start=[1], limit=[24], stride=[2]}",
      "slice f32[24] {start=[0], limit=[23], stride=[2]}",
      "slice i32[12] {start=[0], limit=[12], stride=[3]}",
      "pad f32[12], f32[] {low=[1], high=[-1], interior=[0]}",
      "pad f32[12], f32[] {low=[-5], high=[5], interior=[0]}",
      "pad f32[12, 4], f32[] {low=[6, 2], high=[6, 2], interior=[0, 0]}",
      "pad f64[12], f64[] {low=[0], high=[1], interior=[1]}",
      "pad f64[12], f64[] {low=[2], high=[0], interior=[2]}",
      "pad f64[4], f64[] {low=[-1], high=[-1], interior=[4]}",
      "pad f64[12], f64[] {low=[-6], high=[-2], interior=[1]}",
      "concatenate f32[12], f32[12] {dim=[0]}",
      "concatenate f32[2, 4], f32[2, 8], f32[2, 12] {dim=[1]}",
      "concatenate i32[6], i32[6], i32[12] {dim=[0]}",
      "reverse f32[12, 4] {dims=[0, 1]}",
      "cumulative f32[12, 2] {dim=[0]}",
      "cumulative i32[12] {kind=max, dim=[0], reverse=true}",
      "cumulative bf16[12] {kind=prod, dim=[0]}",
      "cumulative f64[12] {kind=logsumexp, dim=[0], reverse=true}",
      "recurrence f64[12, 2], f64[12, 2] {dim=[0]}",
      "recurrence f16[12], f16[12] in (-1, 1) {dim=[0], reverse=true}",
      "sliding_windows f32[14] {dims=[0], sizes=[3], strides=[1], dilations=[1]}",
      "sliding_windows f32[24, 4] {dims=[0], sizes=[2], strides=[2], dilations=[1]}",
      "reduce_window f64[12] {window=[3], strides=[1], low=[1], high=[1], base_dilation=[1], window_dilation=[1]}",
      "reduce_window f32[12] {kind=max, window=[3], strides=[1], low=[2], high=[0], base_dilation=[1], "
      "window_dilation=[1]}",
      "reduce_window f64[12, 4] {window=[2, 2], strides=[2, 2], low=[0, 0], high=[0, 0], base_dilation=[1, 1], "
      "window_dilation=[1, 1]}",
      "reduce_window i32[12] {kind=min, window=[3], strides=[1], low=[2], high=[2], base_dilation=[1], "
      "window_dilation=[2]}",
      "reduce_window f64[12] {window=[2], strides=[1], low=[1], high=[1], base_dilation=[2], window_dilation=[1]}",
      "conv f64[2, 12, 2], f64[3, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[1]}",
      "conv f64[2, 12, 2], f64[7, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], strides=[2], low=[3], "
      "high=[2]}",
      "conv f64[2, 12, 4], f64[3, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[1], groups=2}",
      "conv f64[2, 14, 2], f64[12, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[-1], high=[1]}",
      "conv f64[2, 12, 2], f64[12, 2, 4] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[1]}",
      "conv f64[1, 6, 1], f64[3, 1, 1] {lhs_batch=[0], lhs_feature=[2], lhs_spatial=[1], rhs_feature=[1], "
      "rhs_spatial=[0], rhs_output=[2], out_batch=[0], out_spatial=[1], out_feature=[2], low=[1], high=[2], "
      "lhs_dilation=[2]}"};
  int count = 0;
  for (const std::string_view text : samples) {
    const int splits = check_sample(text);
    CHECK_MESSAGE(splits > 0, std::string(text));
    count += splits;
  }
  CHECK(count > 150);
}

TEST_CASE("places in the whole, over parts: indices, starts and windows of attention") {
  const std::string_view samples[] = {
      "dynamic_update_slice f32[12, 4], f32[4, 2], i32[2] in (-14, 14) {dims=[0, 1], index_dim=[0]}",
      "dynamic_update_slice f32[4, 12], f32[4, 7], i32[4, 1] in (-14, 14) {dims=[1], batch=[0], starts_batch=[0], "
      "index_dim=[1]}",
      "dynamic_update_slice i32[12], i32[1], u8[1] in (0, 14) {dims=[0], index_dim=[0]}",
      "dynamic_slice bool[12, 4], i32[2] in (-14, 14) {dims=[0, 1], sizes=[1, 1], index_dim=[0]}",
      "dynamic_slice f32[12, 4], i64[4, 1] in (-14, 14) {dims=[0], sizes=[1], batch=[1], starts_batch=[0], "
      "index_dim=[1]}",
      "gather f32[12, 4], i32[6, 2] in (-4, 14) {offset_dims=[1], collapsed=[0], start_index_map=[0, 1], index_dim=[1], "
      "slice_sizes=[1, 1]}",
      "gather f32[12, 4], u8[6, 1] in (0, 14) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
      "slice_sizes=[1, 4], mode=fill}",
      "gather c64[12, 4], i64[6, 1] in (-4, 14) {offset_dims=[1], collapsed=[0], start_index_map=[0], index_dim=[1], "
      "slice_sizes=[1, 4], mode=fill}",
      "scatter f64[12, 4], i32[6, 1] in (-4, 14), f64[6, 4] {update_window_dims=[1], inserted=[0], scatter_dims=[0], "
      "index_dim=[1]}",
      "scatter i32[12, 4], i32[6, 2] in (-4, 14), i32[6] {combine=max, inserted=[0, 1], scatter_dims=[0, 1], "
      "index_dim=[1]}",
      "argmax i8[4, 12] in (-2, 2) {dim=[1], dtype=u8}",
      "argmin bool[12] {dim=[0]}",
      "top_k i32[4, 12] in (-2, 2) {dim=[1], k=7}",
      "top_k f32[12] {dim=[0], k=1}",
      "iota {shape=[12, 4], dim=[0], dtype=bf16}",
      "iota {shape=[512], dim=[0], dtype=u8}",
      "random_bits u32[2] {shape=[12, 4, 3]}",
      "random_bits u32[4, 2] {shape=[12, 4], key_batch=[0], result_batch=[1], dtype=u64}",
      "attention f32[2, 12, 4, 3], f32[2, 12, 2, 3], f32[2, 12, 2, 5] {scale=0.5, after=0}",
      "attention f64[12, 2, 3], f64[12, 2, 3], f64[12, 2, 5], f64[1, 12, 12], bool[2, 1, 12] {bias=true, mask=true, "
      "before=3, after=2}",
      "attention bf16[6, 2, 2], bf16[12, 2, 2], bf16[12, 2, 2]",
      "attention_backward f64[4, 2, 1], f64[6, 2, 1], f64[6, 2, 1], f64[1, 4, 1], f64[2, 4], f64[4, 2, 1], f64[2, 4] "
      "{bias=true, derives_bias=true, before=2}"};
  int count = 0;
  for (const std::string_view text : samples) {
    const int splits = check_sample(text);
    CHECK_MESSAGE(splits > 0, std::string(text));
    count += splits;
  }
  CHECK(count > 250);
}
