// Attention's kernels on the engine, beside the op's own reference: every operand it may have, ragged and short
// lengths, rows of all widths, in every order of threads and with copies early and late. Weights are rounded to the
// dtype of the operands before they are multiplied, so results are compared by a tolerance of a few of its units.
#include "codegen/kir/attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attention.h"
#include "ir/ops/attrs.h"
#include "tests/emulator/on_engine.h"

using namespace sheaf;
using namespace sheaf::emulator;
using ir::Literal;
using ir::Literals;
namespace ops = ir::ops;

namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  DType dtype = DType::bf16;
  Shape batch = {};
  std::int64_t queries = 1, keys = 1, heads = 1, key_heads = 1, features = 16, values = 16;
  ops::Attention attrs = {.scale = 0.25};
  Shape bias = {}, mask = {};  // [batch.., heads, queries, keys]
  DType bias_dtype = DType::f32;
  bool converts_ct = false;  // a backward reads the cotangent in halves, as it was before a conversion
};

Shape with(Shape dims, std::initializer_list<std::int64_t> last) {
  dims.insert(dims.end(), last);
  return dims;
}

/// Numbers of the dtype around 0; of a mask most are true, and none of the first row.
Literal numbers(DType t, const Shape& dims, unsigned seed) {
  Literal x(ir::Type(t, dims));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const double value = normal(random);
    x.set(i, is_bool(t) ? (i >= dims.back() || dims[dims.size() - 2] == 1) && value < 0.8 : value);
  }
  return x;
}

/// A plan's body, its inputs, and what the reference makes of them.
struct Problem {
  ir::FunctionRef body;
  Literals in, want;
  double tolerance = 0;
};

double unit(DType t) { return t == DType::bf16 ? 0x1p-8 : 0x1p-11; }

Problem forward(const Case& c) {
  ir::Builder b("body");
  Problem p{.body = nullptr, .in = {}, .want = {}, .tolerance = 2 * unit(c.dtype)};
  ir::Values operands;
  const auto add = [&](DType t, const Shape& dims) {
    operands.push_back(b.param(ir::Type(t, dims)));
    p.in.push_back(numbers(t, dims, static_cast<unsigned>(p.in.size())));
  };
  add(c.dtype, with(c.batch, {c.queries, c.heads, c.features}));
  add(c.dtype, with(c.batch, {c.keys, c.key_heads, c.features}));
  add(c.dtype, with(c.batch, {c.keys, c.key_heads, c.values}));
  if (!c.bias.empty()) add(c.bias_dtype, c.bias);
  if (!c.mask.empty()) add(DType::bool_, c.mask);
  ops::Attention attrs = c.attrs;
  attrs.bias = !c.bias.empty();
  attrs.mask = !c.mask.empty();
  attrs.derives_bias = false;
  p.body = b.finish(b.emit_all(&ops::attention, operands, std::make_shared<const ops::Attention>(attrs)));
  p.want = ir::eval(*p.body, p.in);
  return p;
}

/// Its cotangents may be of any size: the reference is of the same numbers.
Problem backward(const Case& c) {
  const Problem of = forward(c);
  ir::Builder b("body");
  Problem p{.body = nullptr, .in = of.in, .want = {}, .tolerance = 4 * unit(c.dtype)};
  p.in.push_back(of.want[1]);
  Literal ct = numbers(c.dtype, of.want[0].dims(), 100), wide(ir::Type(DType::f32, ct.dims()));
  for (std::int64_t i = 0; i < ct.size(); ++i) wide.set(i, ct.get(i));
  p.in.push_back(c.converts_ct ? ct : wide);
  p.in.push_back(numbers(DType::f32, of.want[1].dims(), 101));
  ir::Values operands;
  for (const Literal& x : p.in) operands.push_back(b.param(x.type()));
  if (c.converts_ct) {
    ir::Value& given = operands[operands.size() - 2];
    given = b.emit(ops::convert, {given}, ops::Convert{.to = DType::f32});
  }
  ops::Attention attrs = of.body->eqns()[0]->attrs<ops::Attention>();
  attrs.derives_bias = c.attrs.derives_bias;
  p.body = b.finish(b.emit_all(&ops::attention_backward, operands, std::make_shared<const ops::Attention>(attrs)));
  p.want = ir::eval(*p.body, p.in);
  return p;
}

