// Generated CUDA text through the real NVRTC, for every architecture it knows of those we name. Where there is no NVRTC
// the texts are still made, and the test says how many compilations it skipped.
#include "codegen/cuda/nvrtc.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>

#include "codegen/cuda/emit.h"
#include "codegen/kir/build.h"
#include "codegen/kir/templates/template.h"
#include "codegen/kir/verify.h"
#include "tests/kir/all_ops.h"
#include "tests/kir/group_maker.h"

using namespace sheaf;
using namespace sheaf::kir;
using ir::ScalarOp;

namespace {

constexpr const char* kArchitectures[] = {"sm_80", "sm_90a", "sm_100", "sm_120"};

Group chain(DType t) {
  GroupMaker m;
  const Shape dims{1000, 777};
  const int x = m.input(t, dims), bias = m.input(t, {777});
  const int sum = m.map(ScalarOp::add, {x, m.broadcast(bias, {1}, dims)}, dims);
  m.group.results = {m.map(*ir::scalar_function("exp", t), {m.map(ScalarOp::max, {sum, x}, dims)}, dims)};
  return m.group;
}

Group transpose() {
  GroupMaker m;
  const int x = m.input(DType::f32, {1000, 500});
  m.group.results = {m.broadcast(x, {1, 0}, {500, 1000})};
  return m.group;
}

Group sum(const Shape& dims, const std::vector<std::int64_t>& over, DType t) {
  GroupMaker m;
  m.group.results = {m.reduce(ir::ReduceKind::sum, m.input(t, dims), over)};
  return m.group;
}

Group argmax() {
  GroupMaker m;
  m.group.results = {m.node(ir::lowering::ArgReduce{true, 1}, {m.input(DType::f32, {300, 1000})}, DType::i32, {300})};
  return m.group;
}

std::vector<Kernel> kernels() {
  const auto built = [](const Group& g) { return build_kernel(g, plan_for(g), kCudaGrain); };
  const ir::ops::Kernel tiled{.name = "k", .schedule = ir::Schedule::tile_transpose, .tile = {0, 1}};
  std::vector<Kernel> all = {all_ops(), build_kernel(transpose(), tiled, kCudaGrain), built(argmax()),
                             built(softmax({500, 1000}, DType::f32)), built(softmax({64, 3, 50}, DType::bf16))};
  for (DType t : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    all.push_back(built(chain(t)));
    all.push_back(built(sum({1'000'000}, {0}, t)));
  }
  all.push_back(built(sum({300, 1000}, {0}, DType::f32)));
  all.push_back(built(sum({20000, 300}, {0}, DType::i32)));
  return all;
}

}  // namespace

TEST_CASE("generated texts compile for every architecture") {
  const auto nvrtc = codegen::Nvrtc::load();
  int skipped = 0;
  int number = 0;
  for (const Kernel& k : kernels()) {
    REQUIRE(verify(k).ToString() == "OK");
    const std::string symbol = "sheaf_k" + std::to_string(number++);
    const codegen::CudaText text = codegen::emit_cuda(k, symbol);
    CHECK(text.launches.size() == (k.contract ? 1 : k.phases.size()));
    const std::string program = codegen::cuda_program(text.functions);
    for (const char* architecture : kArchitectures) {
      if (!nvrtc.ok() || !(*nvrtc)->supports(architecture)) {
        ++skipped;
        continue;
      }
      const auto code = (*nvrtc)->compile(program, symbol, architecture);
      CAPTURE(program);
      REQUIRE(code.status().ToString() == "OK");
      CHECK(code->code.size() > 100);
    }
  }
  if (skipped > 0) std::printf("cuda: %d compilations skipped (%s)\n", skipped, nvrtc.status().ToString().c_str());
}

