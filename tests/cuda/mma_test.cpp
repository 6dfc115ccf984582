// Products on tensor cores: every tile, layout and ragged size on the emulator, in every order of threads and with
// copies as late and as early as can be, against the interpreter, which is given operands that may be rounded to TF32
// as they then are. Tolerance: both sums of n terms are off by at most n roundings of the sum of magnitudes, and the
// result is rounded once to its dtype.
#include "codegen/cuda/mma.h"

#include <cstdio>

#include "codegen/cuda/nvrtc.h"
#include "codegen/kir/contract.h"
#include "tests/cuda/product.h"
#include "tests/kir/group_maker.h"

using namespace sheaf;
using namespace sheaf::emulator;
using codegen::MmaPlan;
using codegen::MmaTile;
namespace low = ir::lowering;

namespace {

const codegen::Target kTarget{.gpu = "sm_90a"};

double tolerance_of(const kir::Kernel& kernel, DType out) {
  const double terms = static_cast<double>(kir::size_of(kernel.contract->k));
  return terms * std::ldexp(terms, -23) + std::ldexp(1, out == DType::f32 ? -23 : out == DType::f16 ? -10 : -7);
}

MmaPlan plan_of(const kir::Kernel& kernel) {
  REQUIRE(codegen::has_mma(*kernel.contract, kTarget));
  return codegen::plan_mma(kernel, kTarget);
}

Contraction planned(const std::string& name, const kir::Kernel& kernel, const MmaPlan& plan) {
  return {fmt::format("{} of {} x {}", name, plan.tile.rows, plan.tile.columns), kernel,
          [=](const std::string& symbol, codegen::CudaText& out) { codegen::emit_mma(kernel, plan, symbol, out); }};
}
Contraction planned(const Product& p) { return planned(p.name, p.kernel(), plan_of(p.kernel())); }

Contraction with_tile(const std::string& name, const kir::Kernel& kernel, const MmaTile& tile, int splits = 1) {
  MmaPlan plan = plan_of(kernel);
  plan.tile = tile;
  plan.split(splits);
  return planned(name, kernel, plan);
}
Contraction with_tile(const Product& p, const MmaTile& tile, int splits = 1) {
  return with_tile(p.name, p.kernel(), tile, splits);
}

/// Products of halves, and of f32 in TF32.
constexpr std::pair<DType, Precision> kOperands[] = {{DType::bf16, Precision::full}, {DType::f32, Precision::tf32}};

const MmaTile& small_tile(DType dtype = DType::bf16) {
  const std::span<const MmaTile> all = codegen::mma_tiles(dtype);
  return *std::find_if(all.begin(), all.end(), [](const MmaTile& t) { return t.rows == 64 && t.columns == 64; });
}

/// To 11 significant bits, halves away from zero; all of it is finite.
void round_to_tf32(Bytes& of_f32) {
  for (std::size_t at = 0; at < of_f32.size(); at += 4) {
    std::uint32_t bits;
    std::memcpy(&bits, of_f32.data() + at, 4);
    bits = (bits + 0x1000) & ~0x1fffu;
    std::memcpy(of_f32.data() + at, &bits, 4);
  }
}

void check(const Contractions& all, std::size_t i, std::span<const Policy> policies, Counters& counters) {
  const kir::Kernel& kernel = all[i].kernel;
  INFO(all[i].name);
  const std::vector<Bytes> inputs = all.inputs(i);
  std::vector<Bytes> taken = inputs;
  if (kernel.contract->precision == Precision::tf32)
    for (int operand : {0, 1}) round_to_tf32(taken[operand]);
  std::vector<Bytes> want = all.interpreted(i, taken);
  for (int operand : {0, 1}) want[operand] = inputs[operand];
  for (const Policy& policy : policies) {
    const std::vector<Bytes> got = all.run_on_engine(i, inputs, policy, counters);
    for (std::size_t p = 0; p < kernel.params.size(); ++p)
      if (kernel.params[p].access != kir::Param::Access::temporary)
        CHECK(wrong_elements(kernel.params[p], got[p], want[p], tolerance_of(kernel, kernel.params[p].dtype)) == 0);
  }
}

void check_all(std::vector<Contraction> contractions) {
  const Contractions all(std::move(contractions));
  Counters unused;
  for (std::size_t i = 0; i < all.size(); ++i) check(all, i, kOrders, unused);
}

/// sum = x y + bias, out = sum * sum + residual, both results where `keeps_sum`.
kir::Kernel with_epilogue(std::int64_t m, std::int64_t n, std::int64_t k, bool keeps_product, DType t = DType::bf16) {
  kir::GroupMaker g;
  const Shape dims{m, n};
  const int x = g.input(t, {m, k}), y = g.input(t, {k, n}), bias = g.input(DType::f32, {n}),
            residual = g.input(DType::f32, dims);
  const int dot = g.node(
      low::Contract{
          .lhs_batch = {}, .rhs_batch = {}, .lhs_contract = {1}, .rhs_contract = {0}, .precision = Precision::tf32},
      {x, y}, DType::f32, dims);
  const int sum = g.map(ir::ScalarOp::add, {dot, g.broadcast(bias, {1}, dims)}, dims);
  const int square = g.map(ir::ScalarOp::mul, {sum, sum}, dims);
  const int out = g.map(ir::ScalarOp::add, {square, residual}, dims);
  ir::ScalarBuilder b;
  const int half = g.map(b.finish(b.convert(b.arg(0, DType::f32), DType::bf16)), {out}, dims);
  g.group.results = {half, keeps_product ? dot : sum};
  const auto operand = [&](int node) { return *kir::strided_operand(g.group, node); };
  return kir::contract_kernel(g.group, operand(x), operand(y)).kernel;
}

}  // namespace

