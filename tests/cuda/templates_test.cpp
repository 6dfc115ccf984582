// What the templates' kernels move on a GPU, counted on the engine: each byte of the operands once, in whole sectors,
// and never two threads of a warp in one bank of shared memory. Their bits are those of the CPU's nests.
#include <doctest/doctest.h>

#include <algorithm>

#include "codegen/kir/templates/template.h"
#include "tests/emulator/kernel_runs.h"
#include "tests/kir/group_maker.h"

using namespace sheaf;
using namespace sheaf::emulator;
using ir::ReduceKind;
using ir::ScalarOp;
using kir::Group;
using kir::GroupMaker;

namespace {

using Dims = std::vector<std::int64_t>;

struct Moves {
  std::string name;
  Group group;
  std::optional<ir::Schedule> schedule = {};
  Dims tile = {};
  bool is_whole = false;  // inputs are small whole numbers, whose sums and products are exact in any order
};

ir::ops::Kernel plan_of(const Moves& m) {
  ir::ops::Kernel plan = kir::plan_for(m.group);
  if (m.schedule) plan.schedule = *m.schedule;
  plan.tile = m.tile;
  return plan;
}

std::int64_t bytes_of(const kir::Kernel& kernel, kir::Param::Access access) {
  std::int64_t bytes = 0;
  for (const kir::Param& p : kernel.params)
    if (p.access == access) bytes += p.count * size_bytes(p.dtype);
  return bytes;
}

/// Runs every kernel with counters, and checks that its bits are those of the CPU's nest for the same group.
template <class Check>
void count(const std::vector<Moves>& all, Check check, bool keeps_out_of_banks = true) {
  std::vector<KernelCase> cases;
  // Whatever is an index lies partly outside.
  const auto indices = [](int, ir::Literal& x) {
    for (std::int64_t i = 0; x.type().dtype() == DType::i32 && i < x.size(); ++i) x.set_int(i, i * 5 % 9 - 1);
  };
  const auto whole = [&](int input, ir::Literal& x) {
    for (std::int64_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i % 5 - 2));
    indices(input, x);
  };
  for (const Moves& m : all) cases.push_back({m.name, build_kernel(m.group, plan_of(m), kir::kCudaGrain), indices});
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].is_whole) cases[i].prepare = whole;
  const KernelBatch batch(std::move(cases));
  const Text text(batch.functions);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const KernelCase& c = batch.cases[i];
    CAPTURE(c.name);
    const std::vector<Bytes> inputs = inputs_of(c);
    const KernelRun run = run_on_engine(text, c, batch.texts[i], inputs, {.counts_accesses = true});
    ir::ops::Kernel plan = plan_of(all[i]);
    const kir::Kernel on_cpu = build_kernel(all[i].group, plan, kir::kCpuGrain);
    std::vector<Bytes> buffers(inputs.begin(), inputs.begin() + all[i].group.num_inputs);
    for (std::size_t p = buffers.size(); p < on_cpu.params.size(); ++p)
      buffers.emplace_back(static_cast<std::size_t>(on_cpu.params[p].count * size_bytes(on_cpu.params[p].dtype)));
    std::vector<Bytes> want = interpreted(on_cpu, buffers);
    want.resize(static_cast<std::size_t>(all[i].group.num_inputs) + all[i].group.results.size());
    check_equal(c, run, want);
    if (keeps_out_of_banks) CHECK(run.counters.shared_wavefronts == run.counters.ideal_shared_wavefronts);
    check(c, run.counters);
  }
}

void check_ideal(const KernelCase& c, const Counters& moved) {
  CHECK(moved.sectors_read == moved.ideal_sectors_read);
  CHECK(moved.sectors_written == moved.ideal_sectors_written);
  CHECK(32 * moved.sectors_read == bytes_of(c.kernel, kir::Param::Access::read));
  CHECK(32 * moved.sectors_written == bytes_of(c.kernel, kir::Param::Access::write));
}

Group chain(DType t, const Shape& dims) {
  GroupMaker m;
  const int x = m.input(t, dims), y = m.input(t, dims);
  m.group.results = {m.map(*ir::scalar_function("exp", t), {m.map(ScalarOp::mul, {x, y}, dims)}, dims)};
  return m.group;
}

