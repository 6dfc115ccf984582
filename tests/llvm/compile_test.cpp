// Kernels from KIR to object to memory to a call: the shortest way through the CPU compiler.
#include <doctest/doctest.h>
#include <elf.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "codegen/native_code.h"

namespace sheaf::codegen {
namespace {

using ir::ScalarOp;

// out[i] = x[i] * y[i] + 1 for i < count, in units of `unit` elements.
kir::Kernel multiply_add(std::int64_t count, std::int64_t unit) {
  kir::Kernel kernel{.name = "multiply_add", .params = {}, .phases = {}, .contract = {}};
  for (auto access : {kir::Param::Access::read, kir::Param::Access::read, kir::Param::Access::write}) {
    kernel.params.push_back({.dtype = f32, .count = count, .access = access});
  }
  kir::Phase& phase = kernel.phases.emplace_back();
  phase.axes = {{"unit", (count + unit - 1) / unit}, {"i", unit}};
  phase.values = {f32, f32, f32, f32, f32, bool_};
  kir::IndexPool& pool = phase.indices;
  const kir::Index at = pool.add(pool.scale(pool.axis(0, phase.axes[0].extent), unit), pool.axis(1, unit));
  const int mask = count % unit ? 5 : -1;
  kir::For loop{.axis = 1, .kind = kir::LoopKind::vector, .body = {}};
  if (mask >= 0) loop.body.push_back(kir::Let{mask, kir::InRange{at, 0, count}});
  loop.body.push_back(kir::Let{0, kir::Load{.buffer = 0, .index = at, .mask = mask}});
  loop.body.push_back(kir::Let{1, kir::Load{.buffer = 1, .index = at, .mask = mask}});
  loop.body.push_back(kir::Let{2, kir::Constant{0x3f800000}});
  loop.body.push_back(kir::Let{3, kir::Scalar{ScalarOp::mul, {0, 1, -1}}});
  loop.body.push_back(kir::Let{4, kir::Scalar{ScalarOp::add, {3, 2, -1}}});
  loop.body.push_back(kir::Store{.buffer = 2, .index = at, .value = 4, .mask = mask});
  phase.body.push_back(loop);
  return kernel;
}

TEST_CASE("an elementwise kernel compiles to an object, loads, and runs") {
  for (std::int64_t count : {1, 7, 64, 1000, 4099}) {
    CAPTURE(count);
    const kir::Kernel kernel = multiply_add(count, 1024);
    const CompileUnit units[] = {{&kernel, "k"}};
    auto object = compile_cpu(units, host_cpu_target());
    REQUIRE_MESSAGE(object.ok(), object.status().ToString());
    auto code = NativeCode::load(*object);
    REQUIRE_MESSAGE(code.ok(), code.status().ToString());
    KernelFunction run = code->find(phase_symbol("k", 0));
    REQUIRE((run != nullptr));

    std::vector<float> x(count), y(count), out(count + 16, -1.0f);
    for (std::int64_t i = 0; i < count; ++i) {
      x[i] = static_cast<float>(i) * 0.5f;
      y[i] = 3.0f - static_cast<float>(i);
    }
    void* buffers[] = {x.data(), y.data(), out.data()};
    run(buffers, 0, kernel.phases[0].axes[0].extent, nullptr);
    for (std::int64_t i = 0; i < count; ++i) REQUIRE(out[i] == x[i] * y[i] + 1.0f);
    for (std::int64_t i = count; i < count + 16; ++i) REQUIRE(out[i] == -1.0f);
  }
}

TEST_CASE("a kernel can be listed as LLVM IR and as assembly") {
  const kir::Kernel kernel = multiply_add(4096, 1024);
  const CompileUnit units[] = {{&kernel, "k"}};
  auto target = cpu_target("x86-64-v4");
  REQUIRE(target.ok());
  auto text = list_cpu(units, *target, Listing::llvm_ir);
  REQUIRE_MESSAGE(text.ok(), text.status().ToString());
  CHECK(text->find("<32 x float>") != std::string::npos);
  text = list_cpu(units, *target, Listing::assembly);
  REQUIRE_MESSAGE(text.ok(), text.status().ToString());
  CHECK(text->find("zmm") != std::string::npos);
}

TEST_CASE("a damaged object is refused, not run") {
  const kir::Kernel kernel = multiply_add(64, 64);
  const CompileUnit units[] = {{&kernel, "k"}};
  auto object = compile_cpu(units, host_cpu_target());
  REQUIRE(object.ok());
  const auto message = [](std::span<const std::byte> bytes) {
    return std::string(NativeCode::load(bytes).status().message());
  };
  CHECK(message({}) == "native object: no ELF file");
  CHECK(message(std::span(*object).first(10)) == "native object: no ELF file");
  CHECK(message(std::span(*object).first(64)) == "native object: section table is cut off");
  CHECK(message(std::span(*object).first(object->size() - 1)) == "native object: section table is cut off");
  Elf64_Ehdr header;
  std::memcpy(&header, object->data(), sizeof header);
  const std::size_t align = header.e_shoff + sizeof(Elf64_Shdr) + offsetof(Elf64_Shdr, sh_addralign);
  std::vector<std::byte> damaged = *object;
  damaged[align + 7] = std::byte{0x80};
  CHECK(message(damaged) == "native object: section is aligned to more than a page");
  damaged = *object;
  damaged[offsetof(Elf64_Ehdr, e_machine)] = std::byte{EM_AARCH64};
  CHECK(message(damaged) == "native object: not a relocatable x86-64 file");
  damaged = *object;
  damaged.front() = std::byte{0};
  CHECK(message(damaged) == "native object: no ELF file");
}

TEST_CASE("every single flipped byte of an object is refused or loads, but never reaches outside it") {
  const kir::Kernel kernel = multiply_add(64, 64);
  const CompileUnit units[] = {{&kernel, "k"}};
  const auto object = compile_cpu(units, host_cpu_target());
  REQUIRE(object.ok());
  int refused = 0;
  for (std::size_t i = 0; i < object->size(); ++i) {
    std::vector<std::byte> damaged = *object;
    damaged[i] ^= std::byte{0xff};
    refused += !NativeCode::load(damaged).ok();  // the address sanitizer is the judge
  }
  CHECK(refused > 0);
}

TEST_CASE("an unknown CPU level is refused by name") {
  CHECK(cpu_target("x86-64-v3").ok());
  CHECK(cpu_target("pentium").status().message() ==
        "unknown CPU level 'pentium'; there are x86-64, x86-64-v2, x86-64-v3, x86-64-v4");
}

}  // namespace
}  // namespace sheaf::codegen
