// shard_map over every way to cut a matrix: what each device does with its part, alone or with others, is what the
// function does with blocks cut out of the whole, in values, in gradients and example by example; by the maps
// themselves, by the program of one device, and on devices.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>

#include "tests/api/on_reference.h"

using namespace sheaf;
using sheaf::tests::close;
using sheaf::tests::numbers;
using sheaf::tests::on_devices;
using sheaf::tests::on_reference;

namespace {

using Names = std::vector<std::string>;

/// A matrix on a mesh.
struct Cut {
  Mesh mesh;
  PartitionSpec spec;

  std::int64_t coordinate(std::int64_t device, const Names& axes) const {
    std::int64_t at = 0;
    for (const std::string& axis : axes) {
      std::int64_t minor = 1, size = mesh.size(axis);
      for (std::size_t i = mesh.axes().size(); mesh.axes()[--i].name != axis;) minor *= mesh.axes()[i].size;
      at = at * size + device / minor % size;
    }
    return at;
  }
  std::int64_t ways(const Names& axes) const {
    std::int64_t n = 1;
    for (const std::string& axis : axes) n *= mesh.size(axis);
    return n;
  }
  const Names& axes(int dim) const { return spec.dims[dim].axes; }

  /// Of each device.
  std::vector<Array> parts(const Array& x) const {
    const std::int64_t height = x.shape()[0] / ways(axes(0)), width = x.shape()[1] / ways(axes(1));
    std::vector<Array> all;
    for (std::int64_t d = 0; d < mesh.size(); ++d) {
      const std::int64_t i = coordinate(d, axes(0)), j = coordinate(d, axes(1));
      all.push_back(x(slice(i * height, (i + 1) * height), slice(j * width, (j + 1) * width)));
    }
    return all;
  }
  /// Of those that should hold the same, the first counts.
  Array whole(const std::vector<Array>& parts) const {
    std::vector<Array> strips;
    for (std::int64_t i = 0; i < ways(axes(0)); ++i) {
      std::vector<Array> blocks;
      for (std::int64_t j = 0; j < ways(axes(1)); ++j)
        for (std::int64_t d = 0; d < mesh.size(); ++d)
          if (coordinate(d, axes(0)) == i && coordinate(d, axes(1)) == j) {
            blocks.push_back(parts[d]);
            break;
          }
      strips.push_back(concatenate(blocks, 1));
    }
    return concatenate(strips, 0);
  }
  /// Those that differ from the device along these axes alone, in order.
  std::vector<Array> group(const std::vector<Array>& parts, std::int64_t device, const Names& over) const {
    std::vector<Array> all(ways(over));
    for (std::int64_t d = 0; d < mesh.size(); ++d) {
      bool is_in = true;
      for (const MeshAxis& axis : mesh.axes())
        if (std::find(over.begin(), over.end(), axis.name) == over.end())
          is_in &= coordinate(d, {axis.name}) == coordinate(device, {axis.name});
      if (is_in) all[coordinate(d, over)] = parts[d];
    }
    return all;
  }
};

Names names_of(const Mesh& mesh) {
  Names all;
  for (const MeshAxis& axis : mesh.axes()) all.push_back(axis.name);
  return all;
}

const std::vector<Mesh>& meshes() {
  static const std::vector<Mesh> all{Mesh::abstract({{"x", 4}}), Mesh::abstract({{"x", 2}, {"y", 2}}),
                                     Mesh::abstract({{"x", 1}, {"y", 3}})};
  return all;
}

// Every pair of lists of different axes.
std::vector<Cut> cuts(const Mesh& mesh) {
  std::vector<Cut> all;
  std::vector<Names> lists{{}, {"x"}};
  if (mesh.rank() == 2) lists.insert(lists.end(), {{"y"}, {"x", "y"}, {"y", "x"}});
  for (const Names& rows : lists)
    for (const Names& columns : lists) {
      const bool are_apart = std::none_of(rows.begin(), rows.end(), [&](const std::string& axis) {
        return std::find(columns.begin(), columns.end(), axis) != columns.end();
      });
      if (are_apart) all.push_back({mesh, P(DimAxes(rows), DimAxes(columns))});
    }
  return all;
}

/// A function of parts that goes over axes, and what it is of a group's parts at a position.
struct Case {
  std::string name;
  std::function<Array(Array, const AxisNames&)> on_device;
  std::function<Array(const std::vector<Array>&, std::int64_t)> of_group;
  bool gives_same = false;  // to all of a group
};

Array added(const std::vector<Array>& all, Array (*f)(Array) = [](Array x) { return x; }) {
  Array sum = f(all[0]);
  for (std::size_t i = 1; i < all.size(); ++i) sum = sum + f(all[i]);
  return sum;
}
Array running(const Array& x) {
  return scan([](Array c, Array row) { return std::pair{c + sum(row), row * tanh(c)}; }, Array(0.0), x).second;
}
// Block i of so many along a dim.
Array block(const Array& x, int dim, std::int64_t i, std::int64_t of) {
  const std::int64_t size = x.shape()[dim] / of;
  return dim == 0 ? x(slice(i * size, (i + 1) * size)) : x(slice(), slice(i * size, (i + 1) * size));
}
std::vector<std::pair<std::int64_t, std::int64_t>> ring(std::int64_t n, bool is_closed) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  for (std::int64_t i = 0; i + !is_closed < n; ++i) pairs.emplace_back(i, (i + 1) % n);
  return pairs;
}

