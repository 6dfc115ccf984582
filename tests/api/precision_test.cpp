// Precision of products: it goes wherever the product goes, and nowhere else. That is read off the texts of programs,
// after every transform and after all passes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <sstream>

#include "ir/text.h"
#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

constexpr ProductOptions kTf32{.precision = Precision::tf32};

Array numbers(const Shape& shape, double phase = 0) {
  return sin(1.7 * reshape(arange(num_elements(shape), f32), shape) + phase);
}

struct Count {
  int rounded = 0, full = 0;
  bool operator==(const Count&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Count& c) { return out << c.rounded << " and " << c.full; }

/// The products in a program's text, regions and called functions included.
Count products(const std::string& text) {
  Count count;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    for (const char* op : {"= dot ", "= conv ", "= attention ", "= attention_tangent ", "= attention_backward "})
      if (line.find(op) != std::string::npos)
        ++(line.find("precision=tf32") != std::string::npos ? count.rounded : count.full);
  return count;
}

/// Both as traced and after all passes there is some product, and all of them are as `rounded` says.
template <class F, class... A>
void check_all(const char* what, bool rounded, const F& f, const A&... args) {
  INFO(what);
  const auto traced = jit(f).trace(args...);
  for (const std::string& text : {traced.text(), traced.lower().text()}) {
    INFO(text);
    const Count count = products(text);
    CHECK((rounded ? count.rounded : count.full) > 0);
    CHECK((rounded ? count.full : count.rounded) == 0);
    const auto module = ir::parse(traced.text());
    REQUIRE(module.ok());
    CHECK(ir::print(*module) == traced.text());
  }
}

/// Everything that is made of f, which has products of x [4, 4] and w [4, 4].
template <class F>
void check_transforms(bool rounded, const F& f) {
  const Array x = numbers({4, 4}), w = numbers({4, 4}, 1), rows = numbers({3, 4, 4});
  const auto loss = [=](Array a, Array b) { return sum(sin(f(a, b))); };
  const auto slope = [=](Array a, Array b) { return grad<0, 1>(loss)(a, b); };
  const auto along = [=](Array a, Array b) { return jvp(f, std::tuple{a, b}, std::tuple{b, a}).second; };
  check_all("as it is", rounded, f, x, w);
  check_all("gradient", rounded, slope, x, w);
  check_all("tangent", rounded, along, x, w);
  check_all(
      "second order", rounded,
      [=](Array a, Array b) { return grad<0>([=](Array v) { return sum(std::get<1>(slope(v, b)) * b); })(a); }, x, w);
  check_all(
      "gradient of the tangent", rounded,
      [=](Array a, Array b) { return grad<1>([=](Array v, Array u) { return sum(along(v, u)); })(a, b); }, x, w);
  check_all("batched", rounded, vmap(f), rows, flip(rows));
  check_all("batched in one operand", rounded, vmap(f, {.in = {0, none}}), rows, w);
  check_all("batched gradient", rounded, vmap(slope, {.in = {none, 0}}), x, rows);
  check_all(
      "checkpoint", rounded,
      [=](Array a, Array b) { return grad<1>([=](Array v, Array u) { return sum(sin(checkpoint(f)(v, u))); })(a, b); },
      x, w);
  check_all(
      "loop", rounded,
      [=](Array a, Array all) {
        const auto whole = [=](Array v) {
          return sum(scan([=](Array c, Array row) { return std::pair{f(c, row), none}; }, a, v).first);
        };
        return grad(whole)(all);
      },
      x, rows);
  check_all(
      "branches", rounded,
      [=](Array a, Array b) { return cond(sum(a) > 0, f, [=](Array v, Array u) { return f(u, v); }, a, b); }, x, w);
  check_all(
      "jit within jit", rounded,
      [inner = jit(f)](Array a, Array b) { return grad<0>([=](Array v) { return sum(inner(v, b)); })(a); }, x, w);
}

const Mesh& mesh() {
  static const Mesh m = [] {
    ensure_devices(4);
    return Mesh({{"d", 2}, {"t", 2}});
  }();
  return m;
}

/// The same with x and w in parts, by columns and by rows.
template <class F>
void check_parts(bool rounded, const F& f) {
  const Array x = device_put(numbers({8, 8}), mesh(), P("d", "t")),
              w = device_put(numbers({8, 8}, 1), mesh(), P("t", "d"));
  check_all("in parts", rounded, f, x, w);
  check_all(
      "gradient in parts", rounded,
      [=](Array a, Array b) { return grad<0, 1>([=](Array v, Array u) { return sum(sin(f(v, u))); })(a, b); }, x, w);
}

Array as_product(Array x, Array w, std::optional<Precision> p) { return matmul(x, w, {.precision = p}); }
Array as_dot(Array x, Array w, std::optional<Precision> p) {
  return dot_general(x, w, {.lhs = {0}, .rhs = {1}, .precision = p});
}
Array as_batch(Array x, Array w, std::optional<Precision> p) {
  return sum(matmul(stack({x, w}), stack({w, x}), {.precision = p}), {.axes = {0}});
}
Array as_einsum(Array x, Array w, std::optional<Precision> p) {
  return einsum("ij,jk,kl->il", {x, transpose(w), w}, {.precision = p});
}
Array as_complex(Array x, Array w, std::optional<Precision> p) {
  return real(matmul(complex(x, w), complex(w, x), {.precision = p}));
}
Array as_halves(Array x, Array w, std::optional<Precision> p) {
  return dot_general(convert(x, bf16), convert(w, bf16), {.lhs = {1}, .rhs = {0}, .dtype = f32, .precision = p});
}
Array as_convolution(Array x, Array w, std::optional<Precision> p) {
  const std::int64_t n = x.shape()[0];
  return reshape(conv(reshape(x, {1, n, n, 1}), reshape(w(slice(0, 2), slice(0, 3)), {2, 3, 1, 1}), {.precision = p}),
                 {n, n});
}
Array as_attention(Array x, Array w, std::optional<Precision> p) {
  const std::int64_t n = x.shape()[0];
  const Shape heads{n, 2, n / 2};
  return reshape(dot_product_attention(reshape(x, heads), reshape(w, heads), reshape(x, heads), {.precision = p}),
                 {n, n});
}

using Made = Array (*)(Array, Array, std::optional<Precision>);
constexpr std::pair<const char*, Made> kMade[] = {{"product", as_product},
                                                  {"dot", as_dot},
                                                  {"batch", as_batch},
                                                  {"einsum", as_einsum},
                                                  {"complex", as_complex},
                                                  {"halves", as_halves},
                                                  {"convolution", as_convolution},
                                                  {"attention", as_attention}};

}  // namespace

