// Kernels of KIR as CUDA text on the engine: buffers of random numbers, all launches one after the other, and what the
// interpreter makes of the same.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "codegen/cuda/emit.h"
#include "codegen/kir/interp.h"
#include "codegen/kir/verify.h"
#include "ir/literal.h"
#include "tests/emulator/on_engine.h"
#include "tests/llvm/compiled.h"

namespace sheaf::emulator {

using Bytes = std::vector<std::byte>;

struct KernelCase {
  std::string name;
  kir::Kernel kernel;
  /// Replaces an input's random elements.
  std::function<void(int input, ir::Literal&)> prepare;
};

/// The functions of all cases, those of case i named k<i>_<phase>, and their launches.
struct KernelBatch {
  std::vector<KernelCase> cases;
  std::vector<codegen::CudaText> texts;
  std::string functions;

  explicit KernelBatch(std::vector<KernelCase> all) : cases(std::move(all)) {
    for (std::size_t i = 0; i < cases.size(); ++i) {
      CAPTURE(cases[i].name);
      REQUIRE(verify(cases[i].kernel).ToString() == "OK");
      texts.push_back(codegen::emit_cuda(cases[i].kernel, "k" + std::to_string(i)));
      functions += texts[i].functions;
    }
  }
};

inline std::vector<Bytes> inputs_of(const KernelCase& c) {
  std::vector<Bytes> buffers;
  std::mt19937 random(11);
  for (const kir::Param& p : c.kernel.params) {
    ir::Literal l(ir::Type(p.dtype, {p.count}));
    for (std::int64_t i = 0; i < l.size(); ++i) l.set(i, std::uniform_real_distribution<double>(-4, 4)(random));
    if (c.prepare && p.access == kir::Param::Access::read) c.prepare(static_cast<int>(buffers.size()), l);
    buffers.emplace_back(l.data(), l.data() + l.bytes());
  }
  return buffers;
}

struct KernelRun {
  std::vector<Bytes> buffers;  // as they are afterwards
  Counters counters;
};

/// Runs all phases; what is only written, or temporary, begins as memory that nothing has written.
inline KernelRun run_on_engine(const Text& text, const KernelCase& c, const codegen::CudaText& emitted,
                               const std::vector<Bytes>& inputs, const Policy& policy,
                               bool outputs_are_written = false) {
  Buffers b;
  std::vector<std::byte*> at;
  KernelRun result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const kir::Param& p = c.kernel.params[i];
    const bool is_read = p.access == kir::Param::Access::read || p.access == kir::Param::Access::read_write;
    const std::string name = "p" + std::to_string(i);
    at.push_back(is_read || outputs_are_written ? b.add(name, inputs[i])
                                                : b.add_unwritten<std::byte>(name, std::ssize(inputs[i])));
  }
  if (emitted.scratch_bytes > 0) b.add_unwritten<std::byte>("scratch", emitted.scratch_bytes);
  for (const codegen::CudaLaunch& l : emitted.launches) {
    const auto ran = run(text.kernel(l.entry),
                         {.grid = {static_cast<unsigned>(l.blocks)},
                          .block = {static_cast<unsigned>(l.threads)},
                          .dynamic_shared_bytes = l.dynamic_shared_bytes},
                         b.params().data(), b.allocations, policy);
    REQUIRE_MESSAGE(ran.ok(), ran.status().ToString());
    CHECK(ran->threads == l.blocks * l.threads);
    CHECK(text.kernel(l.entry).static_shared_bytes == l.shared_bytes);
    result.counters.sectors_read += ran->sectors_read;
    result.counters.ideal_sectors_read += ran->ideal_sectors_read;
    result.counters.sectors_written += ran->sectors_written;
    result.counters.ideal_sectors_written += ran->ideal_sectors_written;
    result.counters.shared_wavefronts += ran->shared_wavefronts;
    result.counters.ideal_shared_wavefronts += ran->ideal_shared_wavefronts;
    result.counters.barriers += ran->barriers;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) result.buffers.emplace_back(at[i], at[i] + inputs[i].size());
  return result;
}

inline std::vector<Bytes> interpreted(const kir::Kernel& kernel, std::vector<Bytes> buffers) {
  std::vector<void*> pointers;
  for (Bytes& b : buffers) pointers.push_back(b.data());
  kir::Interpreter(kernel).run(pointers.data());
  return buffers;
}

inline void check_equal(const KernelCase& c, const KernelRun& got, const std::vector<Bytes>& want) {
  using Access = kir::Param::Access;
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    const kir::Param& p = c.kernel.params[i];
    if (p.access == Access::write || p.access == Access::read_write)
      CHECK(codegen::same_elements(p.dtype, got.buffers[i].data(), want[i].data(), p.count));
  }
}

}  // namespace sheaf::emulator
