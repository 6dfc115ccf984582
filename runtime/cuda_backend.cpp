// A GPU has three streams that nobody else uses. The compute stream holds its work; copies that need not wait for the
// work go through the copy stream; the third only captures graphs. The default stream is never used.
#include "runtime/cuda_backend.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "runtime/cuda_address.h"
#include "runtime/cuda_context.h"
#include "runtime/cuda_graphs.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_module.h"
#include "runtime/cuda_products.h"
#include "runtime/cuda_solver.h"
#include "runtime/cuda_staging.h"
#include "runtime/fork.h"
#include "runtime/kernel.h"
#include "runtime/queue.h"

namespace sheaf::runtime {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(const Cuda& cuda, int ordinal) : gpu_(cuda, ordinal) {}

  absl::Status start();

  std::string name() const override { return gpu_.name; }
  const codegen::Target& target() const override { return target_; }
  Allocator& allocator() override { return *allocator_; }
  bool is_host() const override { return false; }
  CudaContext* cuda_context() override { return &gpu_; }

  absl::Status write(std::byte* to, const std::byte* host, std::int64_t bytes) override;
  absl::Status read(std::byte* host, const std::byte* from, std::int64_t bytes) override;
  absl::Status copy(std::byte* to, const std::byte* from, std::int64_t bytes) override;
  absl::Status load(Kernel& kernel) override;
  absl::Status run(Kernel& kernel, std::span<void* const> buffers, Phases) override;
  absl::StatusOr<bool> call(const codegen::LibraryCall& call, Kernel* around,
                            std::span<const std::byte* const> operands, std::span<std::byte* const> results) override;
  absl::Status drain() override { return gpu_.wait_for(compute_); }

  absl::StatusOr<EventPtr> upload(std::byte* to, const std::byte* host, std::int64_t bytes) override;
  absl::Status download(std::byte* host, const std::byte* from, std::int64_t bytes) override;

  absl::StatusOr<EventPtr> record() override { return gpu_.record(compute_); }
  absl::Status await(const Event& event) override { return gpu_.await(compute_, event); }
  absl::StatusOr<std::shared_ptr<const std::byte>> note(const std::byte* from, std::int64_t bytes) override;
  absl::StatusOr<std::shared_ptr<Memory>> arena(std::int64_t bytes, Loc made_at) override;
  absl::StatusOr<bool> replay(std::span<const Launch> launches, std::unique_ptr<Replays>& replays) override;
  absl::StatusOr<bool> rehearse(std::span<const Launch> launches, std::unique_ptr<Replays>& replays) override;

 private:
  absl::StatusOr<int> attribute(cuda::CUdevice_attribute what) const;
  std::byte* take(std::int64_t bytes) const;
  void give_back(std::byte* region) const;
  bool make_room();
  absl::StatusOr<const CudaKernel::Functions*> functions(Kernel& kernel) const;

  CudaContext gpu_;
  codegen::Target target_;
  cuda::CUdevice device_ = 0;
  cuda::CUstream compute_ = nullptr, copy_ = nullptr, capture_ = nullptr;
  CudaStaging within_{gpu_}, beside_{gpu_};  // of the work, and of the copy stream
  CudaNotes notes_{gpu_};
  std::unique_ptr<Allocator> allocator_;
  std::unique_ptr<CudaProducts> products_;
  std::unique_ptr<CudaSolver> solver_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Memory> arena_;
  std::int64_t arena_bytes_ = 0;
};

absl::StatusOr<int> CudaBackend::attribute(cuda::CUdevice_attribute what) const {
  int value = 0;
  absl::Status status = gpu_.cuda.status(gpu_.cuda.cuDeviceGetAttribute(&value, what, device_), "cuDeviceGetAttribute");
  if (!status.ok()) return status;
  return value;
}

/// All the device has, or what SHEAF_GPU_MEMORY_LIMIT says.
std::int64_t memory_limit(std::int64_t total) {
  const char* text = std::getenv("SHEAF_GPU_MEMORY_LIMIT");
  if (!text || !*text) return total;
  const absl::StatusOr<std::int64_t> limit = parse_bytes(text, total);
  if (limit.ok()) return std::min(*limit, total);
  static std::once_flag warned;  // of all devices
  std::call_once(warned, [&] {
    ir::warn("SHEAF_GPU_MEMORY_LIMIT: " + std::string(limit.status().message()) + "; the limit is all there is");
  });
  return total;
}

