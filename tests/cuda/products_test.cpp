// Products by cuBLASLt, on a fake one: which contractions are products, what each layout comes to, and programs that
// have the library, have none, or have one that refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "codegen/kir/interp.h"
#include "codegen/kir/lane_ops.h"
#include "codegen/product.h"
#include "ir/log.h"
#include "runtime/counters.h"
#include "runtime/cuda_products.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/emulator/fake_gpu.h"
#include "tests/places.h"

using namespace sheaf;
using namespace sheaf::codegen;
using emulator::FakeGpu;
using kir::Contract;
using runtime::CublasLt;
using runtime::CudaProducts;

namespace {

const std::string kFakeCublasLt = SHEAF_BINARY_DIR "/libsheaf_fake_cublaslt.so";

absl::StatusOr<const CublasLt*> open_fake() {
  static const absl::StatusOr<CublasLt> opened = CublasLt::open({kFakeCublasLt});
  if (!opened.ok()) return opened.status();
  return &*opened;
}

std::string why_not(const std::vector<std::string>& paths) { return CublasLt::open(paths).status().ToString(); }

struct Problem {
  Contract contract;
  std::int64_t lhs = 1, rhs = 1, out = 1;  // elements of each buffer
};

/// Dims in this order ("bmk": batch outermost), the last but one padded by so many elements.
Problem problem(std::array<std::int64_t, 4> extents, const std::string& lhs, const std::string& rhs,
                const std::string& out, std::int64_t padding, DType in, DType result) {
  Problem p;
  Contract& c = p.contract;
  c.lhs = c.rhs = in;
  c.out = result;
  c.accumulate = accumulator(in);
  const std::string names = "bmnk";
  Contract::Dims* dims[] = {&c.batch, &c.m, &c.n, &c.k};
  for (int d = 0; d < 4; ++d)
    *dims[d] = {.extents = {extents[d]}, .lhs_strides = {0}, .rhs_strides = {0}, .out_strides = {0}};
  const auto lay_out = [&](const std::string& order, auto strides, std::int64_t& count) {
    for (std::size_t i = order.size(); i-- > 0;) {
      const std::size_t d = names.find(order[i]);
      (dims[d]->*strides)[0] = count;
      count *= extents[d];
      if (i + 1 == order.size()) count += padding;
    }
  };
  lay_out(lhs, &Contract::Dims::lhs_strides, p.lhs);
  lay_out(rhs, &Contract::Dims::rhs_strides, p.rhs);
  lay_out(out, &Contract::Dims::out_strides, p.out);
  return p;
}

/// Small integers, whose sums are exact in any order.
std::vector<std::byte> integers(DType t, std::int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count * size_bytes(t)));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(static_cast<int>(random() % 7) - 3);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint64_t in[3] = {bits, 0, 0};
    kir::write_element(bytes.data() + i * size_bytes(t), size_bytes(t),
                       t == DType::f32 ? bits : ir::eval_op(ir::ScalarOp::convert, DType::f32, t, in));
  }
  return bytes;
}

std::byte* pointer(cuda::CUdeviceptr p) { return reinterpret_cast<std::byte*>(p); }

/// A GPU and what makes products on it.
struct Bench {
  explicit Bench(std::initializer_list<FakeGpu::Option> options = {}) : gpu(options) {}

  std::byte* take(std::int64_t bytes) const { return pointer(gpu.memory(static_cast<std::size_t>(bytes))); }

  /// The result of the library for the whole buffer of `out`, which held `before`.
  std::vector<std::byte> result(const Product& product, const std::vector<std::byte>& lhs,
                                const std::vector<std::byte>& rhs, const std::vector<std::byte>& before) {
    const cuda::CUdeviceptr on_gpu[] = {gpu.memory(lhs.size()), gpu.memory(rhs.size()), gpu.memory(before.size())};
    gpu.write(on_gpu[0], lhs, stream);
    gpu.write(on_gpu[1], rhs, stream);
    gpu.write(on_gpu[2], before, stream);
    const bool x = product.is_exchanged;
    const auto ran = products.run(product, pointer(on_gpu[x]), pointer(on_gpu[!x]), pointer(on_gpu[2]), stream);
    CHECK_MESSAGE((ran.ok() && *ran), ran.status().ToString());
    std::vector<std::byte> after = before;
    gpu->cuMemcpyDtoHAsync(after.data(), on_gpu[2], after.size(), stream);
    gpu->cuStreamSynchronize(stream);
    return after;
  }