Group converted(DType from, DType to, const Shape& dims) {
  GroupMaker m;
  ir::ScalarBuilder s;
  m.group.results = {m.map(s.finish(s.convert(s.arg(0, from), to)), {m.input(from, dims)}, dims)};
  return m.group;
}

/// x + bias of the last dim.
Group biased(const Shape& dims) {
  GroupMaker m;
  const int last = static_cast<int>(dims.size()) - 1;
  const int x = m.input(DType::f32, dims), bias = m.input(DType::f32, {dims.back()});
  m.group.results = {m.map(ScalarOp::add, {x, m.broadcast(bias, {last}, dims)}, dims)};
  return m.group;
}

/// x^T + y, and perhaps z^T.
Group transposed(DType t, std::int64_t rows, std::int64_t columns, int operands) {
  GroupMaker m;
  const Shape dims{columns, rows};
  std::vector<int> in;
  for (int k = 0; k < operands; ++k) in.push_back(m.input(t, k == 1 ? dims : Shape{rows, columns}));
  int sum = m.broadcast(in[0], {1, 0}, dims);
  for (int k = 1; k < operands; ++k)
    sum = m.map(ScalarOp::max, {sum, k == 1 ? in[1] : m.broadcast(in[k], {1, 0}, dims)}, dims);
  m.group.results = {sum};
  return m.group;
}

Group reduced(ReduceKind kind, DType t, const Shape& dims, const Dims& over) {
  GroupMaker m;
  m.group.results = {m.reduce(kind, m.input(t, dims), over)};
  return m.group;
}

/// Layer norm without the epsilon: (x - mean) / sqrt(mean((x - mean)^2)).
Group normed(DType t, const Shape& dims) {
  GroupMaker m;
  const int x = m.input(t, dims);
  const Shape kept{dims[0]};
  const auto mean = [&](int of) {
    const int sum = m.reduce(ReduceKind::sum, of, {1});
    ir::ScalarBuilder s;
    const auto scaled = s.emit(ScalarOp::mul, s.convert(s.arg(0, t), DType::f32),
                               s.constant(DType::f32, 1.0 / static_cast<double>(dims[1])));
    return m.broadcast(m.map(s.finish(s.convert(scaled, t)), {sum}, kept), {0}, dims);
  };
  const int centred = m.map(ScalarOp::sub, {x, mean(x)}, dims);
  const int deviation =
      m.map(ir::scalar_primitive(ScalarOp::sqrt, t), {mean(m.map(ScalarOp::mul, {centred, centred}, dims))}, dims);
  m.group.results = {m.map(ScalarOp::div, {centred, deviation}, dims)};
  return m.group;
}

}  // namespace

TEST_CASE("a map moves what it must") {
  count({{"f32", chain(DType::f32, {4, 2048})},
         {"bf16", chain(DType::bf16, {8192})},
         {"f64", chain(DType::f64, {2, 3, 512})},
         {"f32 to bf16", converted(DType::f32, DType::bf16, {8192})},
         {"i8 to f32", converted(DType::i8, DType::f32, {16384})},
         {"small", chain(DType::f32, {64})}},
        check_ideal);
}

TEST_CASE("a map reads a bias for every element, in whole sectors, and the rest once") {
  count({{"long rows", biased({8, 2048})}, {"short rows", biased({64, 48})}},
        [](const KernelCase& c, const Counters& moved) {
          CHECK(moved.sectors_written == moved.ideal_sectors_written);
          CHECK(moved.sectors_read == moved.ideal_sectors_read);
          CHECK(32 * moved.sectors_written == bytes_of(c.kernel, kir::Param::Access::write));
        });
}

