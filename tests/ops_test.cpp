// Every op x every sample, by table: what a data sheet claims is held against the reference interpreter, finite
// differences and loops. A new op is covered by being listed in ops.def.
#include <doctest/doctest.h>

#include <cmath>

#include "ir/builder.h"
#include "ir/eval.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "ir/sample.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/regions.h"
#include "passes/transforms.h"

using namespace sheaf;
using namespace sheaf::ir;
using passes::Mask;

namespace {

template <class F>
void for_each_sample(F f) {
  for (Op op : all_ops()) {
    if (!op->samples) continue;
    for (std::string_view text : op->samples()) {
      INFO("sample: ", std::string(text));
      const auto sample = parse_sample(text);
      REQUIRE_MESSAGE(sample.ok(), std::string(sample.status().message()));
      f(*op, *sample);
    }
  }
}

const Eqn& equation(const Sample& s) { return *s.function->results()[0].eqn(); }

// Derivatives of complex numbers are held against those of their parts in tests/ir/complex_test.cpp.
bool is_f64(const Function& f) {
  for (Value v : f.params())
    if (is_differentiable(v.dtype()) && v.dtype() != f64) return false;
  for (Value v : f.results())
    if (is_differentiable(v.dtype()) && v.dtype() != f64) return false;
  return true;
}

Mask differentiable(const Values& values) {
  Mask m;
  for (Value v : values) m.push_back(is_differentiable(v.dtype()));
  return m;
}

bool any(const Mask& m) { return std::find(m.begin(), m.end(), true) != m.end(); }

Literals directions(const Function& f, std::uint64_t seed) {
  Literals d = random_inputs(f, seed);
  Literals out;
  for (std::size_t i = 0; i < d.size(); ++i)
    if (is_differentiable(f.params()[i].dtype())) out.push_back(d[i]);
  return out;
}

Literals concat(Literals a, const Literals& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

double dot(const Literal& a, const Literal& b) {
  double s = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) s += a.get(i) * b.get(i);
  return s;
}

// f along x + h d, its differentiable results only.
Literals shifted(const Function& f, const Literals& x, const Literals& d, double h) {
  Literals y = x;
  std::size_t k = 0;
  for (Literal& v : y) {
    if (!is_differentiable(v.dtype())) continue;
    for (std::int64_t i = 0; i < v.size(); ++i) v.set(i, v.get(i) + h * d[k].get(i));
    ++k;
  }
  Literals out;
  for (Literal& r : ir::eval(f, y))
    if (is_differentiable(r.dtype())) out.push_back(r);
  return out;
}

void check_close(const Literal& got, const Literal& want, double tolerance) {
  REQUIRE(got.type() == want.type());
  for (std::int64_t i = 0; i < got.size(); ++i) {
    const double g = got.get(i), w = want.get(i);
    if (std::isnan(w)) continue;  // a constant fill of NaN has no difference to compare with
    CHECK_MESSAGE(std::abs(g - w) <= tolerance * (1 + std::abs(w)), "element ", i, ": ", g, " for ", w);
  }
}

void check_same(const Literal& got, const Literal& want) {
  REQUIRE(got.type() == want.type());
  if (is_complex(got.dtype())) return check_same(got.as_parts(), want.as_parts());
  for (std::int64_t i = 0; i < got.size(); ++i) {
    if (is_float(got.dtype()) && std::isnan(got.get(i)) && std::isnan(want.get(i))) continue;
    CHECK_MESSAGE(got.bits(i) == want.bits(i), "element ", i, ": ", got.get(i), " for ", want.get(i));
  }
}

// Forward derivative against central differences, reverse against forward: <ct, J d> = <J' ct, d>.
void check_derivative(const FunctionRef& f, const Literals& x, double tolerance) {
  const Mask wrt = differentiable(f->params()), out = differentiable(f->results());
  if (!any(wrt) || !any(out)) return;
  const Literals d = directions(*f, 11);
  const passes::Jvp forward = passes::jvp(f, wrt, out);
  REQUIRE(verify(*forward.function).ok());
  Literals tangents = ir::eval(*forward.function, concat(x, d));
  tangents.erase(tangents.begin(), tangents.begin() + static_cast<std::ptrdiff_t>(f->results().size()));

  constexpr double h = 1e-6;
  const Literals plus = shifted(*f, x, d, h), minus = shifted(*f, x, d, -h);
  REQUIRE(tangents.size() == plus.size());
  for (std::size_t j = 0; j < plus.size(); ++j) {
    Literal difference(plus[j].type());
    for (std::int64_t i = 0; i < difference.size(); ++i)
      difference.set(i, (plus[j].get(i) - minus[j].get(i)) / (2 * h));
    check_close(tangents[j], difference, tolerance);
  }

  const passes::Vjp reverse = passes::vjp(f, wrt);
  REQUIRE(verify(*reverse.forward).ok());
  REQUIRE(verify(*reverse.backward).ok());
  Literals residuals = ir::eval(*reverse.forward, x);
  residuals.erase(residuals.begin(), residuals.begin() + static_cast<std::ptrdiff_t>(f->results().size()));
  Literals cts;
  for (std::size_t j = 0; j < plus.size(); ++j) {
    Literal ct(plus[j].type());
    for (std::int64_t i = 0; i < ct.size(); ++i)
      ct.set(i, std::sin(1.0 + 3.0 * static_cast<double>(i) + static_cast<double>(j)));
    cts.push_back(ct);
  }
  const Literals gradients = ir::eval(*reverse.backward, concat(residuals, cts));
  REQUIRE(gradients.size() == d.size());
  double left = 0, right = 0, scale = 1;
  for (std::size_t j = 0; j < cts.size(); ++j) left += dot(cts[j], tangents[j]);
  for (std::size_t k = 0; k < d.size(); ++k) {
    REQUIRE(gradients[k].type() == d[k].type());
    right += dot(gradients[k], d[k]);
    scale += std::sqrt(dot(gradients[k], gradients[k]) * dot(d[k], d[k]));
  }
  CHECK(std::abs(left - right) <= 1e-10 * scale);
}

// The gradient of sum(sin-weighted results) as a function, for second order.
FunctionRef scalar_of(const FunctionRef& f) {
  Builder b("scalar");
  Values params;
  for (Value p : f->params()) params.push_back(b.param(p.type()));
  const Values outs = b.emit_all(&ops::call, params, nullptr, {f});
  Value sum;
  for (Value v : outs) {
    if (v.dtype() != f64) continue;
    const Value n = b.emit(ops::iota, {}, ops::Iota{.shape = {v.type().num_elements()}, .dim = {0}, .dtype = f64});
    const Value weights = b.emit(ops::reshape, {b.emit(ops::cos, {n})}, ops::Reshape{.shape = v.dims()});
    ops::Reduce all;
    for (int d = 0; d < v.rank(); ++d) all.dims.push_back(d);
    const Value part = b.emit(ops::reduce, {b.emit(ops::mul, {v, weights})}, all);
    sum = sum ? sum + part : part;
  }
  return b.finish({sum});
}

Literal slice_of(const Literal& x, int dim, std::int64_t at) {
  Shape dims = x.dims();
  dims.erase(dims.begin() + dim);
  Literal out(Type(x.dtype(), dims));
  const auto strides = strides_of(x.dims());
  std::vector<std::int64_t> i(dims.size());
  std::int64_t to = 0;
  if (out.size() > 0) do {
      auto j = i;
      j.insert(j.begin() + dim, at);
      out.copy(to++, x, flatten(j, strides));
    } while (next_index(i, dims));
  return out;
}

// Stacks `size` random variants of the chosen inputs at the given dims.
Literal stacked(const Sample& s, int k, int dim, std::int64_t size, std::uint64_t seed) {
  Shape dims = s.function->params()[k].dims();
  dims.insert(dims.begin() + dim, size);
  Literal out(Type(s.function->params()[k].dtype(), dims));
  const auto strides = strides_of(dims);
  for (std::int64_t b = 0; b < size; ++b) {
    const Literal one = random_inputs(s, seed + static_cast<std::uint64_t>(b))[k];
    std::vector<std::int64_t> i(one.dims().size());
    std::int64_t from = 0;
    if (one.size() > 0) do {
        auto j = i;
        j.insert(j.begin() + dim, b);
        out.copy(flatten(j, strides), one, from++);
      } while (next_index(i, one.dims()));
  }
  return out;
}

void check_batched(const Sample& s, const std::vector<int>& dims, std::int64_t size) {
  const int n = static_cast<int>(dims.size());
  Literals in = random_inputs(s, 21);
  for (int k = 0; k < n; ++k)
    if (dims[k] >= 0) in[k] = stacked(s, k, dims[k], size, 31 + static_cast<std::uint64_t>(k));
  const passes::Batch b = passes::batch(s.function, dims, size);
  REQUIRE(verify(*b.function).ok());
  const Literals out = ir::eval(*b.function, in);
  for (std::int64_t i = 0; i < size; ++i) {
    Literals one = in;
    for (int k = 0; k < n; ++k)
      if (dims[k] >= 0) one[k] = slice_of(in[k], dims[k], i);
    const Literals want = ir::eval(*s.function, one);
    for (std::size_t j = 0; j < want.size(); ++j)
      check_same(b.out_dims[j] < 0 ? out[j] : slice_of(out[j], b.out_dims[j], i), want[j]);
  }
}

}  // namespace

