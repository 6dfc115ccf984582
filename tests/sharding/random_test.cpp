// Random numbers belong to their place in the whole: the same bits on one device and on two, four and eight, however
// they lie, and under every transform.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

using Draw = std::function<Array(const Array& key)>;

// Of [16, 8].
const std::vector<std::pair<const char*, Draw>>& draws() {
  static const std::vector<std::pair<const char*, Draw>> all{
      {"bits", [](const Array& k) { return random::bits(k, {16, 8}); }},
      {"uniform", [](const Array& k) { return random::uniform(k, {16, 8}); }},
      {"normal", [](const Array& k) { return random::normal(k, {16, 8}); }},
      {"normal, half", [](const Array& k) { return random::normal(k, {16, 8}, bf16); }},
      {"bernoulli", [](const Array& k) { return random::bernoulli(k, {16, 8}, 0.3).astype(i32); }},
      {"permutation", [](const Array& k) { return reshape(random::permutation(k, 128), {16, 8}); }},
      {"integers", [](const Array& k) { return random::randint(k, {16, 8}, -3, 100); }},
      {"vmap",
       [](const Array& k) { return vmap([](Array one) { return random::normal(one, {8}); })(random::split(k, 16)); }},
      {"scan",
       [](const Array& k) {
         const auto step = [](Array key, Array i) {
           return std::pair(random::fold_in(key, i), random::uniform(key, {8}));
         };
         return scan(step, k, arange(16)).second;
       }},
      {"dropout, made again for the gradient",
       [](const Array& k) {
         const auto f = [k](Array x) {
           const auto dropped = [k](Array v) { return sum(sin(v * random::uniform(k, {16, 8}))); };
           return checkpoint(dropped)(x);
         };
         return grad(f)(reshape(arange(128, f32), {16, 8}));
       }},
  };
  return all;
}

bool same_bits(const Array& a, const Array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && a.to_vector<double>() == b.to_vector<double>();
}

}  // namespace

TEST_CASE("random numbers are the same on 1, 2, 4 and 8 devices, however they lie and however they are drawn") {
  ensure_devices(8);
  const Array key = random::key(42);
  for (const auto& [name, draw] : draws()) {
    CAPTURE(name);
    const Array want = jit(draw)(key);
    for (const int n : {1, 2, 4, 8}) {
      std::vector<std::pair<Mesh, PartitionSpec>> layouts{{Mesh({{"x", n}}), P("x")}, {Mesh({{"x", n}}), P(none, "x")}};
      if (n == 8)
        for (const PartitionSpec& spec : {P("x", "y"), P("y", "x"), P({"y", "x"}), P(none, {"x", "y"})})
          layouts.emplace_back(Mesh({{"x", 2}, {"y", 4}}), spec);
      for (const auto& [mesh, spec] : layouts) {
        CAPTURE(to_string(mesh));
        CAPTURE(to_string(spec));
        const auto f = [draw = draw, mesh = mesh, spec = spec](const Array& k) {
          return with_sharding(draw(k), mesh, spec);
        };
        const Array got = jit(f)(device_put(key, mesh, P()));
        CHECK(got.sharding() == NamedSharding{mesh, spec});
        CHECK(same_bits(got, want));
      }
    }
  }
}