/// The kernels of all problems as one text.
class Batch {
 public:
  explicit Batch(std::vector<Problem> problems) : problems_(std::move(problems)) {
    std::string functions;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const ir::Eqn& e = *problems_[i].body->eqns().back();
      REQUIRE(e.op->has_kernel(e, ir::Target{"sm_80"}));
      kernels_.push_back(kir::attention_kernel(*problems_[i].body));
      texts_.push_back(codegen::emit_cuda(kernels_[i], "k" + std::to_string(i), ir::Target{"sm_80"}));
      functions += texts_[i].functions;
    }
    text_ = std::make_unique<Text>(functions);
  }

  /// The results of problem i; the counters of all its launches are added to `counters`.
  Literals run(std::size_t i, const Policy& policy, Counters* counters = nullptr) const {
    const kir::Kernel& kernel = kernels_[i];
    const Problem& p = problems_[i];
    Buffers buffers;
    std::vector<std::byte*> at;
    for (std::size_t k = 0; k < kernel.params.size(); ++k) {
      const kir::Param& param = kernel.params[k];
      const std::string name = "p" + std::to_string(k);
      if (k < p.in.size())
        at.push_back(buffers.add(name, std::vector<std::byte>(p.in[k].data(), p.in[k].data() + p.in[k].bytes())));
      else at.push_back(buffers.add_unwritten<std::byte>(name, param.count * size_bytes(param.dtype)));
    }
    for (const codegen::CudaLaunch& l : texts_[i].launches) {
      const auto ran = emulator::run(text_->kernel(l.entry),
                                     {.grid = {static_cast<unsigned>(l.blocks)},
                                      .block = {static_cast<unsigned>(l.threads)},
                                      .dynamic_shared_bytes = l.dynamic_shared_bytes},
                                     buffers.params().data(), buffers.allocations, policy);
      REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
      if (counters) add(*counters, *ran);
    }
    Literals results;
    for (std::size_t j = 0; j < p.want.size(); ++j) {
      results.emplace_back(p.want[j].type());
      std::memcpy(results[j].data(), at[p.in.size() + j], results[j].bytes());
    }
    return results;
  }

  void check(std::size_t i, const Literals& got) const {
    const Problem& p = problems_[i];
    for (std::size_t j = 0; j < got.size(); ++j) {
      CAPTURE(j);
      double largest = 1e-3, worst = 0;
      bool is_same_kind = true;
      for (std::int64_t e = 0; e < got[j].size(); ++e)
        if (std::isfinite(p.want[j].get(e))) largest = std::max(largest, std::abs(p.want[j].get(e)));
      for (std::int64_t e = 0; e < got[j].size(); ++e) {
        const double g = got[j].get(e), w = p.want[j].get(e);
        if (std::isfinite(w) && std::isfinite(g)) worst = std::max(worst, std::abs(g - w));
        else is_same_kind &= g == w || (std::isnan(g) && std::isnan(w));
      }
      CHECK(is_same_kind);
      CHECK(worst <= p.tolerance * largest);
    }
  }

  std::size_t size() const { return problems_.size(); }

 private:
  static void add(Counters& to, const Counters& c) {
    to.sectors_read += c.sectors_read;
    to.ideal_sectors_read += c.ideal_sectors_read;
    to.sectors_written += c.sectors_written;
    to.ideal_sectors_written += c.ideal_sectors_written;
    to.shared_wavefronts += c.shared_wavefronts;
    to.ideal_shared_wavefronts += c.ideal_shared_wavefronts;
  }

  std::vector<Problem> problems_;
  std::vector<kir::Kernel> kernels_;
  std::vector<codegen::CudaText> texts_;
  std::unique_ptr<Text> text_;
};

/// Of all problems: near the reference, and the same bits under every policy.
void check_all(const std::vector<Case>& cases, Problem (*make)(const Case&)) {
  std::vector<Problem> problems;
  for (const Case& c : cases) problems.push_back(make(c));
  const Batch batch(std::move(problems));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    CAPTURE(cases[i].name);
    const Literals first = batch.run(i, {});
    batch.check(i, first);
    if (cases[i].queries * cases[i].keys > 20000) continue;
    for (const Policy& policy : all_policies()) CHECK(batch.run(i, policy) == first);
  }
}

std::vector<Case> widths() {
  std::vector<Case> all;
  for (const auto& [features, values] : std::vector<std::pair<int, int>>{
           {8, 8}, {16, 32}, {48, 40}, {64, 64}, {96, 72}, {80, 128}, {128, 64}, {192, 16}, {256, 256}})
    all.push_back({.name = std::to_string(features) + " features, " + std::to_string(values) + " values",
                   .dtype = features % 64 ? DType::f16 : DType::bf16,
                   .queries = 70,
                   .keys = 75,
                   .features = features,
                   .values = values,
                   .attrs = {.scale = 0.125},
                   .converts_ct = values % 64 == 0});
  return all;
}