TEST_CASE(
    "every op has a sheet: doc, reference, factors or inference, samples, and a derivative or a reason for none") {
  for (Op op : all_ops()) {
    INFO("op: ", std::string(op->name));
    CHECK(find_op(op->name) == op);
    CHECK_FALSE(op->doc.empty());
    CHECK(bool(op->factors || op->infer));
    const bool is_on_parts_alone = !op->lower && !op->expand;  // complex numbers are gone before kernels are made
    CHECK((is_on_parts_alone ? bool(op->on_parts) : bool(op->lower) != bool(op->expand) || op->has_kernel));
    CHECK((op->no_jvp == Absent::by_region) == (passes::region_rules(op) != nullptr));
    if (op == &ops::custom_linear) continue;  // known by its transpose alone; passes give it a value
    CHECK(bool(op->eval));
    if (op->no_jvp == Absent::by_region || op->no_jvp == Absent::plan_only) continue;
    CHECK(bool(op->samples));
    const bool linear = op->linear.kind != Linear::Kind::none || op->linear_when;
    CHECK(bool(op->jvp || linear || op->no_jvp != Absent::none));
    if (linear) CHECK(bool(op->transpose));
  }
}

TEST_CASE("an op that takes floats has samples in f16 and bf16, or refuses them") {
  for (Op op : all_ops()) {
    if (!op->samples || op == &ops::custom_linear) continue;
    std::vector<DType> seen;
    std::vector<Sample> samples;
    for (std::string_view text : op->samples()) {
      samples.push_back(*parse_sample(text));
      const Function& f = *samples.back().function;
      for (const Type t : f.param_types()) seen.push_back(t.dtype());
      for (const Type t : f.result_types()) seen.push_back(t.dtype());
    }
    const auto has = [&](DType t) { return std::find(seen.begin(), seen.end(), t) != seen.end(); };
    const auto refuses = [&](DType narrow) {
      for (const Sample& s : samples) {
        Builder b;
        Values params;
        bool has_floats = false;
        for (Value p : s.function->params()) {
          has_floats |= is_float(p.dtype());
          params.push_back(b.param(is_float(p.dtype()) ? p.type().with_dtype(narrow) : p.type()));
        }
        if (has_floats && b.try_emit(op, params, equation(s).attributes).ok()) return false;
      }
      return true;
    };
    INFO("op: ", std::string(op->name));
    if (has(f32) || has(f64))
      for (DType t : {f16, bf16}) CHECK((has(t) || refuses(t)));
  }
}

