// Every library is opened as the runtime opens it; none is needed to say that it is missing.
#include "tools/gpus.h"

#include <fmt/format.h>

#include "codegen/cuda/nvrtc.h"
#include "runtime/driver/cuda.h"
#include "runtime/driver/linear_algebra.h"
#include "runtime/driver/nccl.h"

namespace sheaf {
namespace {

using namespace runtime;

std::string line(std::string_view what, std::string text) {
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at) text.replace(at, 1, "\n          ");
  return fmt::format("{:<9} {}\n", what, text);
}

template <class Library, class Version>
std::string line_of(std::string_view what, const absl::StatusOr<const Library*>& library, Version version) {
  if (!library.ok()) return line(what, std::string(library.status().message()));
  return line(what, version(**library));
}

std::string device_text(const Cuda& cuda, int ordinal) {
  const auto attribute = [&](cuda::CUdevice_attribute which) {
    int value = 0;
    (void)cuda.cuDeviceGetAttribute(&value, which, ordinal);
    return value;
  };
  char title[256] = "";
  std::size_t bytes = 0;
  (void)cuda.cuDeviceGetName(title, sizeof title, ordinal);
  (void)cuda.cuDeviceTotalMem(&bytes, ordinal);
  return fmt::format("{}, sm_{}{}, {} multiprocessors, {:.1f} GiB", title,
                     attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                     attribute(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
                     attribute(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

GpuReport report_gpus() {
  GpuReport report;
  const auto cuda = Cuda::load();
  report.text += line_of("driver", cuda, [](const Cuda& c) {
    return fmt::format("{}, for CUDA {}", c.path(), cuda_version_text(c.version()));
  });
  const auto nvrtc = codegen::Nvrtc::load();
  report.text += line_of(
      "NVRTC", nvrtc, [](const codegen::Nvrtc& n) { return fmt::format("{}, {}.{}", n.path(), n.major(), n.minor()); });
  const auto versioned = [](const auto& library) { return fmt::format("{}, {}", library.path(), library.version()); };
  report.text += line_of("cuBLASLt", CublasLt::load(), versioned);
  report.text += line_of("cuBLAS", Cublas::load(), versioned);
  report.text += line_of("cuSOLVER", Cusolver::load(), versioned);
  report.text += line_of("NCCL", Nccl::load(),
                         [](const Nccl& n) { return fmt::format("{}, {}", n.path(), nccl_version_text(n.version())); });
  if (cuda.ok())
    for (int i = 0; i < (*cuda)->num_devices(); ++i)
      report.text += line(fmt::format("cuda:{}", i), device_text(**cuda, i));
  report.is_usable = cuda.ok() && nvrtc.ok();
  if (!report.is_usable)
    report.text += fmt::format("no GPU can be used: there is no {}\n", cuda.ok() ? "NVRTC" : "driver with a device");
  return report;
}

}  // namespace sheaf
