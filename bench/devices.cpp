// Programs on eight virtual devices of this process: what a collective costs beside a copy of the same bytes, what a
// data-parallel step costs beside the same work on one device, and what a call costs that computes next to nothing. The
// cores are the same on both sides.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <algorithm>
#include <vector>

#include "by_hand.h"
#include "measure.h"

namespace bench {
namespace {

using namespace sheaf;

constexpr std::int64_t kDevices = 8;

Mesh mesh_of_devices() {
  ensure_devices(kDevices);
  return Mesh({{"data", kDevices}});
}

// The bytes that are read are those of all operands, and those that are written those of all results: a copy's.
Result all_reduce(const Options& options) {
  const Mesh mesh = mesh_of_devices();
  const std::int64_t n = options.quick ? 1 << 16 : 1 << 21;
  const Array x = device_put(ones({kDevices * n}), mesh, P("data"));
  auto total =
      jit(shard_map([](Array part) { return psum(part, "data"); }, {.mesh = mesh, .in = {P("data")}, .out = {P()}}));
  const Floats from(static_cast<std::size_t>(kDevices * n));
  Floats to(from.size()), sum(static_cast<std::size_t>(n));
  std::fill_n(sum.data(), sum.size(), static_cast<float>(kDevices));
  check_agreement(total(x), sum, 0);
  Result r = compare([&] { total(x).wait(); }, [&] { copy(from, to); }, options);
  r.note = fmt::format("{:.1f} GB/s; goal: at most 2", 8.0 * static_cast<double>(from.size()) / r.ours * 1e-9);
  return r;
}

struct Layers {
  Array w1, b1, w2, b2, w3;
};

Layers step(const Layers& m, const Array& x, const Array& y) {
  const Layers g = grad([&](const Layers& w) {
    const Array h = relu(matmul(relu(matmul(x, w.w1) + w.b1), w.w2) + w.b2);
    const Array d = matmul(h, w.w3) - y;
    return mean(d * d);
  })(m);
  return {m.w1 - 0.01 * g.w1, m.b1 - 0.01 * g.b1, m.w2 - 0.01 * g.w2, m.b2 - 0.01 * g.b2, m.w3 - 0.01 * g.w3};
}

Result data_parallel(const Options& options) {
  const Mesh mesh = mesh_of_devices();
  const std::int64_t batch = options.quick ? 256 : 8192, wide = options.quick ? 32 : 256;
  const auto weights = [](const Shape& shape) { return ones(shape) * 0.01; };
  const Layers m{weights({64, wide}), weights({wide}), weights({wide, wide}), weights({wide}), weights({wide, 10})};
  const Layers everywhere = device_put(m, mesh, P());
  const Array x = device_put(ones({batch, 64}), mesh, P("data", none));
  const Array y = device_put(ones({batch, 10}), mesh, P("data", none));
  const Array part_x = ones({batch / kDevices, 64}), part_y = ones({batch / kDevices, 10});
  auto together =
      jit([mesh](const Layers& w, const Array& u, const Array& v) { return with_sharding(step(w, u, v), mesh, P()); });
  auto alone = jit(step);
  const auto on_devices = [&] { together(everywhere, x, y).w3.wait(); };
  const auto one_by_one = [&] {
    for (std::int64_t i = 0; i < kDevices; ++i) alone(m, part_x, part_y).w3.wait();
  };
  check_agreement(together(everywhere, x, y).w3, floats_of(alone(m, part_x, part_y).w3), 1e-5);  // equal examples
  Result r = compare(on_devices, {side("8 steps of batch 1024", one_by_one, options)}, options);
  r.note = "goal: at most 1.15";
  return r;
}

// As `dispatch, hot call` of one device: the parts are computed by the caller, one after the other.
Result hot_call(const Options& options) {
  constexpr int calls = 256;
  auto f = jit([](Array v) { return v * 0.5 + 1.0; });
  Array y = device_put(ones({8 * kDevices}), mesh_of_devices(), P("data"));
  const Work work = [&] {
    for (int i = 0; i < calls; ++i) y = f(y);
    y.wait();
  };
  return {.ours = seconds_of(work, options) / calls, .note = "y = f(y), f32[8] on each, one wait in 256 calls"};
}

Result hot_psum(const Options& options) {
  const Mesh mesh = mesh_of_devices();
  auto f = jit(shard_map([](Array v) { return v * 0.5 + psum(v, "data"); },
                         {.mesh = mesh, .in = {P("data")}, .out = {P("data")}}));
  Array y = device_put(zeros({8 * kDevices}), mesh, P("data"));
  return {.ours = seconds_of([&] { (y = f(y)).wait(); }, options), .note = "y = f(y), f32[8] on each, a wait in each"};
}

}  // namespace

std::vector<Row> device_rows() {
  return {{"all_reduce of 8 MB on each of 8 devices", "memcpy of the same bytes", all_reduce},
          {"data-parallel step, 8 devices, batch 8192", "", data_parallel},
          {"dispatch, hot call on 8 devices", "", hot_call},
          {"round trip, hot call with a sum on 8 devices", "", hot_psum}};
}

}  // namespace bench