TEST_CASE("products of every tile and layout are right where tiles reach beyond the matrices") {
  std::vector<Contraction> all;
  for (const auto& [dtype, precision] : kOperands)
    for (const MmaTile& tile : codegen::mma_tiles(dtype))
      for_each_layout(
          {.m = tile.rows + 8, .n = tile.columns + 24, .k = 2 * tile.terms + 8, .dtype = dtype, .precision = precision},
          [&](const Product& p) { all.push_back(with_tile(p, tile)); });
  check_all(std::move(all));
}

TEST_CASE("products are right whatever the rows and pitches are multiples of") {
  std::vector<Contraction> all;
  for (const Product& p :
       {Product{.m = 68, .n = 76, .k = 44}, Product{.m = 66, .n = 70, .k = 34}, Product{.m = 67, .n = 71, .k = 35},
        Product{.m = 64, .n = 64, .k = 32, .pad = 3}, Product{.m = 64, .n = 64, .k = 32, .offset = 1}})
    for (const auto& [dtype, precision] : kOperands)
      for (const MmaTile& tile : {small_tile(dtype), codegen::mma_tiles(dtype)[0]})
        for_each_layout(p, [&](Product q) {
          q.dtype = dtype, q.precision = precision;
          all.push_back(with_tile(q, tile));
        });
  check_all(std::move(all));
}

TEST_CASE("a convolution's rows and terms of several dims are right in every tile") {
  std::vector<Contraction> all;
  for (const auto& [dtype, precision] : kOperands)
    for (const MmaTile& tile : codegen::mma_tiles(dtype))
      all.push_back(with_tile("convolution", convolution(dtype, precision), tile));
  check_all(std::move(all));
}

