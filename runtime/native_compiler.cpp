// One kernel, one object: kernels compile in parallel and are shared between programs by key.
#include "runtime/native_compiler.h"

#include <chrono>
#include <utility>

#include "codegen/compiler.h"
#include "fmt/format.h"
#include "ir/log.h"
#include "ir/profile.h"
#include "runtime/counters.h"
#include "runtime/disk_cache.h"

namespace sheaf::runtime {
namespace {

absl::Status with_name(const absl::Status& status, const std::string& name) {
  return {status.code(), fmt::format("{}: {}", name, std::string(status.message()))};
}

absl::StatusOr<CompiledKernel> load_object(const codegen::KernelCode& code, const std::string& symbol,
                                           std::span<const std::byte> object) {
  absl::StatusOr<codegen::NativeCode> loaded = codegen::NativeCode::load(object);
  if (!loaded.ok()) return with_name(loaded.status(), code.name);
  auto native = std::make_shared<const codegen::NativeCode>(*std::move(loaded));
  CompiledKernel kernel;
  for (int i = 0; i < std::ssize(code.phases); ++i) {
    const codegen::KernelFunction function = native->find(codegen::phase_symbol(symbol, i));
    if (!function) return absl::InternalError(fmt::format("{}: its object has no phase {}", code.name, i));
    kernel.phases.push_back(function);
  }
  kernel.code_bytes = native->bytes();
  kernel.owner = std::move(native);
  counters().kernels_loaded.fetch_add(1, std::memory_order_relaxed);
  return kernel;
}

std::string symbol_of(const codegen::KernelCode& code) { return "sheaf_" + code.key; }

}  // namespace

std::optional<CompiledKernel> read_native(const codegen::KernelCode& code) {
  const std::optional<DiskCache::Found> object = DiskCache::global().find("object", code.key);
  if (!object) return {};
  absl::StatusOr<CompiledKernel> loaded = load_object(code, symbol_of(code), std::as_bytes(std::span(object->bytes)));
  if (!loaded.ok()) return {};
  counters().kernels_read.fetch_add(1, std::memory_order_relaxed);
  ir::log(ir::LogTopic::cache, "{} read from {}", code.name, object->path);
  return *std::move(loaded);
}

absl::StatusOr<CompiledKernel> compile_native(const codegen::KernelCode& code) {
  const ir::Span span(ir::Activity::compile, code.name, code.loc);
  const auto start = std::chrono::steady_clock::now();
  const codegen::CompileUnit unit{.kernel = code.kir.get(), .symbol = symbol_of(code)};
  absl::StatusOr<std::vector<std::byte>> object = codegen::compile_cpu(std::span(&unit, 1), codegen::host_cpu_target());
  if (!object.ok()) return with_name(object.status(), code.name);
  counters().kernels_compiled.fetch_add(1, std::memory_order_relaxed);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  ir::log(ir::LogTopic::compile, "{}: {} bytes of code in {:.1f} ms", code.name, object->size(), taken.count());
  DiskCache::global().store(
      "object", code.key,
      fmt::format("{} for {} by {}", code.name, codegen::host_cpu_target().key(), codegen::compiler_id()),
      {reinterpret_cast<const char*>(object->data()), object->size()});
  return load_object(code, unit.symbol, *object);
}

absl::StatusOr<std::string> object_of(const codegen::KernelCode& code) {
  if (std::optional<DiskCache::Found> found = DiskCache::global().find("object", code.key))
    return std::move(found->bytes);
  const codegen::CompileUnit unit{.kernel = code.kir.get(), .symbol = symbol_of(code)};
  absl::StatusOr<std::vector<std::byte>> object = codegen::compile_cpu(std::span(&unit, 1), codegen::host_cpu_target());
  if (!object.ok()) return with_name(object.status(), code.name);
  return std::string(reinterpret_cast<const char*>(object->data()), object->size());
}

}  // namespace sheaf::runtime
