// shard_map over every way to cut a matrix: what each device does with its part is what the function does with that
// block, in values, in gradients and example by example; by the maps themselves and by the program of one device.
#include <doctest/doctest.h>

#include "tests/api/on_reference.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::numbers;
using sheaf::tests::on_reference;

namespace {

// f of each block of a matrix cut into rows * columns of them.
template <class F>
auto blockwise(F f, std::int64_t rows, std::int64_t columns) {
  return [=](Array x) {
    const std::int64_t height = x.shape()[0] / rows, width = x.shape()[1] / columns;
    std::vector<Array> strips;
    for (std::int64_t i = 0; i < rows; ++i) {
      std::vector<Array> blocks;
      for (std::int64_t j = 0; j < columns; ++j)
        blocks.push_back(f(x(slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width))));
      strips.push_back(concatenate(blocks, 1));
    }
    return concatenate(strips, 0);
  };
}

struct Cut {
  Mesh mesh;
  PartitionSpec spec;
  std::int64_t ways(int dim) const {
    std::int64_t n = 1;
    for (const std::string& axis : spec.dims[dim].axes) n *= mesh.size(axis);
    return n;
  }
};

// Over each mesh, every pair of lists of different axes.
std::vector<Cut> cuts() {
  std::vector<Cut> all;
  for (const Mesh& mesh :
       {Mesh::abstract({{"x", 4}}), Mesh::abstract({{"x", 2}, {"y", 2}}), Mesh::abstract({{"x", 1}, {"y", 3}})}) {
    std::vector<std::vector<std::string>> lists{{}, {"x"}};
    if (mesh.rank() == 2) lists.insert(lists.end(), {{"y"}, {"x", "y"}, {"y", "x"}});
    for (const auto& rows : lists)
      for (const auto& columns : lists) {
        bool are_apart = true;
        for (const std::string& axis : rows)
          are_apart &= std::find(columns.begin(), columns.end(), axis) == columns.end();
        if (are_apart) all.push_back({mesh, P(DimAxes(rows), DimAxes(columns))});
      }
  }
  return all;
}

// map(x) is blocks(x).
template <class M, class B>
void check_same(M map, B blocks, const Array& x) {
  const Array expected = on_reference(blocks, x)[0];
  CHECK(close(on_reference(map, x)[0], expected));
}

template <class F>
void check(F f) {
  const Array x = numbers({12, 12}), batch = numbers({2, 12, 12});
  for (const Cut& cut : cuts()) {
    INFO(to_string(cut.mesh) << " " << to_string(cut.spec));
    const auto map = shard_map(f, {.mesh = cut.mesh, .in = {cut.spec}, .out = {cut.spec}});
    const auto blocks = blockwise(f, cut.ways(0), cut.ways(1));
    check_same(map, blocks, x);
    const auto slope = [](auto g) {
      return [g](Array v) { return grad([&](Array u) { return sum(g(u) * cos(u)); })(v); };
    };
    check_same(slope(map), slope(blocks), x);
    const auto each = [](auto g) { return [g](Array v) { return vmap(g)(v); }; };
    check_same(each(map), each(blocks), batch);
  }
}

}  // namespace

TEST_CASE("an elementwise function of parts is that of the whole, however it is cut") {
  check([](Array x) { return sin(x) * 2.0 + 1.0; });
}

TEST_CASE("a function that sees only its part sees a block") {
  check([](Array x) { return x - mean(x); });
}

TEST_CASE("a loop over the rows of parts") {
  check([](Array x) {
    return scan([](Array c, Array row) { return std::pair{c + sum(row), row * tanh(c)}; }, Array(0.0), x).second;
  });
}

TEST_CASE("compiled programs do the same, called at once, in jit, differentiated and batched") {
  ensure_devices(4);
  const auto f = [](Array x) { return sin(x) - mean(x); };
  const auto slope = [](auto g) {
    return [g](Array v) { return grad([&](Array u) { return sum(g(u) * cos(u)); })(v); };
  };
  const Array x = numbers({12, 12}), batch = numbers({2, 12, 12});
  for (const Cut& cut : cuts()) {
    INFO(to_string(cut.mesh) << " " << to_string(cut.spec));
    const auto map = shard_map(f, {.mesh = Mesh(cut.mesh.axes()), .in = {cut.spec}, .out = {cut.spec}});
    const auto blocks = blockwise(f, cut.ways(0), cut.ways(1));
    CHECK(close(map(x), on_reference(blocks, x)[0]));
    CHECK(close(jit(map)(x), on_reference(blocks, x)[0]));
    CHECK(close(jit(slope(map))(x), on_reference(slope(blocks), x)[0]));
    CHECK(close(jit(vmap(map))(batch), on_reference(vmap(blocks), batch)[0]));
  }
}