std::vector<Case> operands() {
  return {
      {.name = "one query and key", .features = 16, .values = 16},
      {.name = "causal, grouped heads, several tiles",
       .batch = {2},
       .queries = 150,
       .keys = 150,
       .heads = 4,
       .key_heads = 2,
       .features = 32,
       .values = 32,
       .attrs = {.scale = 0.2, .after = 0}},
      {.name = "a window, more keys than queries",
       .dtype = DType::f16,
       .queries = 90,
       .keys = 190,
       .attrs = {.scale = 0.25, .before = 20, .after = 100}},
      {.name = "late queries meet no key",
       .queries = 140,
       .keys = 40,
       .heads = 2,
       .attrs = {.scale = 0.25, .before = 5, .after = 3}},
      {.name = "a mask of keys for each example",
       .batch = {3},
       .queries = 40,
       .keys = 70,
       .heads = 2,
       .key_heads = 1,
       .mask = {3, 1, 1, 70}},
      {.name = "a mask that lets the first query of the first head meet none",
       .dtype = DType::f16,
       .queries = 30,
       .keys = 33,
       .heads = 2,
       .key_heads = 2,
       .mask = {2, 30, 33}},
      {.name = "a bias of all examples, a mask of some, causal",
       .batch = {2, 2},
       .queries = 35,
       .keys = 70,
       .heads = 2,
       .key_heads = 2,
       .attrs = {.scale = 0.25, .after = 10},
       .bias = {1, 1, 2, 35, 70},
       .mask = {2, 1, 1, 35, 70}},
      {.name = "a bias of halves for each key",
       .dtype = DType::f16,
       .queries = 20,
       .keys = 40,
       .bias = {1, 1, 40},
       .bias_dtype = DType::bf16},
      {.name = "one query of each head, heads in groups",
       .batch = {2},
       .keys = 100,
       .heads = 10,
       .key_heads = 2,
       .bias = {1, 10, 1, 100},
       .mask = {2, 1, 1, 100}},
      {.name = "one query of each head that meets some keys",
       .keys = 20,
       .heads = 4,
       .key_heads = 2,
       .attrs = {.scale = 0.25, .after = 8}},
      {.name = "a negative scale", .queries = 20, .keys = 20, .attrs = {.scale = -0.5, .after = 0}},
      {.name = "a scale of zero", .queries = 20, .keys = 20, .attrs = {.scale = 0, .after = 0}},
      {.name = "a scale that is zero in f32", .queries = 20, .keys = 20, .attrs = {.scale = 1e-50, .after = 0}},
  };
}

}  // namespace

TEST_CASE("attention of every width is the reference's, within the units of its dtype") {
  check_all(widths(), forward);
}

TEST_CASE("attention with every operand is the reference's, within the units of its dtype") {
  check_all(operands(), forward);
}

TEST_CASE("attention of few queries over parts of many keys is the reference's") {
  const std::vector<Case> cases = {{.name = "one query of each head",
                                    .batch = {2},
                                    .keys = 1100,
                                    .heads = 4,
                                    .key_heads = 2,
                                    .features = 64,
                                    .values = 64,
                                    .mask = {2, 1, 1, 1100}},
                                   {.name = "a window that leaves a part out",
                                    .queries = 10,
                                    .keys = 1500,
                                    .features = 16,
                                    .values = 24,
                                    .attrs = {.scale = 0.25, .before = 5, .after = 600}}};
  check_all(cases, forward);
  CHECK(kir::attention_kernel(*forward(cases[0]).body).attention->parts == 3);
}

TEST_CASE("attention's gradients of every width are the reference's, within the units of their dtype") {
  check_all(widths(), backward);
}

TEST_CASE("attention's gradients with every operand are the reference's, within the units of their dtype") {
  check_all(operands(), backward);
}

TEST_CASE("the gradient of a bias is the reference's, summed over examples and heads that share it") {
  std::vector<Case> cases;
  for (const Shape& bias :
       std::vector<Shape>{{2, 3, 4, 40, 70}, {1, 3, 4, 40, 70}, {2, 1, 1, 40, 70}, {1, 1, 1, 40, 70}})
    cases.push_back(
        {.name = "f32", .batch = {2, 3}, .queries = 40, .keys = 70, .heads = 4, .key_heads = 2, .bias = bias});
  cases.push_back({.name = "f16, wide, one query",
                   .dtype = DType::f16,
                   .keys = 70,
                   .heads = 4,
                   .key_heads = 2,
                   .features = 256,
                   .values = 200,
                   .bias = {1, 1, 70},
                   .bias_dtype = DType::f16});
  cases.push_back(
      {.name = "causal", .queries = 150, .keys = 150, .attrs = {.scale = 0.25, .after = 0}, .bias = {1, 150, 150}});
  for (Case& c : cases) c.attrs.derives_bias = true;
  check_all(cases, backward);
}

