// Strategies that people write for themselves with shard_map, derivative rules and all, against the function of one
// device: by the program of one device, which all run in lockstep, and compiled.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/api/on_reference.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::numbers;

namespace {

// `mine` is `plain`, both ways.
template <class F, class G, class... A>
void check_same(const F& mine, const G& plain, const A&... args) {
  const Array expected = tests::on_reference(plain, args...)[0];
  CHECK(close(tests::on_devices(mine, args...)[0], expected));
  CHECK(close(jit(mine)(args...), expected));
}

// And so are its derivatives by both arguments, one after the other.
template <class F, class G>
void check_both(const F& mine, const G& plain, const Array& a, const Array& b) {
  check_same(mine, plain, a, b);
  const auto weighed = [](auto f) { return [f](Array u, Array v) { return sum(cos(f(u, v))); }; };
  const auto by_first = [](auto f) { return [f](Array u, Array v) { return grad<0>(f)(u, v); }; };
  const auto by_second = [](auto f) { return [f](Array u, Array v) { return grad<1>(f)(u, v); }; };
  check_same(by_first(weighed(mine)), by_first(weighed(plain)), a, b);
  check_same(by_second(weighed(mine)), by_second(weighed(plain)), a, b);
}

std::vector<std::pair<std::int64_t, std::int64_t>> around(std::int64_t n, std::int64_t step) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t i = 0; i < n; ++i) pairs.emplace_back(i, (i + step + n) % n);
  return pairs;
}

// Attention of queries [q, d] to keys that are their own values [k, d], scores small.
Array attend(const Array& q, const Array& k) {
  const Array w = exp(dot(q, transpose(k)));
  return dot(w, k) / sum(w, {.axes = {1}, .keepdims = true});
}

struct Ring {
  Array out, total;
};
Ring ring(const Array& q, Array k) {
  Array weighted = zeros_like(q), total = zeros({q.shape()[0], 1}, f64);
  for (std::int64_t i = 0; i < axis_size("c"); ++i) {
    const Array w = exp(dot(q, transpose(k)));
    weighted = weighted + dot(w, k);
    total = total + sum(w, {.axes = {1}, .keepdims = true});
    k = ppermute(k, "c", around(axis_size("c"), 1));
  }
  return {weighted / total, total};
}

// A ring of its own backwards: keys go round again, and their cotangents with them, home at last.
std::tuple<Array, Array> ring_backward(const std::tuple<Array, Array, Array, Array>& kept, const Array& ct) {
  auto [q, k, out, total] = kept;
  Array dq = zeros_like(q), dk = zeros_like(k);
  for (std::int64_t i = 0; i < axis_size("c"); ++i) {
    const Array p = exp(dot(q, transpose(k))) / total;
    const Array ds = p * (dot(ct, transpose(k)) - sum(ct * out, {.axes = {1}, .keepdims = true}));
    dq = dq + dot(ds, k);
    dk = dk + dot(transpose(ds), q) + dot(transpose(p), ct);
    k = ppermute(k, "c", around(axis_size("c"), 1));
    dk = ppermute(dk, "c", around(axis_size("c"), 1));
  }
  return {dq, dk};
}

}  // namespace

TEST_CASE("ring attention with a backward ring by custom_vjp") {
  ensure_devices(4);
  const Mesh mesh({{"c", 4}});
  const auto rule = custom_vjp([](Array q, Array k) { return ring(q, k).out; },
                               [](Array q, Array k) {
                                 const Ring r = ring(q, k);
                                 return std::pair{r.out, std::tuple{q, k, r.out, r.total}};
                               },
                               ring_backward);
  const auto mine =
      shard_map([=](Array q, Array k) { return rule(q, k); }, {.mesh = mesh, .in = {P("c"), P("c")}, .out = {P("c")}});
  check_both(mine, attend, numbers({8, 3}), numbers({8, 3}, 1));
  const auto derived = shard_map([](Array q, Array k) { return ring(q, k).out; },
                                 {.mesh = mesh, .in = {P("c"), P("c")}, .out = {P("c")}});
  check_both(derived, attend, numbers({8, 3}), numbers({8, 3}, 1));
}

