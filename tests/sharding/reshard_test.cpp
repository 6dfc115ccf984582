// Reshards: the listed sequences of others as bounds, and all pairs of shardings on arrays.
#include "passes/sharding/reshard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "ir/eval_spmd.h"
#include "ir/log.h"
#include "ir/verify.h"
#include "sheaf/error.h"

using namespace sheaf;
using ir::Sharding;

namespace {

struct Lab {
  explicit Lab(std::string_view text, std::string_view machine = "flat")
      : atoms(*ir::Mesh::parse(text)), profile(*passes::built_in_profile(machine)) {}

  /// From "x+y,_" and so on.
  Sharding sharding(std::string_view spec) const {
    Sharding s;
    const ir::Spec parsed = *ir::parse_spec(spec);
    for (const ir::DimSpec& dim : parsed) s.dims.push_back(atoms.of(dim.axes));
    return s;
  }
  passes::ReshardPlan plan(const Shape& dims, std::string_view from, std::string_view to) const {
    return plan_reshard(dims, f32, atoms, sharding(from), sharding(to), profile);
  }
  std::string text(const Shape& dims, std::string_view from, std::string_view to) const {
    return to_string(plan(dims, from, to), atoms);
  }
  /// Sent by a device, as a part of the whole.
  double sent(const Shape& dims, std::string_view from, std::string_view to) const {
    double bytes = 4;
    for (const std::int64_t n : dims) bytes *= static_cast<double>(n);
    return plan(dims, from, to).cost.bytes / bytes;
  }

  ir::MeshAtoms atoms;
  const passes::Profile& profile;
};

/// All shardings of a rank by the atoms: each in some place of some dim, unreduced, or unused.
std::vector<Sharding> all_shardings(const ir::MeshAtoms& atoms, int rank, bool with_unreduced) {
  std::vector<Sharding> all = {Sharding::replicated(rank)};
  for (int a = 0; a < atoms.count(); ++a) {
    std::vector<Sharding> next = all;
    for (const Sharding& s : all) {
      for (int d = 0; d < rank; ++d) {
        for (std::size_t i = 0; i <= s.dims[d].size(); ++i) {
          Sharding t = s;
          t.dims[d].insert(t.dims[d].begin() + static_cast<std::ptrdiff_t>(i), a);
          next.push_back(std::move(t));
        }
      }
      if (!with_unreduced) continue;
      Sharding t = s;
      t.unreduced.push_back(a);
      next.push_back(std::move(t));
    }
    all = std::move(next);
  }
  return all;
}

ir::Literal counting(DType dtype, const Shape& dims) {
  ir::Literal x(ir::Type(dtype, dims));
  for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i + 1));
  return x;
}

/// What is wrong with the plan as a program on arrays; empty if nothing is.
std::string fault(const ir::MeshAtoms& atoms, const passes::ReshardPlan& plan, const ir::Literal& x,
                  const Sharding& to) {
  for (const passes::ReshardMove& m : plan.moves)
    if (!divides(x.dims(), atoms, m.result)) return "does not divide on the way";
  ir::Builder b;
  const ir::Value in = b.param(local_type(x.type(), atoms, plan.from));
  const ir::FunctionRef f = b.finish({emit_reshard(b, in, plan, atoms)})->on_mesh(atoms.mesh());
  if (!ir::verify(*f).ok()) return "does not verify";
  std::vector<ir::Literals> inputs;
  for (ir::Literal& part : ir::shard(x, atoms, plan.from)) inputs.push_back({std::move(part)});
  ir::Literals parts;
  for (ir::Literals& results : ir::eval_spmd(f, inputs)) parts.push_back(std::move(results[0]));
  const auto y = ir::unshard(parts, x.type(), atoms, to);
  if (!y.ok()) return std::string(y.status().message());
  return *y == x ? "" : "another value";
}

void check_all_pairs(const Lab& lab, int rank, const Shape& dims, bool with_unreduced, std::size_t stride,
                     bool on_arrays) {
  const std::vector<Sharding> all = all_shardings(lab.atoms, rank, with_unreduced);
  const ir::Literal x = counting(DType::i32, dims);
  passes::ReshardPlanner planner(lab.atoms, lab.profile);
  std::size_t pairs = 0, count = 0;
  for (const Sharding& from : all) {
    for (const Sharding& to : all) {
      if (++pairs % stride != 0) continue;
      if (!divides(dims, lab.atoms, from) || !divides(dims, lab.atoms, to)) continue;
      ++count;
      const passes::ReshardPlan& plan = planner.plan(dims, DType::i32, from, to);
      const std::string wrong = on_arrays ? fault(lab.atoms, plan, x, to) : "";
      if (wrong.empty() && !plan.is_greedy && !plan.gathers_all) continue;
      FAIL_CHECK(to_string(from, lab.atoms), " -> ", to_string(to, lab.atoms), ": ", to_string(plan, lab.atoms), ": ",
                 wrong.empty() ? plan.is_greedy ? "greedy" : "gathers all" : wrong);
    }
  }
  CHECK(count > 10);
}

}  // namespace