// x twice, with the derivative 3.
Array with_rule(Array x) {
  static const auto f = custom_vjp([](Array v) { return 2.0 * v; }, [](Array v) { return std::pair(2.0 * v, v); },
                                   [](Array, Array g) { return std::tuple(3.0 * g); });
  return f(x);
}

std::vector<Case> cases() {
  using Parts = std::vector<Array>;
  std::vector<Case> all;
  const auto own = [&](const std::string& name, Array (*f)(const Array&)) {
    all.push_back({name, [f](Array x, const AxisNames&) { return f(x); },
                   [f](const Parts& p, std::int64_t at) { return f(p[at]); }});
  };
  own("elementwise", [](const Array& x) { return sin(x) * 2.0 + 1.0; });
  own("of the part alone", [](const Array& x) { return x - mean(x); });
  own("scan", running);
  own("checkpoint", [](const Array& x) { return checkpoint([](Array v) { return sin(v) * mean(v); })(x); });
  own("custom rule", [](const Array& x) { return with_rule(sin(x)); });
  all.push_back({"psum", [](Array x, const AxisNames& a) { return psum(sin(x), a); },
                 [](const Parts& p, std::int64_t) { return added(p, [](Array x) { return sin(x); }); }, true});
  all.push_back({"pmean", [](Array x, const AxisNames& a) { return x * pmean(x, a); },
                 [](const Parts& p, std::int64_t at) { return p[at] * (added(p) / static_cast<double>(p.size())); }});
  const auto extreme = [&](const std::string& name, bool is_max) {
    all.push_back({name, [=](Array x, const AxisNames& a) { return is_max ? pmax(x, a) : pmin(x, a); },
                   [=](const Parts& p, std::int64_t) {
                     const Array rows = stack(p);
                     return is_max ? max(rows, {.axes = {0}}) : min(rows, {.axes = {0}});
                   },
                   true});
  };
  extreme("pmax", true);
  extreme("pmin", false);
  all.push_back({"all_gather, stacked",
                 [](Array x, const AxisNames& a) { return reshape(all_gather(x, a), {-1, x.shape()[1]}); },
                 [](const Parts& p, std::int64_t) { return concatenate(p, 0); }});
  all.push_back({"all_gather, joined",
                 [](Array x, const AxisNames& a) { return all_gather(x, a, {.dim = 1, .tiled = true}); },
                 [](const Parts& p, std::int64_t) { return concatenate(p, 1); }});
  all.push_back(
      {"all_gather, the same for all",
       [](Array x, const AxisNames& a) { return all_gather(x, a, {.dim = 0, .tiled = true, .to = Along::invarying}); },
       [](const Parts& p, std::int64_t) { return concatenate(p, 0); }, true});
  all.push_back({"all_gather_start",
                 [](Array x, const AxisNames& a) {
                   const Started begun = all_gather_start(x, a, {.dim = 0, .tiled = true});
                   const Array meanwhile = sum(cos(x));
                   return begun.result() * meanwhile;
                 },
                 [](const Parts& p, std::int64_t at) { return concatenate(p, 0) * sum(cos(p[at])); }});
  all.push_back({"psum_scatter",
                 [](Array x, const AxisNames& a) { return psum_scatter(x, a, {.dim = 1, .tiled = true}); },
                 [](const Parts& p, std::int64_t at) { return block(added(p), 1, at, std::ssize(p)); }});
  const auto exchange = [&](const std::string& name, int from, int to) {
    all.push_back(
        {name,
         [=](Array x, const AxisNames& a) { return all_to_all(x, a, {.split = from, .concat = to, .tiled = true}); },
         [=](const Parts& p, std::int64_t at) {
           Parts rows;
           for (const Array& x : p) rows.push_back(block(x, from, at, std::ssize(p)));
           return concatenate(rows, to);
         }});
  };
  exchange("all_to_all, rows to columns", 0, 1);
  exchange("all_to_all, columns to rows", 1, 0);
  exchange("all_to_all, rows to rows", 0, 0);
  all.push_back({"ppermute, around",
                 [](Array x, const AxisNames& a) { return ppermute(x, a, ring(axis_size(a), true)); },
                 [](const Parts& p, std::int64_t at) { return p[(at + std::ssize(p) - 1) % std::ssize(p)]; }});
  all.push_back({"ppermute, along",
                 [](Array x, const AxisNames& a) { return ppermute(x, a, ring(axis_size(a), false)); },
                 [](const Parts& p, std::int64_t at) { return at == 0 ? zeros_like(p[0]) : p[at - 1]; }});
  all.push_back({"axis_index", [](Array x, const AxisNames& a) { return x * (axis_index(a).astype(f64) + 1.0); },
                 [](const Parts& p, std::int64_t at) { return p[at] * static_cast<double>(at + 1); }});
  all.push_back(
      {"a reduction of the user's",
       [](Array x, const AxisNames& a) { return preduce(x, a, [](Array u, Array v) { return log(exp(u) + exp(v)); }); },
       [](const Parts& p, std::int64_t) { return log(added(p, [](Array x) { return exp(x); })); }, true});
  all.push_back({"scan with a sum in each step",
                 [](Array x, const AxisNames& a) {
                   return scan([&](Array c, Array row) { return std::pair{tanh(c + psum(sum(row), a)), row * c}; },
                               Array(0.5), x)
                       .second;
                 },
                 [](const Parts& p, std::int64_t at) {
                   const Array rows = stack(p, 1);  // [rows, group, columns]
                   const auto body = [&](Array c, Array row) { return std::pair{tanh(c + sum(row)), row[at] * c}; };
                   return scan(body, Array(0.5), rows).second;
                 }});
  all.push_back({"branches by position",
                 [](Array x, const AxisNames& a) {
                   return cond(axis_index(a) == 0, [](Array v) { return sin(v); }, [](Array v) { return 2.0 * v; }, x);
                 },
                 [](const Parts& p, std::int64_t at) { return at == 0 ? sin(p[at]) : 2.0 * p[at]; }});
  all.push_back(
      {"checkpoint of a sum",
       [](Array x, const AxisNames& a) { return checkpoint([&](Array v) { return sin(psum(v * v, a)) * v; })(x); },
       [](const Parts& p, std::int64_t at) { return sin(added(p, [](Array x) { return x * x; })) * p[at]; }});
  all.push_back({"custom rule before a sum", [](Array x, const AxisNames& a) { return x * psum(with_rule(x), a); },
                 [](const Parts& p, std::int64_t at) { return p[at] * added(p, with_rule); }});
  return all;
}

