// Collectives over a named axis of vmap: values, derivatives, nesting, and the errors of axes that are not there.
#include <doctest/doctest.h>

#include <complex>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_of;

namespace {

using Floats = std::vector<float>;

Array numbers(std::initializer_list<float> x) { return array(std::vector<float>(x)); }

}  // namespace

TEST_CASE("reductions over a vmapped axis see all examples") {
  const Array x = numbers({1, 2, 6});
  const VmapOptions i{.axis_name = "i"};
  CHECK(vmap([](Array v) { return psum(v, "i"); }, i)(x).to_vector<float>() == Floats{9, 9, 9});
  CHECK(vmap([](Array v) { return v - pmean(v, "i"); }, i)(x).to_vector<float>() == Floats{-2, -1, 3});
  CHECK(vmap([](Array v) { return pmax(v, "i") - pmin(v, "i"); }, i)(x).to_vector<float>() == Floats{5, 5, 5});
  CHECK(vmap([](Array v) { return psum(Array(2.0f), "i") + 0.0f * v; }, i)(x).to_vector<float>() == Floats{6, 6, 6});
  CHECK(jit(vmap([](Array v) { return v * convert(axis_index("i"), f32); }, i))(x).to_vector<float>() ==
        Floats{0, 2, 12});
  CHECK(vmap([](Array v) { return v * static_cast<float>(axis_size("i")); }, i)(x).to_vector<float>() ==
        Floats{3, 6, 18});
}

TEST_CASE("extremes over a vmapped axis refuse complex numbers, which have no order; sums take them") {
  const Array z = array(std::vector<std::complex<float>>{{1, 2}, {3, -1}});
  const auto over = [&](auto f) { return vmap([f](Array v) { return f(v, "i"); }, {.axis_name = "i"}); };
  CHECK(over(psum)(z).to_vector<std::complex<float>>() == std::vector<std::complex<float>>{{4, 1}, {4, 1}});
  const auto said = [&](auto f) {
    const std::string text = message_of([&] { over(f)(z); });
    return text.substr(text.find(": p") + 2, text.find('\n') - text.find(": p") - 2);
  };
  CHECK(said(pmax) == "pmax: takes an integer or floating point, not c64[]");
  CHECK(said(pmin) == "pmin: takes an integer or floating point, not c64[]");
}

TEST_CASE("all_gather, ppermute and all_to_all move values between examples") {
  const Array x = numbers({1, 2, 6});
  const VmapOptions i{.axis_name = "i"};
  CHECK(vmap([](Array v) { return all_gather(v, "i"); }, i)(x).to_vector<float>() == Floats{1, 2, 6, 1, 2, 6, 1, 2, 6});
  CHECK(vmap([](Array v) { return ppermute(v, "i", {{0, 1}, {1, 2}}); }, i)(x).to_vector<float>() == Floats{0, 1, 2});
  const Array m = reshape(arange(6, f32), {2, 3});  // mapped along columns: examples are columns of 2
  const VmapOptions columns{.in = {1}, .axis_name = "i"};
  CHECK(vmap([](Array v) { return all_gather(v, "i", 1); }, columns)(m).shape() == Shape{3, 2, 3});
  const Array square = reshape(arange(9, f32), {3, 3});
  const auto swap = vmap([](Array v) { return all_to_all(v, "i", 0, 0); }, i);
  CHECK(swap(square).to_vector<float>() == Floats{0, 3, 6, 1, 4, 7, 2, 5, 8});
  CHECK(swap(swap(square)).to_vector<float>() == square.to_vector<float>());
}

TEST_CASE("collectives differentiate, inside vmap and around it, in loops, calls and nested axes") {
  const Array x = numbers({1, 2, 6});
  const VmapOptions i{.axis_name = "i"};
  // sum over examples of (x_k * s)^2 with s = sum x: the gradient of a whole.
  const auto whole = [&](Array v) { return sum(vmap([](Array e) { return square(e * psum(e, "i")); }, i)(v)); };
  const auto plain = [](Array v) { return sum(square(v * sum(v))); };
  CHECK(grad(whole)(x).to_vector<float>() == grad(plain)(x).to_vector<float>());
  const auto extreme = [&](Array v) { return sum(vmap([](Array e) { return e * pmax(e, "i"); }, i)(v)); };
  CHECK(grad(extreme)(x).to_vector<float>() == grad([](Array v) { return sum(v * max(v)); })(x).to_vector<float>());
  const auto gather = [&](Array v) {
    return sum(vmap([](Array e) { return e * sum(square(all_gather(e, "i"))); }, i)(v));
  };
  CHECK(grad(gather)(x).to_vector<float>() ==
        grad([](Array v) { return sum(v * sum(square(v))); })(x).to_vector<float>());

  const auto in_loop = [](Array v) {
    return scan([](Array c, Array) { return std::pair{c - 0.5f * pmean(c, "i"), none}; }, v, arange(2)).first;
  };
  CHECK(vmap(in_loop, i)(x).to_vector<float>() == Floats{-1.25, -0.25, 3.75});
  const auto inner = jit([](Array v) { return psum(v, "i"); });
  CHECK(vmap([&](Array v) { return inner(v); }, i)(x).to_vector<float>() == Floats{9, 9, 9});
  CHECK(vmap([&](Array v) { return inner(v); }, i)(numbers({1, 1})).to_vector<float>() == Floats{2, 2});

  const Array m = reshape(arange(6, f32), {2, 3});
  const auto both = vmap(
      [&](Array row) {
        return vmap([](Array e) { return psum(e, "rows") + 100.0f * psum(e, "columns"); },
                    {.axis_name = "columns"})(row);
      },
      {.axis_name = "rows"});
  CHECK(both(m).to_vector<float>() == Floats{303, 305, 307, 1203, 1205, 1207});
}