TEST_CASE("a fully sharded layer whose gather has its rule by custom_vjp, and by kinds of values") {
  ensure_devices(4);
  const Mesh mesh({{"f", 4}});
  const auto gather = custom_vjp([](Array w) { return all_gather(w, "f", {.tiled = true}); },
                                 [](Array w) { return std::pair{all_gather(w, "f", {.tiled = true}), none}; },
                                 [](None, Array ct) { return std::tuple{psum_scatter(ct, "f", {.tiled = true})}; });
  const auto layer = [](Array x, Array w) { return tanh(dot(x, w)); };
  const std::vector<Specs> in{P("f"), P("f")};
  const auto by_rule =
      shard_map([=](Array x, Array w) { return layer(x, gather(w)); }, {.mesh = mesh, .in = in, .out = {P("f")}});
  check_both(by_rule, layer, numbers({8, 4}), numbers({4, 3}, 1));
  const auto by_kind = shard_map(
      [=](Array x, Array w) {
        const auto again = checkpoint([=](Array rows, Array part) {
          return layer(rows, all_gather(part, "f", {.tiled = true, .to = Along::reduced}));
        });
        return again(x, w);
      },
      {.mesh = mesh, .in = in, .out = {P("f")}});
  check_both(by_kind, layer, numbers({8, 4}), numbers({4, 3}, 1));
}

TEST_CASE("experts: tokens go to where their expert is and back, with a custom_jvp activation") {
  ensure_devices(4);
  const Mesh mesh({{"e", 4}});
  const auto act = custom_jvp([](Array x) { return x * sin(x); },
                              [](Array x, Array t) { return std::pair{x * sin(x), t * (sin(x) + x * cos(x))}; });
  // Token i of each device goes to expert i % 4: [4 * own, d].
  const auto mine = shard_map(
      [=](Array x, Array w) {
        const Array sent = all_to_all(x, "e", {.split = 0, .concat = 0, .tiled = true});
        return all_to_all(act(dot(sent, w[0])), "e", {.split = 0, .concat = 0, .tiled = true});
      },
      {.mesh = mesh, .in = {P("e"), P("e")}, .out = {P("e")}});
  const auto plain = [=](Array x, Array w) {
    const Array by_expert = reshape(x, {4, 4, 2, 3});  // [device, expert, token, d]
    return reshape(act(einsum("aetd,edf->aetf", by_expert, w)), {32, 3});
  };
  check_both(mine, plain, numbers({32, 3}), numbers({4, 3, 3}, 1));
}

TEST_CASE("heads are exchanged for sequence and back around attention") {
  ensure_devices(4);
  const Mesh mesh({{"c", 4}});
  const auto attention = [](Array x, Array w) {  // [sequence, heads, d], [d, d]
    const Array k = einsum("shd,de->she", x, w);
    const Array p = exp(einsum("shd,thd->hst", x, k));
    return einsum("hst,thd->shd", p / sum(p, {.axes = {2}, .keepdims = true}), k);
  };
  const auto mine = shard_map(
      [=](Array x, Array w) {
        const Array heads = all_to_all(x, "c", {.split = 1, .concat = 0, .tiled = true});
        return all_to_all(attention(heads, w), "c", {.split = 0, .concat = 1, .tiled = true});
      },
      {.mesh = mesh, .in = {P("c"), P()}, .out = {P("c")}});
  check_both(mine, attention, 0.5 * numbers({8, 4, 2}), numbers({2, 2}, 1));
}

TEST_CASE("a map in a scan in a branch in a checkpoint, differentiated, of a batch") {
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  const auto composed = [](auto step) {
    const auto layers = [=](Array h, Array ws) {
      return scan([=](Array c, Array w) { return std::pair{step(c, w), none}; }, h, ws).first;
    };
    const auto chosen = [=](Array h, Array ws) {
      return cond(
          sum(ws) > -100.0, [=](Array a, Array b) { return layers(a, b); }, [](Array a, Array) { return 2.0 * a; }, h,
          ws);
    };
    const auto loss = [=](Array h, Array ws) { return sum(square(checkpoint(chosen)(h, ws))); };
    return [=](Array batch, Array ws) { return vmap(grad<1>(loss), {.in = {0, none}})(batch, ws); };
  };
  const auto plain = [](Array c, Array w) { return tanh(c * w) + mean(c); };
  const auto mine = shard_map([](Array c, Array w) { return tanh(c * w) + pmean(mean(c), "x"); },
                              {.mesh = mesh, .in = {P("x"), P()}, .out = {P("x")}});
  check_same(composed(mine), composed(plain), numbers({3, 8}), numbers({5}, 1));
}

TEST_CASE(
    "loops that examples leave at steps of their own, in a map over another axis than that they are spread over") {
  ensure_devices(4);
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const auto grown = [](auto total) {
    return [=](Array part) {
      const auto more = [=](Array c) { return total(abs(c)) < 40.0; };
      return while_loop(more, [=](Array c) { return 2.0 * c + total(c); }, part, {.max_trips = 20});
    };
  };
  const auto mine = shard_map(grown([](Array c) { return psum(sum(c), "y"); }),
                              {.mesh = mesh, .in = {P("y")}, .out = {P("y")}, .axis_names = {"y"}});
  const auto spread = [=](Array a, Array) { return vmap(mine, {.spmd_axis_name = "x"})(a); };
  const auto plain = [=](Array a, Array) { return vmap(grown([](Array c) { return sum(c); }))(a); };
  check_same(spread, plain, numbers({4, 4}), numbers({1}));
  const auto slope = [](auto f) {
    return [f](Array a, Array b) { return grad([&](Array u) { return sum(cos(f(u, b))); })(a); };
  };
  check_same(slope(spread), slope(plain), numbers({4, 4}), numbers({1}));
}

