// The library composed from ops: losses, optimizers, random numbers and the loader.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }
using U = std::vector<std::uint64_t>;
U words(const Array& x) { return x.to_vector<std::uint64_t>(); }
doctest::Approx near(double v) { return doctest::Approx(v).epsilon(1e-5); }

}  // namespace

TEST_CASE("random bits, split, fold_in and uniform are JAX's") {
  CHECK(words(random::bits(random::key(0), {5})) == U{4070199207, 4202968722, 1427181096, 2012915765, 2447653815});
  CHECK(words(random::bits(random::key(42), {4})) == U{2098992034, 2919706841, 2646866425, 2409546199});
  CHECK(words(random::bits(random::key(0), {3}, u64)) ==
        U{7719171245655871230u, 3989946895414531357u, 17807037942121513089u});
  CHECK(words(random::bits(random::key(1701), {3}, u16)) == U{42789, 29755, 60468});
  CHECK(words(random::split(random::key(0), 4)) ==
        U{1797259609, 2579123966, 928981903, 3453687069, 4146024105, 2718843009, 2467461003, 3840466878});
  CHECK(words(random::split(random::key(42))) == U{1832780943, 270669613, 64467757, 2916123636});
  CHECK(words(random::fold_in(random::key(0), 4)) == U{2285895361, 433833334});
  const V u = values(random::uniform(random::key(0), {4}));
  CHECK(u[0] == doctest::Approx(0.94766700).epsilon(1e-7));
  CHECK(u[3] == doctest::Approx(0.46866846).epsilon(1e-7));
}

TEST_CASE("random bits have the bits of their places where a kernel makes them behind others") {
  const Array key = random::key(7);
  const Array made = random::bits(key, {2, 40});
  const auto rolled = [](Array k) { return roll(random::bits(k, {2, 40}), -3, 1); };
  const auto padded = [](Array k) { return pad(random::bits(k, {2, 40}), {{1, 0}, {5, 2}}); };
  const auto joined = [](Array k) { return concatenate({random::bits(k, {3}), random::bits(k, {2, 40})[1]}); };
  CHECK(same(jit(rolled)(key), roll(made, -3, 1)));
  CHECK(same(jit(padded)(key), pad(made, {{1, 0}, {5, 2}})));
  CHECK(same(jit(joined)(key), concatenate({random::bits(key, {3}), made[1]})));
}

TEST_CASE("random draws have the moments and ranges they claim") {
  const Array n = random::normal(random::key(1), {20000});
  CHECK(std::abs(mean(n).item<double>()) < 0.03);
  CHECK(std::abs(var(n).item<double>() - 1) < 0.04);
  const Array r = random::randint(random::key(2), {5000}, -3, 4);
  CHECK(min(r).item<int>() == -3);
  CHECK(max(r).item<int>() == 3);
  CHECK(mean(convert(random::bernoulli(random::key(3), {10000}, 0.3), f32)).item<double>() ==
        doctest::Approx(0.3).epsilon(0.05));
  const auto p = random::permutation(random::key(4), 100).to_vector<int>();
  CHECK(std::set<int>(p.begin(), p.end()).size() == 100);
  CHECK(p[0] + 100 * p[1] != 0 + 100 * 1);
  CHECK(sum(random::shuffle(random::key(5), arange(10))).item<int>() == 45);
}

TEST_CASE("keys map like a loop over keys") {
  const Array keys = random::split(random::key(7), 3);
  const Array all = vmap([](Array k) { return random::normal(k, {4}); })(keys);
  for (int i = 0; i < 3; ++i) CHECK(same(all[i], random::normal(keys[i], {4})));
}

TEST_CASE("softmax and logsumexp survive large and infinite inputs") {
  const Array x = array({1000.0, 1000.0});
  CHECK(values(softmax(x)) == V{0.5, 0.5});
  CHECK(values(log_softmax(x))[0] == near(-std::log(2.0)));
  CHECK(logsumexp(x).item<double>() == near(1000 + std::log(2.0)));
  CHECK(logsumexp(array({-INFINITY, -INFINITY})).item<double>() == -INFINITY);
  CHECK(logsumexp(array({{1.0, 2.0}, {3.0, 4.0}}), {.axes = {1}}).shape() == Shape{2});
  CHECK(softmax(ones({3}, bf16)).dtype() == bf16);
}

TEST_CASE("activations and losses have their textbook values") {
  CHECK(values(relu(array({-1.0, 0.0, 2.0}))) == V{0, 0, 2});
  CHECK(grad(sheaf::relu)(0.0).item<double>() == 0);
  CHECK(gelu(1.0).item<double>() == near(0.8413447));
  CHECK(silu(1.0).item<double>() == near(0.7310586));
  CHECK(softplus(0.0).item<double>() == near(std::log(2.0)));
  CHECK(cross_entropy(zeros({4, 10}), array({0, 1, 2, 3})).item<double>() == near(std::log(10.0)));
  // Labels that are no class count as 0, and a class of logit -inf is one that cannot be.
  const Array logits = array({{1.0, -INFINITY, 1.0}, {0.0, 0.0, 5.0}});
  const auto [loss, slope] = value_and_grad([](Array x) { return cross_entropy(x, array({2, -1})); })(logits);
  CHECK(loss.item<double>() == near(std::log(2.0) / 2));
  CHECK(values(slope) == V{0.25, 0, -0.25, 0, 0, 0});
  const Array y = layer_norm(array({{1.0, 2.0, 3.0}}), ones({3}), zeros({3}));
  CHECK(values(y)[2] == near(1.2247356));
}

TEST_CASE("optimizers step as their papers say") {
  struct Pair {
    Array a, b;
  };
  const Pair p{array({1.0, 2.0}), 3.0}, g{array({0.5, -0.5}), 1.0};
  CHECK(values(Sgd{}.step(p, g, 0.1).a)[0] == near(0.95));
  Momentum momentum;
  auto [p1, s1] = momentum.step(p, momentum.init(p), g, 0.1);
  auto [p2, s2] = momentum.step(p1, s1, g, 0.1);
  CHECK(p2.b.item<double>() == near(3 - 0.1 - 0.19));
  Adam adam;
  auto [q, t] = adam.step(p, adam.init(p), g, 0.1);
  CHECK(values(q.a)[0] == near(0.9));  // the first step moves by the rate
  CHECK(t.count.item<int>() == 1);
  CHECK(clip_by_global_norm(g, 0.1).b.item<double>() == near(0.1 / std::sqrt(1.5)));
}

TEST_CASE("the loader deals every example once per epoch, in an order of its own") {
  Loader loader({arange(10), arange(10) * 2}, {.batch = 3, .seed = 5, .drop_last = false});
  CHECK(loader.batches() == 4);
  std::vector<int> seen, next;
  for (int i = 0; i < 4; ++i) {
    const std::vector<Array> b = loader.batch(0, i);
    CHECK(all_equal(b[0] * 2, b[1]));
    for (const int v : b[0].to_vector<int>()) seen.push_back(v);
  }
  for (int i = 0; i < 4; ++i)
    for (const int v : loader.batch(1, i)[0].to_vector<int>()) next.push_back(v);
  CHECK(std::set<int>(seen.begin(), seen.end()).size() == 10);
  CHECK(seen != next);
  CHECK_THROWS_AS(Loader({arange(3), arange(4)}), ShapeError);
}