const auto slope = [](auto g) {
  return [g](Array v) { return grad([&](Array u) { return sum(g(u) * cos(sum(u))); })(v); };
};
const auto each = [](auto g) { return [g](Array v) { return vmap(g)(v); }; };

using Function = std::function<Array(Array)>;
/// A case over some axes, for a matrix cut in some way: the map, and the same by blocks.
struct Pair {
  Function map, blocks;
};
Pair pair_of(const Case& c, const Cut& cut, const Names& over) {
  // What is the same for all of a group is put together without their axes, anything else along every axis of the mesh.
  Cut out = cut;
  for (DimAxes& dim : out.spec.dims)
    std::erase_if(dim.axes, [&](const std::string& axis) {
      return c.gives_same && std::find(over.begin(), over.end(), axis) != over.end();
    });
  if (!c.gives_same)
    for (const std::string& axis : names_of(cut.mesh))
      if (std::find(cut.axes(0).begin(), cut.axes(0).end(), axis) == cut.axes(0).end() &&
          std::find(cut.axes(1).begin(), cut.axes(1).end(), axis) == cut.axes(1).end())
        out.spec.dims[0].axes.push_back(axis);
  const auto body = [c, over](Array x) { return c.on_device(x, AxisNames(over)); };
  return {shard_map(body, {.mesh = cut.mesh, .in = {cut.spec}, .out = {out.spec}}), [c, cut, out, over](Array x) {
            const std::vector<Array> parts = cut.parts(x);
            std::vector<Array> results;
            for (std::int64_t d = 0; d < cut.mesh.size(); ++d)
              results.push_back(c.of_group(cut.group(parts, d, over), cut.coordinate(d, over)));
            return out.whole(results);
          }};
}

