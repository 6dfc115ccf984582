// Products whose operands do not lie in memory: what makes them stands where tiles are filled, and the bits are those
// of the same product of operands that were stored first, whatever they are made of, however it lies, and in every
// order of threads.
#include "codegen/cuda/mma.h"
#include "codegen/cuda/prologue.h"
#include "codegen/cuda/simt.h"
#include "codegen/kir/contract.h"
#include "tests/cuda/product.h"
#include "tests/kir/group_maker.h"

using namespace sheaf;
using namespace sheaf::emulator;
using codegen::MmaTile;
using codegen::SimtTile;
using ir::ScalarOp;
namespace low = ir::lowering;

namespace {

const codegen::Target kTarget{.gpu = "sm_80"};

ir::ScalarFn conversion(DType from, DType to) {
  ir::ScalarBuilder b;
  return b.finish(b.convert(b.arg(0, from), to));
}

int rounded(kir::GroupMaker& g, int node, DType to, const Shape& dims) {
  return to == DType::f32 ? node : g.map(conversion(DType::f32, to), {node}, dims);
}

/// How an operand of [rows, k] or [k, rows] is made: of inputs, which come before everything else in a group.
using Maker = std::function<std::function<int()>(kir::GroupMaker& g, const Shape& dims)>;

/// An input of dtype `from`, times a scale for each position along the last dim, as a `to`.
Maker scaled(DType from, DType to) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(from, dims), scale = g.input(DType::f32, {dims.back()});
    return [=, &g] {
      const int wide = from == DType::f32 ? x : g.map(conversion(from, DType::f32), {x}, dims);
      const int by = g.broadcast(scale, {static_cast<int>(dims.size()) - 1}, dims);
      return rounded(g, g.map(ScalarOp::mul, {wide, by}, dims), to, dims);
    };
  };
}

Maker plain(DType t) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(t, dims);
    return [=] { return x; };
  };
}

/// x + transpose(y): no order of reading suits both.
Maker crosswise(DType to) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(DType::f32, dims), y = g.input(DType::f32, {dims[1], dims[0]});
    return [=, &g] { return rounded(g, g.map(ScalarOp::add, {x, g.broadcast(y, {1, 0}, dims)}, dims), to, dims); };
  };
}

/// With a border of 7 around what lies in memory.
Maker padded(DType t) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(t, {dims[0] - 3, dims[1] - 2});
    return [=, &g] {
      ir::ScalarBuilder b;
      const int seven = g.map(b.finish(b.constant(t, 7)), {}, {});
      return g.node(low::Pad{{1, 2}, {0, 0}}, {x, seven}, t, dims);
    };
  };
}

/// What is below the diagonal, and zeros.
Maker triangle(DType t) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(DType::f32, dims);
    return [=, &g] {
      const int zero = g.map(ScalarOp::sub, {x, x}, dims);
      const int row = g.node(low::Iota{0}, {}, DType::i32, dims), column = g.node(low::Iota{1}, {}, DType::i32, dims);
      const int is_below = g.map(ScalarOp::ge, {row, column}, dims);
      ir::ScalarBuilder b;
      const auto kept = b.emit(ScalarOp::select, b.arg(0, DType::bool_), b.arg(1, DType::f32), b.arg(2, DType::f32));
      return rounded(g, g.map(b.finish(kept), {is_below, x, zero}, dims), t, dims);
    };
  };
}

/// x where a random bit says so.
Maker dropped(DType t) {
  return [=](kir::GroupMaker& g, const Shape& dims) {
    const int x = g.input(DType::f32, dims), key = g.input(DType::u32, {2});
    return [=, &g] {
      const int bits = g.node(low::RandomBits{.key_batch = {}, .result_batch = {}, .whole = {dims.begin(), dims.end()}},
                              {key}, DType::u32, dims);
      ir::ScalarBuilder b;
      const auto is_kept = b.emit(ScalarOp::lt, b.arg(0, DType::u32), b.constant(DType::u32, 3e9));
      const auto kept = b.emit(ScalarOp::select, is_kept, b.arg(1, DType::f32), b.constant(DType::f32, 0));
      return rounded(g, g.map(b.finish(kept), {bits, x}, dims), t, dims);
    };
  };
}