  FakeGpu gpu;
  cuda::CUstream stream = gpu.stream();
  runtime::Allocator memory{{.region_bytes = 1 << 20,
                             .source = {.take = [this](std::int64_t bytes) { return take(bytes); },
                                        .give_back = [](std::byte*, std::int64_t) {}},
                             .where = "cuda:0"}};
  CudaProducts products{"cuda:0", memory, &open_fake};
};

Product square(std::int64_t side, DType t = DType::f32) {
  return *as_product(problem({1, side, side, side}, "bmk", "bkn", "bmn", 0, t, t).contract);
}

}  // namespace

TEST_CASE("where there is no cuBLASLt, the places that were tried are told") {
  CHECK(why_not({"/nowhere/libcublasLt.so.13", "/dev/null"}) ==
        "UNAVAILABLE: no cuBLASLt; tried:\n"
        "  /nowhere/libcublasLt.so.13: cannot open shared object file: No such file or directory\n"
        "  /dev/null: file too short\n"
        "Sheaf uses cuBLASLt 12 or newer; SHEAF_LIBCUBLASLT names one that lies elsewhere");
}

TEST_CASE("a library that is no cuBLASLt, and one that is too old, are told by their names") {
  CHECK(why_not({"libm.so.6"}) == "UNAVAILABLE: libm.so.6 is no cuBLASLt: it does not tell its version");
  const tests::Variable old("SHEAF_FAKE_CUBLASLT_VERSION", "11");
  CHECK(why_not({kFakeCublasLt}) ==
        "FAILED_PRECONDITION: " + kFakeCublasLt + " is cuBLASLt 11.0.0, and Sheaf needs 12 or newer");
}

TEST_CASE("the library's products equal the reference for every layout, dtype, batch and ragged size") {
  Bench bench({{"ORDER", "waited_last"}});
  std::mt19937 random(1);
  int products = 0;
  for (const auto& [in, out] : {std::pair{DType::f32, DType::f32},
                                {DType::f64, DType::f64},
                                {DType::f16, DType::f16},
                                {DType::f16, DType::f32},
                                {DType::bf16, DType::bf16}})
    for (const std::array<std::int64_t, 4> extents :
         {std::array<std::int64_t, 4>{1, 5, 7, 3}, {3, 4, 4, 8}, {2, 1, 9, 5}, {1, 6, 1, 4}, {2, 3, 2, 1}})
      for (const std::string lhs : {"bmk", "bkm", "mbk"})
        for (const std::string rhs : {"bkn", "bnk", "kbn"})
          for (const std::string to : {"bmn", "bnm", "mbn"})
            for (const std::int64_t padding : {0, 3}) {
              const Problem p = problem(extents, lhs, rhs, to, padding, in, out);
              const std::optional<Product> product = as_product(p.contract);
              REQUIRE(product);
              const std::vector<std::byte> left = integers(in, p.lhs, random), right = integers(in, p.rhs, random);
              const std::vector<std::byte> before = integers(out, p.out, random);
              std::vector<std::byte> expected = before;
              const void* buffers[] = {left.data(), right.data(), expected.data()};
              kir::run_contract(p.contract, const_cast<void* const*>(buffers));
              CHECK(bench.result(*product, left, right, before) == expected);
              ++products;
            }
  CHECK(products == 5 * 5 * 54);
  CHECK(bench.gpu.fault() == "");
}

TEST_CASE("what is no product of matrices, or of dtypes the library rounds otherwise, is none") {
  const auto is_product = [](const Problem& p) { return as_product(p.contract).has_value(); };
  const std::array<std::int64_t, 4> extents{2, 4, 5, 3};
  CHECK(is_product(problem(extents, "bmk", "bkn", "bmn", 0, DType::f32, DType::f32)));
  CHECK_FALSE(is_product(problem(extents, "mkb", "bkn", "bmn", 0, DType::f32, DType::f32)));  // no neighbours
  CHECK_FALSE(is_product(problem(extents, "bmk", "bkn", "bmn", 0, DType::i32, DType::i32)));
  CHECK_FALSE(is_product(problem(extents, "bmk", "bkn", "bmn", 0, DType::f32, DType::f64)));
  CHECK_FALSE(is_product(problem({2, 4, 0, 3}, "bmk", "bkn", "bmn", 0, DType::f32, DType::f32)));
  Problem from_the_end = problem(extents, "bmk", "bkn", "bmn", 0, DType::f32, DType::f32);
  from_the_end.contract.lhs_offset = from_the_end.contract.batch.lhs_strides[0];
  from_the_end.contract.batch.lhs_strides[0] *= -1;
  CHECK_FALSE(is_product(from_the_end));
  Problem mixed = problem(extents, "bmk", "bkn", "bmn", 0, DType::f16, DType::f16);
  mixed.contract.rhs = DType::bf16;
  CHECK_FALSE(is_product(mixed));
}

