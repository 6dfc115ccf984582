// Random numbers against JAX's for the same key. key, split, fold_in, bits, uniform and bernoulli are the same to the
// bit; normal is, up to the error of erf_inv. randint and permutation have algorithms of their own on the same bits.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "ir/text.h"
#include "sheaf/sheaf.h"
#include "tests/jax/golden.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

struct Draw {
  std::string name;
  std::int64_t seed;
  ir::Literal values;
};

// "uniform, 42, f32[3]: 3f22 ..."
std::vector<Draw> read_draws() {
  std::ifstream file(SHEAF_SOURCE_DIR "/tests/jax/golden/draws.txt");
  REQUIRE(file.good());
  std::vector<Draw> draws;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    const std::size_t colon = line.find(':'), type = line.rfind(", ", line.rfind('[', colon)) + 2;
    const std::size_t seed = line.rfind(", ", type - 3) + 2;
    const auto parsed = ir::parse_type(line.substr(type, colon - type));
    REQUIRE_MESSAGE(parsed.ok(), line);
    draws.push_back({.name = line.substr(0, seed - 2),
                     .seed = std::stoll(line.substr(seed)),
                     .values = tests::read_elements(*parsed, line.substr(colon + 1))});
  }
  return draws;
}

using Function = Array (*)(const Array& key, const Shape& shape, DType dtype);
const std::map<std::string, Function> kFunctions = {
    {"key", [](const Array& key, const Shape&, DType) { return key; }},
    {"split", [](const Array& key, const Shape& shape, DType) { return random::split(key, shape[0]); }},
    {"fold_in 4", [](const Array& key, const Shape&, DType) { return random::fold_in(key, 4); }},
    {"fold_in 4294967295", [](const Array& key, const Shape&, DType) { return random::fold_in(key, 4294967295); }},
    {"bits", [](const Array& key, const Shape& shape, DType t) { return random::bits(key, shape, t); }},
    {"uniform", [](const Array& key, const Shape& shape, DType t) { return random::uniform(key, shape, t); }},
    {"uniform in (-2, 3)",
     [](const Array& key, const Shape& shape, DType t) { return random::uniform(key, shape, t, -2, 3); }},
    {"uniform of keys",
     [](const Array& key, const Shape& shape, DType) {
       const auto three = [](Array k) { return random::uniform(k, {3}); };
       return vmap(three)(random::split(key, shape[0]));
     }},
    {"normal", [](const Array& key, const Shape& shape, DType t) { return random::normal(key, shape, t); }},
    {"bernoulli 0.5", [](const Array& key, const Shape& shape, DType) { return random::bernoulli(key, shape, 0.5); }},
    {"bernoulli 0.1", [](const Array& key, const Shape& shape, DType) { return random::bernoulli(key, shape, 0.1); }},
};

std::vector<std::uint64_t> words_of(const ir::Literal& x) {
  std::vector<std::uint64_t> words;
  for (std::int64_t i = 0; i < x.size(); ++i) words.push_back(x.bits(i));
  return words;
}

std::vector<double> doubles(const Array& x) { return convert(ravel(x), f64).to_vector<double>(); }

// f16 and bf16 are drawn in f32 and rounded once, where JAX draws in the type itself: other numbers, and finer ones.
bool is_drawn_wider(const Draw& d) { return d.name == "normal" && size_bytes(d.values.dtype()) == 2; }

double allowed_error(const Draw& d, double want) {
  const DType t = d.values.dtype();
  const double epsilon = t == f64 ? 0x1p-52 : t == f32 ? 0x1p-23 : t == f16 ? 0x1p-10 : 0x1p-7;
  if (d.name == "normal") return 32 * epsilon * std::abs(want);
  // JAX multiplies by the span and adds the low end with one rounding, Sheaf, as it documents, with two.
  if (d.name == "uniform in (-2, 3)") return 2 * epsilon;
  return 0;
}

void check_draw(const Draw& d, const Array& got) {
  REQUIRE(got.dtype() == d.values.dtype());
  REQUIRE(got.shape() == d.values.dims());
  if (d.values.dtype() == u64) {  // more bits than a double holds
    CHECK(ravel(got).to_vector<std::uint64_t>() == words_of(d.values));
    return;
  }
  const std::vector<double> values = doubles(got);
  for (std::int64_t i = 0; i < d.values.size(); ++i) {
    const double want = d.values.get(i), allowed = allowed_error(d, want);
    CHECK_MESSAGE(std::abs(values[i] - want) <= allowed, i, ": ", values[i], " for ", want);
  }
}

}  // namespace

TEST_CASE("the same key gives the numbers that JAX gives") {
  std::size_t used = 0;
  for (const Draw& d : read_draws()) {
    INFO(d.name, " of key ", d.seed);
    if (is_drawn_wider(d)) continue;
    check_draw(d, kFunctions.at(d.name)(random::key(d.seed), d.values.dims(), d.values.dtype()));
    ++used;
  }
  CHECK(used >= 50);
}

TEST_CASE("randint takes 64 bits modulo the span, and permutation the order of 64-bit numbers") {
  const Array key = random::key(42);
  const auto words = random::bits(key, {9}, u64).to_vector<std::uint64_t>();
  const auto draws = random::randint(key, {9}, -3, 10).to_vector<int>();
  for (std::size_t i = 0; i < words.size(); ++i) CHECK(draws[i] == static_cast<int>(words[i] % 13) - 3);
  std::vector<int> order(words.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return words[a] < words[b]; });
  CHECK(random::permutation(key, 9).to_vector<int>() == order);
}