// Each axis alone, and all as one, in both orders.
std::vector<Names> groups_of(const Mesh& mesh) {
  std::vector<Names> all;
  const Names names = names_of(mesh);
  for (const std::string& axis : names) all.push_back({axis});
  if (names.size() > 1) all.insert(all.end(), {names, {names.rbegin(), names.rend()}});
  return all;
}

// map(x) is blocks(x).
void check_same(const Function& map, const Function& blocks, const Array& x) {
  const Array expected = on_reference(blocks, x)[0];
  CHECK(close(on_reference(map, x)[0], expected));
}

}  // namespace

TEST_CASE("what devices do with their parts is what is done with blocks of the whole, however it is cut") {
  for (const Mesh& mesh : meshes()) {
    const std::int64_t n = mesh.size() * mesh.size();
    const Array x = numbers({n, n}), batch = numbers({2, n, n});
    for (const Case& c : cases())
      for (const Cut& cut : cuts(mesh))
        for (const Names& over : groups_of(mesh)) {
          INFO(c.name << " over " << fmt::format("{}", fmt::join(over, "+")) << ", " << to_string(mesh) << " "
                      << to_string(cut.spec));
          const Pair p = pair_of(c, cut, over);
          check_same(p.map, p.blocks, x);
          check_same(slope(p.map), slope(p.blocks), x);
          check_same(each(p.map), each(p.blocks), batch);
        }
  }
}

TEST_CASE("a function of two matrices, each cut in every way") {
  for (const Mesh& mesh : meshes()) {
    const Names over = names_of(mesh);
    const std::int64_t n = mesh.size();
    const Array x = numbers({n, n}), y = numbers({n, n}, 0.3);
    for (const Cut& first : cuts(mesh))
      for (const Cut& second : cuts(mesh)) {
        INFO(to_string(mesh) << " " << to_string(first.spec) << " " << to_string(second.spec));
        const auto f = [&](Array a, Array b) { return psum(sum(sin(a)) * mean(b), over); };
        const auto map = shard_map(f, {.mesh = mesh, .in = {first.spec, second.spec}, .out = {P()}});
        const auto blocks = [&](Array a, Array b) {
          const std::vector<Array> of_a = first.parts(a), of_b = second.parts(b);
          Array all = sum(sin(of_a[0])) * mean(of_b[0]);
          for (std::size_t d = 1; d < of_a.size(); ++d) all = all + sum(sin(of_a[d])) * mean(of_b[d]);
          return all;
        };
        const auto both = [](auto g) {
          return [g](Array a, Array b) {
            const auto [value, slopes] = value_and_grad<0, 1>(g)(a, b);
            return std::tuple(value, std::get<0>(slopes), std::get<1>(slopes));
          };
        };
        const std::vector<Array> want = on_reference(both(blocks), x, y), got = on_devices(both(map), x, y);
        for (std::size_t j = 0; j < want.size(); ++j) CHECK(close(got[j], want[j]));
      }
  }
}

TEST_CASE("compiled programs do the same, called at once, in jit, differentiated and batched") {
  ensure_devices(4);
  const std::vector<Case> all = cases();
  std::size_t next = 0;
  for (const Mesh& mesh : meshes()) {
    const std::int64_t n = mesh.size() * mesh.size();
    const Array x = numbers({n, n}), batch = numbers({2, n, n});
    for (Cut cut : cuts(mesh))
      for (const Names& over : groups_of(mesh)) {
        const Case& c = all[next++ % all.size()];
        INFO(c.name << " over " << fmt::format("{}", fmt::join(over, "+")) << ", " << to_string(mesh) << " "
                    << to_string(cut.spec));
        cut.mesh = Mesh(mesh.axes());
        const Pair p = pair_of(c, cut, over);
        CHECK(close(p.map(x), on_reference(p.blocks, x)[0]));
        CHECK(close(jit(p.map)(x), on_reference(p.blocks, x)[0]));
        CHECK(close(jit(slope(p.map))(x), on_reference(slope(p.blocks), x)[0]));
        CHECK(close(jit(vmap(p.map))(batch), on_reference(vmap(p.blocks), batch)[0]));
      }
  }
  CHECK(next >= all.size());
}
