// Checks of whole programs under the transforms, through the interpreter: derivatives of any order, and batching.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ir/eval.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/emit.h"
#include "passes/transforms.h"

namespace sheaf::tests {

inline ir::FunctionRef parse_function(std::string_view text) {
  auto module = ir::parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  return module->functions[0];
}

inline ir::Literal vec64(const std::vector<double>& values) { return ir::Literal(f64, {std::ssize(values)}, values); }
/// Values of a shape: a fixed irregular sequence in (-1, 1).
inline ir::Literal field64(const Shape& dims) {
  ir::Literal x{ir::Type(f64, dims)};
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, std::sin(1.7 * static_cast<double>(i) + 0.4));
  return x;
}

/// What the transforms leave is evaluated after the expansion of calls and custom rules.
inline ir::Literals value_of(const ir::FunctionRef& f, const ir::Literals& in) {
  const ir::FunctionRef flat = passes::expand_ops(f);
  const absl::Status s = ir::verify(*flat);
  REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
  return ir::eval(*flat, in);
}

inline passes::Mask only(std::size_t size, int k) {
  passes::Mask m(size);
  m[k] = true;
  return m;
}

/// The scalar `sum(grad_k f * direction)`, so that gradients can be differentiated again.
inline ir::FunctionRef gradient_along(const ir::FunctionRef& f, int k, const ir::Literal& direction) {
  const ir::FunctionRef g = passes::value_and_grad(f, only(f->params().size(), k));
  ir::Builder b("along");
  const ir::Values params = passes::clone_params(b, *f, passes::Mask(f->params().size(), true));
  const ir::Value gradient = passes::inline_into(b, *g, params).back();
  ir::Value along = gradient * b.constant(direction);
  if (along.rank() > 0) {
    ir::ops::Reduce all;
    for (int d = 0; d < along.rank(); ++d) all.dims.push_back(d);
    along = b.emit(ir::ops::reduce, {along}, std::move(all));
  }
  return b.finish({along});
}

/// The derivative of scalar f along `direction` in operand k: reverse mode, forward mode and differences must agree,
/// for f and, to `order`, for its derivatives.
inline void check_derivatives(const ir::FunctionRef& f, const ir::Literals& in, const std::vector<int>& wrt,
                              int order) {
  for (int k : wrt) {
    INFO("operand ", k, ", orders to go ", order);
    const ir::Literal direction = field64(in[k].dims());
    const ir::FunctionRef reverse = gradient_along(f, k, direction);
    const double got = value_of(reverse, in)[0].get(0);

    const passes::Jvp forward = passes::jvp(f, only(in.size(), k), {true});
    ir::Literals with_tangent = in;
    with_tangent.push_back(direction);
    CHECK(value_of(forward.function, with_tangent)[1].get(0) == doctest::Approx(got).epsilon(1e-9));

    const double h = 1e-5;
    double sides[2];
    for (int side = 0; side < 2; ++side) {
      ir::Literals moved = in;
      for (std::int64_t i = 0; i < direction.size(); ++i)
        moved[k].set(i, in[k].get(i) + (side ? h : -h) * direction.get(i));
      sides[side] = value_of(f, moved)[0].get(0);
    }
    CHECK((sides[1] - sides[0]) / (2 * h) == doctest::Approx(got).epsilon(2e-5));
    if (order > 1) check_derivatives(reverse, in, {wrt.front()}, order - 1);
  }
}

/// vmap of f over each non-empty set of operands equals a loop over the examples.
inline void check_vmap(const ir::FunctionRef& f, const ir::Literals& in) {
  constexpr std::int64_t size = 3;
  for (unsigned set = 1; set < 1u << in.size(); ++set) {
    INFO("mapped operands, as bits: ", set);
    std::vector<int> dims;
    std::vector<ir::Literals> examples(size, in);
    ir::Literals stacked = in;
    for (std::size_t k = 0; k < in.size(); ++k) {
      dims.push_back(set >> k & 1 ? 0 : -1);
      if (dims[k] < 0) continue;
      Shape shape = in[k].dims();
      shape.insert(shape.begin(), size);
      stacked[k] = ir::Literal(ir::Type(in[k].dtype(), shape));
      for (std::int64_t e = 0; e < size; ++e)
        for (std::int64_t i = 0; i < in[k].size(); ++i) {
          if (is_float(in[k].dtype())) examples[e][k].set(i, in[k].get(i) + 0.3 * static_cast<double>(e));
          else examples[e][k].set_int(i, in[k].get_int(i) + e - 1);
          stacked[k].copy(e * in[k].size() + i, examples[e][k], i);
        }
    }
    const ir::FunctionRef mapped = passes::vmap(f, dims, std::vector<int>(f->results().size(), 0), size);
    const ir::Literals got = value_of(mapped, stacked);
    for (std::int64_t e = 0; e < size; ++e) {
      const ir::Literals want = value_of(f, examples[e]);
      for (std::size_t j = 0; j < want.size(); ++j)
        for (std::int64_t i = 0; i < want[j].size(); ++i)
          CHECK(got[j].get(e * want[j].size() + i) == doctest::Approx(want[j].get(i)).epsilon(1e-12));
    }
  }
}

}  // namespace sheaf::tests