TEST_CASE("more buffers than a launch has parameters for are read from a table, which launches before it fill") {
  const auto text_of_sum = [](int inputs) {
    GroupMaker m;
    for (int i = 0; i < inputs; ++i) m.input(DType::f32, {4096});
    int total = 0;
    for (int i = 1; i < inputs; ++i) total = m.map(ScalarOp::add, {total, i}, {4096});
    m.group.results = {total};
    return codegen::emit_cuda(build_kernel(m.group, plan_for(m.group), kCudaGrain), "k");
  };
  const codegen::CudaText few = text_of_sum(447), many = text_of_sum(448);
  CHECK(few.table_bytes == 0);
  CHECK(few.launches.size() == 1);
  CHECK(many.table_bytes == 449 * 8);
  REQUIRE(many.launches.size() == 3);
  const auto parameters = [&](int launch) {
    std::string list = many.launches[launch].entry;
    for (const auto& [first, count] : many.launches[launch].parameters)
      list += ", " + std::to_string(count) + " from " + std::to_string(first);
    return list;
  };
  CHECK(parameters(0) == "k_table_0, 1 from 449, 448 from 0");
  CHECK(parameters(1) == "k_table_1, 1 from 449, 1 from 448");
  CHECK(parameters(2) == "k_0, 1 from 449");
  for (const char* part : {"k_0(sf_u8* const* __restrict__ table) {",
                           "  const float* const __restrict__ p447 = (const float*)table[447];\n",
                           "  float* const p448 = (float*)table[448];\n", "table[448 + i] = some.at[i];"})
    CHECK_MESSAGE(many.functions.find(part) != std::string::npos, part);
  const auto nvrtc = codegen::Nvrtc::load();
  if (!nvrtc.ok()) return;
  const auto code = (*nvrtc)->compile(codegen::cuda_program(many.functions), "k", "sm_80");
  REQUIRE(code.status().ToString() == "OK");
  for (const codegen::CudaFunction& f : code->functions) CHECK(f.spill_bytes + f.stack_bytes == 0);
}

TEST_CASE("a map's text reads like the loop it is") {
  GroupMaker m;
  const int x = m.input(DType::f32, {1024}), y = m.input(DType::f32, {1024});
  m.group.results = {m.map(ScalarOp::add, {x, y}, {1024})};
  const codegen::CudaText text = codegen::emit_cuda(build_kernel(m.group, plan_for(m.group), kCudaGrain), "sheaf_add");
  CHECK(text.functions ==
        "extern \"C\" __global__ void __launch_bounds__(256) sheaf_add_0(const float* __restrict__ p0, const float* "
        "__restrict__ p1, float* p2) {\n"
        "  const sf_i32 a0 = blockIdx.x;\n"
        "  const sf_i32 t = threadIdx.x;\n"
        "  {\n"
        "    const sf_i32 q1 = t;\n"
        "    const sf_i32 b1 = q1 * 4;\n"
        "    const sf_vec<float, 4> x0 = sf_load<4>(p0 + b1);\n"
        "    const sf_vec<float, 4> x1 = sf_load<4>(p1 + b1);\n"
        "    sf_vec<float, 4> y1_0;\n"
        "    #pragma unroll\n"
        "    for (int j = 0; j < 4; ++j) {\n"
        "      const sf_i32 a1 = b1 + j;\n"
        "      const float v0 = x0.v[j];\n"
        "      const float v1 = x1.v[j];\n"
        "      const float v2 = (v0 + v1);\n"
        "      y1_0.v[j] = v2;\n"
        "    }\n"
        "    sf_store(p2 + b1, y1_0);\n"
        "  }\n"
        "}\n");
}

TEST_CASE("scratch that a block cannot share lies in a buffer of its own, a part for each block") {
  Kernel big{.name = "big", .params = {}, .phases = {}, .contract = {}};
  PhaseBuilder b(big.params, 3);
  const BufferId scratch = b.scratch(DType::f32, 20'000);
  b.store(scratch, b.indices().constant(7), b.constant_value(DType::f32, 1));
  big.phases.push_back(b.finish(1000));
  const codegen::CudaText text = codegen::emit_cuda(big, "k");
  CHECK(text.scratch_bytes == 3 * 80'000);
  CHECK(text.launches[0].shared_bytes == 0);
  CHECK(text.functions.find("float* const p0 = (float*)(scratch + a0 * 80000ll + 0ll);") != std::string::npos);
}
