// Compilation, in the foreground on the pool and in the background on one thread.
#include "runtime/cache.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "codegen/compiler.h"
#include "fmt/format.h"
#include "ir/check.h"
#include "ir/log.h"
#include "runtime/compiler_gate.h"
#include "runtime/cuda_compiler.h"
#include "runtime/disk_cache.h"
#include "runtime/native_compiler.h"
#include "runtime/thread_pool.h"

namespace sheaf::runtime {
namespace {

/// Background requests never hold a caller back.
constexpr int kBackgroundDepth = 1 << 20;

/// Kernels compiled so far by the process's compiler.
std::atomic<int> compilations{0};

/// For an exit from another thread than main: the handler is registered after the first compilation, which never runs
/// in the background, and again ever more rarely, to be younger than the statics that the compiler has made meanwhile.
void close_compiler_at_exit() {
  const int count = ++compilations;
  if ((count & (count - 1)) == 0) std::atexit([] { CompilerGate::global().close(); });
}

absl::StatusOr<CompiledKernel> open_and_compile(const codegen::KernelCode& code) {
  if (absl::Status status = codegen::open_compiler(); !status.ok()) return status;
  absl::StatusOr<CompiledKernel> compiled = compile_native(code);
  close_compiler_at_exit();
  return compiled;
}

absl::StatusOr<CompiledKernel> compile_through_gate(const codegen::KernelCode& code) {
  if (std::optional<CompiledKernel> read = read_native(code)) return *std::move(read);
  const Turn turn = DiskCache::global().turn("object", code.key);
  if (std::optional<CompiledKernel> read = turn.has_waited() ? read_native(code) : std::nullopt)
    return *std::move(read);
  const CompilerGate::Visit visit(CompilerGate::global());
  if (!visit)
    return absl::CancelledError(fmt::format("{}: not compiled, because the main thread has ended", code.name));
  return open_and_compile(code);
}

/// On the pool; the first error in order.
template <class Work>
absl::Status for_all(std::int64_t count, Work&& work) {
  std::vector<absl::Status> statuses(static_cast<std::size_t>(count));
  ThreadPool::global().parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) statuses[i] = work(i);
  });
  for (absl::Status& status : statuses)
    if (!status.ok()) return std::move(status);
  return absl::OkStatus();
}

}  // namespace

KernelCache& KernelCache::global() {
  static KernelCache* const cache = new KernelCache(compile_through_gate);
  close_compiler_with_main_thread();
  return *cache;
}

KernelCache::KernelCache(KernelCompiler compiler)
    : compiler_(std::move(compiler)), background_("sheaf-compile", kBackgroundDepth) {}

std::vector<KernelPtr> KernelCache::get(std::span<const codegen::KernelCode> kernels) {
  std::vector<KernelPtr> out;
  std::lock_guard lock(mutex_);
  for (const codegen::KernelCode& code : kernels) {
    KernelPtr& kernel = kernels_[code.key];
    if (!kernel) kernel = std::make_shared<Kernel>(code);
    out.push_back(kernel);
  }
  return out;
}

absl::Status KernelCache::compile(Kernel& kernel) {
  if (kernel.is_compiled()) return absl::OkStatus();
  const auto compiled = compiled_.get_or_make(kernel.code().key, [&]() -> absl::StatusOr<CompiledKernelPtr> {
    absl::StatusOr<CompiledKernel> made = compiler_(kernel.code());
    if (!made.ok()) return made.status();
    auto shared = std::make_shared<const CompiledKernel>(*std::move(made));
    kernel.set_compiled(shared);
    return shared;
  });
  return compiled.status();
}

absl::Status KernelCache::compile(std::span<const KernelPtr> kernels) {
  std::vector<Kernel*> missing, for_gpu;
  for (const KernelPtr& kernel : kernels)
    if (!kernel->is_compiled()) (kernel->code().target.is_gpu() ? for_gpu : missing).push_back(kernel.get());
  if (!for_gpu.empty())
    if (absl::Status status = compile_for_gpu(std::move(for_gpu)); !status.ok()) return status;
  return for_all(std::ssize(missing), [&](std::int64_t i) { return compile(*missing[i]); });
}

absl::Status KernelCache::compile_for_gpu(std::vector<Kernel*> kernels) {
  std::lock_guard lock(gpu_mutex_);
  absl::flat_hash_set<const Kernel*> seen;
  std::erase_if(kernels, [&](const Kernel* kernel) {  // compiled while this thread waited, or there twice
    return kernel->is_compiled() || !seen.insert(kernel).second;
  });
  std::vector<const codegen::KernelCode*> codes;
  for (const Kernel* kernel : kernels) codes.push_back(&kernel->code());
  std::vector<absl::StatusOr<CompiledKernel>> compiled = compile_cuda(codes);
  absl::Status first;
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    first.Update(compiled[i].status());
    if (compiled[i].ok()) kernels[i]->set_compiled(std::make_shared<const CompiledKernel>(*std::move(compiled[i])));
  }
  return first;
}

void KernelCache::compile_in_background(const KernelPtr& kernel) {
  if (!kernel->claim_compilation()) return;
  const auto task = [this, kernel] {
    const absl::Status status = compile(*kernel);
    if (!status.ok() && !absl::IsCancelled(status))
      ir::warn(fmt::format("{} stays interpreted: {}", kernel->code().name, std::string(status.message())));
  };
  if (this == &global() && compilations == 0) return task();  // the caller waits once, for the compiler to come up
  const absl::Status pushed = background_.push(task);
  if (!pushed.ok()) ir::log(ir::LogTopic::compile, "no background compilation: {}", std::string(pushed.message()));
}

void KernelCache::wait_for_background() { (void)background_.drain(); }

}  // namespace sheaf::runtime
