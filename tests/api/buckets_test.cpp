// Buckets: one program for many lengths, whose values are those of each length's own program.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <random>
#include <set>

#include "ir/log.h"
#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using tests::message_here;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return convert(x, f64).to_vector<double>(); }

Array numbers(int seed, const Shape& shape) { return random::normal(random::key(seed), shape); }

bool close(const Array& a, const Array& b) {
  const V x = values(a), y = values(b);
  if (a.shape() != b.shape()) return false;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] != y[i] && !(std::abs(x[i] - y[i]) <= 1e-5 * (1 + std::abs(y[i]))) &&
        !(std::isnan(x[i]) && std::isnan(y[i])))
      return false;
  return true;
}

struct RequireWarm {
  RequireWarm() { require_warm(true); }
  ~RequireWarm() { require_warm(false); }
};

const std::vector<std::int64_t> kSizes = {4, 8, 16, 32};

/// Whether the function of arrays of every length from `from` on gives, through buckets, what it gives without them.
template <class F>
void check_lengths(F f, const Shape& like, int dim, std::int64_t from = 1) {
  const auto exact = jit(f);
  const auto bucketed = jit(f, {.buckets = {{.sizes = kSizes, .dims = {{0, dim}}}}});
  for (std::int64_t n = from; n <= 32; n += n < 10 ? 1 : 5) {
    Shape shape = like;
    shape[static_cast<std::size_t>(dim)] = n;
    const Array x = numbers(static_cast<int>(n), shape);
    const auto wanted = tree_leaves(exact(x)), got = tree_leaves(bucketed(x));
    REQUIRE(wanted.size() == got.size());
    for (std::size_t j = 0; j < got.size(); ++j) {
      INFO("length ", n, ", result ", j);
      CHECK(close(got[j], wanted[j]));
    }
  }
  CHECK(compiles(bucketed) <= 4);
}

}  // namespace

TEST_CASE("200 random lengths take no more programs than there are buckets, and no kernels beyond those") {
  const auto f = jit(
      [](Array tokens, Array table, Array w) {
        const Array x = table[tokens];  // [length, 8]
        const Array scores = softmax(dot(x, swapaxes(x, 0, 1)) * 0.3, 1);
        const Array mixed = tanh(dot(dot(scores, x), w)) + x;
        return std::pair{mean(mixed, {.axes = {0}}), mixed};
      },
      {.buckets = {{.sizes = {16, 64, 256}, .dims = {{0, 0}}}}});
  const Array table = numbers(1, {50, 8}), w = numbers(2, {8, 8});
  const auto exact = [&](Array tokens) {
    const Array x = table[tokens];
    const Array scores = softmax(dot(x, swapaxes(x, 0, 1)) * 0.3, 1);
    const Array mixed = tanh(dot(dot(scores, x), w)) + x;
    return std::pair{mean(mixed, {.axes = {0}}), mixed};
  };
  std::mt19937 random(7);
  std::set<std::int64_t> buckets;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t n = 1 + static_cast<std::int64_t>(random() % 256);
    const Array tokens = random::randint(random::key(i), {n}, 0, 50);
    const Stats before = stats();
    const bool is_new = buckets.insert(n <= 16 ? 16 : n <= 64 ? 64 : 256).second;
    const auto [y, all] = f(tokens, table, w);
    all.wait();
    if (!is_new) CHECK(stats().programs == before.programs);
    CHECK(all.shape() == Shape{n, 8});
    if (i % 20 == 0) {
      const auto [wanted, each] = exact(tokens);
      CHECK(close(y, wanted));
      CHECK(close(all, each));
    }
  }
  CHECK(compiles(f) <= 3);
  CHECK(why_recompiled(f).size() <= 2);
}

TEST_CASE("a bucket that was warmed up for one length compiles nothing for another") {
  const auto f = jit([](Array x) { return x / mean(x) + 0.03125; }, {.name = "f", .buckets = {{.sizes = {8, 16}}}});
  warm(f, abstract({5}));
  const Array six = numbers(1, {6}), eight = numbers(2, {8});
  std::optional<RequireWarm> nothing(std::in_place);
  const Array a = f(six), b = f(eight);
  nothing.reset();
  CHECK(close(a, six / mean(six) + 0.03125));
  CHECK(close(b, eight / mean(eight) + 0.03125));
}