TEST_CASE("batches, few rows, few columns, transposed results and other dtypes are right") {
  const DType f = DType::f32;
  const Precision tf32 = Precision::tf32;
  check_all({planned({.name = "batch", .batch = 3, .m = 40, .n = 56, .k = 48, .out = DType::bf16}),
             planned({.name = "f32 batch", .batch = 3, .m = 40, .n = 56, .k = 48, .dtype = f, .precision = tf32}),
             planned({.name = "one f32 row", .m = 1, .n = 200, .k = 96, .dtype = f, .precision = tf32}),
             planned({.name = "one f32 column", .m = 200, .n = 1, .k = 96, .dtype = f, .precision = tf32}),
             planned({.name = "one f32 of each", .m = 1, .n = 1, .k = 1, .dtype = f, .precision = tf32}),
             planned({.name = "f32 transposed",
                      .m = 72,
                      .n = 88,
                      .k = 40,
                      .out_is_transposed = true,
                      .dtype = f,
                      .precision = tf32}),
             planned({.name = "f16", .m = 72, .n = 40, .k = 40, .dtype = DType::f16, .out = DType::f16}),
             planned({.name = "one row", .m = 1, .n = 200, .k = 96}),
             planned({.name = "one column", .m = 200, .n = 1, .k = 96}),
             planned({.name = "one of each", .m = 1, .n = 1, .k = 1}),
             planned({.name = "outer product", .m = 33, .n = 65, .k = 1}),
             planned({.name = "transposed", .m = 72, .n = 88, .k = 40, .out_is_transposed = true})});
}

TEST_CASE("one block that copies tensors goes on from tile to tile, and through a batch") {
  const auto by_one = [](const Product& p) {
    Contraction all = with_tile(p, codegen::mma_tiles()[1]);
    CHECK(codegen::mma_tiles()[1].is_wgmma);
    all.emit = [emit = all.emit](const std::string& symbol, codegen::CudaText& out) {
      emit(symbol, out);
      CHECK(out.launches.back().maps.size() == 2);
      out.launches.back().blocks = 1;
    };
    return all;
  };
  std::vector<Contraction> all;
  for_each_layout({.m = 136, .n = 264, .k = 200}, [&](const Product& p) { all.push_back(by_one(p)); });
  for_each_layout({.batch = 3, .m = 72, .n = 136, .k = 128}, [&](const Product& p) { all.push_back(by_one(p)); });
  check_all(std::move(all));
}

TEST_CASE("a stage that is copied into before both warpgroups have read it is a race") {
  Contraction eager = with_tile({.name = "eager", .m = 128, .n = 128, .k = 1024}, codegen::mma_tiles()[1]);
  eager.emit = [emit = eager.emit](const std::string& symbol, codegen::CudaText& out) {
    emit(symbol, out);
    // One thread of each becomes two of the first.
    const std::string right = "threadIdx.x % 128 == 0", wrong = "threadIdx.x / 32 == 4 && threadIdx.x % 16 == 0";
    for (std::size_t i = out.functions.find(right); i != std::string::npos; i = out.functions.find(right, i))
      out.functions.replace(i, right.size(), wrong);
  };
  const Contractions all({eager});
  std::vector<Bytes> buffers = all.inputs(0);
  Counters unused;
  CHECK(fault_kind(all.try_on_engine(0, buffers, {}, unused)) == "race");
}

TEST_CASE("terms that several blocks share are added in order") {
  const kir::Kernel chosen = Product{.m = 16, .n = 128, .k = 2048}.kernel();
  CHECK(plan_of(chosen).splits == 8);
  MmaPlan ragged = plan_of(Product{.m = 70, .n = 40, .k = 200}.kernel());
  ragged.split(3);
  CHECK(ragged.split_terms == 96);
  CHECK(ragged.splits == 3);
  const Product p{.name = "ragged", .batch = 2, .m = 70, .n = 40, .k = 200, .out = DType::bf16};
  Product wide = p;
  wide.dtype = DType::f32, wide.precision = Precision::tf32;
  check_all({planned("chosen", chosen, plan_of(chosen)), with_tile(p, small_tile(), 3),
             with_tile(wide, small_tile(DType::f32), 3)});
}

TEST_CASE("what follows a product is done to its sums, and the product itself is stored where it is a result") {
  std::vector<Contraction> all;
  for (const auto& [dtype, precision] : kOperands)
    for (const MmaTile& tile : codegen::mma_tiles(dtype))
      all.push_back(
          with_tile("epilogue", with_epilogue(tile.rows + 3, tile.columns + 5, 40, tile.rows == 64, dtype), tile));
  all.push_back(with_tile("split epilogue", with_epilogue(70, 40, 200, true), small_tile(), 3));
  all.push_back(planned("swapped epilogue", with_epilogue(70, 3, 40, true), plan_of(with_epilogue(70, 3, 40, true))));
  check_all(std::move(all));
}