absl::Status CudaBackend::start() {
  const Cuda& cuda = gpu_.cuda;
  absl::Status status = cuda.status(cuda.cuDeviceGet(&device_, gpu_.ordinal), "cuDeviceGet");
  if (!status.ok()) return status;
  const absl::StatusOr<int> major = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  if (!major.ok()) return major.status();
  const absl::StatusOr<int> minor = attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  if (!minor.ok()) return minor.status();
  target_ = codegen::gpu_target(*major, *minor);
  status = cuda.status(cuda.cuDevicePrimaryCtxRetain(&gpu_.context, device_), "cuDevicePrimaryCtxRetain");
  if (status.ok()) status = gpu_.enter();
  for (cuda::CUstream* stream : {&compute_, &copy_, &capture_})
    if (status.ok()) status = cuda.status(cuda.cuStreamCreate(stream, cuda::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  gpu_.work = compute_;
  gpu_.copies = copy_;
  std::size_t total = 0;
  if (status.ok()) status = cuda.status(cuda.cuDeviceTotalMem(&total, device_), "cuDeviceTotalMem");
  char title[256] = "";
  if (status.ok()) status = cuda.status(cuda.cuDeviceGetName(title, sizeof title, device_), "cuDeviceGetName");
  if (!status.ok()) return status;
  allocator_ = std::make_unique<Allocator>(
      Allocator::Options{.limit_bytes = memory_limit(static_cast<std::int64_t>(total)),
                         .source = {.take = [this](std::int64_t bytes) { return take(bytes); },
                                    .give_back = [this](std::byte* at, std::int64_t) { give_back(at); }},
                         .where = gpu_.name,
                         .make_room = [this] { return make_room(); }});
  products_ = std::make_unique<CudaProducts>(gpu_.name, *allocator_);
  solver_ = std::make_unique<CudaSolver>(cuda, gpu_.name, *allocator_);
  ir::log(ir::LogTopic::runtime, "{} is {}, {}", name(), title, target_.gpu);
  return absl::OkStatus();
}

std::byte* CudaBackend::take(std::int64_t bytes) const {
  cuda::CUdeviceptr region = 0;
  if (!gpu_.enter().ok() || gpu_.cuda.cuMemAlloc(&region, static_cast<std::size_t>(bytes)) != cuda::CUDA_SUCCESS)
    return nullptr;
  return std::bit_cast<std::byte*>(region);
}

void CudaBackend::give_back(std::byte* region) const {
  if (gpu_.enter().ok()) (void)gpu_.cuda.cuMemFree(cuda_address(region));
}

/// Work in flight keeps memory, and so do runs that the device was not asked for yet; and the arena, which may have been
/// another program's.
bool CudaBackend::make_room() {
  if (flights().wait_for_oldest() || (queue() && queue()->wait_for_one())) return true;
  std::shared_ptr<Memory> idle;
  std::lock_guard lock(mutex_);
  if (!arena_ || arena_.use_count() > 1) return false;
  arena_bytes_ = 0;
  idle = std::exchange(arena_, nullptr);
  return true;
}

absl::StatusOr<std::shared_ptr<Memory>> CudaBackend::arena(std::int64_t bytes, Loc made_at) {
  {
    std::shared_ptr<Memory> too_small;
    std::lock_guard lock(mutex_);
    if (arena_ && arena_bytes_ >= bytes) return arena_;
    arena_bytes_ = 0;
    too_small = std::exchange(arena_, nullptr);
  }
  absl::StatusOr<std::shared_ptr<Memory>> memory = Memory::allocate(*allocator_, bytes, made_at);
  if (!memory.ok()) return memory;
  std::lock_guard lock(mutex_);
  arena_ = *memory;
  arena_bytes_ = bytes;
  return memory;
}

absl::Status CudaBackend::write(std::byte* to, const std::byte* host, std::int64_t bytes) {
  return bytes == 0 ? absl::OkStatus() : within_.write(compute_, to, host, bytes);
}

absl::Status CudaBackend::read(std::byte* host, const std::byte* from, std::int64_t bytes) {
  return bytes == 0 ? absl::OkStatus() : within_.read(compute_, host, from, bytes);
}

absl::StatusOr<EventPtr> CudaBackend::upload(std::byte* to, const std::byte* host, std::int64_t bytes) {
  if (bytes == 0) return nullptr;
  if (absl::Status status = beside_.write(copy_, to, host, bytes); !status.ok()) return status;
  return gpu_.record(copy_);
}

absl::Status CudaBackend::download(std::byte* host, const std::byte* from, std::int64_t bytes) {
  return bytes == 0 ? absl::OkStatus() : beside_.read(copy_, host, from, bytes);
}

absl::Status CudaBackend::copy(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  return gpu_.cuda.status(
      gpu_.cuda.cuMemcpyDtoDAsync(cuda_address(to), cuda_address(from), static_cast<std::size_t>(bytes), compute_),
      fmt::format("cuMemcpyDtoDAsync of {} bytes", bytes));
}

absl::StatusOr<std::shared_ptr<const std::byte>> CudaBackend::note(const std::byte* from, std::int64_t bytes) {
  absl::StatusOr<std::shared_ptr<std::byte>> note = notes_.take();
  if (!note.ok()) return note.status();
  absl::Status status = gpu_.enter();
  if (status.ok())
    status = gpu_.cuda.status(
        gpu_.cuda.cuMemcpyDtoHAsync(note->get(), cuda_address(from), static_cast<std::size_t>(bytes), compute_),
        fmt::format("cuMemcpyDtoHAsync of {} bytes", bytes));
  if (!status.ok()) return status;
  return *std::move(note);
}

absl::StatusOr<const CudaKernel::Functions*> CudaBackend::functions(Kernel& kernel) const {
  const CompiledKernel* compiled = kernel.compiled();
  if (!compiled || !compiled->cuda)
    return absl::FailedPreconditionError(kernel.code().name + ": not compiled for " + target_.gpu);
  return compiled->cuda->on(gpu_.cuda, gpu_.ordinal);
}

absl::Status CudaBackend::load(Kernel& kernel) {
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  return functions(kernel).status();
}

absl::Status CudaBackend::run(Kernel& kernel, std::span<void* const> buffers, Phases) {
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  const absl::StatusOr<const CudaKernel::Functions*> code = functions(kernel);
  if (!code.ok()) return code.status();
  counters().launches.fetch_add(1, std::memory_order_relaxed);
  const std::vector<codegen::Phase>& phases = kernel.code().phases;
  for (std::size_t p = 0; p < phases.size(); ++p) {
    if (phases[p].extent == 0) continue;
    if (absl::Status status = CudaLaunch((**code)[p], phases[p], buffers).on(gpu_.cuda, compute_); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> CudaBackend::replay(std::span<const Launch> launches, std::unique_ptr<Replays>& replays) {
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  if (!replays) replays = std::make_unique<CudaGraphs>(gpu_, capture_);
  return static_cast<CudaGraphs&>(*replays).run(launches, compute_);
}

absl::StatusOr<bool> CudaBackend::rehearse(std::span<const Launch> launches, std::unique_ptr<Replays>& replays) {
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  if (!replays) replays = std::make_unique<CudaGraphs>(gpu_, capture_);
  return static_cast<CudaGraphs&>(*replays).prepare(launches);
}

absl::StatusOr<bool> CudaBackend::call(const codegen::LibraryCall& call, Kernel* around,
                                       std::span<const std::byte* const> operands,
                                       std::span<std::byte* const> results) {
  if (absl::Status status = gpu_.enter(); !status.ok()) return status;
  if (const auto* product = std::get_if<codegen::Product>(&call.what))
    return products_->run(*product, operands[0], operands[1], results[0], compute_);
  const absl::StatusOr<const CudaKernel::Functions*> code = functions(*around);
  if (!code.ok()) return code.status();
  return solver_->run(call, operands, results, **code, compute_);
}

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Backend>>> cuda_backends() {
  const absl::StatusOr<const Cuda*> cuda = Cuda::load();
  if (!cuda.ok()) return cuda.status();
  note_thread_started();  // the driver's
  std::vector<std::unique_ptr<Backend>> backends;
  for (int ordinal = 0; ordinal < (*cuda)->num_devices(); ++ordinal) {
    auto backend = std::make_unique<CudaBackend>(**cuda, ordinal);
    if (absl::Status status = backend->start(); !status.ok()) return status;
    backends.push_back(std::move(backend));
  }
  return backends;
}

}  // namespace sheaf::runtime