TEST_CASE("reductions of every kind leave the padding out") {
  check_lengths(
      [](Array x) {
        return std::tuple{sum(x),
                          mean(x),
                          max(x, {.axes = {0}}),
                          min(x, {.axes = {1}}),
                          prod(x * 0.5, {.axes = {0}}),
                          any(x > 2),
                          all(x < 2),
                          argmax(x, 0),
                          argmin(x, 0),
                          var(x),
                          logsumexp(x, {.axes = {0}})};
      },
      {0, 3}, 0);
}

TEST_CASE("elementwise work, products, broadcasts, positions, running sums and transposes go along") {
  check_lengths(
      [](Array x) {
        const Array n = arange(x.shape()[1], f32);
        return std::tuple{exp(x) + n,
                          dot(x, swapaxes(x, 0, 1)),
                          cumsum(x, {.axis = 1}),
                          cumsum(x, {.axis = 1, .reverse = true}),
                          swapaxes(x, 0, 1),
                          softmax(x, 1),
                          x / sum(square(x))};
      },
      {3, 0}, 1);
}

TEST_CASE("sorting, the largest, opposite order and what is taken from the end know where the length ends") {
  check_lengths(
      [](Array x) {
        const TopK best = top_k(x, 2, 0);
        const std::vector<Array> together = sort_together({round(x), x}, 0);
        return std::tuple{sort(x, 0), argsort(x, 0), together[1], best.values, best.indices,
                          flip(x),    x[-1],         x[-2] * 2,   sort(x, 1)};
      },
      {0, 3}, 0, 2);
  const auto sorted = jit([](Array x) { return std::pair{sort(x), argsort(x)}; }, {.buckets = {{.sizes = {8}}}});
  const double nan = std::nan(""), inf = INFINITY;
  const auto [in_order, places] = sorted(array({nan, 1.0, inf, -nan, -inf}, f32));
  CHECK(close(in_order, array({-inf, 1.0, inf, nan, nan}, f32)));
  CHECK(values(places) == V{4, 1, 2, 0, 3});
}

TEST_CASE("what is read and written at places that data says stays within the length") {
  check_lengths(
      [](Array x) {
        const Array i = convert(round(x * 4), i32);  // of which some are out of range, and some count from the end
        const Array column = take(x, 0, 1), places = take(i, 1, 1);
        const Indexing filled{.mode = OutOfRange::fill};
        return std::tuple{take(column, places),
                          take(column, places, 0, filled),
                          take(x, convert(places, i8)),
                          take_along_axis(x, i, 0),
                          zeros({40}).at(places).set(column),
                          ones({40}).at(places).mul(column),
                          column.at(places).add(1),
                          column.at(places).set(7),
                          x.at(-1).set(5),
                          x.at(places, clip(places, 0, 1)).max(column),
                          grad([&](Array v) { return sum(square(take(v, places))); })(column)};
      },
      {0, 2}, 0, 1);
}

TEST_CASE("windows and convolutions along the length, and their gradients, see nothing behind it") {
  check_lengths(
      [](Array x) {
        const std::int64_t n = x.shape()[0];
        const Array image = reshape(1 / x, {1, n, 2}), kernel = numbers(5, {3, 2, 2});
        const Conv causal{.padding = {{2, 0}}};
        const auto loss = [&](Array i, Array k) { return sum(square(conv(tanh(i), k))); };
        return std::tuple{conv(image, kernel),
                          conv(image, kernel, causal),
                          conv(image, kernel, {.padding = {{4, 0}}, .kernel_dilation = {2}}),
                          grad<0>(loss)(image, kernel),
                          grad<1>(loss)(image, kernel),
                          window_sum(x, {.window = {3, 1}, .padding = "SAME"}),
                          window_max(x, {.window = {2, 1}, .padding = {{1, 0}, {0, 0}}}),
                          window_min(convert(x, i32), {.window = {3, 2}, .padding = "SAME"})};
      },
      {0, 2}, 0);
}