TEST_CASE("what is made of a product has its precision, by every transform and after all passes") {
  for (const auto& [name, make] : kMade) {
    INFO(name);
    for (const bool rounded : {true, false})
      check_transforms(rounded, [make = make, rounded](Array x, Array w) {
        return make(x, w, rounded ? std::optional(Precision::tf32) : std::nullopt);
      });
  }
}

TEST_CASE("parts of a product have its precision") {
  for (const auto& [name, make] : {kMade[0], kMade[2], kMade[5], kMade[6]}) {
    INFO(name);
    check_parts(true, [make = make](Array x, Array w) { return make(x, w, Precision::tf32); });
  }
}

TEST_CASE("two products that differ in precision alone stay two") {
  const Array x = numbers({4, 4});
  const auto both = [](Array v) { return matmul(v, v, kTf32) + matmul(v, v); };
  CHECK(products(jit(both).trace(x).lower().text()) == Count{1, 1});
  CHECK(products(jit(grad([=](Array v) { return sum(both(v)); })).trace(x).lower().text()).rounded ==
        products(jit(grad([=](Array v) { return sum(both(v)); })).trace(x).lower().text()).full);
  const auto twice = [](Array v) { return matmul(v, v, kTf32) + matmul(v, v, kTf32); };
  CHECK(products(jit(twice).trace(x).lower().text()) == Count{1, 0});
}

TEST_CASE("a scope is the precision of what says none, and of nothing else") {
  const auto f = jit([](Array x, Array w) { return matmul(x, w) + matmul(w, x, {.precision = Precision::full}); });
  const Array x = numbers({4, 4}), w = numbers({4, 4}, 1);
  {
    const PrecisionScope scope(Precision::tf32);
    CHECK(products(f.trace(x, w).text()) == Count{1, 1});
    {
      const PrecisionScope inner(Precision::full);
      CHECK(products(f.trace(x, w).text()) == Count{0, 2});
    }
    CHECK(products(f.trace(x, w).text()) == Count{1, 1});
    for (const auto& [name, make] : kMade) {
      INFO(name);
      check_all("scope", true, [make = make](Array a, Array b) { return make(a, b, std::nullopt); }, x, w);
    }
    // Neither integers nor f64 have what could be rounded.
    for (const DType t : {i32, f64})
      CHECK(products(jit([](Array a) { return matmul(a, a); }).trace(convert(x, t)).text()) == Count{0, 1});
    CHECK(products(jit([](Array a) { return linalg::pinv(a) + linalg::matrix_power(a, 3); }).trace(x).text()).rounded ==
          0);
  }
  CHECK(products(f.trace(x, w).text()) == Count{0, 2});
}

TEST_CASE("a function that was traced in one scope is traced anew in another, and found again in each") {
  const auto f = jit([](Array x) { return matmul(x, x); });
  const Array x = numbers({4, 4});
  f(x);
  CHECK(traces(f) == 1);
  for (int i = 0; i < 2; ++i) {
    const PrecisionScope scope(Precision::tf32);
    f(x);
    CHECK(traces(f) == 2);
  }
  f(x);
  CHECK(traces(f) == 2);
}
