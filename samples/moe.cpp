// A layer of experts, one on each device: a gate sends every token to the expert that scores highest, all_to_all
// carries the tokens there and the answers back. An expert takes a fixed number of tokens from each device; the rest
// pass by.
#include <sheaf/sheaf.h>

#include <cmath>
#include <cstdio>

using namespace sheaf;

constexpr std::int64_t kExperts = 4, kTokens = 64, kWidth = 32, kHidden = 64, kCapacity = 32;

struct Layer {
  Array gate;     // [width, experts]
  Array in, out;  // [experts, width, hidden], [experts, hidden, width]
};

// Which expert each token goes to, as one_hot [tokens, experts, capacity] places, and the weight of its answer.
std::pair<Array, Array> route(const Array& gate, const Array& x) {
  const Array scores = softmax(dot(x, gate));
  const Array chosen = one_hot(argmax(scores, -1), kExperts);        // [tokens, experts]
  const Array place = cumsum(chosen, {.axis = 0}) * chosen - 1;                // among those that go there, or -1
  const Array places = one_hot(place.astype(i32), kCapacity) * expand_dims(chosen, {2});
  return {places, sum(scores * chosen, {.axes = {1}})};
}

Array expert(const Array& in, const Array& out, const Array& x) { return dot(relu(dot(x, in)), out); }

// Of one device: the tokens it has, and one expert.
Array spread(const Layer& own, const Array& x) {
  const auto [places, weight] = route(own.gate, x);
  const Array sent = einsum("tec,tw->ecw", places, x);  // [experts, capacity, width]
  const Array mine = all_to_all(sent, "expert", {.split = 0, .concat = 0, .tiled = true});  // [devices, capacity, ..]
  const Array done = reshape(expert(own.in[0], own.out[0], reshape(mine, {-1, kWidth})), mine.shape());
  const Array back = all_to_all(done, "expert", {.split = 0, .concat = 0, .tiled = true});
  return einsum("tec,ecw->tw", places, back) * expand_dims(weight, {1});
}

// The same on one device: the capacity counts for each device's tokens by themselves.
Array together(const Layer& layer, const Array& x) {
  std::vector<Array> parts;
  for (const Array& tokens : split(x, kExperts)) {
    const auto [places, weight] = route(layer.gate, tokens);
    const Array sent = einsum("tec,tw->ecw", places, tokens);
    const Array done = vmap(expert)(layer.in, layer.out, sent);
    parts.push_back(einsum("tec,ecw->tw", places, done) * expand_dims(weight, {1}));
  }
  return concatenate(parts);
}

int main() {
  ensure_devices(kExperts);
  try {
    const Mesh mesh({{"expert", kExperts}});
    const Array keys = random::split(random::key(0), 4);
    const Layer layer{.gate = random::normal(keys[0], {kWidth, kExperts}),
                      .in = random::normal(keys[1], {kExperts, kWidth, kHidden}) / std::sqrt(double{kWidth}),
                      .out = random::normal(keys[2], {kExperts, kHidden, kWidth}) / std::sqrt(double{kHidden})};
    const Array x = random::normal(keys[3], {kExperts * kTokens, kWidth});
    const Specs of_layer = specs({{".gate", P()}, {"", P("expert")}});

    const auto on_mesh = shard_map(spread, {.mesh = mesh, .in = {of_layer, P("expert")}, .out = {P("expert")}});
    const auto loss_of = [](auto f) { return [f](Layer l, Array in) { return mean(square(f(l, in) - in)); }; };
    const auto [expected, gradient] = jit(value_and_grad(loss_of(together)))(layer, x);
    const auto step = jit(value_and_grad(loss_of(on_mesh)), {.name = "moe"});
    const Layer parts = device_put(layer, mesh, of_layer);
    const Array tokens = device_put(x, mesh, P("expert"));
    const auto [loss, spread_gradient] = step(parts, tokens);
    std::printf("%s\n", step.trace(parts, tokens).lower().collectives().text.c_str());
    const double difference = std::abs(loss.item<double>() - expected.item<double>());
    const double of_gate = max(abs(spread_gradient.gate - gradient.gate)).item<double>();
    const double of_experts = max(abs(spread_gradient.in - gradient.in)).item<double>();
    const bool is_right = difference < 1e-5 && of_gate < 1e-5 && of_experts < 1e-5;
    std::printf("loss %.6f, on one device %.6f; largest difference of the gradients: gate %.1e, experts %.1e  %s\n",
                loss.item<double>(), expected.item<double>(), of_gate, of_experts, is_right ? "ok" : "WRONG");
    return is_right ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