struct Made {
  std::string name;
  Maker lhs, rhs;
  std::int64_t m = 1, n = 1, k = 1, batch = 1;
  bool lhs_is_transposed = false, rhs_is_transposed = false, has_epilogue = false;
  Precision precision = Precision::full;
  std::size_t prologues = 1;

  kir::Kernel kernel() const {
    kir::GroupMaker g;
    const auto dims = [&](std::int64_t rows, std::int64_t columns, bool is_transposed) {
      Shape shape = is_transposed ? Shape{columns, rows} : Shape{rows, columns};
      if (batch > 1) shape.insert(shape.begin(), batch);
      return shape;
    };
    const auto left = lhs(g, dims(m, k, lhs_is_transposed)), right = rhs(g, dims(k, n, rhs_is_transposed));
    const int x = left(), y = right();
    const std::int64_t first = batch > 1 ? 1 : 0;
    const std::vector<std::int64_t> batches(static_cast<std::size_t>(first), 0);
    const DType accumulate = g.group.dtype(x) == DType::bf16 ? DType::f32 : g.group.dtype(x);
    const int dot = g.node(low::Contract{.lhs_batch = batches,
                                         .rhs_batch = batches,
                                         .lhs_contract = {first + !lhs_is_transposed},
                                         .rhs_contract = {first + rhs_is_transposed},
                                         .accumulate = accumulate,
                                         .precision = precision},
                           {x, y}, accumulate, dims(m, n, false));
    g.group.results = {has_epilogue ? g.map(ScalarOp::add, {dot, dot}, dims(m, n, false)) : dot};
    return kir::contract_kernel(g.group, kir::strided_operand(g.group, x), kir::strided_operand(g.group, y)).kernel;
  }
};

/// The same product of operands that were made before: as the interpreter leaves them in the temporaries.
kir::Kernel of_stored(kir::Kernel kernel) {
  const bool has_epilogue = kir::epilogue_of(kernel) != nullptr;
  kernel.phases.erase(kernel.phases.begin(), kernel.phases.end() - has_epilogue);
  for (std::size_t k = 0; k < 2; ++k) kernel.params[k].access = kir::Param::Access::read;
  return kernel;
}

using Emit = std::function<void(const kir::Kernel& kernel, const std::string& symbol, codegen::CudaText& out)>;

Emit by_mma(const MmaTile& tile, int splits = 1, bool has_copies = true) {
  return [=](const kir::Kernel& kernel, const std::string& symbol, codegen::CudaText& out) {
    codegen::MmaPlan plan = codegen::plan_mma(kernel, kTarget);
    plan.tile = tile;
    plan.has_copies = has_copies;
    plan.split(splits);
    codegen::emit_mma(kernel, plan, symbol, out);
  };
}
Emit by_simt(const SimtTile& tile) {
  return [=](const kir::Kernel& kernel, const std::string& symbol, codegen::CudaText& out) {
    codegen::SimtPlan plan = codegen::plan_simt(*kernel.contract, kTarget);
    plan.tile = tile;
    codegen::emit_simt(kernel, plan, symbol, out);
  };
}

struct Case {
  Made made;
  Emit emit;
};

Contraction contraction(const Case& c, const kir::Kernel& kernel) {
  return {c.made.name, kernel,
          [kernel, emit = c.emit](const std::string& symbol, codegen::CudaText& out) { emit(kernel, symbol, out); }};
}