TEST_CASE("a gather of rows reads each index once for a vector, and rows in whole sectors") {
  GroupMaker m;
  const int table = m.input(DType::f32, {8, 256}), at = m.input(DType::i32, {16, 1});
  ir::lowering::Gather rows;
  rows.offset_dims = {1};
  rows.collapsed_dims = {0};
  rows.start_index_map = {0};
  rows.slice_sizes = {1, 256};
  rows.index_vector_dim = 1;
  m.group.results = {m.node(rows, {table, at}, DType::f32, {16, 256})};
  count({{"rows", m.group}}, [](const KernelCase& c, const Counters& moved) {
    CHECK(moved.sectors_written == moved.ideal_sectors_written);
    CHECK(moved.sectors_read == moved.ideal_sectors_read);
    // A sector of indices for each warp of four elements a thread.
    CHECK(32 * (moved.sectors_read - 32) == bytes_of(c.kernel, kir::Param::Access::write));
  });
}

TEST_CASE("a transpose reads and writes along rows") {
  const auto tiled = [](std::string name, Group g) {
    return Moves{std::move(name), std::move(g), ir::Schedule::tile_transpose, {0, 1}};
  };
  count({tiled("f32", transposed(DType::f32, 64, 96, 1)), tiled("bf16", transposed(DType::bf16, 128, 64, 1)),
         tiled("f64", transposed(DType::f64, 32, 64, 1)), tiled("i8", transposed(DType::i8, 64, 128, 1)),
         tiled("two across, one along", transposed(DType::f32, 64, 64, 3))},
        check_ideal);
}

TEST_CASE("a ragged transpose leaves nothing out") {
  const auto tiled = [](std::string name, Group g) {
    return Moves{std::move(name), std::move(g), ir::Schedule::tile_transpose, {0, 1}};
  };
  count({tiled("f32", transposed(DType::f32, 70, 150, 2)), tiled("bf16", transposed(DType::bf16, 33, 9, 1))},
        [](const KernelCase&, const Counters&) {});
}

TEST_CASE("reductions of rows read each element once") {
  using ir::Schedule;
  const auto check = [](const KernelCase& c, const Counters& moved) {
    CHECK(moved.sectors_read == moved.ideal_sectors_read);
    CHECK(32 * moved.sectors_read == bytes_of(c.kernel, kir::Param::Access::read));
  };
  count({{"by warps", reduced(ReduceKind::sum, DType::f32, {40, 256}, {1}), Schedule::reduce},
         {"by warps, ragged", reduced(ReduceKind::max, DType::f32, {5, 104}, {1}), Schedule::reduce},
         {"by warps, bf16", reduced(ReduceKind::sum, DType::bf16, {9, 512}, {1}), Schedule::reduce},
         {"by blocks", reduced(ReduceKind::sum, DType::f32, {6, 5000}, {1}), Schedule::reduce},
         {"by blocks, f64", reduced(ReduceKind::prod, DType::f64, {3, 2112}, {1}), Schedule::reduce}},
        check);
}

TEST_CASE("a long row is split, and its parts are read once more") {
  count({{"all", reduced(ReduceKind::sum, DType::f32, {40000}, {0}), ir::Schedule::reduce}},
        [](const KernelCase& c, const Counters& moved) {
          CHECK(c.kernel.phases.size() == 2);
          CHECK(moved.sectors_read - moved.ideal_sectors_read == 0);
          CHECK(32 * moved.sectors_read - bytes_of(c.kernel, kir::Param::Access::read) <= 4 * 32);
        });
}

TEST_CASE("reductions of columns read each element once") {
  const auto check = [](const KernelCase& c, const Counters& moved) {
    CHECK(moved.sectors_read == moved.ideal_sectors_read);
    CHECK(32 * moved.sectors_read == bytes_of(c.kernel, kir::Param::Access::read));
    CHECK(moved.sectors_written == moved.ideal_sectors_written);
  };
  count({{"f32", reduced(ReduceKind::sum, DType::f32, {200, 96}, {0})},
         {"few rows", reduced(ReduceKind::sum, DType::f32, {20, 64}, {0})},
         {"within", reduced(ReduceKind::max, DType::f32, {3, 130, 32}, {1})},
         {"bf16", reduced(ReduceKind::sum, DType::bf16, {300, 64}, {0})},
         {"f64", reduced(ReduceKind::min, DType::f64, {65, 8}, {0})}},
        check);
}

