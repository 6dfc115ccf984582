// Meshes, specs and where they put the parts of an array, without any array.
#include <doctest/doctest.h>

#include "sheaf/sheaf.h"

using namespace sheaf;

namespace {

// Where each device's part begins.
std::vector<std::vector<std::int64_t>> starts(const NamedSharding& s, const Shape& shape) {
  std::vector<std::vector<std::int64_t>> all;
  for (const DeviceSlices& d : s.devices_indices(shape)) {
    all.emplace_back();
    for (const Slice& r : d.index) all.back().push_back(*r.start.value);
  }
  return all;
}

}  // namespace

TEST_CASE("a mesh is its axes and its devices") {
  ensure_devices(8);
  const Mesh mesh({{"data", 4}, {"model", 2}});
  CHECK(mesh.rank() == 2);
  CHECK(mesh.size() == 8);
  CHECK(mesh.size("model") == 2);
  CHECK(mesh.devices()[7].id == 7);
  CHECK(mesh.addressable_devices().size() == 8);
  CHECK(to_string(mesh) == "[data=4, model=2]");
  CHECK(mesh == Mesh({{"data", 4}, {"model", 2}}));
  CHECK(mesh != Mesh({{"data", 2}, {"model", 4}}));
  CHECK(Mesh({{"x", 2}}, {{3}, {1}}) != Mesh({{"x", 2}}));
  CHECK(Mesh({{"x", 2}}, {{3}, {1}}).devices()[0].id == 3);
  CHECK(Mesh(std::vector<MeshAxis>{}).size() == 1);
  CHECK(!Mesh());
  const Mesh large = Mesh::abstract({{"data", 8}, {"model", 128}});
  CHECK(large.is_abstract());
  CHECK(large.size() == 1024);
  CHECK(large.devices().empty());
  CHECK(process_index() == 0);
  CHECK(process_count() == 1);
}

TEST_CASE("a spec has one entry per dim, of none, one or several axes") {
  CHECK(to_string(P()) == "P()");
  CHECK(to_string(P("data", none, {"model", "pod"}, unconstrained)) ==
        R"(P("data", none, {"model", "pod"}, unconstrained))");
  CHECK(P({"data", "model"}).dims.size() == 1);
  CHECK(P("data", "model").dims.size() == 2);
  CHECK(P({"data"}) == P("data"));
  CHECK(P({}) == P(none));
}

TEST_CASE("each device holds the part that its coordinates on the mesh say") {
  ensure_devices(8);
  const Mesh mesh({{"data", 4}, {"model", 2}});
  using Starts = std::vector<std::vector<std::int64_t>>;
  CHECK(NamedSharding{mesh, P("data", "model")}.shard_shape({8, 6}) == Shape{2, 3});
  CHECK(starts({mesh, P("data")}, {8}) == Starts{{0}, {0}, {2}, {2}, {4}, {4}, {6}, {6}});
  CHECK(starts({mesh, P({"data", "model"})}, {8}) == Starts{{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}});
  CHECK(starts({mesh, P({"model", "data"})}, {8}) == Starts{{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}});
  CHECK(starts({mesh, P(none, "model")}, {3, 2})[3] == std::vector<std::int64_t>{0, 1});
  CHECK(NamedSharding{mesh, P()}.shard_shape({}) == Shape{});
  CHECK(NamedSharding{mesh, P("data")}.shard_shape({0, 5}) == Shape{0, 5});
  CHECK(NamedSharding{Mesh::abstract({{"x", 1000}}), P("x")}.shard_shape({3000}) == Shape{3});
  CHECK(NamedSharding{mesh, P(none, "model")}.addressable_devices_indices({3, 2}).size() == 8);
}

TEST_CASE("shardings are equal if every device holds the same part") {
  ensure_devices(8);
  const Mesh mesh({{"data", 4}, {"model", 2}}), cube({{"a", 2}, {"b", 2}, {"c", 2}}), line({{"all", 8}});
  CHECK(NamedSharding{mesh, P("data")} == NamedSharding{mesh, P("data", none)});
  CHECK(NamedSharding{mesh, P("data")} == NamedSharding{cube, P({"a", "b"})});
  CHECK(NamedSharding{mesh, P("data")} != NamedSharding{cube, P({"b", "a"})});
  CHECK(NamedSharding{mesh, P({"data", "model"})} == NamedSharding{line, P("all")});
  CHECK(NamedSharding{mesh, P()} == NamedSharding{line, P()});
  CHECK(NamedSharding{mesh, P("data")} != NamedSharding{mesh, P(none, "data")});
  const Mesh turned({{"data", 4}, {"model", 2}}, {{7}, {6}, {5}, {4}, {3}, {2}, {1}, {0}});
  CHECK(NamedSharding{mesh, P("data")} != NamedSharding{turned, P("data")});
  const Mesh one({{"x", 1}, {"y", 1}});
  CHECK(NamedSharding{one, P("x")}.is_fully_replicated());
  CHECK(NamedSharding{one, P("x")} == NamedSharding{one, P(none, "y")});
  CHECK(!NamedSharding{mesh, P("model")}.is_fully_replicated());
  CHECK(NamedSharding{mesh, P("model")}.is_fully_addressable());
}