TEST_CASE("an axis that no vmap has, and shapes that do not fit it, are named") {
  const int base = __LINE__;
  const auto alone = [] { psum(Array(1.0f), "i"); };
  CHECK(message_of(alone, base) ==
        "HERE+1: psum: no enclosing vmap or shard_map has an axis \"i\"; give vmap one with .axis_name");
  const VmapOptions i{.axis_name = "i"};
  const auto other_axis = [](Array v) { return psum(v, "j"); };
  CHECK(message_of([&] { vmap(other_axis, i)(arange(3, f32)); }, base) ==
        "HERE+5: psum: no enclosing vmap or shard_map has an axis \"j\"; there is \"i\"");
  const auto beyond = [](Array v) { return ppermute(v, "i", {{0, 3}}); };
  CHECK(message_of([&] { vmap(beyond, i)(arange(3, f32)); }, base) ==
        "HERE+8: ppermute: the pair (0, 3) is out of range for axis \"i\" of size 3");
  const auto crowded = [](Array v) { return ppermute(v, "i", {{0, 1}, {2, 1}}); };
  CHECK(message_of([&] { vmap(crowded, i)(arange(3, f32)); }, base) == "HERE+11: ppermute: example 1 gets two values");
  const auto copied = [](Array v) { return ppermute(v, "i", {{0, 1}, {0, 2}}); };
  CHECK(message_of([&] { vmap(copied, i)(arange(3, f32)); }, base) ==
        "HERE+13: ppermute: example 0 gives its value to two");
}

TEST_CASE("an axis of no examples has sums and permutations, and no largest example") {
  const VmapOptions i{.axis_name = "i"};
  const Array nothing = zeros({0});
  CHECK(vmap([](Array v) { return ppermute(v, "i", {}); }, i)(nothing).shape() == Shape{0});
  CHECK(vmap([](Array v) { return psum(v, "i"); }, {.out = {none}, .axis_name = "i"})(nothing).item<float>() == 0);
  const auto largest = [](Array v) { return pmax(v, "i"); };
  CHECK(tests::message_here([&] { vmap(largest, i)(nothing); }) ==
        "HERE: pmax: axis \"i\" has no examples, of which none is the largest or smallest");
}

TEST_CASE("a sum counts bools") {
  const Array x = numbers({1, -2, 6});
  const Array counts = vmap([](Array v) { return psum(v > 0.0f, "i"); }, {.axis_name = "i"})(x);
  CHECK(counts.dtype() == i32);
  CHECK(counts.to_vector<int>() == std::vector<int>{2, 2, 2});
}

TEST_CASE("a gradient inside a vmap adds up the cotangents of all examples, whichever way values were gathered") {
  const Array x = numbers({1, 2, 6});
  const auto slopes = [&](auto f) { return vmap(grad(f), {.axis_name = "i"})(x).template to_vector<float>(); };
  const auto add = [](Array a, Array b) { return a + b; };
  const Floats expected = slopes([](Array v) { return square(psum(v, "i")); });
  CHECK(expected == Floats{54, 54, 54});
  CHECK(slopes([&](Array v) { return square(preduce(v, "i", add)); }) == expected);
  CHECK(slopes([](Array v) { return square(sum(all_gather(v, "i", {.to = Along::invarying}))); }) == expected);
}

TEST_CASE("a jitted function means what the axes around each call mean") {
  const auto scaled = jit([](Array v) { return v * static_cast<float>(axis_size("i")); });
  const auto over = [&](Array x) { return vmap([&](Array v) { return scaled(v); }, {.axis_name = "i"})(x); };
  CHECK(over(numbers({1, 2})).to_vector<float>() == Floats{2, 4});
  CHECK(over(numbers({1, 2, 3})).to_vector<float>() == Floats{3, 6, 9});
  const auto traces = stats().traces;
  CHECK(over(numbers({4, 2, 3})).to_vector<float>() == Floats{12, 6, 9});
  CHECK(stats().traces == traces);
}