TEST_CASE("columns that fill no block, and more rows than a leaf has") {
  count({{"narrow", reduced(ReduceKind::sum, DType::f32, {100, 5}, {0})},
         {"ragged", reduced(ReduceKind::prod, DType::f32, {70, 45}, {0})},
         {"two leaves", reduced(ReduceKind::sum, DType::f32, {17000, 3}, {0})},
         {"i8", reduced(ReduceKind::sum, DType::i8, {90, 40}, {0})}},
        [](const KernelCase&, const Counters&) {});
}

TEST_CASE("rows are read once and written once through all their reductions") {
  count({{"softmax in a warp", kir::softmax({6, 512}, DType::f32)},
         {"softmax in a warp, ragged", kir::softmax({8, 104}, DType::f32)},
         {"softmax of bf16", kir::softmax({5, 1024}, DType::bf16)},
         {"softmax in a block", kir::softmax({3, 4096}, DType::f32)},
         {"norm in a warp", normed(DType::f32, {9, 768})},
         {"norm of bf16 in a block", normed(DType::bf16, {2, 3072})}},
        check_ideal);
}

TEST_CASE("rows that fit no block are read for each pass") {
  count({{"softmax", kir::softmax({2, 8192}, DType::f32)}}, [](const KernelCase& c, const Counters& moved) {
    CHECK(moved.sectors_read == moved.ideal_sectors_read);
    CHECK(32 * moved.sectors_read == 3 * bytes_of(c.kernel, kir::Param::Access::read));
    CHECK(32 * moved.sectors_written == bytes_of(c.kernel, kir::Param::Access::write));
  });
}

namespace {

using Combine = ir::lowering::Scatter::Combine;

/// Rows of updates into 7 rows.
Group scattered(Combine combine, DType t, std::int64_t rows, std::int64_t columns, bool is_unique = false,
                bool is_ordered = true) {
  GroupMaker m;
  const int x = m.input(t, {7, columns}), at = m.input(DType::i32, {rows, 1}), u = m.input(t, {rows, columns});
  m.group.results = {m.node(ir::lowering::Scatter{combine, {1}, {0}, {0}, {}, {}, 1, is_unique, is_ordered}, {x, at, u},
                            t, {7, columns})};
  return m.group;
}

}  // namespace

TEST_CASE("updates that may be combined in any order, or meet nowhere, are not sorted") {
  const auto in_any_order = [](const std::string& name, Combine combine, DType t) {
    return Moves{.name = name, .group = scattered(combine, t, 200, 3, false, false), .is_whole = true};
  };
  const auto of_integers = [](const std::string& name, Combine combine, DType t) {
    return Moves{.name = name, .group = scattered(combine, t, 200, 3)};
  };
  const auto unique = [](const std::string& name, Combine combine, DType t) {
    return Moves{.name = name, .group = scattered(combine, t, 9, 40, true)};
  };
  count(
      {in_any_order("sum of f32", Combine::add, DType::f32), in_any_order("sum of f64", Combine::add, DType::f64),
       in_any_order("sum of bf16", Combine::add, DType::bf16), in_any_order("sum of f16", Combine::add, DType::f16),
       in_any_order("product of f64", Combine::mul, DType::f64),
       in_any_order("greatest of f32", Combine::max, DType::f32),
       in_any_order("least of bf16", Combine::min, DType::bf16), of_integers("sum of i32", Combine::add, DType::i32),
       of_integers("sum of i64", Combine::add, DType::i64), of_integers("sum of u64", Combine::add, DType::u64),
       of_integers("product of u32", Combine::mul, DType::u32), of_integers("least of i64", Combine::min, DType::i64),
       of_integers("greatest of u16", Combine::max, DType::u16), unique("unique f32", Combine::add, DType::f32),
       unique("unique i8", Combine::mul, DType::i8), unique("unique and set", Combine::set, DType::bf16)},
      [](const KernelCase& c, const Counters&) { CHECK(c.kernel.phases.size() == 2); }, false);
  const auto phases = [](const Group& group) {
    return build_kernel(group, plan_of({"", group}), kir::kCudaGrain).phases.size();
  };
  CHECK(phases(scattered(Combine::add, DType::f32, 200, 3)) > 2);
  CHECK(phases(scattered(Combine::set, DType::f32, 200, 3, false, false)) > 2);
  CHECK(phases(scattered(Combine::add, DType::i8, 200, 3, false, false)) > 2);
}