TEST_CASE("inferred types are those of the reference's results") {
  for_each_sample([](const OpDef&, const Sample& s) {
    const Literals out = ir::eval(*s.function, random_inputs(s, 1));
    for (std::size_t j = 0; j < out.size(); ++j) CHECK(out[j].type() == s.function->results()[j].type());
    CHECK(verify(*s.function).ok());
  });
}

TEST_CASE("text of every sample reads back as itself") {
  for_each_sample([](const OpDef&, const Sample& s) {
    const std::string text = print(s.function);
    const auto module = parse(text);
    REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
    CHECK(print(*module) == text);
    CHECK(canonical_text(module->functions[0]) == canonical_text(s.function));
  });
}

TEST_CASE("the factor rule gives each operand's and result's dims") {
  for_each_sample([](const OpDef& op, const Sample& s) {
    if (!op.factors) return;
    const Eqn& e = equation(s);
    const auto f = op.factors(e);
    REQUIRE(f.ok());
    for (int k = 0; k < e.num_in(); ++k) CHECK(f->dims(f->in[k]) == e.in(k).dims());
    for (int j = 0; j < e.num_out(); ++j) CHECK(f->dims(f->out[j]) == e.out(j).dims());
  });
}

TEST_CASE("f64 derivatives agree with differences, and reverse with forward") {
  for_each_sample([](const OpDef& op, const Sample& s) {
    if (op.no_jvp == Absent::by_definition) return;  // stop_gradient: there to differ from the difference
    if (is_f64(*s.function)) check_derivative(s.function, random_inputs(s, 5), 2e-7);
  });
}