TEST_CASE("recurrences and running products along the length go along, with their gradients") {
  check_lengths(
      [](Array x) {
        const auto both = [&](auto f) { return std::pair{f(x), grad([&](Array v) { return sum(f(v) * v); })(x)}; };
        return std::tuple{both([](Array v) { return cumprod(v); }), both([](Array v) { return cummax(v); }),
                          both([](Array v) { return cumlogsumexp(v, {.reverse = true}); }),
                          both([](Array v) { return linear_recurrence(v, v); }),
                          both([](Array v) { return linear_recurrence(1 / v, v, {.reverse = true}); })};
      },
      {0}, 0);
}

TEST_CASE("an attribute that happens to be the length is no extent") {
  const auto f = jit(
      [](Array x) {
        const Array table = reshape(arange(10, f32), {1, 10, 1});
        const Conv every_nth{.strides = {x.shape()[0]}, .padding = "VALID"};  // two of them, for 5 as for 8
        return sum(x) * conv(table, ones({1, 1, 1}), every_nth);
      },
      {.name = "f", .buckets = {{.sizes = {4, 8}}}});
  CHECK(
      message_here<TypeError>([&] { f(ones({6})); }) ==
      "HERE: jit f: .buckets: conv depends on the length in another way than having it as an extent; docs/buckets.md");
}

TEST_CASE("no elements, or one, go to the first bucket that is for many") {
  const auto f = [](Array x) { return std::tuple{sum(x), x - mean(x, {.keepdims = true}), any(x > 0)}; };
  for (const std::vector<std::int64_t>& sizes : {std::vector<std::int64_t>{1, 4}, {2, 4}}) {
    const auto bucketed = jit(f, {.buckets = {{.sizes = sizes}}});
    for (std::int64_t n = 0; n <= 4; ++n) {
      const Array x = numbers(1, {n});
      const auto wanted = tree_leaves(f(x)), got = tree_leaves(bucketed(x));
      for (std::size_t j = 0; j < got.size(); ++j) CHECK(close(got[j], wanted[j]));
    }
    CHECK(compiles(bucketed) == 2);
  }
}

TEST_CASE("a sum of negative zeros stays one beside the padding") {
  const auto f = jit([](Array x) { return cumsum(x, {.reverse = true}); }, {.buckets = {{.sizes = {8}}}});
  for (const double x : values(f(array({-0.0, -0.0, -0.0}, f32)))) CHECK(std::signbit(x));
}

TEST_CASE("gradients and batches go along") {
  const Array w = numbers(3, {4, 4});
  check_lengths(
      [=](Array x) {
        const auto loss = [&](Array v) { return mean(square(tanh(dot(x, v)))); };
        const auto [value, g] = value_and_grad(loss)(w);
        return std::tuple{value, g, vmap([](Array row) { return row / (1 + sum(abs(row))); })(x),
                          grad([](Array y) { return sum(logsumexp(y, {.axes = {0}})); })(x)};
      },
      {0, 4}, 0);
}

TEST_CASE("a scan over the length keeps its carry beyond it, forwards, backwards and in its gradient") {
  const Array w = numbers(4, {3, 3}) * 0.4;
  check_lengths(
      [=](Array x) {
        const auto cell = [&](Array h, Array row) { return std::pair{tanh(dot(h, w) + row), h * 2}; };
        const auto [last, all] = scan(cell, zeros({3}), x);
        const Array back = scan(cell, ones({3}), x, {.reverse = true}).first;
        const Array g = grad([&](Array h) { return sum(scan(cell, h, x).first); })(ones({3}) * 0.1);
        return std::tuple{last, all, back, g};
      },
      {0, 3}, 0);
}

TEST_CASE("branches and loops until something holds see no padding") {
  check_lengths(
      [](Array x) {
        const Array c = cond(sum(x) > 0, [](Array v) { return v * mean(v); }, [](Array v) { return v - max(v); }, x);
        const Array l = while_loop([](Array v) { return max(abs(v)) > 0.1; }, [](Array v) { return v * 0.5; }, x);
        return std::pair{c, l};
      },
      {0, 2}, 0);
}

