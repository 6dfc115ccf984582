// Everything goes to the device's one stream, so that it happens in the order it was asked for. What comes from the
// host passes through pinned memory of our own: the caller's bytes are free again when `write` returns.
#include "runtime/cuda_backend.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/counters.h"
#include "runtime/cuda_module.h"
#include "runtime/driver/cuda.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {
namespace {

cuda::CUdeviceptr address(const std::byte* p) { return std::bit_cast<cuda::CUdeviceptr>(p); }

/// Two pinned buffers that take turns: one is filled while the other is read by the device.
class Staging {
 public:
  absl::Status start(const Cuda& cuda);
  absl::Status write(const Cuda& cuda, cuda::CUstream stream, std::byte* to, const std::byte* host, std::int64_t bytes);

 private:
  static constexpr std::int64_t kBytes = 4 << 20;
  struct Half {
    std::byte* data = nullptr;
    cuda::CUevent is_free = nullptr;
  };
  std::mutex mutex_;
  std::array<Half, 2> halves_;
  int next_ = 0;
};

absl::Status Staging::start(const Cuda& cuda) {
  for (Half& half : halves_) {
    void* data = nullptr;
    absl::Status status = cuda.status(cuda.cuMemAllocHost(&data, kBytes), fmt::format("cuMemAllocHost of {}", kBytes));
    half.data = static_cast<std::byte*>(data);
    if (status.ok())
      status = cuda.status(cuda.cuEventCreate(&half.is_free, cuda::CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Staging::write(const Cuda& cuda, cuda::CUstream stream, std::byte* to, const std::byte* host,
                            std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  for (std::int64_t done = 0; done < bytes; done += kBytes) {
    Half& half = halves_[next_];
    next_ = 1 - next_;
    const auto piece = static_cast<std::size_t>(std::min(kBytes, bytes - done));
    absl::Status status = cuda.status(cuda.cuEventSynchronize(half.is_free), "cuEventSynchronize");
    if (!status.ok()) return status;
    std::memcpy(half.data, host + done, piece);
    status = cuda.status(cuda.cuMemcpyHtoDAsync(address(to + done), half.data, piece, stream),
                         fmt::format("cuMemcpyHtoDAsync of {} bytes", piece));
    if (status.ok()) status = cuda.status(cuda.cuEventRecord(half.is_free, stream), "cuEventRecord");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const Cuda& cuda, int ordinal)
      : cuda_(cuda),
        ordinal_(ordinal),
        allocator_({.source = {.take = [this](std::int64_t bytes) { return take(bytes); },
                               .give_back = [this](std::byte* at, std::int64_t) { give_back(at); }},
                    .where = name()}) {}

  absl::Status start();

  std::string name() const override { return "cuda:" + std::to_string(ordinal_); }
  const codegen::Target& target() const override { return target_; }
  Allocator& allocator() override { return allocator_; }
  bool is_host() const override { return false; }

  absl::Status write(std::byte* to, const std::byte* host, std::int64_t bytes) override;
  absl::Status read(std::byte* host, const std::byte* from, std::int64_t bytes) override;
  absl::Status copy(std::byte* to, const std::byte* from, std::int64_t bytes) override;
  absl::Status load(Kernel& kernel) override;
  absl::Status run(Kernel& kernel, std::span<void* const> buffers) override;
  absl::Status drain() override;

 private:
  /// The context belongs to threads: every call begins with this.
  absl::Status enter() const { return cuda_.status(cuda_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }
  absl::StatusOr<int> attribute(cuda::CUdevice_attribute what) const;
  std::byte* take(std::int64_t bytes) const;
  void give_back(std::byte* region) const;
  absl::StatusOr<const CudaKernel::Functions*> functions(Kernel& kernel) const;

  const Cuda& cuda_;
  const int ordinal_;
  codegen::Target target_;
  cuda::CUdevice device_ = 0;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream stream_ = nullptr;
  Staging staging_;
  Allocator allocator_;
};

absl::StatusOr<int> CudaBackend::attribute(cuda::CUdevice_attribute what) const {
  int value = 0;
  absl::Status status = cuda_.status(cuda_.cuDeviceGetAttribute(&value, what, device_), "cuDeviceGetAttribute");
  if (!status.ok()) return status;
  return value;
}

absl::Status CudaBackend::start() {
  absl::Status status = cuda_.status(cuda_.cuDeviceGet(&device_, ordinal_), "cuDeviceGet");
  if (!status.ok()) return status;
  const absl::StatusOr<int> major = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  if (!major.ok()) return major.status();
  const absl::StatusOr<int> minor = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (!minor.ok()) return minor.status();
  // From 9.0 on, what is special to one architecture is in its "a" form.
  target_.gpu = fmt::format("sm_{}{}{}", *major, *minor, *major >= 9 ? "a" : "");
  status = cuda_.status(cuda_.cuDevicePrimaryCtxRetain(&context_, device_), "cuDevicePrimaryCtxRetain");
  if (status.ok()) status = enter();
  if (status.ok())
    status = cuda_.status(cuda_.cuStreamCreate(&stream_, cuda::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (status.ok()) status = staging_.start(cuda_);
  char title[256] = "";
  if (status.ok()) status = cuda_.status(cuda_.cuDeviceGetName(title, sizeof title, device_), "cuDeviceGetName");
  if (status.ok()) ir::log(ir::LogTopic::runtime, "{} is {}, {}", name(), title, target_.gpu);
  return status;
}

std::byte* CudaBackend::take(std::int64_t bytes) const {
  cuda::CUdeviceptr region = 0;
  if (!enter().ok() || cuda_.cuMemAlloc(&region, static_cast<std::size_t>(bytes)) != cuda::CUDA_SUCCESS) return nullptr;
  return std::bit_cast<std::byte*>(region);
}

void CudaBackend::give_back(std::byte* region) const {
  if (enter().ok()) (void)cuda_.cuMemFree(address(region));
}

absl::Status CudaBackend::write(std::byte* to, const std::byte* host, std::int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (absl::Status status = enter(); !status.ok()) return status;
  return staging_.write(cuda_, stream_, to, host, bytes);
}

absl::Status CudaBackend::read(std::byte* host, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  absl::Status status = enter();
  if (status.ok())
    status = cuda_.status(cuda_.cuMemcpyDtoHAsync(host, address(from), static_cast<std::size_t>(bytes), stream_),
                          fmt::format("cuMemcpyDtoHAsync of {} bytes", bytes));
  return status.ok() ? drain() : status;
}

absl::Status CudaBackend::copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  if (absl::Status status = enter(); !status.ok()) return status;
  return cuda_.status(cuda_.cuMemcpyDtoDAsync(address(to), address(from), static_cast<std::size_t>(bytes), stream_),
                      fmt::format("cuMemcpyDtoDAsync of {} bytes", bytes));
}

absl::StatusOr<const CudaKernel::Functions*> CudaBackend::functions(Kernel& kernel) const {
  const CompiledKernel* compiled = kernel.compiled();
  if (!compiled || !compiled->cuda)
    return absl::FailedPreconditionError(kernel.code().name + ": not compiled for " + target_.gpu);
  return compiled->cuda->on(cuda_, ordinal_);
}

absl::Status CudaBackend::load(Kernel& kernel) {
  if (absl::Status status = enter(); !status.ok()) return status;
  return functions(kernel).status();
}

absl::Status CudaBackend::run(Kernel& kernel, std::span<void* const> buffers) {
  if (absl::Status status = enter(); !status.ok()) return status;
  const absl::StatusOr<const CudaKernel::Functions*> code = functions(kernel);
  if (!code.ok()) return code.status();
  counters().launches.fetch_add(1, std::memory_order_relaxed);
  absl::InlinedVector<void*, 16> parameters;  // each points to where its value is
  for (void* const& buffer : buffers) parameters.push_back(const_cast<void**>(&buffer));
  const std::vector<codegen::Phase>& phases = kernel.code().phases;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases[i].extent == 0) continue;
    const cuda::CUlaunchConfig config{.gridDimX = static_cast<unsigned>(phases[i].extent),
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = static_cast<unsigned>(phases[i].threads),
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = static_cast<unsigned>(phases[i].shared_bytes),
                                      .hStream = stream_,
                                      .attrs = nullptr,
                                      .numAttrs = 0};
    absl::Status status = cuda_.status(cuda_.cuLaunchKernelEx(&config, (**code)[i], parameters.data(), nullptr),
                                       fmt::format("launch of {} blocks of {}", phases[i].extent, phases[i].threads));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaBackend::drain() {
  if (absl::Status status = enter(); !status.ok()) return status;
  return cuda_.status(cuda_.cuStreamSynchronize(stream_), "work on " + name());
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> cuda_backends() {
  const absl::StatusOr<const Cuda*> cuda = Cuda::load();
  if (!cuda.ok()) return cuda.status();
  std::vector<std::unique_ptr<Backend>> backends;
  for (int ordinal = 0; ordinal < (*cuda)->num_devices(); ++ordinal) {
    auto backend = std::make_unique<CudaBackend>(**cuda, ordinal);
    if (absl::Status status = backend->start(); !status.ok()) return status;
    backends.push_back(std::move(backend));
  }
  return backends;
}

}  // namespace sheaf::runtime