/// Each beside the product of stored operands, and that beside the interpreter where its order of sums is ours.
void check(const std::vector<Case>& cases, std::span<const Policy> policies, Counters& counters) {
  std::vector<Contraction> all;
  for (const Case& c : cases) {
    const kir::Kernel kernel = c.made.kernel();
    INFO(c.made.name);
    REQUIRE(kernel.phases.size() == c.made.prologues + (c.made.has_epilogue ? 1 : 0));
    all.push_back(contraction(c, kernel));
    all.push_back(contraction(c, of_stored(kernel)));
  }
  const Contractions both(std::move(all));
  for (std::size_t i = 0; i < both.size(); i += 2) {
    INFO(both[i].name);
    const kir::Kernel& kernel = both[i].kernel;
    const auto result = static_cast<std::size_t>(kernel.params.size()) - 1 - (kir::epilogue_of(kernel) ? 1 : 0);
    const std::vector<Bytes> inputs = both.inputs(i), interpreted = both.interpreted(i, inputs);
    std::vector<Bytes> stored = inputs;
    for (std::size_t k = 0; k < 2; ++k) stored[k] = interpreted[k];
    Counters unused;
    const Bytes want = both.run_on_engine(i + 1, stored, {}, unused)[result];
    if (!codegen::has_mma(*kernel.contract, kTarget)) CHECK(want == interpreted[result]);
    for (const Policy& policy : policies) CHECK(both.run_on_engine(i, inputs, policy, counters)[result] == want);
  }
}
void check(const std::vector<Case>& cases) {
  Counters unused;
  check(cases, kOrders, unused);
}

template <class F>
void for_each_layout_of(Made made, F f) {
  const std::string name = made.name;
  for (int layout = 0; layout < 4; ++layout) {
    made.lhs_is_transposed = layout / 2;
    made.rhs_is_transposed = layout % 2;
    made.name = fmt::format("{} {}{}", name, layout / 2 ? "t" : "n", layout % 2 ? "t" : "n");
    f(made);
  }
}

std::vector<MmaTile> mma_tiles(DType dtype) {
  std::vector<MmaTile> tiles;
  for (const MmaTile& t : codegen::mma_tiles(dtype))
    if (!t.is_wgmma) tiles.push_back(t);
  return tiles;
}
const MmaTile kSmall =
    *std::ranges::find_if(codegen::mma_tiles(), [](const MmaTile& t) { return t.rows == 64 && t.columns == 64; });

}  // namespace

TEST_CASE("operands of halves made of others are right in every tile and layout") {
  std::vector<Case> cases;
  for (const MmaTile& tile : mma_tiles(bf16))
    for_each_layout_of({.name = fmt::format("{} x {}", tile.rows, tile.columns),
                        .lhs = scaled(f32, bf16),
                        .rhs = scaled(DType::i8, bf16),
                        .m = tile.rows + 8,
                        .n = tile.columns + 24,
                        .k = 2 * tile.terms + 8,
                        .prologues = 2},
                       [&](const Made& made) { cases.push_back({made, by_mma(tile)}); });
  check(cases);
}

TEST_CASE("operands of f32 that tensor cores may round are made of others too") {
  std::vector<Case> cases;
  for (const MmaTile& tile : mma_tiles(f32))
    for_each_layout_of({.name = fmt::format("{} x {}", tile.rows, tile.columns),
                        .lhs = scaled(bf16, f32),
                        .rhs = scaled(f32, f32),
                        .m = tile.rows + 3,
                        .n = tile.columns + 24,
                        .k = 2 * tile.terms + 4,
                        .precision = Precision::tf32,
                        .prologues = 2},
                       [&](const Made& made) { cases.push_back({made, by_mma(tile)}); });
  check(cases);
}

TEST_CASE("one made operand stands beside one that is copied, in batches, splits, ragged sizes and few rows") {
  std::vector<Case> cases;
  const auto add = [&](const Made& made, int splits = 1) { cases.push_back({made, by_mma(kSmall, splits)}); };
  for_each_layout_of({.name = "left", .lhs = scaled(bf16, bf16), .rhs = plain(bf16), .m = 72, .n = 80, .k = 136}, add);
  for_each_layout_of({.name = "right", .lhs = plain(bf16), .rhs = scaled(bf16, bf16), .m = 72, .n = 80, .k = 136}, add);
  for_each_layout_of({.name = "odd", .lhs = scaled(f32, bf16), .rhs = plain(bf16), .m = 67, .n = 71, .k = 35}, add);
  add({.name = "batch", .lhs = scaled(f32, bf16), .rhs = plain(bf16), .m = 40, .n = 56, .k = 48, .batch = 3});
  const Made deep{.name = "deep",
                  .lhs = scaled(f32, bf16),
                  .rhs = scaled(DType::i8, bf16),
                  .m = 40,
                  .n = 72,
                  .k = 200,
                  .prologues = 2};
  add(deep, 3);
  add({.name = "one column", .lhs = scaled(DType::i8, bf16), .rhs = plain(bf16), .m = 200, .n = 1, .k = 96});
  add({.name = "one row", .lhs = plain(bf16), .rhs = scaled(DType::i8, bf16), .m = 1, .n = 200, .k = 96});
  add({.name = "epilogue",
       .lhs = plain(bf16),
       .rhs = scaled(DType::f8e4m3, bf16),
       .m = 70,
       .n = 72,
       .k = 64,
       .has_epilogue = true});
  check(cases);
}