TEST_CASE("numbers that a function computes from the length on the host are the length's own") {
  check_lengths(
      [](Array x) {
        const auto n = static_cast<double>(x.shape()[0]);
        return std::tuple{x * (1 / n), x + std::sqrt(n), sum(x) / std::max(n, 6.0)};
      },
      {0, 2}, 0);
}

TEST_CASE("a number that a bucket's own length makes equal to another is its own all the same") {
  check_lengths(
      [](Array x) {
        const auto n = static_cast<double>(x.shape()[0]);
        const auto step = [&](Array c, Array v) { return std::pair{c / 16 + v / n, c}; };
        return std::tuple{x * 4 + n, mean(x) * 0.125, x / 8 - sum(x) / n, scan(step, Array(0.0f), x).second};
      },
      {0}, 0);
}

TEST_CASE("two lengths, of several arguments, are padded each to its own") {
  const auto f = [](Array a, Array b, Array m) { return std::pair{dot(a, b) * m, sum(a) + sum(m)}; };
  const auto bucketed =
      jit(f, {.buckets = {{.sizes = {4, 8}, .dims = {{0, 0}, {2, 0}}}, {.sizes = {4, 8}, .dims = {{1, -1}, {2, 1}}}}});
  for (std::int64_t n : {1, 3, 4, 7, 8})
    for (std::int64_t m : {1, 2, 4, 5, 8}) {
      const Array a = numbers(1, {n, 3}), b = numbers(2, {3, m}), c = numbers(3, {n, m});
      const auto [x, y] = bucketed(a, b, c);
      const auto [u, v] = f(a, b, c);
      CHECK(close(x, u));
      CHECK(close(y, v));
    }
  CHECK(compiles(bucketed) <= 4);
}

TEST_CASE("a length beyond the buckets, or two where one is to be, is an error") {
  const auto f = jit([](Array x, Array y) { return x + y; },
                     {.name = "f", .buckets = {{.sizes = {4, 8}, .dims = {{0, 0}, {1, 0}}}}});
  CHECK(message_here<ShapeError>([&] { f(ones({9}), ones({9})); }) ==
        "HERE: jit f: .buckets: argument 0: dim 0 is 9, and the largest bucket is 8");
  CHECK(message_here<ShapeError>([&] { f(ones({3}), ones({4})); }) ==
        "HERE: jit f: .buckets: argument 0: dim 0 is 3 and argument 1: dim 0 is 4, which are to be one length");
  CHECK(message_here<ShapeError>([&] { f(ones({}), ones({4})); }) ==
        "HERE: jit f: .buckets: argument 0 is f32[], which has no dim 0");
  const auto book = jit([](Array x) { return x; }, {.name = "book", .args = {"strike"}, .buckets = {{.sizes = {4}}}});
  CHECK(message_here<ShapeError>([&] { book(ones({5})); }) ==
        "HERE: jit book: .buckets: argument 0 (strike): dim 0 is 5, and the largest bucket is 4");
  const auto none = [] { jit([](Array x) { return x; }, {.name = "f", .buckets = {{.sizes = {}}}}); };
  CHECK(message_here<TypeError>(none) == "HERE: jit f: .buckets: there must be sizes, and dims that have them");
  const auto falling = [] { jit([](Array x) { return x; }, {.name = "f", .buckets = {{.sizes = {8, 4}}}}); };
  CHECK(message_here<TypeError>(falling) == "HERE: jit f: .buckets: sizes are above 0 and ascend");
}