// Rows S of known cases: each is the move and, as a part of the whole, a bound on what a device sends.

TEST_CASE("S1: what is split no longer is gathered on the axis that goes, a part of an axis too") {
  const Lab lab("x=2, y=2");
  CHECK(lab.text({16, 8}, "y,x", "y,_") == "all_gather x 1");
  CHECK(lab.sent({1024, 512}, "y,x", "y,_") <= 0.25);
  CHECK(Lab("y=8").text({16}, "y", "y:(1)4") == "all_gather y:(4)2 0");
}

TEST_CASE("S3: what is whole is sliced") {
  CHECK(Lab("x=2, y=2, z=2").text({16, 8}, "_,_", "x,y+z") == "slice [x, (y, z)]");
}

TEST_CASE("S5: two dims that become one are exchanged one after the other") {
  const Lab lab("x=2, y=2");
  CHECK(lab.text({16, 8, 8}, "y,x,_", "_,_,x+y") == "all_to_all x 1->2, all_to_all y 0->2");
  CHECK(lab.sent({256, 64, 64}, "y,x,_", "_,_,x+y") <= 0.25);
}

TEST_CASE("S7: what comes new is sliced before it is exchanged") {
  const Lab lab("x=2, y=2, z=2");
  CHECK(lab.text({16, 8, 8}, "_,x,_", "_,_,x+y+z") == "slice [_, (x, y, z), _], all_to_all x+y+z 1->2");
  CHECK(lab.sent({256, 64, 64}, "_,x,_", "_,_,x+y+z") <= 0.125 * 7 / 8);
}

TEST_CASE("S9: an axis that is replaced costs no more than a permutation and a gather") {
  const Lab lab("x=2, y=2, z=2");
  CHECK(lab.sent({1024, 512}, "x+y,_", "z,_") <= 0.5);
  CHECK(lab.text({16, 8}, "x,_", "_,y") == "slice [x, y], all_gather x 0");
  CHECK(lab.sent({1024, 512}, "x,_", "_,y") <= 0.25);
}

TEST_CASE("S11: axes in another order are one permutation") {
  const Lab lab("x=2, y=2, z=2");
  CHECK(lab.text({16, 8}, "x+y,z", "y+x,z") == "ppermute [(y, x), z]");
  CHECK(lab.sent({1024, 512}, "x+y,z", "y+x,z") <= 0.125);
}

TEST_CASE("moves between shardings are those of an expert") {
  const Lab lab("x=2, y=2, z=2");
  CHECK(lab.text({16, 8}, "y,x", "y,x") == "");
  CHECK(lab.text({16, 8}, "x+y+z,_", "x,_") == "all_gather y+z 0");
  CHECK(lab.text({16, 8}, "z,y", "z,x") == "ppermute [z, x]");
}

TEST_CASE("a part of an axis is moved alone") {
  const Lab lab("y=8, x=2");
  CHECK(lab.text({16}, "y:(1)4", "y") == "slice [y]");
  CHECK(lab.text({16, 16}, "y,_", "y:(1)2,y:(2)4") == "all_to_all y:(2)4 0->1");
}

TEST_CASE("a search sends less than taking what helps at once") {
  const Lab lab("x=2, y=2, z=2");
  CHECK(lab.sent({256, 64, 64}, "_,y+x,_", "x,y,_") <= 0.25);
  CHECK(lab.sent({256, 64, 64}, "x,y,_", "_,x,y") <= 0.25);
  CHECK(lab.sent({4096, 4}, "x+y,_", "x,y+z") <= 0.125);
  CHECK(lab.sent({1024, 512}, "z+y+x,_", "_,y") <= 0.469);
}

TEST_CASE("partial sums are scattered where they end up split, and summed where they do not") {
  const Lab lab("x=2, y=4");
  const auto text = [&](const ir::Axes& unreduced, std::string_view from, std::string_view to) {
    Sharding s = lab.sharding(from);
    s.unreduced = lab.atoms.of(unreduced);
    return to_string(plan_reshard({16, 32}, f32, lab.atoms, s, lab.sharding(to), lab.profile), lab.atoms);
  };
  CHECK(text({"y"}, "x,_", "x,_") == "all_reduce y");
  CHECK(text({"y"}, "x,_", "x,y") == "reduce_scatter y 1");
  CHECK(text({"x", "y"}, "_,_", "x,_") == "reduce_scatter x 0, all_reduce y");
  CHECK(text({"x", "y"}, "_,_", "x+y,_") == "reduce_scatter x+y 0");
}