TEST_CASE("the gradient of a bias that is read for several keys has no kernel") {
  Case c{.name = "", .queries = 8, .keys = 8, .bias = {1, 8, 1}};
  const auto has_kernel = [&] {
    const Problem p = backward(c);
    const ir::Eqn& e = *p.body->eqns()[0];
    return e.op->has_kernel(e, ir::Target{"sm_90a"});
  };
  CHECK(has_kernel());
  c.attrs.derives_bias = true;
  CHECK_FALSE(has_kernel());
  c.bias = {1, 8, 8};
  CHECK(has_kernel());
}

TEST_CASE("attention keeps weights of scores beyond the dtype, infinite ones and NaN as the reference does") {
  Case c{.name = "special", .dtype = DType::f16, .queries = 5, .keys = 9, .bias = {1, 5, 9}};
  Problem p = forward(c);
  for (std::int64_t i = 0; i < p.in[0].size(); ++i) p.in[0].set(i, 200);
  for (std::int64_t i = 0; i < p.in[1].size(); ++i) p.in[1].set(i, i < 16 ? 200 : -200);
  const double special[] = {0, kNone, -kNone, std::nan(""), 1e30};
  for (int row = 0; row < 5; ++row)
    for (int key = 0; key < 9; ++key) p.in[3].set(row * 9 + key, row == 1 || key == 4 ? special[row] : 0);
  p.want = ir::eval(*p.body, p.in);
  const Batch batch({p});
  batch.check(0, batch.run(0, {}));
}

TEST_CASE("attention moves the sectors it needs and meets no bank twice") {
  std::vector<Problem> problems;
  for (const int features : {16, 48, 64, 80, 128, 256})
    for (const bool is_backward : {false, true})
      problems.push_back((is_backward ? backward : forward)({.name = "",
                                                             .queries = 128,
                                                             .keys = 96,
                                                             .heads = 1,
                                                             .key_heads = 1,
                                                             .features = features,
                                                             .values = features,
                                                             .attrs = {.scale = 0.1}}));
  const Batch batch(std::move(problems));
  for (std::size_t i = 0; i < batch.size(); ++i) {
    CAPTURE(i);
    Counters c;
    batch.run(i, {.counts_accesses = true}, &c);
    CHECK(c.sectors_read == c.ideal_sectors_read);
    CHECK(c.sectors_written == c.ideal_sectors_written);
    CHECK(c.shared_wavefronts == c.ideal_shared_wavefronts);
    CHECK(c.shared_wavefronts > 0);
  }
}

TEST_CASE("a target without tensor cores, other dtypes and rows that cannot be copied have no kernel of attention") {
  const auto has_kernel = [](const Case& c, const char* target) {
    const Problem p = forward(c);
    const ir::Eqn& e = *p.body->eqns()[0];
    return e.op->has_kernel(e, ir::Target{target});
  };
  CHECK(has_kernel({.name = ""}, "sm_80"));
  CHECK(has_kernel({.name = ""}, "sm_120a"));
  CHECK_FALSE(has_kernel({.name = ""}, "sm_75"));
  CHECK_FALSE(has_kernel({.name = ""}, ""));
  CHECK_FALSE(has_kernel({.name = "", .dtype = DType::f32}, "sm_80"));
  CHECK_FALSE(has_kernel({.name = "", .features = 12}, "sm_80"));
  CHECK_FALSE(has_kernel({.name = "", .values = 264}, "sm_80"));
  CHECK_FALSE(has_kernel({.name = "", .bias = {1, 1, 1}, .bias_dtype = DType::f64}, "sm_80"));
}

TEST_CASE("the places of scores are of 64 bits where there are more than 2^31") {
  const auto has = [](std::int64_t length, const std::string& words) {
    ir::Builder b("body");
    const ir::Type row(DType::bf16, {length, 1, 16});
    const ir::Values in{b.param(row), b.param(row), b.param(row), b.param(ir::Type(DType::bool_, {1, length, length}))};
    const auto body =
        b.finish(b.emit_all(&ops::attention, in, std::make_shared<const ops::Attention>(ops::Attention{.mask = true})));
    return codegen::emit_cuda(kir::attention_kernel(*body), "k", ir::Target{"sm_80"}).functions.find(words) !=
           std::string::npos;
  };
  CHECK(has(40000, "mask[query * 40000 + key * 1]"));
  CHECK(has(50000, "mask[query * 50000ll + key * 1]"));
}
