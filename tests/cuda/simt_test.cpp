// Products in plain arithmetic have the interpreter's bits, whatever the tile, the layout, the dtype and the order of
// threads; and those of f32 and f64 touch memory as little as can be.
#include "codegen/cuda/simt.h"

#include "codegen/kir/contract.h"
#include "tests/cuda/product.h"

using namespace sheaf;
using namespace sheaf::emulator;
using codegen::SimtPlan;
using codegen::SimtTile;

namespace {

const codegen::Target kTarget{.gpu = "sm_90a"};

Contraction with_tile(const std::string& name, const kir::Kernel& kernel, const SimtTile& tile,
                      const codegen::Target& target = kTarget) {
  SimtPlan plan = codegen::plan_simt(*kernel.contract, target);
  plan.tile = tile;
  return {name, kernel,
          [=](const std::string& symbol, codegen::CudaText& out) { codegen::emit_simt(kernel, plan, symbol, out); }};
}

Contraction with_tile(const Product& p, const SimtTile& tile, const codegen::Target& target = kTarget) {
  return with_tile(p.name, p.kernel(), tile, target);
}

Contraction planned(const Product& p) { return with_tile(p, codegen::plan_simt(*p.kernel().contract, kTarget).tile); }

Product of_dtype(DType t, Product p) {
  p.dtype = p.out = p.accumulate = t;
  return p;
}

void check(const Contractions& all, std::size_t i, std::span<const Policy> policies, Counters& counters) {
  INFO(all[i].name);
  const std::vector<Bytes> inputs = all.inputs(i), want = all.interpreted(i, inputs);
  for (const Policy& policy : policies)
    CHECK(wrong_elements(all[i].kernel.params[2], all.run_on_engine(i, inputs, policy, counters)[2], want[2]) == 0);
}

void check_all(std::vector<Contraction> contractions) {
  const Contractions all(std::move(contractions));
  Counters unused;
  for (std::size_t i = 0; i < all.size(); ++i) check(all, i, kOrders, unused);
}

}  // namespace

TEST_CASE("products of f32 and f64 have the interpreter's bits in every tile and layout") {
  std::vector<Contraction> all;
  for (const SimtTile& tile : codegen::simt_tiles())
    for (DType t : {DType::f32, DType::f64})
      for_each_layout(of_dtype(t, {.m = 16 * tile.thread_rows / 4 + 5, .n = 70, .k = 39}),
                      [&](const Product& p) { all.push_back(with_tile(p, tile)); });
  check_all(std::move(all));
}

TEST_CASE("products of every dtype have the interpreter's bits, with and without asynchronous copies") {
  std::vector<Contraction> all;
  for (DType t : {DType::i8, DType::u8, DType::i16, DType::i32, DType::u32, DType::i64, DType::bool_, DType::f32})
    for (const char* gpu : {"sm_75", "sm_90a"}) {
      Product p = of_dtype(t, {.name = fmt::format("{} for {}", name(t), gpu), .m = 37, .n = 45, .k = 21});
      all.push_back(with_tile(p, codegen::simt_tiles()[1], {.gpu = gpu}));
    }
  all.push_back(planned({.name = "bf16", .m = 37, .n = 45, .k = 21, .dtype = DType::bf16, .out = DType::bf16}));
  all.push_back(planned({.name = "f16 to f32", .m = 37, .n = 45, .k = 21, .dtype = DType::f16}));
  check_all(std::move(all));
}

TEST_CASE("a convolution's rows and terms of several dims have the interpreter's bits in every tile") {
  std::vector<Contraction> all;
  for (const SimtTile& tile : codegen::simt_tiles())
    all.push_back(with_tile("convolution", convolution(DType::f32), tile));
  check_all(std::move(all));
}

TEST_CASE("batches, few rows, few columns, pitches and transposed results have the interpreter's bits") {
  const auto f32 = [](Product p) { return planned(of_dtype(DType::f32, std::move(p))); };
  check_all({f32({.name = "batch", .batch = 3, .m = 20, .n = 36, .k = 24}),
             f32({.name = "one row", .m = 1, .n = 130, .k = 70}),
             f32({.name = "one column", .m = 130, .n = 1, .k = 70}),
             f32({.name = "one of each", .m = 1, .n = 1, .k = 1}), f32({.name = "no terms", .m = 5, .n = 6, .k = 0}),
             f32({.name = "pitch", .m = 20, .n = 36, .k = 24, .pad = 3}),
             f32({.name = "offset", .m = 20, .n = 36, .k = 24, .offset = 1}),
             f32({.name = "transposed", .m = 72, .n = 88, .k = 20, .out_is_transposed = true})});
}

TEST_CASE("no access of a product meets another in a bank, and each sector is used whole") {
  std::vector<Contraction> contractions;
  for (const SimtTile& tile : codegen::simt_tiles())
    for (DType t : {DType::f32, DType::f64}) {
      const int vector = t == DType::f64 ? 2 : 4;
      if (tile.thread_rows * tile.row_groups * vector < 128 / size_bytes(t)) continue;  // fewer rows than banks
      for_each_layout(of_dtype(t, {.m = tile.thread_rows * tile.row_groups * vector,
                                   .n = 16 * tile.column_groups * vector,
                                   .k = 2 * tile.terms}),
                      [&](const Product& p) { contractions.push_back(with_tile(p, tile)); });
    }
  const Contractions all(std::move(contractions));
  const Policy counting[] = {{.counts_accesses = true}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    INFO(all[i].name);
    Counters c;
    check(all, i, counting, c);
    check_ideal(c);
  }
}