TEST_CASE("no access of a product meets another in a bank, and each sector is used whole") {
  std::vector<Contraction> contractions;
  for (const auto& [dtype, precision] : kOperands)
    for (const MmaTile& tile : codegen::mma_tiles(dtype)) {
      for_each_layout({.m = tile.rows, .n = tile.columns, .k = 2 * tile.terms, .dtype = dtype, .precision = precision},
                      [&](Product p) {
                        p.out = p.lhs_is_transposed ? DType::f32 : DType::bf16;
                        contractions.push_back(with_tile(p, tile));
                      });
      contractions.push_back(with_tile("epilogue", with_epilogue(tile.rows, tile.columns, 64, false, dtype), tile));
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

TEST_CASE("the tile leaves few multiprocessors without work") {
  const auto tile = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const MmaPlan p = plan_of(Product{.m = m, .n = n, .k = k}.kernel());
    return fmt::format("{} x {} / {}", p.tile.rows, p.tile.columns, p.splits);
  };
  CHECK(tile(8192, 8192, 4096) == "128 x 256 / 1");
  CHECK(tile(4096, 1024, 1024) == "128 x 256 / 1");
  CHECK(tile(1024, 1024, 1024) == "64 x 128 / 1");
  CHECK(tile(512, 512, 512) == "64 x 64 / 2");
  CHECK(tile(1, 4096, 4096) == "16 x 128 / 4");
  CHECK(tile(4096, 1, 4096) == "16 x 128 / 4");
}

TEST_CASE("only halves, and f32 that may be rounded, that are summed in f32, on sm_80 and later, go to tensor cores") {
  kir::Contract c = *Product{.m = 32, .n = 32, .k = 32}.kernel().contract;
  CHECK(codegen::has_mma(c, {.gpu = "sm_80"}));
  CHECK_FALSE(codegen::has_mma(c, {.gpu = "sm_75"}));
  CHECK_FALSE(codegen::has_mma(c, {}));
  c.rhs = DType::f16;
  CHECK_FALSE(codegen::has_mma(c, kTarget));
  c.lhs = c.rhs = DType::f32;
  CHECK_FALSE(codegen::has_mma(c, kTarget));
  c.precision = Precision::tf32;
  CHECK(codegen::has_mma(c, kTarget));
  CHECK(codegen::has_mma(c, {.gpu = "sm_80"}));
  CHECK_FALSE(codegen::has_mma(c, {.gpu = "sm_75"}));
}

TEST_CASE("products on tensor cores compile for every architecture") {
  const auto nvrtc = codegen::Nvrtc::load();
  const auto text_for = [](std::string_view architecture) {
    codegen::CudaText text;
    int number = 0;
    for (const auto& [dtype, precision] : kOperands)
      for (const MmaTile& tile : codegen::mma_tiles(dtype))
        for (bool is_transposed : {false, true}) {
          if (tile.is_wgmma && architecture != "sm_90a") continue;
          const Product p{.m = 1000,
                          .n = 1000,
                          .k = 1000,
                          .lhs_is_transposed = is_transposed,
                          .rhs_is_transposed = !is_transposed,
                          .dtype = dtype,
                          .out = DType::bf16,
                          .precision = precision};
          with_tile(p, tile, is_transposed ? 2 : 1).emit(fmt::format("k{}", number++), text);
        }
    return codegen::cuda_program(text.functions);
  };
  int skipped = 0;
  for (const char* architecture : {"sm_80", "sm_90a", "sm_100", "sm_120"}) {
    if (!nvrtc.ok() || !(*nvrtc)->supports(architecture)) {
      ++skipped;
      continue;
    }
    const auto code = (*nvrtc)->compile(text_for(architecture), "products", architecture);
    REQUIRE(code.status().ToString() == "OK");
  }
  if (skipped > 0) std::printf("cuda: %d compilations skipped (%s)\n", skipped, nvrtc.status().ToString().c_str());
}
