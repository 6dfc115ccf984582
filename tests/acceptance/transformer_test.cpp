// A block of a transformer on data and model axes, written three times: for all devices at once, with layouts alone;
// for the heads that one device has, by shard_map; and for one head, by xmap. They compute the same by the same
// collectives.
#include <fmt/format.h>

#include <cmath>

#include "ir/text.h"
#include "tests/acceptance/models.h"

using namespace sheaf;
using namespace sheaf::acceptance;

namespace {

// Hidden units are grouped as heads are: w1 [h, heads, f], w2 [heads, f, h].
Array fed(const Array& x, const Array& w1, const Array& w2) {
  return einsum("bsgf,gfm->bsm", tanh(einsum("bsm,mgf->bsgf", x, w1)), w2);
}

auto by_specs() {
  return [](const Array& x, const Array& qkv, const Array& mix, const Array& w1, const Array& w2) {
    const Array y = x + attention(x, qkv, mix);
    return y + fed(y, w1, w2);
  };
}

auto by_shard_map(const Mesh& mesh) {
  const auto body = [](const Array& x, const Array& qkv, const Array& mix, const Array& w1, const Array& w2) {
    const Array y = x + psum(attention(x, qkv, mix), "model");
    return y + psum(fed(y, w1, w2), "model");
  };
  return shard_map(body, {.mesh = mesh,
                          .in = {P("data"), P(none, none, "model"), P("model"), P(none, "model"), P("model")},
                          .out = {P("data")}});
}

// Of one sequence [s, h] and one head: qkv [h, 3, d], mix [d, h], w1 [h, f], w2 [f, h].
auto by_xmap(const Mesh& mesh) {
  const auto body = [](const Array& x, const Array& qkv, const Array& mix, const Array& w1, const Array& w2) {
    const Array all = einsum("sm,mtd->tsd", x, qkv);
    const auto head = [](const Array& a) { return expand_dims(a, {0, 2}); };
    const Array o = squeeze(dot_product_attention(head(all[0]), head(all[1]), head(all[2])), {0, 2});
    const Array y = x + psum(dot(o, mix), "head");
    return y + psum(mlp(y, w1, w2), "head");
  };
  return xmap(body, {.mesh = mesh,
                     .in = {{"batch", ellipsis},
                            {none, none, "head", none},
                            {"head", ellipsis},
                            {none, "head", none},
                            {"head", ellipsis}},
                     .out = {{"batch", ellipsis}},
                     .axis_resources = {{"batch", "data"}, {"head", "model"}}});
}

// The result, and the derivatives with respect to the input and all weights.
template <class F>
auto step_of(F f) {
  return [f](const Array& x, const Array& g, const Array& qkv, const Array& mix, const Array& w1, const Array& w2) {
    const auto [y, pullback] = vjp(f, x, qkv, mix, w1, w2);
    return std::tuple_cat(std::tuple(y), pullback(g));
  };
}

template <class F>
ir::FunctionRef step_program(const F& f, const Sizes& s) {
  const Array x = abstract({s.b, s.s, s.h});
  return program({"x", "g", "qkv", "mix", "w1", "w2"}, step_of(f), x, x, abstract({s.h, 3, s.heads, s.d()}),
                 abstract({s.heads, s.d(), s.h}), abstract({s.h, s.heads, s.f / s.heads}),
                 abstract({s.heads, s.f / s.heads, s.h}));
}

template <class F>
void check_sets(const F& f, int n) {
  const Layout layout{.mesh = fmt::format("data=2, model={}", n),
                      .params = {{"x", "data,_,_"},
                                 {"g", "data,_,_"},
                                 {"qkv", "_,_,model,_"},
                                 {"mix", "model,_,_"},
                                 {"w1", "_,model,_"},
                                 {"w2", "model,_,_"}},
                      .results = {{2, "_,_,model,_"}, {3, "model,_,_"}, {4, "_,model,_"}, {5, "model,_,_"}}};
  const Partitioned p = partitioned(step_program(f, kLarge), layout);
  INFO(ir::print(p.whole), ir::print(p.local));
  CHECK(collectives_of(*p.local) == listed({{"all_reduce", "model", kTokens / 2, 4},
                                            {"all_reduce", "data", 3 * kSquare / n},
                                            {"all_reduce", "data", kSquare / n},
                                            {"all_reduce", "data", kWeights / n, 2}}));
  if (n == 2)
    CHECK(largest_difference(partitioned(step_program(f, kSmall), layout), *step_program(by_specs(), kSmall)) < 1e-5);
}

Array numbers(const Shape& shape, double phase) {
  return 0.3 * sin(1.7 * reshape(arange(num_elements(shape), f32), shape) + phase);
}

bool close(const Array& a, const Array& b) {
  const std::vector<double> u = a.to_vector<double>(), v = b.to_vector<double>();
  return std::equal(u.begin(), u.end(), v.begin(), v.end(), [](double p, double q) { return std::abs(p - q) < 1e-4; });
}

}  // namespace

TEST_CASE("program 13: heads over devices by specs, by shard_map and by xmap have the collectives of DP+TP") {
  for (const int n : {2, 4}) {
    const Mesh mesh = Mesh::abstract({{"data", 2}, {"model", n}});
    check_sets(by_specs(), n);
    check_sets(by_shard_map(mesh), n);
    check_sets(by_xmap(mesh), n);
  }
}

TEST_CASE("program 13: heads over devices by specs, by shard_map and by xmap give the same on devices") {
  ensure_devices(4);
  const Mesh mesh({{"data", 2}, {"model", 2}});
  const Array x = numbers({4, 4, 8}, 0), g = numbers({4, 4, 8}, 1), qkv = numbers({8, 3, 4, 2}, 2),
              mix = numbers({4, 2, 8}, 3), w1 = numbers({8, 4, 4}, 4), w2 = numbers({4, 4, 8}, 5);
  const auto [y, dx, dqkv, dmix, d1, d2] = jit(step_of(by_specs()))(x, g, qkv, mix, w1, w2);
  const auto check = [&](const auto& f) {
    const auto got = jit(step_of(f))(device_put(x, mesh, P("data")), device_put(g, mesh, P("data")),
                                     device_put(qkv, mesh, P(none, none, "model")), device_put(mix, mesh, P("model")),
                                     device_put(w1, mesh, P(none, "model")), device_put(w2, mesh, P("model")));
    CHECK(close(std::get<0>(got), y));
    CHECK(close(std::get<1>(got), dx));
    CHECK(close(std::get<2>(got), dqkv));
    CHECK(close(std::get<3>(got), dmix));
    CHECK(close(std::get<4>(got), d1));
    CHECK(close(std::get<5>(got), d2));
  };
  check(by_specs());
  check(by_shard_map(mesh));
  check(by_xmap(mesh));
}