TEST_CASE("a value becomes partial without communication") {
  const Lab lab("x=2, y=4");
  Sharding to = lab.sharding("_,_");
  to.unreduced = lab.atoms.of("y");
  const auto text = [&](std::string_view from) {
    return to_string(plan_reshard({16, 32}, f32, lab.atoms, lab.sharding(from), to, lab.profile), lab.atoms);
  };
  CHECK(text("_,_") == "make_partial y");
  CHECK(text("y,_") == "pad_partial y 0");
}

TEST_CASE("what is partial in one way is whole before it is partial in another") {
  const Lab lab("x=2, y=4");
  Sharding from = lab.sharding("_,_"), to = from;
  from.unreduced = lab.atoms.of("x");
  to.unreduced = lab.atoms.of("x");
  to.kind = ir::ReduceKind::max;
  CHECK(to_string(plan_reshard({16, 32}, f32, lab.atoms, from, to, lab.profile), lab.atoms) ==
        "all_reduce x, make_partial x");
}

TEST_CASE("all pairs of shardings on three axes of two give the right values") {
  const Lab lab("x=2, y=2, z=2");
  check_all_pairs(lab, 1, {8}, true, 1, true);
  check_all_pairs(lab, 2, {8, 8}, true, 31, true);
  check_all_pairs(lab, 3, {8, 8, 8}, true, 1997, true);
}

TEST_CASE("all pairs of shardings on axes of unlike sizes give the right values") {
  const Lab lab("x=2, y=3, z=4");
  check_all_pairs(lab, 1, {24}, true, 37, true);
  check_all_pairs(lab, 2, {24, 24}, true, 4999, true);
}

TEST_CASE("extremes and logical values that are partial are put together by their own kind") {
  const Lab lab("x=2, y=2");
  for (const ir::ReduceKind kind : {ir::ReduceKind::max, ir::ReduceKind::min, ir::ReduceKind::prod}) {
    ir::Literal x(ir::Type(kind == ir::ReduceKind::prod ? DType::i32 : DType::f32, {4, 4}));
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(8 - i));
    for (Sharding from : all_shardings(lab.atoms, 2, true)) {
      for (Sharding to : all_shardings(lab.atoms, 2, true)) {
        if (!from.unreduced.empty()) from.kind = kind;
        if (!to.unreduced.empty()) to.kind = kind;
        CHECK(fault(lab.atoms, plan_reshard({4, 4}, x.dtype(), lab.atoms, from, to, lab.profile), x, to) == "");
      }
    }
  }
}

TEST_CASE("with more dims than are searched, what helps at once gives the right values") {
  const Lab lab("x=2, y=2, z=2");
  Shape dims(15, 1);
  dims[3] = dims[7] = 8;
  const ir::Literal x = counting(DType::i32, dims);
  const std::vector<Sharding> all = all_shardings(lab.atoms, 2, true);
  const ir::LogSink before = ir::set_log_sink([](std::string_view) {});  // of what is gathered on the way
  const auto spread = [](const Sharding& s) {
    Sharding t = Sharding::replicated(15);
    t.dims[3] = s.dims[0], t.dims[7] = s.dims[1], t.unreduced = s.unreduced;
    return t;
  };
  for (std::size_t pair = 0; pair < all.size() * all.size(); pair += 43) {
    const Sharding from = spread(all[pair / all.size()]), to = spread(all[pair % all.size()]);
    const passes::ReshardPlan plan = plan_reshard(dims, DType::i32, lab.atoms, from, to, lab.profile);
    CHECK(plan.is_greedy == !(from == to));
    CHECK(fault(lab.atoms, plan, x, to) == "");
  }
  ir::set_log_sink(before);
}

TEST_CASE("a mesh of many devices is moved over by whole axes") {
  const Lab lab("data=128, model=8");
  CHECK(lab.text({1024, 1024}, "data,model", "model,data") ==
        "all_to_all model 1->0, all_to_all data+model 0->1, all_to_all model 1->0");
  CHECK(lab.text({1024, 1024}, "data,_", "_,data") == "all_to_all data 0->1");
}

TEST_CASE("no pair of shardings on three axes gathers the whole") {
  const Lab lab("x=2, y=2, z=2", "nvlink");
  check_all_pairs(lab, 2, {16, 8}, true, 1, false);
  check_all_pairs(lab, 3, {8, 8, 8}, false, 41, false);
}
