// The index algebra against brute force: every simplified expression must agree with plain integer arithmetic at every
// point of its domain, and stay inside its claimed range.
#include "codegen/kir/index.h"

#include <doctest/doctest.h>

#include <functional>
#include <random>
#include <vector>

using namespace sheaf::kir;

namespace {

using Point = std::vector<std::int64_t>;

struct Checked {
  Index index;
  std::function<std::int64_t(const Point&)> expected;
};

std::int64_t div_floor(std::int64_t a, std::int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

Checked random_step(IndexPool& pool, const std::vector<Checked>& known, std::mt19937& random) {
  const Checked a = known[random() % known.size()], b = known[random() % known.size()];
  const auto fa = a.expected, fb = b.expected;
  const std::int64_t k = 1 + random() % 12;
  switch (random() % 5) {
    case 0: return {pool.add(a.index, b.index), [=](const Point& p) { return fa(p) + fb(p); }};
    case 1: return {pool.scale(a.index, k - 4), [=](const Point& p) { return fa(p) * (k - 4); }};
    case 2: return {pool.add(a.index, k - 6), [=](const Point& p) { return fa(p) + k - 6; }};
    case 3: return {pool.floor_div(a.index, k), [=](const Point& p) { return div_floor(fa(p), k); }};
    default: return {pool.mod(a.index, k), [=](const Point& p) { return fa(p) - div_floor(fa(p), k) * k; }};
  }
}

bool next(Point& point, const Point& extents) {
  for (std::size_t i = 0; i < point.size(); ++i) {
    if (++point[i] < extents[i]) return true;
    point[i] = 0;
  }
  return false;
}

std::size_t count_mismatches(const IndexPool& pool, const std::vector<Checked>& known, const Point& extents) {
  std::size_t bad = 0;
  Point point(extents.size(), 0);
  do {
    for (const Checked& c : known) {
      const std::int64_t got = pool.evaluate(c.index, [&](const Atom& a) { return point[a.id]; });
      const Range r = pool.range(c.index);
      bad += got != c.expected(point) || got < r.lo || got > r.hi;
    }
  } while (next(point, extents));
  return bad;
}

}  // namespace

TEST_CASE("random index expressions agree with brute force at every point") {
  std::mt19937 random(1);
  std::size_t bad = 0;
  for (int round = 0; round < 1500; ++round) {
    IndexPool pool;
    Point extents(1 + random() % 3);
    std::vector<Checked> known;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      extents[i] = 1 + random() % 9;
      known.push_back({pool.axis(static_cast<int>(i), extents[i]), [i](const Point& p) { return p[i]; }});
    }
    for (int step = 0; step < 8; ++step) known.push_back(random_step(pool, known, random));
    bad += count_mismatches(pool, known, extents);
  }
  CHECK(bad == 0);
}

TEST_CASE("a flat index split into dims and put together again is the flat index") {
  IndexPool pool;
  const Index flat = pool.add(pool.scale(pool.axis(0, 4096), 1024), pool.axis(1, 1024));
  const Index i = pool.floor_div(flat, 1 << 20), j = pool.mod(pool.floor_div(flat, 1024), 1024);
  const Index k = pool.mod(flat, 1024);
  CHECK(k == pool.axis(1, 1024));
  CHECK(pool.add(pool.add(pool.scale(i, 1 << 20), pool.scale(j, 1024)), k) == flat);
  CHECK(pool.floor_div(flat, 1024) == pool.axis(0, 4096));
}

TEST_CASE("strides are read off, and hidden under division or remainder") {
  IndexPool pool;
  const Index flat = pool.add(pool.scale(pool.axis(0, 10), 30), pool.axis(1, 30));
  CHECK(pool.stride(flat, 0) == 30);
  CHECK(pool.stride(flat, 1) == 1);
  CHECK(pool.stride(flat, 2) == 0);
  CHECK(pool.stride(pool.floor_div(flat, 7), 1) == std::nullopt);
  CHECK(pool.stride(pool.mod(flat, 30), 0) == 0);
}

TEST_CASE("an axis of extent one is zero, and values are leaves with a range") {
  IndexPool pool;
  CHECK(pool.axis(3, 1) == pool.constant(0));
  const Index row = pool.value(5, {0, 99});
  const Index address = pool.add(pool.scale(row, 8), pool.axis(0, 8));
  CHECK(pool.range(address) == Range{0, 799});
  CHECK(pool.depends_on_value(address));
  CHECK(pool.floor_div(address, 8) == row);
}

TEST_CASE("substitution composes maps and simplifies the result") {
  IndexPool pool;
  const Index map = pool.add(pool.scale(pool.axis(0, 8), 16), pool.axis(1, 16));
  const Index flat = pool.axis(2, 128);
  const Index composed = pool.substitute(map, [&](const Atom& a) -> std::optional<Index> {
    return a.id == 0 ? pool.floor_div(flat, 16) : pool.mod(flat, 16);
  });
  CHECK(composed == flat);
}
