// What follows a product, done to its sums while they are at hand: to the bit what the interpreter makes of the product
// first and of the rest then, in place of an operand too, on every path that a product takes; and so are totals of its
// columns.
#include <array>
#include <cstring>
#include <random>

#include "codegen/contract.h"
#include "codegen/kir/contract.h"
#include "codegen/kir/interp.h"
#include "tests/kir/group_maker.h"
#include "tests/llvm/compiled.h"

namespace sheaf::codegen {
namespace {

struct Followed {
  std::int64_t batch, rows, columns, terms;
  DType in = f32, out = f32;
  bool is_stored = false;  // the product itself
  bool is_turned = false;  // y lies as [columns, terms]
  bool adds_columns = false;
};

/// max(x y + bias, residual), in the place of the residual. With totals of columns, bias minus its sums, and its
/// lowest.
kir::Kernel followed(const Followed& f) {
  kir::GroupMaker g;
  const Shape dims{f.batch, f.rows, f.columns};
  const Shape of_y = f.is_turned ? Shape{f.batch, f.columns, f.terms} : Shape{f.batch, f.terms, f.columns};
  const int x = g.input(f.in, {f.batch, f.rows, f.terms}), y = g.input(f.in, of_y);
  const int bias = g.input(f32, {f.columns}), residual = g.input(f32, dims);
  const int dot = g.node(ir::lowering::Contract{.lhs_batch = {0},
                                                .rhs_batch = {0},
                                                .lhs_contract = {2},
                                                .rhs_contract = {f.is_turned ? 2 : 1},
                                                .accumulate = f.out == DType::i32 ? f.out : accumulator(f.in)},
                         {x, y}, f.out, dims);
  ir::ScalarBuilder b;
  const int wide = f.out == f32 ? dot : g.map(b.finish(b.convert(b.arg(0, f.out), f32)), {dot}, dims);
  const int sum = g.map(ir::ScalarOp::add, {wide, g.broadcast(bias, {2}, dims)}, dims);
  g.group.results = {g.map(ir::ScalarOp::max, {sum, residual}, dims)};
  const int result = g.group.results[0];
  if (f.is_stored) g.group.results.push_back(dot);
  if (f.adds_columns) {
    const int total = g.map(ir::ScalarOp::sub, {bias, g.reduce(ir::ReduceKind::sum, result, {0, 1})}, {f.columns});
    g.group.results.insert(g.group.results.end(), {total, g.reduce(ir::ReduceKind::min, result, {0, 1})});
  }
  const std::vector<std::int64_t> in_place = {residual, -1, -1, -1};
  const auto operand = [&](int node) { return *kir::strided_operand(g.group, node); };
  return kir::contract_kernel(g.group, operand(x), operand(y), {in_place.data(), g.group.results.size()}).kernel;
}

/// Equal to the interpreter's, with the units of each phase in one call, and alone from the last to the first.
void check_followed(const Followed& f, const CpuTarget& target, std::mt19937& random) {
  kir::Kernel kernel = followed(f);
  kernel.name = "followed";
  const ContractPlan plan = plan_contract(kernel, target);
  CAPTURE(target.cpu);
  CAPTURE(f.rows);
  CAPTURE(f.columns);
  CAPTURE(f.terms);
  CAPTURE(name(f.in));
  CHECK(plan.epilogue == (f.is_stored ? EpilogueOf::result : EpilogueOf::sums));
  for (const ContractPlan::SharedPacking& packing : plan.shared)
    kernel.params.push_back({DType::u8, packing.bytes, kir::Param::Access::temporary});
  std::vector<std::vector<std::byte>> before;
  for (const kir::Param& p : kernel.params) before.push_back(random_elements(p.dtype, p.count, random));
  constexpr int kResidual = 3, kResult = 4;
  const auto pointers = [&](std::vector<std::vector<std::byte>>& buffers) {
    std::vector<void*> all;
    for (std::vector<std::byte>& b : buffers) all.push_back(b.data());
    all[kResult] = all[kResidual];
    if (!f.is_stored) all[static_cast<std::size_t>(kernel.contract->result)] = nullptr;
    return all;
  };
  std::vector<std::vector<std::byte>> expected = before;
  kir::Interpreter(kernel).run(pointers(expected).data());
  const Compiled compiled(kernel, target);
  std::vector<ContractPlan::Phase> phases = plan.phases;
  if (const kir::Phase* columns = kir::columns_of(kernel))
    phases.push_back({.units = columns->axes[0].extent, .scratch_bytes = kir::scratch_bytes(*columns)});
  for (const bool is_backwards : {false, true}) {
    std::vector<std::vector<std::byte>> actual = before;
    const std::vector<void*> buffers = pointers(actual);
    for (int i = 0; i < std::ssize(phases); ++i) {
      std::vector<std::byte> scratch(phases[i].scratch_bytes + 64, std::byte{0xff});
      std::byte* aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
      const std::int64_t units = phases[i].units;
      if (!is_backwards) compiled.function(i)(buffers.data(), 0, units, aligned);
      for (std::int64_t unit = units; is_backwards && unit-- > 0;)
        compiled.function(i)(buffers.data(), unit, unit + 1, aligned);
    }
    CHECK(actual[kResidual] == expected[kResidual]);
    const int results = 1 + (f.is_stored ? 1 : 0) + (f.adds_columns ? 2 : 0);
    for (int j = kResult + 1; j < kResult + results; ++j) CHECK(actual[j] == expected[j]);
  }
}

TEST_CASE(
    "what follows a product is done to its sums with the bits it has on its own, whatever the path and the tile") {
  std::mt19937 random(8);
  for (const CpuTarget& target : runnable_targets()) {
    if (!target.has_fma) continue;
    for (const bool is_stored : {false, true}) {
      for (const auto& [rows, columns, terms] : {std::array<std::int64_t, 3>{1, 40, 30},
                                                 {17, 33, 9},  // tiles that share rows
                                                 {30, 130, 800},  // packed
                                                 {350, 530, 70},  // ... once for all units
                                                 {3, 1100, 301}})  // streamed
        check_followed({.batch = 1, .rows = rows, .columns = columns, .terms = terms, .is_stored = is_stored}, target,
                       random);
      check_followed({.batch = 3, .rows = 5, .columns = 12, .terms = 7, .is_stored = is_stored}, target, random);
      for (const DType t : {bf16, f16})
        for (const std::int64_t rows : {4, 37})
          check_followed(
              {.batch = 1, .rows = rows, .columns = 45, .terms = 70, .in = t, .out = t, .is_stored = is_stored}, target,
              random);
      check_followed({.batch = 2,
                      .rows = 37,
                      .columns = 45,
                      .terms = 70,
                      .in = DType::i8,
                      .out = DType::i32,
                      .is_stored = is_stored},
                     target, random);
      for (const std::int64_t rows : {1, 16})  // columns that lie along their terms
        check_followed(
            {.batch = 2, .rows = rows, .columns = 41, .terms = 131, .is_stored = is_stored, .is_turned = true}, target,
            random);
    }
  }
}

TEST_CASE(
    "columns of what follows a product are added up in the order of sums, whatever the path, the tile and the unit") {
  std::mt19937 random(9);
  for (const CpuTarget& target : runnable_targets()) {
    if (!target.has_fma) continue;
    for (const bool is_stored : {false, true}) {
      for (const bool is_turned : {false, true})  // so packed: once for all units, or in several blocks of terms
        for (const auto& [rows, columns, terms] : {std::array<std::int64_t, 3>{64, 33, 9},  // a row in each lane
                                                   {320, 130, 5},
                                                   {704, 40, 20},
                                                   {128, 7, 700},
                                                   {32768, 3, 2}})  // two leaves
          check_followed({.batch = 1,
                          .rows = rows,
                          .columns = columns,
                          .terms = terms,
                          .is_stored = is_stored,
                          .is_turned = is_turned,
                          .adds_columns = true},
                         target, random);
      for (const DType t : {bf16, f16, DType::i8})
        check_followed({.batch = 1,
                        .rows = 384,
                        .columns = 45,
                        .terms = 70,
                        .in = t,
                        .out = t == DType::i8 ? DType::i32 : t,
                        .is_stored = is_stored,
                        .adds_columns = true},
                       target, random);
    }
  }
}

}  // namespace
}  // namespace sheaf::codegen
