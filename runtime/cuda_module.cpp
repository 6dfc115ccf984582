// Modules are never unloaded: kernels live as long as the process, and its exit is the driver's own affair.
#include "runtime/cuda_module.h"

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/counters.h"

namespace sheaf::runtime {
namespace {

// Of an image: no machine code at all, or that of other devices or newer drivers.
bool is_refusal(cuda::CUresult result) {
  return result == cuda::CUDA_ERROR_INVALID_IMAGE || result == cuda::CUDA_ERROR_NO_BINARY_FOR_GPU ||
         result == cuda::CUDA_ERROR_INVALID_SOURCE;
}

}  // namespace

absl::StatusOr<cuda::CUmodule> CudaModule::on(const Cuda& cuda, int ordinal) {
  std::lock_guard lock(mutex_);
  if (const auto known = loaded_.find(ordinal); known != loaded_.end()) return known->second;
  cuda::CUmodule module = nullptr;
  const cuda::CUresult result = cuda.cuModuleLoadDataEx(&module, image_.data(), 0, nullptr, nullptr);
  const absl::Status status =
      cuda.status(result, fmt::format("cuModuleLoadDataEx of {} bytes, {}", image_.size(), origin_));
  if (is_refusal(result))
    return absl::DataLossError(fmt::format("{}; the driver {} is for CUDA {}", std::string(status.message()),
                                           cuda.path(), cuda_version_text(cuda.version())));
  if (!status.ok()) return status;
  loaded_.emplace(ordinal, module);
  return module;
}

absl::StatusOr<cuda::CUmodule> CudaKernel::module_on(const Cuda& cuda, int ordinal) {
  absl::StatusOr<cuda::CUmodule> module = module_->on(cuda, ordinal);
  if (!absl::IsDataLoss(module.status()) || !remake_) return module;
  ir::log(ir::LogTopic::cache, "compiled anew: {}", std::string(module.status().message()));
  absl::StatusOr<CudaModulePtr> remade = remake_();
  if (!remade.ok())
    return absl::Status(remade.status().code(),
                        fmt::format("{}\nand it cannot be compiled anew: {}", std::string(module.status().message()),
                                    std::string(remade.status().message())));
  remake_ = nullptr;
  module_ = *std::move(remade);
  return module_->on(cuda, ordinal);
}

absl::StatusOr<const CudaKernel::Functions*> CudaKernel::on(const Cuda& cuda, int ordinal) {
  std::lock_guard lock(mutex_);
  if (const auto known = loaded_.find(ordinal); known != loaded_.end()) return &known->second;
  const absl::StatusOr<cuda::CUmodule> module = module_on(cuda, ordinal);
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

CudaModulePtr CudaKernel::module() const {
  std::lock_guard lock(mutex_);
  return module_;
}

}  // namespace sheaf::runtime
