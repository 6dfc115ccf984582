// shard_map and pmap on devices: called at once, in jit, differentiated and batched, against the function of the whole;
// where results lie; devices that the user chooses; memory that is given up.
#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>

#include "tests/api/arrays.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::numbers;

TEST_CASE("a product of parts is the product, called at once and in jit, with its gradient and batches") {
  ensure_devices(8);
  const Mesh mesh({{"data", 4}, {"model", 2}});
  const auto f = shard_map([](Array x, Array w) { return tanh(psum(dot(x, w), "model")); },
                           {.mesh = mesh, .in = {P("data", "model"), P("model")}, .out = {P("data")}});
  const auto plain = [](Array x, Array w) { return tanh(dot(x, w)); };
  const Array x = numbers({8, 6}), w = numbers({6, 3}, 1);
  const Array y = f(x, w);
  CHECK(close(y, plain(x, w)));
  CHECK(y.sharding() == NamedSharding{mesh, P("data")});
  CHECK(close(jit(f)(x, w), plain(x, w)));
  const Array placed = device_put(x, mesh, P("data"));
  CHECK(close(jit(f)(placed, w), plain(x, w)));
  const auto slope = [](auto g) {
    return [g](Array a, Array b) { return grad([&](Array v) { return sum(square(g(a, v))); })(b); };
  };
  CHECK(close(slope(f)(x, w), slope(plain)(x, w)));
  CHECK(close(jit(slope(f))(placed, w), slope(plain)(x, w)));
  const Array batch = numbers({3, 8, 6});
  CHECK(close(jit(vmap(f, {.in = {0, none}}))(batch, w), vmap(plain, {.in = {0, none}})(batch, w)));
}

TEST_CASE("pmap puts each example on its device, the devices the user lists, and gives up what it may") {
  ensure_devices(8);
  const auto f = [](Array x) { return x * x - pmean(x, "i"); };
  const Array x = numbers({4, 3});
  const Array expected = x * x - mean(x, {.axes = {0}});
  const Array y = pmap(f, {.axis_name = "i"})(x);
  CHECK(close(y, expected));
  CHECK(y.addressable_shards().size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(close(y.addressable_shards()[i].data, expected[slice(i, i + 1)]));
  const std::vector<Device> all = devices();
  const Array on = pmap(f, {.axis_name = "i", .devices = {all[5], all[3], all[1], all[0]}})(x);
  CHECK(close(on, expected));
  CHECK(on.addressable_shards()[0].device == all[5]);
  const Array given = device_put(x, Mesh({{"i", 4}}), P("i"));
  CHECK(close(pmap(f, {.axis_name = "i", .donate = {0}})(given), expected));
}

TEST_CASE("a map whose devices choose branches and leave loops for themselves runs to its end") {
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  const auto f = shard_map(
      [](Array part) {
        const Array s = sum(part);
        const Array chosen =
            cond(s > 0, [](Array v) { return sum(sin(v)); }, [](Array v) { return 2.0 * sum(v); }, part);
        const auto more = [](Array c) { return abs(c) < 20.0; };
        return psum(while_loop(more, [](Array c) { return 2.0 * c + 1.0; }, chosen), "x");
      },
      {.mesh = mesh, .in = {P("x")}, .out = {P()}});
  const Array x = numbers({8}, 0.4);
  double expected = 0;
  for (int d = 0; d < 4; ++d) {
    const Array part = x[slice(2 * d, 2 * d + 2)];
    double c = sum(part).item<double>() > 0 ? sum(sin(part)).item<double>() : 2 * sum(part).item<double>();
    while (std::abs(c) < 20) c = 2 * c + 1;
    expected += c;
  }
  CHECK(f(x).item<double>() == doctest::Approx(expected));
  CHECK(jit(f)(x).item<double>() == doctest::Approx(expected));
}

TEST_CASE("every device of a shard_map calls the host for itself, and what one of them throws ends the run") {
  ensure_devices(8);
  const Mesh mesh({{"data", 4}, {"model", 2}});
  const HostFunction next("next", [](std::span<const HostTensor> in, std::span<const HostTensor> out) {
    const int i = in[0].as<std::int32_t>()[0];
    if (i == 9) throw std::runtime_error("nine is out");
    out[0].as<float>()[0] = static_cast<float>(1 + i);
  });
  const auto summed = [&](int first) {
    return shard_map(
        [&next, first](Array x) {
          return psum(next({axis_index("data") + first}, {abstract({}, f32)})[0] + 0 * sum(x), "data");
        },
        {.mesh = mesh, .in = {P("data")}, .out = {P()}});
  };
  const Array x = numbers({8}).astype(f32);
  CHECK(summed(0)(x).item<float>() == 10);
  CHECK(jit(summed(0))(x).item<float>() == 10);
  const std::string message = tests::message_of<RuntimeError>([&] { (void)summed(7)(x).item<float>(); });
  CHECK(message.find("nine is out") != std::string::npos);
}
