// The sums of collectives over all values of the half types, against the scalar reference.
#include "runtime/reduce_bytes.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "ir/scalar.h"

using namespace sheaf;
using namespace sheaf::runtime;

namespace {

template <class T>
std::vector<T> sums(DType dtype, const std::vector<std::vector<T>>& operands) {
  std::vector<const std::byte*> sources;
  for (const auto& x : operands) sources.push_back(reinterpret_cast<const std::byte*>(x.data()));
  std::vector<T> out(operands[0].size());
  reduce_block(dtype, ir::ReduceKind::sum, sources, std::ssize(out), reinterpret_cast<std::byte*>(out.data()));
  return out;
}

bool is_nan(DType dtype, std::uint16_t bits) { return std::isnan(ir::from_bits(dtype, bits)); }

}  // namespace

TEST_CASE("every half value passes through a sum of one, and NaNs stay NaNs") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    int wrong = 0;
    for (int first = 0; first < 0x10000; first += kReduceBlock) {
      std::vector<std::uint16_t> x(kReduceBlock);
      for (int i = 0; i < kReduceBlock; ++i) x[i] = static_cast<std::uint16_t>(first + i);
      const std::vector<std::uint16_t> y = sums<std::uint16_t>(dtype, {x});
      for (int i = 0; i < kReduceBlock; ++i) wrong += is_nan(dtype, x[i]) ? !is_nan(dtype, y[i]) : x[i] != y[i];
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("sums of half values are rounded once, near every border of the formats") {
  std::mt19937 random(7);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    int wrong = 0;
    for (int round = 0; round < 50; ++round) {
      std::vector<std::vector<std::uint16_t>> x(3, std::vector<std::uint16_t>(kReduceBlock));
      for (int i = 0; i < kReduceBlock; ++i) {
        x[0][i] = static_cast<std::uint16_t>(random());
        // As large, so that the sum rounds; and far smaller, so that it decides a tie.
        x[1][i] = static_cast<std::uint16_t>(x[0][i] + random() % 4096 - 2048);
        x[2][i] = static_cast<std::uint16_t>(x[0][i] - random() % 16384);
      }
      const std::vector<std::uint16_t> y = sums(dtype, x);
      for (int i = 0; i < kReduceBlock; ++i) {
        const auto value = [&](int k) { return static_cast<float>(ir::from_bits(dtype, x[k][i])); };
        const std::uint64_t expected = ir::to_bits(dtype, (value(0) + value(1)) + value(2));
        wrong += is_nan(dtype, static_cast<std::uint16_t>(expected)) ? !is_nan(dtype, y[i]) : y[i] != expected;
      }
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("sums go from the first operand to the last, however many there are") {
  for (int n = 1; n <= 9; ++n) {
    std::vector<std::vector<float>> x;
    for (int k = 0; k < n; ++k) x.push_back({std::ldexp(1.0f, (k * 17) % 30), std::ldexp(-1.7f, k * 3), 1e-3f});
    const std::vector<float> y = sums(DType::f32, x);
    for (int i = 0; i < 3; ++i) {
      float expected = x[0][i];
      for (int k = 1; k < n; ++k) expected += x[k][i];
      CHECK(y[i] == expected);
    }
  }
}