TEST_CASE("second derivatives agree with differences of first ones") {
  for_each_sample([](const OpDef& op, const Sample& s) {
    const Mask wrt = differentiable(s.function->params());
    if (!is_f64(*s.function) || !any(wrt) || !any(differentiable(s.function->results()))) return;
    if (!op.jvp && op.linear.kind == Linear::Kind::none && !op.linear_when) return;
    const FunctionRef g = passes::value_and_grad(scalar_of(s.function), wrt);
    check_derivative(g, random_inputs(s, 6), 2e-5);
  });
}

TEST_CASE("every derivative of every sample exists and has the primal's types, whatever the dtype") {
  for_each_sample([](const OpDef&, const Sample& s) {
    const Mask wrt = differentiable(s.function->params());
    if (!any(wrt)) return;
    const passes::Vjp v = passes::vjp(s.function, wrt);
    CHECK(verify(*v.forward).ok());
    CHECK(verify(*v.backward).ok());
    std::size_t k = 0;
    for (std::size_t i = 0; i < wrt.size(); ++i)
      if (wrt[i]) CHECK(v.backward->results()[k++].type() == s.function->params()[i].type());
  });
}

TEST_CASE("a batched op equals a loop over the batch, for every set of operands and every axis") {
  constexpr std::int64_t kMost = 1024;  // of sets and axes; where there are more, evenly many axes of each set
  for_each_sample([](const OpDef& op, const Sample& s) {
    const int n = static_cast<int>(s.function->params().size());
    for (std::int64_t size : {1, 2, 3}) {
      for (unsigned set = 1; set < 1u << n; ++set) {
        std::int64_t all_axes = 1;
        for (int k = 0; k < n; ++k)
          if (set >> k & 1) all_axes *= s.function->params()[k].type().rank() + 1;
        const std::int64_t step = (all_axes << n) <= kMost ? 1 : ((all_axes << n) / kMost) | 1;
        for (std::int64_t axes = 0; axes < all_axes; axes += step) {
          INFO("op ", std::string(op.name), " size ", size, " set ", set, " axes ", axes);
          std::vector<int> dims(n, -1);
          std::int64_t rest = axes;
          for (int k = 0; k < n; ++k) {
            if (!(set >> k & 1)) continue;
            const int places = s.function->params()[k].type().rank() + 1;
            dims[k] = static_cast<int>(rest % places);
            rest /= places;
          }
          check_batched(s, dims, size);
        }
      }
    }
  });
}