TEST_CASE("the library multiplies in TF32 what may be rounded to it, and nothing else") {
  Bench bench;
  const float almost_one = 1 + 0x1p-12f;  // which TF32 has not
  std::vector<std::byte> operand(16 * sizeof(float));
  for (std::size_t i = 0; i < 16; ++i) std::memcpy(operand.data() + i * sizeof(float), &almost_one, sizeof(float));
  const auto first = [&](const Product& p) {
    float value;
    std::memcpy(&value, bench.result(p, operand, operand, operand).data(), sizeof value);
    return value;
  };
  Problem p = problem({1, 4, 4, 4}, "bmk", "bkn", "bmn", 0, DType::f32, DType::f32);
  CHECK(first(*as_product(p.contract)) > 4);
  p.contract.precision = Precision::tf32;
  CHECK(first(*as_product(p.contract)) == 4);
  CHECK(bench.gpu.fault() == "");
}

TEST_CASE("the library is chosen by size, for products that fill a GPU") {
  CHECK(chooses_library(square(512), LibraryProducts::by_size));
  CHECK_FALSE(chooses_library(square(511), LibraryProducts::by_size));
  CHECK_FALSE(chooses_library(square(4096), LibraryProducts::never));
  CHECK(chooses_library(square(4), LibraryProducts::always));
  const auto by_size = [](std::array<std::int64_t, 4> extents) {
    return chooses_library(*as_product(problem(extents, "bmk", "bkn", "bmn", 0, DType::bf16, DType::bf16).contract),
                           LibraryProducts::by_size);
  };
  CHECK(by_size({1, 4096, 4096, 32}));
  CHECK_FALSE(by_size({1, 4096, 4096, 16}));  // bound by memory
  CHECK_FALSE(by_size({1, 8, 16384, 16384}));
  CHECK(by_size({64, 128, 128, 128}));
}

TEST_CASE("a product is prepared once per shape and alignment, and a kernel of the library's is a counted call") {
  Bench bench;
  std::mt19937 random(2);
  const std::vector<std::byte> a = integers(DType::f32, 16, random), b = integers(DType::f32, 16, random);
  const std::int64_t before = runtime::counters().library_calls;
  for (int i = 0; i < 3; ++i) bench.result(square(4), a, b, a);
  CHECK(runtime::counters().library_calls - before == 3);
}

TEST_CASE("operands whose addresses are odd multiples of an element are right all the same") {
  Bench bench;
  Problem p = problem({1, 4, 4, 4}, "bmk", "bkn", "bmn", 0, DType::f16, DType::f16);
  p.contract.lhs_offset = 1, p.contract.rhs_offset = 3, p.contract.out_offset = 5;
  std::mt19937 random(3);
  const std::vector<std::byte> a = integers(DType::f16, 17, random), b = integers(DType::f16, 19, random);
  const std::vector<std::byte> before = integers(DType::f16, 21, random);
  std::vector<std::byte> expected = before;
  const void* buffers[] = {a.data(), b.data(), expected.data()};
  kir::run_contract(p.contract, const_cast<void* const*>(buffers));
  CHECK(bench.result(*as_product(p.contract), a, b, before) == expected);
  CHECK(bench.gpu.fault() == "");
}

TEST_CASE("a library that finds no kernel for a product leaves it to others") {
  const tests::Variable refuses("SHEAF_FAKE_CUBLASLT_REFUSES", "1");
  Bench bench;
  std::byte* at = bench.take(64);
  const auto ran = bench.products.run(square(4), at, at, at, bench.stream);
  REQUIRE(ran.ok());
  CHECK_FALSE(*ran);
  CHECK(bench.gpu.fault() == "");
}

TEST_CASE("a product that no event orders behind the write of its operand is a fault of the driver's") {
  Bench bench({{"ORDER", "waited_last"}});
  const cuda::CUstream other = bench.gpu.stream();
  const cuda::CUdeviceptr a = bench.gpu.memory(64), b = bench.gpu.memory(64), out = bench.gpu.memory(64);
  const std::vector<float> values(16, 1.0f);
  bench.gpu.write(a, values, bench.stream);
  bench.gpu.write(b, values, other);
  const auto ran = bench.products.run(square(4), pointer(a), pointer(b), pointer(out), bench.stream);
  CHECK((ran.ok() && *ran));
  bench.gpu->cuStreamSynchronize(bench.stream);
  bench.gpu->cuStreamSynchronize(other);
  CHECK(
      bench.gpu.fault() ==
      "cublasLtMatmul of 4 x 4 x 4 on stream 0 of device 0 reads bytes [0, 64) of allocation 1 of device 0 (64 bytes), "
      "which cuMemcpyHtoDAsync on stream 1 of device 0 writes, and nothing orders the two");
}