TEST_CASE("operands are right where shared memory has no room for copies of what they are made of") {
  std::vector<Case> cases;
  for_each_layout_of({.name = "both",
                      .lhs = scaled(f32, bf16),
                      .rhs = scaled(DType::i8, bf16),
                      .m = 72,
                      .n = 80,
                      .k = 136,
                      .prologues = 2},
                     [&](const Made& made) { cases.push_back({made, by_mma(kSmall, 1, false)}); });
  check(cases);
  const Made large{
      .name = {}, .lhs = scaled(f32, bf16), .rhs = scaled(f32, bf16), .m = 4096, .n = 4096, .k = 64, .prologues = 2};
  CHECK(codegen::plan_mma(large.kernel(), {.gpu = "sm_90a"}).has_copies);
  CHECK_FALSE(codegen::plan_mma(large.kernel(), {.gpu = "sm_86"}).has_copies);
}

TEST_CASE("operands with borders, masks, random bits and of two layouts at once are right") {
  std::vector<Case> cases;
  for (const DType t : {bf16, f32})
    for (const auto& [name, maker] : {std::pair("crosswise", crosswise(t)),
                                      {"padded", padded(t)},
                                      {"triangle", triangle(t)},
                                      {"dropped", dropped(t)}})
      for (const bool is_right : {false, true})
        cases.push_back({{.name = name,
                          .lhs = is_right ? plain(t) : maker,
                          .rhs = is_right ? maker : plain(t),
                          .m = 72,
                          .n = 40,
                          .k = 64},
                         t == bf16 ? by_mma(kSmall) : by_simt(codegen::simt_tiles()[1])});
  check(cases);
}

TEST_CASE("operands of plain arithmetic made of others have the interpreter's bits in every tile and layout") {
  std::vector<Case> cases;
  for (const SimtTile& tile : codegen::simt_tiles())
    for_each_layout_of(
        {.name = "f32", .lhs = scaled(f32, f32), .rhs = scaled(bf16, f32), .m = 37, .n = 70, .k = 39, .prologues = 2},
        [&](const Made& made) { cases.push_back({made, by_simt(tile)}); });
  check(cases);
}

TEST_CASE("what operands are made of is read in whole sectors, and tiles are filled without conflicts of banks") {
  std::vector<Case> cases;
  for (const MmaTile& tile : mma_tiles(bf16))
    for_each_layout_of({.name = fmt::format("{} x {}", tile.rows, tile.columns),
                        .lhs = scaled(f32, bf16),
                        .rhs = scaled(DType::i8, bf16),
                        .m = tile.rows,
                        .n = tile.columns,
                        .k = 2 * tile.terms,
                        .prologues = 2},
                       [&](const Made& made) { cases.push_back({made, by_mma(tile)}); });
  const Policy counting[] = {{.counts_accesses = true}};
  for (const Case& c : cases) {
    INFO(c.made.name);
    Counters counters;
    check({c}, counting, counters);
    check_ideal(counters);
  }
}

TEST_CASE("a product of what is made leaves tiles that only copies can fill to others") {
  const codegen::Target target{.gpu = "sm_90a"};
  const Made made{.name = {}, .lhs = scaled(f32, bf16), .rhs = plain(bf16), .m = 8192, .n = 8192, .k = 64};
  CHECK_FALSE(codegen::plan_mma(made.kernel(), target).tile.is_wgmma);
  CHECK(codegen::plan_mma(of_stored(made.kernel()), target).tile.is_wgmma);
}
