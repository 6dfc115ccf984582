// Arrays on eight devices: the same values as on one, in the parts that their shardings say.
#include "sheaf/sharding.h"

#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

const Mesh& mesh() {
  static const Mesh m = [] {
    ensure_devices(8);
    return Mesh({{"data", 4}, {"model", 2}});
  }();
  return m;
}

Array numbers(const Shape& shape) {
  std::vector<float> v(static_cast<std::size_t>(num_elements(shape)));
  std::iota(v.begin(), v.end(), 0.f);
  return array(v, shape);
}

// The whole, put together from what the devices hold, each read by itself.
std::vector<float> from_shards(const Array& x) {
  std::vector<float> all(static_cast<std::size_t>(x.size()), -1.f);
  for (const Shard& s : x.addressable_shards()) {
    const std::vector<float> part = s.data.to_vector<float>();
    std::vector<std::int64_t> index(s.index.size(), 0);
    for (const float v : part) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at = at * x.shape()[d] + *s.index[d].start.value + index[d];
      all[at] = v;
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < s.data.shape()[d]) break;
        index[d] = 0;
      }
    }
  }
  return all;
}

struct Layer {
  Array W, b;
};

}  // namespace

TEST_CASE("an array put on a mesh has its parts where the spec says") {
  const Array x = numbers({8, 4});
  for (const PartitionSpec& spec : {P(), P("data"), P("data", "model"), P("model", "data"), P({"model", "data"}),
                                    P(none, {"data"}), P({"data", "model"}, none)}) {
    const Array y = device_put(x, mesh(), spec);
    CHECK(y.shape() == Shape{8, 4});
    CHECK(y.sharding() == NamedSharding{mesh(), spec});
    CHECK(y.to_vector<float>() == x.to_vector<float>());
    CHECK(from_shards(y) == x.to_vector<float>());
    CHECK(y.addressable_shards().size() == 8);
    CHECK(y.addressable_shards()[3].device.id == 3);
    CHECK(to_string(y) == to_string(x));
    CHECK(y.is_fully_addressable());
    CHECK(y.is_fully_replicated() == (spec == P()));
  }
  const std::vector<Shard> shards = device_put(x, mesh(), P("data")).addressable_shards();
  CHECK(shards[2].index[0].start.value == 2);
  CHECK(shards[2].index[1].stop.value == 4);
  CHECK(shards[2].replica_id == 0);
  CHECK(shards[3].replica_id == 1);
  CHECK(shards[3].data.sharding() == NamedSharding{Mesh({}, {Device{3}}), P()});
}

TEST_CASE("an array moves between any two layouts, meshes and devices") {
  const Array x = numbers({8, 8});
  const Mesh line({{"all", 8}}), turned({{"a", 2}, {"b", 2}}, {{7}, {2}, {5}, {0}});
  const std::vector<NamedSharding> all = {{mesh(), P("data", "model")},
                                          {mesh(), P(none, {"model", "data"})},
                                          {line, P("all")},
                                          {line, P(none, "all")},
                                          {turned, P("b", "a")},
                                          {turned, P()}};
  for (const NamedSharding& from : all) {
    const Array y = device_put(x, from);
    for (const NamedSharding& to : all) {
      const Array z = device_put(y, to);
      CHECK(z.sharding() == to);
      CHECK(from_shards(z) == x.to_vector<float>());
    }
    CHECK(from_shards(device_put(y, Device{6})) == x.to_vector<float>());
    CHECK(from_shards(device_put(device_put(x, Device{6}), from)) == x.to_vector<float>());
  }
}