namespace {

const std::string kValues = "[[1. 4.]\n [3. 8.]]\n[[ 37. 108.]\n [ 81. 236.]]\n";

using Variables = std::vector<std::pair<std::string, std::string>>;

/// What the program says on a fake GPU, with these beside.
std::string said_on_gpu(const Variables& more) {
  Variables variables{{"SHEAF_PLATFORM", "cuda"},
                      {"SHEAF_LIBCUDA", emulator::kFakeCuda},
                      {"SHEAF_LIBNVRTC", SHEAF_BINARY_DIR "/libsheaf_fake_nvrtc.so"},
                      {"SHEAF_LIBCUBLASLT", kFakeCublasLt},
                      {"SHEAF_CUBLASLT", "always"}};
  variables.insert(variables.end(), more.begin(), more.end());
  return tests::said_by_child("products", variables);
}

}  // namespace

TEST_CASE("[products] a program" * doctest::skip()) {
  const auto product = jit([](Array x, Array y) { return dot(x, y); });
  const auto powers =
      jit([](Array x, Array start) { return fori_loop(0, 3, [&](Array, Array y) { return dot(x, y); }, start); });
  const Array x = array({{1.0f, 2.0f}, {3.0f, 4.0f}}), y = array({{1.0f, 0.0f}, {0.0f, 2.0f}});
  std::fprintf(stderr, "%s\n", to_string(product(x, y)).c_str());
  std::fprintf(stderr, "%s\n", to_string(powers(x, y)).c_str());
  std::fprintf(stderr, "%d calls\n", static_cast<int>(runtime::counters().library_calls));
}

TEST_CASE("a program's products go to the library, in loops too") {
  CHECK(said_on_gpu({}) == kValues + "4 calls\n");
  CHECK(said_on_gpu({{"SHEAF_FAKE_CUDA_ORDER", "random"}}) == kValues + "4 calls\n");
}

TEST_CASE("a program's products are done by kernels where the library is missing, refuses, or is not wanted") {
  CHECK(said_on_gpu({{"SHEAF_LIBCUBLASLT", "/nowhere/libcublasLt.so"}}) == kValues + "0 calls\n");
  CHECK(said_on_gpu({{"SHEAF_FAKE_CUBLASLT_REFUSES", "1"}}) == kValues + "0 calls\n");
  CHECK(said_on_gpu({{"SHEAF_CUBLASLT", "never"}}) == kValues + "0 calls\n");
}

TEST_CASE("why there is no library is logged once") {
  const std::string why =
      "sheaf runtime: cuda:0: products by kernels of Sheaf's own: no cuBLASLt; tried:\n"
      "  /nowhere/libcublasLt.so: cannot open shared object file: No such file or directory\n"
      "Sheaf uses cuBLASLt 12 or newer; SHEAF_LIBCUBLASLT names one that lies elsewhere\n";
  const std::string text = said_on_gpu({{"SHEAF_LIBCUBLASLT", "/nowhere/libcublasLt.so"}, {"SHEAF_LOG", "runtime"}});
  const std::size_t first = text.find(why);
  REQUIRE(first != std::string::npos);
  CHECK(text.find("products by kernels", first + why.size()) == std::string::npos);
}

TEST_CASE("a library that there is no memory for leaves products to kernels, which is logged once") {
  CHECK(said_on_gpu({{"SHEAF_GPU_MEMORY_LIMIT", "16M"}}) == kValues + "0 calls\n");
  const std::string why =
      "sheaf runtime: cuda:0: no work space for cuBLASLt, whose products Sheaf's own kernels do from now on: out of "
      "memory on cuda:0: 32.0 MiB asked";
  const std::string text = said_on_gpu({{"SHEAF_GPU_MEMORY_LIMIT", "16M"}, {"SHEAF_LOG", "runtime"}});
  const std::size_t first = text.find(why);
  REQUIRE(first != std::string::npos);
  CHECK(text.find("no work space", first + why.size()) == std::string::npos);
}

TEST_CASE("a wrong SHEAF_CUBLASLT is one warning, and products go by their size") {
  CHECK(said_on_gpu({{"SHEAF_CUBLASLT", "often"}}) ==
        "sheaf warning: SHEAF_CUBLASLT=often is neither never nor always; products go by their size\n" + kValues +
            "0 calls\n");
}