TEST_CASE("a sort, a scatter and a recurrence have the bits of the CPU's nests") {
  using Kind = ir::lowering::Recurrence::Kind;
  const auto sorted = [](DType t, const Shape& dims, int dim) {
    GroupMaker m;
    const int key = m.input(t, dims), index = m.node(ir::lowering::Iota{dim}, {}, DType::i32, dims);
    const int first = m.node(ir::lowering::Sort{dim, 1}, {key, index}, t, dims);
    const int order = m.node(ir::lowering::Sort{dim, 1}, {key, index}, DType::i32, dims);
    m.group.nodes[order].first = first;
    m.group.nodes[order].result = 1;
    m.group.results = {first, order};
    return m.group;
  };
  const auto running = [](Kind kind, DType t, const Shape& dims, int dim, bool is_reverse) {
    GroupMaker m;
    std::vector<int> operands = {m.input(t, dims)};
    if (kind == Kind::affine) operands.push_back(m.input(t, dims));
    m.group.results = {m.node(ir::lowering::Recurrence{.kind = kind,
                                                       .dim = dim,
                                                       .is_reverse = is_reverse,
                                                       .accumulate = kir::make_reduction(ReduceKind::sum, t).parts[0]},
                              operands, t, dims)};
    return m.group;
  };
  using ir::Schedule;
  count(
      {{"sort", sorted(DType::f32, {3, 90}, 1)},
       {"sort of a longer row than a block holds", sorted(DType::i8, {5000}, 0)},
       {"sort along an outer dim", sorted(DType::bf16, {40, 5}, 0)},
       {"sort of one", sorted(DType::f32, {4, 1}, 1)},
       {"scatter", scattered(Combine::add, DType::f32, 100, 40)},
       {"scatter of bf16", scattered(Combine::mul, DType::bf16, 33, 3)},
       {"scatter that sets", scattered(Combine::set, DType::f32, 64, 5)},
       {"few updates", scattered(Combine::max, DType::i32, 5, 70)},
       {"running sum", running(Kind::sum, DType::f32, {70, 300}, 1, false), Schedule::recurrence},
       {"running sum of few rows", running(Kind::sum, DType::bf16, {2, 1500}, 1, true), Schedule::recurrence},
       {"many short rows", running(Kind::affine, DType::f64, {600, 45}, 1, false), Schedule::recurrence},
       {"columns", running(Kind::logsumexp, DType::f32, {40, 70}, 0, false), Schedule::recurrence}},
      [](const KernelCase&, const Counters&) {}, false);
}

TEST_CASE("indices have 64 bits only where sizes need them") {
  const auto text = [](std::int64_t elements) {
    const kir::Kernel k = build_kernel(converted(DType::i8, DType::i8, {elements}),
                                       plan_of({"", converted(DType::i8, DType::i8, {elements})}), kir::kCudaGrain);
    return codegen::emit_cuda(k, "k").functions;
  };
  CHECK(text(1 << 30).find("const sf_i32 a0") != std::string::npos);
  CHECK(text(std::int64_t{3} << 30).find("const sf_i64 a0") != std::string::npos);
}

TEST_CASE("a row of a stack that begins anywhere is not moved in vectors") {
  const Group group = chain(DType::f32, {4096});
  kir::Kernel k = build_kernel(group, plan_of({"", group}), kir::kCudaGrain);
  const auto has = [&](std::string_view what) {
    return codegen::emit_cuda(k, "k").functions.find(what) != std::string::npos;
  };
  CHECK(has("sf_load<4>(p0"));
  k.params[0].alignment = 8;
  CHECK(has("sf_load<2>(p0"));
  k.params[1].alignment = 4;
  CHECK_FALSE(has("sf_load"));
}