TEST_CASE("small, empty and scalar arrays and numbers go on meshes too") {
  CHECK(device_put(numbers({0, 4}), mesh(), P("data")).to_vector<float>().empty());
  CHECK(device_put(numbers({0, 4}), mesh(), P("data")).addressable_shards()[5].data.shape() == Shape{0, 4});
  CHECK(device_put(array({1.5})[0], mesh(), P()).item<float>() == 1.5f);
  const Array n = device_put(Array(2.5), mesh(), P());
  CHECK(n.item<double>() == 2.5);
  CHECK((n * array({2.0}, bf16)).dtype() == bf16);
  CHECK(device_put(array({1, 2, 3, 4}, i8), mesh(), P("data")).to_vector<int>() == std::vector{1, 2, 3, 4});
  CHECK(device_put(array<bool>({true, false}), mesh(), P("model")).to_vector<bool>() == std::vector{true, false});
  const Mesh one({{"x", 1}});
  CHECK(device_put(numbers({3}), one, P("x")).to_vector<float>() == std::vector{0.f, 1.f, 2.f});
}

TEST_CASE("a tree is put leaf by leaf, by path") {
  const Layer layer{numbers({4, 8}), numbers({8})};
  const Layer put = device_put(layer, mesh(), specs({{".W", P(none, "model")}, {"", P()}}));
  CHECK(put.W.sharding() == NamedSharding{mesh(), P(none, "model")});
  CHECK(put.b.is_fully_replicated());
  CHECK(same(put.W, layer.W));
  const std::map<std::string, Array> params{{"a", numbers({8})}, {"b", numbers({2, 2})}};
  const auto both = device_put(params, mesh(), specs({{".a", P("data")}, {".b", P("model")}}));
  CHECK(both.at("a").sharding() == NamedSharding{mesh(), P("data")});
}

TEST_CASE("an array is made part by part, once for each part that is held") {
  int calls = 0;
  const Array x = make_array_from_callback({8, 2}, {mesh(), P("data")}, [&](const std::vector<Slice>& at) {
    ++calls;
    return numbers({8, 2})(at[0], at[1]);
  });
  CHECK(calls == 4);
  CHECK(x.to_vector<float>() == numbers({8, 2}).to_vector<float>());
  const Array y = make_array_from_process_local_data({mesh(), P("model")}, numbers({4}));
  CHECK(from_shards(y) == numbers({4}).to_vector<float>());
  std::vector<Array> parts;
  for (const int d : {3, 1, 0, 2}) parts.push_back(device_put(array({1.0 * d}), Device{d}));
  const Array z = make_array_from_single_device_arrays({4}, {Mesh({{"x", 4}}), P("x")}, parts);
  CHECK(z.to_vector<float>() == std::vector{0.f, 1.f, 2.f, 3.f});
}

TEST_CASE("zero_specs splits the largest dim that divides, besides what is split already") {
  const Layer layer{numbers({4, 16}), numbers({6})};
  const Specs plain = zero_specs(layer, mesh(), "data");
  CHECK(plain.by_path[0].second == P(none, "data"));
  CHECK(plain.by_path[1].second == P());
  const Specs both = zero_specs(layer, mesh(), "data", specs({{".W", P(none, "model")}, {".b", P("model")}}));
  CHECK(both.by_path[0].second == P(none, {"model", "data"}));
  CHECK(both.by_path[1].second == P("model"));
  const Layer sharded = zero_shard(layer, mesh(), "data");
  CHECK(bytes_per_device(layer) == 4 * (64 + 6));
  CHECK(bytes_per_device(sharded) == 4 * (16 + 6));
  CHECK(bytes_per_device(abstract({1024, 1024}, f32, {Mesh::abstract({{"x", 1024}}), P("x")})) == 4096);
}

TEST_CASE("with_sharding outside traced functions moves, and leaves unconstrained dims as they are") {
  const Array x = device_put(numbers({8, 8}), mesh(), P("data"));
  CHECK(with_sharding(x, mesh(), P(none, "data")).sharding() == NamedSharding{mesh(), P(none, "data")});
  CHECK(with_sharding(x, mesh(), P(unconstrained, "model")).sharding() == NamedSharding{mesh(), P("data", "model")});
  CHECK(with_sharding(x, mesh(), P(unconstrained, "data")).sharding() == NamedSharding{mesh(), P(none, "data")});
}
