// Modules are never unloaded: kernels live as long as the process, and its exit is the driver's own affair.
#include "runtime/cuda_module.h"

#include <chrono>

#include "codegen/cuda/emit.h"
#include "codegen/cuda/nvrtc.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/log.h"
#include "runtime/counters.h"

namespace sheaf::runtime {

absl::StatusOr<cuda::CUmodule> CudaModule::on(const Cuda& cuda, int ordinal) {
  std::lock_guard lock(mutex_);
  if (const auto known = loaded_.find(ordinal); known != loaded_.end()) return known->second;
  cuda::CUmodule module = nullptr;
  absl::Status status = cuda.status(cuda.cuModuleLoadDataEx(&module, image_.data(), 0, nullptr, nullptr),
                                    fmt::format("cuModuleLoadDataEx of {} bytes", image_.size()));
  if (!status.ok()) return status;
  loaded_.emplace(ordinal, module);
  return module;
}

absl::StatusOr<const CudaKernel::Functions*> CudaKernel::on(const Cuda& cuda, int ordinal) {
  std::lock_guard lock(mutex_);
  if (const auto known = loaded_.find(ordinal); known != loaded_.end()) return &known->second;
  const absl::StatusOr<cuda::CUmodule> module = module_->on(cuda, ordinal);
  if (!module.ok()) return module.status();
  Functions functions;
  for (const codegen::Phase& phase : phases_) {
    cuda::CUfunction& function = functions.emplace_back();
    absl::Status status = cuda.status(cuda.cuModuleGetFunction(&function, *module, phase.entry.c_str()),
                                      "cuModuleGetFunction of " + phase.entry);
    if (!status.ok()) return status;
    if (phase.shared_bytes == 0) continue;
    status = cuda.status(cuda.cuFuncSetAttribute(function, cuda::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                                 static_cast<int>(phase.shared_bytes)),
                         fmt::format("{} bytes of shared memory for {}", phase.shared_bytes, phase.entry));
    if (!status.ok()) return status;
  }
  counters().kernels_loaded.fetch_add(1, std::memory_order_relaxed);
  return &loaded_.emplace(ordinal, std::move(functions)).first->second;
}

absl::StatusOr<std::vector<CompiledKernel>> compile_cuda(std::span<const codegen::KernelCode* const> kernels) {
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<const codegen::Nvrtc*> nvrtc = codegen::Nvrtc::load();
  if (!nvrtc.ok()) return nvrtc.status();
  std::string functions;
  std::vector<std::string> names;
  for (const codegen::KernelCode* kernel : kernels) {
    functions += kernel->functions;
    names.push_back(kernel->name);
  }
  const std::string& target = kernels[0]->target.gpu;
  const std::string program = fmt::format("{}", fmt::join(names, ", "));
  absl::StatusOr<std::vector<std::byte>> image = (*nvrtc)->compile(codegen::cuda_program(functions), program, target);
  if (!image.ok()) return image.status();
  counters().kernels_compiled.fetch_add(std::ssize(kernels), std::memory_order_relaxed);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - start;
  ir::log(ir::LogTopic::compile, "{}: {} bytes of code for {} in {:.1f} ms", program, image->size(), target,
          taken.count());
  const auto module = std::make_shared<CudaModule>(*std::move(image));
  std::vector<CompiledKernel> compiled;
  for (const codegen::KernelCode* kernel : kernels) {
    compiled.push_back({.cuda = std::make_shared<CudaKernel>(module, kernel->phases),
                        .code_bytes = module->bytes() / std::ssize(kernels)});
  }
  return compiled;
}

}  // namespace sheaf::runtime
