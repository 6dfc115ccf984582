// Users' programs on several devices: named and numbered as they were asked for.
#include <doctest/doctest.h>

#include <map>

#include "tests/api/arrays.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::eight;

namespace {

struct Layer {
  Array W, b;
};
struct Mlp {
  Layer in, out;
};

Mlp init() {
  const Array k = random::split(random::key(3), 2);
  return {{random::normal(k[0], {8, 16}) * 0.3, zeros({16})}, {random::normal(k[1], {16, 4}) * 0.3, zeros({4})}};
}

Array forward(const Mlp& m, const Array& x) {
  const Array h = relu(dot(x, m.in.W) + m.in.b);
  return dot(h, m.out.W) + m.out.b;
}

Array loss(const Mlp& m, const Array& x, const Array& y) { return mean(square(forward(m, x) - y)); }

using State = Adam::State<Mlp>;
struct Step {
  Mlp params;
  State state;
  Array loss;
};
Step train(Mlp params, State state, Array x, Array y) {
  const auto [l, g] = value_and_grad(loss)(params, x, y);
  auto [p, s] = Adam{.weight_decay = 0.01}.step(params, state, g, 1e-2);
  return {p, s, l};
}

bool all_close(const Mlp& a, const Mlp& b) {
  const std::vector<Array> x = tree_leaves(a), y = tree_leaves(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const Array& p, const Array& q) { return close(p, q, 1e-4); });
}

Array inputs() { return random::normal(random::key(4), {16, 8}); }
Array targets() { return random::normal(random::key(5), {16, 4}); }

// Three steps from `params`, the batch over data.
Step three_steps(Mlp params, const Specs& batch) {
  const auto step = jit(train);
  const Array x = device_put(inputs(), eight(), batch), y = device_put(targets(), eight(), batch);
  Step s = step(params, Adam{}.init(params), x, y);
  for (int i = 0; i < 2; ++i) s = step(s.params, s.state, x, y);
  CHECK(traces(step) == 1);
  return s;
}

Step on_one_device() {
  const Mlp params = init();
  Step s = train(params, Adam{}.init(params), inputs(), targets());
  for (int i = 0; i < 2; ++i) s = train(s.params, s.state, inputs(), targets());
  return s;
}

}  // namespace

TEST_CASE("program 11: each device reads its part of a batch, never the whole in one place") {
  const Array data = arange(0, 64).reshape({32, 2});
  int parts = 0;
  const Array batch = make_array_from_callback({16, 2}, {eight(), P("data")}, [&](const std::vector<Slice>& at) {
    ++parts;
    CHECK(*at[0].stop.value - *at[0].start.value == 4);
    return data(at[0], at[1]);
  });
  CHECK(parts == 4);
  CHECK(same(batch, data(slice(0, 16))));
  Loader loader({data}, {.batch = 16, .shuffle = false, .sharding = {eight(), P("data")}});
  CHECK(same(loader.batch(0, 1)[0], data(slice(16, 32))));
}

TEST_CASE("program 12: parameters and optimizer states are split by rule, and AdamW keeps them split") {
  const Mlp whole = init(), params = zero_shard(whole, eight(), "data");
  const State state = Adam{}.init(params);
  CHECK(state.m.in.W.sharding() == params.in.W.sharding());
  CHECK(bytes_per_device(params) == bytes_per_device(whole) / 4);
  const Step s = three_steps(params, P("data"));
  CHECK(s.params.in.W.sharding() == params.in.W.sharding());
  CHECK(s.state.v.out.W.sharding() == params.out.W.sharding());
  CHECK(all_close(s.params, on_one_device().params));
  std::map<std::string, Array> by_name{{"embedding", zeros({6, 8})}, {"scale", zeros({3})}};
  by_name = zero_shard(by_name, eight(), "model");
  CHECK(by_name.at("embedding").sharding() == NamedSharding{eight(), P(none, "model")});
  CHECK(by_name.at("scale").is_fully_replicated());
}

