// The exact texts of what can be wrong with meshes, specs and the arrays that are to lie as they say.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"
#include "tests/message.h"

using namespace sheaf;
using sheaf::tests::message_here;

TEST_CASE("a mesh that cannot be says why") {
  ensure_devices(8);
  const auto text = [](const auto& f) { return message_here<ShardingError>(f); };
  const std::string count = std::to_string(devices().size());
  CHECK(text([] { Mesh({{"data", 5000}}); }) ==
        "HERE: Mesh [data=5000]: it takes 5000 devices, and there are " + count +
            ": set SHEAF_CPU_DEVICES=5000 or call ensure_devices(5000), or plan with Mesh::abstract");
  CHECK(text([] { Mesh({{"data", 2}, {"data", 2}}); }) == "HERE: Mesh [data=2, data=2]: two axes are called \"data\"");
  CHECK(text([] { Mesh({{"2d", 2}}); }) ==
        "HERE: Mesh [2d=2]: axis 0 is called \"2d\": a name is letters, digits and _");
  CHECK(text([] { Mesh({{"data", 0}}); }) == "HERE: Mesh [data=0]: axis \"data\" has size 0");
  CHECK(text([] { Mesh::abstract({{"a", 1 << 30}, {"b", 1 << 30}}); }) ==
        "HERE: Mesh [a=1073741824, b=1073741824]: it has more than 2^31 devices");
  CHECK(text([] { Mesh({{"x", 2}}, std::vector<Device>{{0}}); }) ==
        "HERE: Mesh [x=2]: it takes 2 devices, and the list has 1");
  CHECK(text([] { Mesh({{"x", 2}}, {{1}, {1}}); }) == "HERE: Mesh [x=2]: the list has cpu:1 twice");
  CHECK(text([] { Mesh({{"x", 2}}, {{0}, {4000}}); }) ==
        "HERE: Mesh [x=2]: there is no device cpu:4000, only cpu:0 to cpu:" + std::to_string(devices().size() - 1));
  CHECK(text([] { Mesh({{"x", 2}}).size("y"); }) == "HERE: the mesh [x=2] has no axis \"y\"");
}

TEST_CASE("a spec that does not fit says which dim, axis and sizes") {
  const Mesh mesh = Mesh::abstract({{"data", 4}, {"model", 2}, {"one", 1}});
  const auto text = [&](const PartitionSpec& spec, const Shape& shape) {
    return message_here<ShardingError>([&] { NamedSharding{mesh, spec}.shard_shape(shape); });
  };
  CHECK(text(P("data", "data"), {8, 8}) ==
        "HERE: shard_shape: P(\"data\", \"data\") of [8, 8]: dim 0 and dim 1 are both split over axis \"data\"");
  CHECK(text(P({"one", "one"}), {8}) ==
        "HERE: shard_shape: P({\"one\", \"one\"}) of [8]: dim 0 is split over axis \"one\" twice");
  CHECK(text(P("data", "data:(2)2"), {8, 8}) ==
        "HERE: shard_shape: P(\"data\", \"data:(2)2\") of [8, 8]: dim 0 and dim 1 are both split over axis "
        "\"data:(2)2\"");
  CHECK(text(P(none, "modle"), {8, 8}) ==
        "HERE: shard_shape: P(none, \"modle\") of [8, 8]: dim 1 is split over \"modle\", and the mesh [data=4, "
        "model=2, one=1] has no such axis");
  CHECK(text(P("data:(3)2"), {8}) ==
        "HERE: shard_shape: P(\"data:(3)2\") of [8]: dim 0 is split over \"data:(3)2\", and the mesh [data=4, "
        "model=2, one=1] has no such axis");
  CHECK(text(P("data", none), {8}) == "HERE: shard_shape: P(\"data\", none) of [8]: the spec has 2 dims, the array 1");
  CHECK(text(P("data"), {10}) ==
        "HERE: shard_shape: P(\"data\") of [10]: dim 0 of size 10 does not divide over axis \"data\" of size 4");
  CHECK(text(P(none, {"data", "model"}), {3, 12}) ==
        "HERE: shard_shape: P(none, {\"data\", \"model\"}) of [3, 12]: dim 1 of size 12 does not divide over axes "
        "\"data\" of size 4 and \"model\" of size 2");
  CHECK(text(P(unconstrained), {8}) ==
        "HERE: shard_shape: P(unconstrained) of [8]: dim 0 is unconstrained, which only with_sharding takes");
  CHECK(message_here<ShardingError>([] { NamedSharding{}.shard_shape({8}); }) == "HERE: shard_shape: P() has no mesh");
  CHECK(message_here<ShardingError>([&] { NamedSharding{mesh, P("data")}.devices_indices({8}); }) ==
        "HERE: devices_indices: the mesh [data=4, model=2, one=1] is abstract: it has no devices");
}
