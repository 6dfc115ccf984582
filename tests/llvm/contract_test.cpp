// Compiled contractions against the reference loops to the bit: any layout, any dtype, ragged and empty sizes, and the
// same bits however the units are shared out.
#include "codegen/contract.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "codegen/kir/interp.h"
#include "tests/llvm/compiled.h"

namespace sheaf::codegen {
namespace {

using kir::Contract;
using Strides = std::vector<std::int64_t>;

std::int64_t size_of(const Contract::Dims& d) {
  return std::accumulate(d.extents.begin(), d.extents.end(), std::int64_t{1}, std::multiplies<>());
}

struct DimRef {
  Contract::Dims* dims;
  std::size_t i;
};

// Lays the dims out in the given order, outermost first; returns the elements they span.
std::int64_t lay_out(const std::vector<DimRef>& order, Strides Contract::Dims::* strides) {
  std::int64_t stride = 1;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    (it->dims->*strides)[it->i] = stride;
    stride *= it->dims->extents[it->i];
  }
  return stride;
}

struct Problem {
  Contract contract;
  std::int64_t lhs_count = 0, rhs_count = 0, out_count = 0;
};

// lhs is laid out as [batch, m, k] and so on, or in a random order of all dims.
Problem problem(Strides batch, Strides m, Strides n, Strides k, DType in, DType out, std::mt19937* shuffle = nullptr) {
  Problem p;
  Contract& c = p.contract;
  c.lhs = c.rhs = in;
  c.out = out;
  c.accumulate = accumulator(in);
  for (auto [dims, extents] : {std::pair{&c.batch, &batch}, {&c.m, &m}, {&c.n, &n}, {&c.k, &k}}) {
    dims->extents = *extents;
    dims->lhs_strides = dims->rhs_strides = dims->out_strides = Strides(extents->size(), 0);
  }
  auto count = [&](std::initializer_list<Contract::Dims*> lists, Strides Contract::Dims::* strides) {
    std::vector<DimRef> order;
    for (Contract::Dims* dims : lists) {
      for (std::size_t i = 0; i < dims->extents.size(); ++i) order.push_back({dims, i});
    }
    if (shuffle) std::shuffle(order.begin(), order.end(), *shuffle);
    return lay_out(order, strides);
  };
  p.lhs_count = count({&c.batch, &c.m, &c.k}, &Contract::Dims::lhs_strides);
  p.rhs_count = count({&c.batch, &c.k, &c.n}, &Contract::Dims::rhs_strides);
  p.out_count = count({&c.batch, &c.m, &c.n}, &Contract::Dims::out_strides);
  return p;
}

std::string describe(const Problem& p, const CpuTarget& target) {
  const ContractPlan plan = plan_contract(p.contract, target);
  return std::string(name(p.contract.lhs)) + " -> " + std::string(name(p.contract.out)) + " b" +
         std::to_string(size_of(p.contract.batch)) + " m" + std::to_string(plan.rows) + " n" +
         std::to_string(plan.columns) + " k" + std::to_string(plan.terms) +
         (plan.is_direct        ? " direct"
          : plan.is_streamed    ? " streamed"
          : plan.shared.empty() ? " packed"
                                : " packed once") +
         (plan.is_swapped ? " swapped" : "") + " on " + target.cpu;
}

void check(const Problem& p, const CpuTarget& target, std::mt19937& random) {
  INFO(describe(p, target));
  kir::Kernel kernel;
  kernel.name = "contract";
  kernel.contract = p.contract;
  kernel.params = {{p.contract.lhs, p.lhs_count, kir::Param::Access::read},
                   {p.contract.rhs, p.rhs_count, kir::Param::Access::read},
                   {p.contract.out, p.out_count, kir::Param::Access::write}};
  const ContractPlan plan = plan_contract(p.contract, target);
  for (const ContractPlan::SharedPacking& packing : plan.shared)
    kernel.params.push_back({DType::u8, packing.bytes, kir::Param::Access::temporary});
  std::vector<std::byte> lhs = random_elements(p.contract.lhs, p.lhs_count, random);
  std::vector<std::byte> rhs = random_elements(p.contract.rhs, p.rhs_count, random);
  std::vector<std::byte> expected(p.out_count * size_bytes(p.contract.out)), actual = expected, by_unit = expected;
  void* buffers[] = {lhs.data(), rhs.data(), expected.data()};
  kir::run_contract(p.contract, buffers);

  const Compiled compiled(kernel, target);
  std::vector<std::vector<std::byte>> shared;
  for (const ContractPlan::SharedPacking& packing : plan.shared) shared.emplace_back(packing.bytes + 64);
  auto run = [&](std::vector<std::byte>& out, bool by_unit_backwards) {
    std::vector<void*> pointers = {lhs.data(), rhs.data(), out.data()};
    for (std::vector<std::byte>& packed : shared) pointers.push_back(packed.data());
    for (int i = 0; i < std::ssize(plan.phases); ++i) {
      std::vector<std::byte> scratch(plan.phases[i].scratch_bytes + 64, std::byte{0xff});
      std::byte* aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
      const std::int64_t units = plan.phases[i].units;
      if (!by_unit_backwards) compiled.function(i)(pointers.data(), 0, units, aligned);
      for (std::int64_t unit = units; by_unit_backwards && unit-- > 0;) {
        compiled.function(i)(pointers.data(), unit, unit + 1, aligned);
      }
    }
  };
  run(actual, false);
  CHECK(actual == expected);
  run(by_unit, true);
  CHECK(by_unit == expected);
}

// The plans of the others are the same, and fused multiply-adds in software take minutes.
std::vector<CpuTarget> targets_with_fma() {
  std::vector<CpuTarget> targets = runnable_targets();
  std::erase_if(targets, [](const CpuTarget& t) { return !t.has_fma; });
  return targets;
}

TEST_CASE("compiled matrix products equal the reference to the bit, whatever their size") {
  std::mt19937 random(1);
  for (const CpuTarget& target : runnable_targets()) {
    static constexpr std::array<std::int64_t, 3> kSizes[] = {
        {1, 1, 1},    {1, 300, 40}, {3, 33, 7}, {8, 100, 65}, {13, 10, 5}, {16, 64, 100}, {17, 16, 9},
        {50, 70, 30}, {64, 64, 64}, {0, 5, 3},  {5, 0, 3},    {4, 5, 0},   {40, 1, 50},   {1, 1, 200}};
    for (auto [m, n, k] : kSizes) { check(problem({}, {m}, {n}, {k}, f32, f32), target, random); }
  }
}

TEST_CASE("compiled matrix products that are packed in several blocks equal the reference to the bit") {
  std::mt19937 random(2);
  for (const CpuTarget& target : targets_with_fma()) {
    check(problem({}, {61}, {130}, {900}, f32, f32), target, random);
    check(problem({}, {350}, {130}, {400}, f32, f32, &random), target, random);
    check(problem({2}, {37}, {45}, {801}, bf16, bf16), target, random);
    for (std::int64_t rows : {1, 6, 11, 16}) check(problem({}, {rows}, {1100}, {301}, f32, f32), target, random);
    check(problem({}, {13}, {1030}, {300}, i32, i32), target, random);
    check(problem({}, {37}, {45}, {390}, f64, f64, &random), target, random);
  }
}

TEST_CASE("compiled contractions read and write any layout and dtype") {
  std::mt19937 random(3);
  auto below = [&](int limit) { return static_cast<std::int64_t>(random() % limit); };
  auto extents = [&](int most_dims, int most) {
    Strides result(below(most_dims + 1));
    for (std::int64_t& e : result) e = 1 + below(most);
    return result;
  };
  for (const CpuTarget& target : runnable_targets()) {
    for (DType t : {f32, f32, f64, f16, bf16, i32, u8, i8, i64, u16, bool_}) {
      for (int i = 0; i < 3; ++i) {
        check(problem(extents(2, 3), extents(2, 9), extents(2, 9), extents(2, 9), t, t, &random), target, random);
        check(problem({}, {below(40)}, {below(40)}, {below(20)}, t, t, &random), target, random);
      }
      check(problem({}, {20}, {40}, {30}, t, t == bool_ ? bool_ : accumulator(t)), target, random);
    }
  }
}

// lhs as [m, k] and rhs as [n, k], of whatever dtypes.
Problem with_columns_along_terms(std::int64_t m, std::int64_t n, std::int64_t k, DType lhs, DType rhs, DType out) {
  Problem p = problem({}, {m}, {n}, {k}, lhs, out);
  p.contract.rhs = rhs;
  p.contract.n.rhs_strides = {k};
  p.contract.k.rhs_strides = {1};
  return p;
}

TEST_CASE("compiled products of narrow numbers equal the reference to the bit where lanes hold several terms") {
  std::mt19937 random(6);
  static constexpr std::array<DType, 4> kDtypes[] = {
                                                       // lhs, rhs, accumulated, out
      {bf16, bf16, f32, f32}, {bf16, bf16, f32, bf16}, {i8, i8, i32, i32},   {u8, i8, i32, i32},  {i8, u8, i32, i32},
      {u8, u8, i32, i32},     {i8, i8, i8, i8},        {i16, i16, i32, i32}, {i16, u8, i32, i32}, {u16, u16, u32, u32}};
  for (const CpuTarget& target : targets_with_fma()) {
    for (const auto& [lhs, rhs, accumulate, out] : kDtypes) {
      Problem plain = problem({}, {61}, {75}, {64}, lhs, out),
              along_terms = with_columns_along_terms(61, 75, 67, lhs, rhs, out);
      for (Problem* p : {&plain, &along_terms}) {
        p->contract.rhs = rhs;
        p->contract.accumulate = accumulate;
        check(*p, target, random);
      }
      Problem blocks = problem({2}, {23}, {38}, {1401}, lhs, out, &random);
      blocks.contract.rhs = rhs;
      blocks.contract.accumulate = accumulate;
      check(blocks, target, random);
    }
    const kir::Contract pairs = problem({}, {61}, {75}, {300}, bf16, f32).contract;
    CHECK(plan_contract(pairs, target).lane_terms == (target.has_bf16_dot() ? 2 : 1));
    const kir::Contract bytes = problem({}, {61}, {75}, {300}, i8, i32).contract;
    CHECK(plan_contract(bytes, target).lane_terms == (target.has_int8_dot() ? 4 : 2));
  }
}

TEST_CASE("compiled products of few rows with columns along their terms equal the reference to the bit") {
  std::mt19937 random(7);
  for (const CpuTarget& target : targets_with_fma()) {
    for (auto [m, n, k] : {std::array<std::int64_t, 3>{3, 64, 65}, {16, 33, 131}})
      for (auto [in, out] : {std::pair{f32, f32},
                             {f64, f64},
                             {bf16, f32},
                             {bf16, bf16},
                             {f16, f16},
                             {i8, i32},
                             {u8, i32},
                             {i32, i32},
                             {i64, i64}}) {
        const Problem p = with_columns_along_terms(m, n, k, in, in, out);
        CHECK(plan_contract(p.contract, target).is_streamed);
        check(p, target, random);
      }
    // A matrix times a vector: its rows are the columns.
    const Problem vector = problem({}, {300}, {1}, {70}, f32, f32);
    CHECK(plan_contract(vector.contract, target).is_streamed);
    check(vector, target, random);
    check(problem({3}, {40}, {1}, {70}, bf16, bf16), target, random);
    check(problem({}, {1}, {5000}, {90}, f32, f32), target, random);  // sums go on from a few terms to the next
    check(problem({}, {6}, {3000}, {150}, f32, f32), target, random);
  }
}

TEST_CASE("terms in several runs, as those of many images are, are packed run by run") {
  std::mt19937 random(10);
  for (const CpuTarget& target : targets_with_fma()) {
    for (const auto& [images, run] :
         {std::pair<std::int64_t, std::int64_t>(3, 40), {5, 700}, {40, 17}, {0, 8}, {8, 0}}) {
      for (DType t : {f32, f64, bf16}) {
        const std::int64_t m = 21, n = 37;
        Problem p = problem({}, {m}, {n}, {images, run}, t, t);
        p.contract.m.lhs_strides = p.contract.n.rhs_strides = {run};
        p.contract.k.lhs_strides = {m * run, 1};
        p.contract.k.rhs_strides = {n * run, 1};
        check(p, target, random);
      }
    }
  }
}

struct Images {
  std::int64_t count, extent, channels, window, stride, outputs;
};

// Windows of square images times a kernel, channels last; or, with `is_gradient`, the same windows times the results.
Problem sliding(const Images& s, bool is_gradient, DType in, DType out) {
  const std::int64_t e = (s.extent - s.window) / s.stride + 1, row = s.extent * s.channels;
  Contract::Dims places{.extents = {s.count, e, e},
                        .lhs_strides = {s.extent * row, s.stride * row, s.stride * s.channels},
                        .rhs_strides = {},
                        .out_strides = {}};
  Contract::Dims taps{.extents = {s.window, s.window, s.channels},
                      .lhs_strides = {row, s.channels, 1},
                      .rhs_strides = {},
                      .out_strides = {}};
  Problem p;
  Contract& c = p.contract;
  c.m = is_gradient ? taps : places;
  c.k = is_gradient ? places : taps;
  const Strides& m = c.m.extents;
  const Strides& k = c.k.extents;
  c.m.rhs_strides = c.k.out_strides = {0, 0, 0};
  c.m.out_strides = {m[1] * m[2] * s.outputs, m[2] * s.outputs, s.outputs};
  c.k.rhs_strides = {k[1] * k[2] * s.outputs, k[2] * s.outputs, s.outputs};
  c.n = {.extents = {s.outputs}, .lhs_strides = {0}, .rhs_strides = {1}, .out_strides = {1}};
  c.lhs = c.rhs = in;
  c.out = out;
  c.accumulate = accumulator(in);
  p.lhs_count = s.count * s.extent * row;
  p.rhs_count = k[0] * k[1] * k[2] * s.outputs;
  p.out_count = m[0] * m[1] * m[2] * s.outputs;
  return p;
}

TEST_CASE("compiled contractions of sliding windows equal the reference to the bit") {
  std::mt19937 random(4);
  for (const CpuTarget& target : targets_with_fma()) {
    for (const Images& images : {Images{2, 8, 3, 3, 1, 5},
                                 {1, 9, 4, 3, 2, 40},
                                 {3, 7, 1, 2, 1, 70},
                                 {1, 20, 2, 5, 3, 17},
                                 {2, 33, 1, 4, 1, 3},
                                 {0, 8, 3, 3, 1, 5},
                                 {2, 8, 0, 3, 1, 5}}) {
      for (const bool is_gradient : {false, true}) {
        check(sliding(images, is_gradient, f32, f32), target, random);
        check(sliding(images, is_gradient, bf16, bf16), target, random);
      }
    }
    const Problem short_rows = sliding({2, 8, 3, 3, 1, 40}, false, f32, f32);
    CHECK(plan_contract(short_rows.contract, target).tile_groups > 1);  // rows of several positions share a tile
    check(short_rows, target, random);
    check(sliding({50, 15, 4, 2, 1, 3}, true, f32, f32), target,
          random);   // so many terms that sums go on block by block
    for (const Images& images : {Images{2, 73, 17, 2, 1, 12}, {1, 200, 16, 1, 2, 17}, {26, 37, 16, 1, 2, 17}}) {
      const Problem p = sliding(images, true, f32, f32);
      CHECK(plan_contract(p.contract, target).term_blocks > 1);  // a part of an inner dim of the terms to each block
      check(p, target, random);
    }
    check(sliding({50, 15, 4, 2, 1, 3}, true, f16, f16), target, random);   // ... where the result can hold them
    check(sliding({2, 9, 3, 3, 1, 20}, false, i32, i32), target, random);
    check(sliding({1, 9, 3, 3, 1, 20}, false, f64, f64), target, random);
  }
}

// The kernel as a convolution has it whose input gradient this is: its windows from the end, its outputs outermost.
Problem turned(Problem p) {
  Contract& c = p.contract;
  const std::int64_t channels = c.k.extents[2], outputs = c.n.extents[0], tap = channels * outputs;
  c.k.rhs_strides = {-c.k.extents[1] * tap, -tap, 1};
  c.n.rhs_strides = {channels};
  c.rhs_offset = (c.k.extents[0] * c.k.extents[1] - 1) * tap;
  return p;
}

TEST_CASE("a kernel that lies beyond L2, or not along its columns, is packed for all windows") {
  std::mt19937 random(8);
  const auto is_packed = [](const Problem& p, const CpuTarget& target) {
    const ContractPlan plan = plan_contract(p.contract, target);
    return plan.is_direct && plan.shared.size() == 1 && !plan.shared[0].is_lhs;
  };
  for (const CpuTarget& target : targets_with_fma()) {
    for (const Images& images : {Images{2, 8, 3, 3, 1, 5},
                                 {1, 9, 20, 3, 2, 40},
                                 {3, 7, 1, 2, 1, 70},
                                 {2, 7, 37, 2, 1, 65},
                                 {2, 8, 0, 3, 1, 5}})
      for (DType t : {f32, f64, bf16, i32}) {
        const Problem p = turned(sliding(images, false, t, t));
        if (images.channels >= 20) CHECK(is_packed(p, target));
        check(p, target, random);
      }
  }
  const CpuTarget target = runnable_targets().back();
  if (!target.has_fma) return;
  const Problem large = sliding({1, 7, 66, 2, 1, 500}, false, f64, f64);
  CHECK(is_packed(large, target));
  check(large, target, random);
}

// A kernel of its own for each channel, channels last: the channels are the innermost dim of the batch everywhere. With
// `is_gradient`, the sum is over places instead of over the window.
Problem by_channel(const Images& s, bool is_gradient, DType in, DType out) {
  const std::int64_t e = (s.extent - s.window) / s.stride + 1, row = s.extent * s.channels;
  Contract::Dims places{.extents = {s.count, e, e},
                        .lhs_strides = {s.extent * row, s.stride * row, s.stride * s.channels},
                        .rhs_strides = {0, 0, 0},
                        .out_strides = {0, 0, 0}};
  Contract::Dims taps{
      .extents = {s.window, s.window}, .lhs_strides = {row, s.channels}, .rhs_strides = {0, 0}, .out_strides = {0, 0}};
  Problem p;
  Contract& c = p.contract;
  c.batch = {.extents = {s.channels}, .lhs_strides = {1}, .rhs_strides = {1}, .out_strides = {1}};
  c.m = is_gradient ? taps : places;
  c.k = is_gradient ? places : taps;
  const auto channels_last = [&](const Strides& extents) {
    Strides strides(extents.size(), s.channels);
    for (std::size_t i = extents.size() - 1; i-- > 0;) strides[i] = strides[i + 1] * extents[i + 1];
    return strides;
  };
  c.m.out_strides = channels_last(c.m.extents);
  c.k.rhs_strides = channels_last(c.k.extents);
  c.lhs = c.rhs = in;
  c.out = out;
  c.accumulate = accumulator(in);
  p.lhs_count = s.count * s.extent * row;
  p.rhs_count = size_of(c.k) * s.channels;
  p.out_count = size_of(c.m) * s.channels;
  return p;
}

// The same of images without the outermost `low` and `high` elements of each side, with zeros in their place.
Problem padded(Problem p, const Images& s, std::int64_t low, std::int64_t high) {
  const std::int64_t extent = std::max<std::int64_t>(s.extent - low - high, 0);
  p.contract.padding = {.padded = {s.count, s.extent, s.extent, s.channels},
                        .low = {0, low, low, 0},
                        .extents = {s.count, extent, extent, s.channels}};
  p.lhs_count = s.count * extent * extent * s.channels;
  return p;
}

TEST_CASE("zeros around images are added where a unit reads them, or once for all") {
  std::mt19937 random(9);
  for (const CpuTarget& target : targets_with_fma()) {
    for (const Images& images : {Images{2, 8, 3, 3, 1, 5},
                                 {1, 11, 16, 3, 2, 40},
                                 {3, 7, 1, 2, 1, 70},
                                 {1, 20, 2, 5, 3, 17},
                                 {2, 6, 256, 2, 2, 3},
                                 {0, 8, 3, 3, 1, 5},
                                 {2, 8, 0, 3, 1, 5}}) {
      for (const bool is_gradient : {false, true}) {
        for (DType t : {f32, bf16, i8}) check(padded(sliding(images, is_gradient, t, t), images, 1, 2), target, random);
        for (DType t : {f32, f16, u8}) {
          const Problem alone = padded(by_channel(images, is_gradient, t, t), images, 2, 1);
          const ContractPlan plan = plan_contract(alone.contract, target);
          CHECK(plan.has_lhs_columns == (images.channels >= 16));  // else they are too few for a vector
          CHECK(plan.reads_around == (plan.has_lhs_columns && is_gradient));
          check(alone, target, random);
        }
      }
      const Problem p = padded(turned(sliding(images, false, f32, f32)), images, 0, 1);
      CHECK(plan_contract(p.contract, target).box.has_value() == (p.lhs_count > 0));
      check(p, target, random);
      check(padded(sliding(images, false, f64, f64), images, 4, 4), target, random);  // some boxes are all zeros
    }
    const Images many{50, 15, 24, 2, 1, 3};
    const Problem gradient = padded(sliding(many, true, f32, f32), many, 1, 0);
    CHECK(plan_contract(gradient.contract, target).has_image());
    check(gradient, target, random);
    check(padded(by_channel(many, true, f32, f32), many, 1, 2), target, random);  // sums go on block by block
  }
}

TEST_CASE("compiled contractions of each channel alone run along the channels, and equal the reference to the bit") {
  std::mt19937 random(5);
  for (const CpuTarget& target : targets_with_fma()) {
    for (const Images& images :
         {Images{2, 8, 5, 3, 1, 0}, {1, 9, 70, 3, 2, 0}, {3, 7, 17, 2, 1, 0}, {1, 5, 64, 5, 1, 0}}) {
      for (const bool is_gradient : {false, true}) {
        CHECK(plan_contract(by_channel(images, is_gradient, f32, f32).contract, target).has_lhs_columns);
        for (DType t : {f32, f64, bf16, f16, i32, u8}) check(by_channel(images, is_gradient, t, t), target, random);
        check(by_channel(images, is_gradient, bf16, f32), target, random);
      }
    }
    check(by_channel({50, 15, 7, 2, 1, 0}, true, f32, f32), target, random);  // sums go on block by block
  }
}

}  // namespace
}  // namespace sheaf::codegen