TEST_CASE("program 15: a train step for 1,024 devices is planned, with its memory and communication per device") {
  const Mesh large = Mesh::abstract({{"data", 8}, {"model", 128}});
  const auto like = [&](const Shape& shape, const PartitionSpec& spec) { return abstract(shape, f32, {large, spec}); };
  const Mlp params{{like({1024, 4096}, P(none, "model")), like({4096}, P("model"))},
                   {like({4096, 1024}, P("model")), like({1024}, P())}};
  const auto step = jit([](Mlp m, Array x, Array y) {
    const auto [l, g] = value_and_grad(loss)(m, x, y);
    return std::pair{l, Sgd{}.step(m, g, 0.1)};
  });
  const auto lowered = step.trace(params, like({4096, 1024}, P("data")), like({4096, 1024}, P("data"))).lower();
  const std::int64_t weights = 4 * (2 * 1024 * 32 + 32 + 1024);
  CHECK(lowered.memory().arguments == weights + 2 * 4 * 512 * 1024);
  CHECK(lowered.memory().temporaries > 0);
  const CollectiveReport report = lowered.collectives();
  INFO(report.text);
  CHECK(!report.entries.empty());
  for (const Collective& c : report.entries) {
    CHECK(c.op == "all_reduce");
    CHECK(c.is_implicit);
    CHECK(!c.reason.empty());
  }
}

TEST_CASE("program 16: data parallel, tensor parallel and FSDP are one program, and only the specs differ") {
  const Mlp params = init();
  const Step alone = on_one_device();
  const Specs by_tensor =
      specs({{".in.W", P(none, "model")}, {".in.b", P("model")}, {".out.W", P("model")}, {"", P()}});
  for (const Specs& layout :
       {Specs(P()), by_tensor, zero_specs(params, eight(), "data"), zero_specs(params, eight(), "data", by_tensor)}) {
    const Step s = three_steps(device_put(params, eight(), layout), P("data"));
    CHECK(close(s.loss, alone.loss, 1e-4));
    CHECK(all_close(s.params, alone.params));
  }
}

TEST_CASE("program 17: the same code slices, computes and prints an array on one device and on eight") {
  const auto program = [](const Array& x) {
    const Array y = x(slice(2, 6)) * 2 + x(slice(0, 4));
    return to_string(y) + to_string(sum(y, {.axes = {1}})) + type_text(x.reshape({4, 8}) + 1).substr(0, 3);
  };
  const Array x = arange(0, 32).astype(f32).reshape({8, 4});
  CHECK(program(device_put(x, eight(), P("data", "model"))) == program(x));
}

TEST_CASE("complex arrays compute on parts, elementwise ops too") {
  const auto f = [](const Array& z) { return abs(exp(0.3 * z) * conj(z)) + real(sum(z, {.axes = {0}})); };
  const Array z = complex(random::normal(random::key(6), {8, 6}), random::normal(random::key(7), {8, 6}));
  const Array whole = jit(f)(z);
  for (const PartitionSpec& spec : {P("data", "model"), P("model"), P({"model", "data"})}) {
    const Array parts = device_put(z, eight(), spec);
    CHECK(close(jit(f)(parts), whole, 1e-4));
    CHECK(close(f(parts), whole, 1e-4));
  }
}

TEST_CASE("a sum that a layer_norm reads is made once, before all its readers") {
  const auto f = [](const Array& x, const Array& in, const Array& out) {
    return layer_norm(x + dot(relu(dot(x, in)), out), ones({64}), zeros({64}));
  };
  const Array x = device_put(ones({512, 64}), eight(), P("data"));
  const Array in = device_put(ones({64, 256}), eight(), P(none, "model"));
  const Array out = device_put(ones({256, 64}), eight(), P("model"));
  CHECK(jit(f).trace(x, in, out).lower().collectives().entries.size() == 1);
}