TEST_CASE("layouts of free axes inside a map, and a map inside a program with layouts") {
  ensure_devices(4);
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const auto block = [](Array x, Array w) { return tanh(dot(tanh(dot(x, w)), transpose(w))); };
  const auto inner = shard_map(
      [=](Array x, Array w) {
        const Array h = with_sharding(tanh(dot(x, w)), mesh, P(none, "y"));
        return tanh(psum(dot(h, transpose(w)), "x") - dot(h, transpose(w)));
      },
      {.mesh = mesh, .in = {P(), P()}, .out = {P()}, .axis_names = {"x"}});
  const auto mine = [=](Array x, Array w) {
    const Array laid = with_sharding(w, mesh, P(none, "y"));
    return with_sharding(inner(with_sharding(x, mesh, P("x")), laid), mesh, P("x", "y"));
  };
  check_both(mine, block, numbers({4, 6}), numbers({6, 4}, 1));
  // One axis after the other by hand, the outer's left to the compiler inside the inner, which takes the rest.
  const auto nested = shard_map(
      [=](Array x, Array w) {
        const auto columns = shard_map([](Array a, Array b) { return psum(dot(tanh(dot(a, b)), transpose(b)), "y"); },
                                       {.mesh = mesh, .in = {P(), P(none, "y")}, .out = {P()}});
        return tanh(columns(x, w));
      },
      {.mesh = mesh, .in = {P("x"), P()}, .out = {P("x")}, .axis_names = {"x"}});
  check_both(nested, block, numbers({4, 6}), numbers({6, 4}, 1));
}

TEST_CASE("pmap on listed devices gives up its arguments, and its results go on to other maps") {
  ensure_devices(8);
  const std::vector<Device> all = devices();
  const std::vector<Device> some{all[6], all[2], all[5], all[1]};
  const auto step = [](Array x, double by) { return x * by - pmean(x, "i"); };
  const auto on =
      pmap(step, {.axis_name = "i", .in = {0, none}, .static_broadcasted = {1}, .devices = some, .donate = {0}});
  const Array x = numbers({4, 3});
  const auto plain = [](Array v, double by) { return v * by - mean(v, {.axes = {0}, .keepdims = true}); };
  Array there = device_put(x, Mesh({{"i", 4}}, some), P("i"));
  there = on(there, 2.0);
  there = on(there, 3.0);  // donated again, on the same devices
  CHECK(close(there, plain(plain(x, 2.0), 3.0)));
  for (int i = 0; i < 4; ++i) CHECK(there.addressable_shards()[i].device == some[i]);
  // Under another name of the axis it is the same place.
  const auto named = pmap([](Array v) { return v + psum(v, "j"); }, {.axis_name = "j", .devices = some});
  CHECK(close(named(there), there + sum(there, {.axes = {0}, .keepdims = true})));
  CHECK(close(jit(named)(there), there + sum(there, {.axes = {0}, .keepdims = true})));
}

TEST_CASE("xmap with ellipses before, between and behind named axes, over devices and beside them") {
  ensure_devices(4);
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const auto body = [](Array a, Array b) { return tanh(a) * psum(sum(b), "m") + pmax(sum(a), "n"); };
  const auto on = [&](std::map<std::string, AxisNames> resources) {
    return xmap(body, {.mesh = mesh,
                       .in = {{"n", none, "m", ellipsis}, {"m", ellipsis}},
                       .out = {{none, "m", "n", ellipsis}},
                       .axis_resources = std::move(resources)});
  };
  const Array a = numbers({4, 3, 2, 2}), b = numbers({2, 5}, 1);
  const Array largest = reshape(max(sum(a, {.axes = {1, 3}}), {.axes = {0}}), {1, 1, 2, 1});
  const Array expected = transpose(tanh(a) * sum(b) + largest, {1, 2, 0, 3});
  for (const auto& resources : std::vector<std::map<std::string, AxisNames>>{
           {{"n", "x"}}, {{"m", "y"}}, {{"n", "x"}, {"m", "y"}}, {{"n", {"y", "x"}}}}) {
    const auto f = on(resources);
    CHECK(close(f(a, b), expected));
    CHECK(close(jit(f)(a, b), expected));
  }
}