TEST_CASE("what is one longer or shorter than the length, or several of it, goes along") {
  check_lengths(
      [](Array x) {
        const Array rest = x[slice(1, none)], before = x[slice(none, -1)];
        const std::int64_t n = x.shape()[0];
        return std::tuple{rest,
                          before,
                          rest - before,
                          mean(square(rest - before)),
                          cumsum(rest),
                          flip(before),
                          sort(rest, 0),
                          argmax(before, 0),
                          rest[-1],
                          x[slice(1, -1)],
                          dot(rest, swapaxes(before, 0, 1)),
                          arange(n + 1, f32),
                          pad(x, {{2, 0}, {0, 0}}),
                          max(pad(x, {{1, 2}, {0, 1}}, -1), {.axes = {0}}),
                          grad([](Array v) { return sum(square(v[slice(1, none)] - v[slice(none, -1)])); })(x),
                          grad([](Array v) { return sum(square(v[-1])) + sum(v[slice(-2, none)]); })(x)};
      },
      {0, 11}, 0, 5);
}

TEST_CASE("joined along the length, each part begins where the one before ends") {
  check_lengths(
      [](Array x) {
        const Array first = zeros({1, 11}), last = ones({2, 11});
        const auto all = [=](Array v) { return concatenate({first, v, last, v * 2, v[slice(1, none)]}); };
        return std::tuple{
            concatenate({first, x}),
            concatenate({x, last}),
            concatenate({x, last, x}) * 2,
            sum(concatenate({x, x}), {.axes = {0}}),
            all(x),
            grad([=](Array v) { return sum(square(all(v))); })(x),
            roll(x, 1),
            roll(x, -1),
            stack({x, x * 2}, 1),
            scan([](Array c, Array v) { return std::pair{c + v, c}; }, zeros({11}), concatenate({first, x}))};
      },
      {0, 11}, 0, 3);
}

TEST_CASE("a length taken together with other dims, or apart, keeps its elements in order") {
  check_lengths(
      [](Array x) {  // [length, 6]
        const std::int64_t n = x.shape()[0];
        const Array turned = swapaxes(x, 0, 1);  // [6, length]
        const Array heads = swapaxes(reshape(x, {n, 2, 3}), 0, 1);  // [2, length, 3]
        return std::tuple{ravel(x),
                          sum(ravel(turned)),
                          ravel(turned),
                          reshape(turned, {2, 3 * n}),
                          reshape(heads, {2 * n, 3}),
                          reshape(x, {2 * n, 3}),
                          reshape(reshape(heads, {2 * n, 3}), {2, n, 3}),
                          dot(reshape(heads, {2 * n, 3}), ones({3, 2})),
                          tile(x, {2, 1}),
                          repeat(x, 2),
                          grad([](Array v) { return sum(square(cumsum(ravel(v)))); })(turned)};
      },
      {0, 6}, 0, 2);
}

TEST_CASE("windows and convolutions that do not go beyond the ends, and their gradients, go along") {
  check_lengths(
      [](Array x) {
        const std::int64_t n = x.shape()[0];
        const Array image = reshape(1 / x, {1, n, 2}), kernel = numbers(5, {3, 2, 2});
        const Conv valid{.padding = "VALID"}, wide{.padding = {{2, 2}}},
            apart{.padding = "VALID", .kernel_dilation = {2}};
        const auto loss = [=](Array i, Array k) { return sum(square(conv(tanh(i), k, valid))); };
        return std::tuple{
            conv(image, kernel, valid),
            conv(image, kernel, wide),
            conv(image, kernel, apart),
            grad<0>(loss)(image, kernel),
            grad<1>(loss)(image, kernel),
            window_sum(x, {.window = {3, 1}, .padding = "VALID"}),
            window_max(x, {.window = {2, 1}, .padding = "VALID"}),
            grad([](Array v) { return sum(square(window_max(v, {.window = {2, 1}, .padding = "VALID"}))); })(x)};
      },
      {0, 2}, 0, 5);
}

TEST_CASE("sums of two lengths are extents too") {
  const auto f = [](Array a, Array b) {
    const Array both = concatenate({a, b, a});
    return std::tuple{both, softmax(both, 0), outer(a, both[slice(1, none)])};
  };
  const auto bucketed = jit(f, {.buckets = {{.sizes = {8}, .dims = {{0, 0}}}, {.sizes = {4, 16}, .dims = {{1, 0}}}}});
  const auto refused =
      jit([](Array a, Array b) { return ravel(outer(a, b)); },
          {.name = "f", .buckets = {{.sizes = {8}, .dims = {{0, 0}}}, {.sizes = {4}, .dims = {{1, 0}}}}});
  CHECK(message_here<TypeError>([&] { refused(ones({3}), ones({4})); }) ==
        "HERE: jit f: .buckets: an extent is 32 for a length of 8 and 4 and 16 for 8 and 2; docs/buckets.md");
  for (std::int64_t n : {2, 5, 8})
    for (std::int64_t m : {2, 3, 4, 7, 16}) {
      const Array a = numbers(1, {n}), b = numbers(2, {m});
      const auto wanted = tree_leaves(f(a, b)), got = tree_leaves(bucketed(a, b));
      for (std::size_t j = 0; j < got.size(); ++j) CHECK(close(got[j], wanted[j]));
    }
  CHECK(compiles(bucketed) <= 2);
}

TEST_CASE("what has no rule, or has extents that are no sum of lengths, is refused with its line") {
  const JitOptions options{.name = "f", .buckets = {{.sizes = {8}}}};
  const auto message = [&](auto f, const Array& x) {
    const auto bucketed = jit(f, options);
    return message_here<TypeError>([&] { bucketed(x); });
  };
  CHECK(message([](Array x) { return linalg::inv(outer(x, x)); }, ones({3})) ==
        "HERE: jit f: .buckets: lu: it has no rule for a dim whose length varies; docs/buckets.md");
  CHECK(message([](Array x) { return x[slice(none, none, 2)]; }, ones({3})) ==
        "HERE: jit f: .buckets: an extent is 4 for a length of 8 and 1 for 2; docs/buckets.md");
  CHECK(message([](Array x) { return x[slice(none, x.shape()[0] / 2)]; }, ones({3})) ==
        "HERE: jit f: .buckets: an extent is 4 for a length of 8 and 1 for 2; docs/buckets.md");
  CHECK(
      message([](Array x) { return ravel(outer(x, x)); }, ones({3})) ==
      "HERE: jit f: .buckets: reshape depends on the length in another way than having it as an extent; docs/buckets.md");
  CHECK(message([](Array x) { return arange(8, f32)[slice(x.shape()[0], none)]; }, ones({3})) ==
        "HERE: jit f: .buckets: slice lies elsewhere for other lengths; docs/buckets.md");
}

TEST_CASE("a length that the function refuses is its own affair, and no other's") {
  const auto f = jit(
      [](Array x) {
        if (x.shape()[0] == 5) throw std::runtime_error("five is too odd");
        return x * sum(x);
      },
      {.name = "f", .buckets = {{.sizes = {4, 8}}}});
  CHECK(values(f(ones({7})))[6] == 7);
  for (int i = 0; i < 2; ++i) CHECK_THROWS_WITH_AS(f(ones({5})), "five is too odd", std::runtime_error);
  CHECK(values(f(ones({6})))[5] == 6);
  CHECK(compiles(f) == 1);
}

TEST_CASE("a length at which the function does something else is compiled for itself, with one warning") {
  const auto f = jit([](Array x) { return x.shape()[0] == 3 ? x * 100 : sum(x) + x; },
                     {.name = "f", .buckets = {{.sizes = {4, 8}}}});
  std::vector<std::string> lines;
  const ir::LogSink before = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  const V three = values(f(ones({3}))), two = values(f(ones({2}))), again = values(f(ones({3})));
  ir::set_log_sink(before);
  CHECK(three == V{100, 100, 100});
  CHECK(again == three);
  CHECK(two == V{3, 3});
  const Array one = ones({1}), four = ones({4});
  const auto g = jit([](Array x) { return x.shape()[0] == 1 ? x * 50 : sum(x) * x; },
                     {.name = "g", .buckets = {{.sizes = {4, 8}}}});
  g(four);
  {
    const RequireWarm none;
    CHECK(message_here<RuntimeError>([&] { g(one); }) ==
          "HERE: jit g: would be compiled, and require_warm allows that no more: the length was 4 (a bucket) and is 1 "
          "(compiled for itself)");
  }
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("jit f is compiled for the length 3 itself, and the bucket's program cannot stand for it") !=
        std::string::npos);
}
