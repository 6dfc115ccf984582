// Entry points of the fake driver: modules, functions, launches, tensor maps.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/abi.h"
#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;
using sheaf::emulator::Launch;

namespace {

CUresult call_on_function(const char* name, CUfunction handle,
                          const std::function<CUresult(const FunctionPtr&)>& body) {
  return call_on_device(name, [&](Lock&, Device&) {
    const FunctionPtr function = driver().functions.find(handle);
    return function ? body(function)
                    : misuse(CUDA_ERROR_INVALID_HANDLE,
                             fmt::format("{}: no such function, or its module is unloaded", name));
  });
}

void write_log(const std::string& log, unsigned options, const CUjit_option* names, void** values) {
  char* buffer = nullptr;
  std::size_t size = 0;
  for (unsigned i = 0; i < options; ++i) {
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = reinterpret_cast<std::uintptr_t>(values[i]);
  }
  if (buffer && size > 0) buffer[log.copy(buffer, size - 1)] = '\0';
}

/// "" or what the launch asks for that the engine cannot do.
std::string beyond_the_engine(const CUlaunchConfig& config) {
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const CUlaunchAttribute& a = config.attrs[i];
    const auto& c = a.value.clusterDim;
    if (a.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION && (c.x != 1 || c.y != 1 || c.z != 1))
      return "clusters of several blocks";
    if (a.id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && a.value.cooperative) return "cooperative launches";
  }
  return "";
}

}  // namespace

SHEAF_EXPORT CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned options, CUjit_option* names,
                                         void** values) {
  return call_on_device("cuModuleLoadDataEx", [&](Lock&, Device& d) {
    std::shared_ptr<Module> loaded;
    std::string log;
    const CUresult result = load_module(d, image, &loaded, &log);
    write_log(log, options, names, values);
    if (result == CUDA_SUCCESS) *module = driver().modules.add<CUmodule>(std::move(loaded));
    return result;
  });
}

SHEAF_EXPORT CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", [&](Lock& lock) {
    const std::shared_ptr<Module> m = driver().modules.find(module);
    if (!m) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuModuleUnload: no such module, or one unloaded");
    finish(lock, *m->device);
    driver().modules.remove(module);
    for (const auto& [name, function] : m->functions) driver().functions.remove(function.get());
    return m->device->sticky;
  });
}

SHEAF_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call_on_device("cuModuleGetFunction", [&](Lock&, Device&) {
    const std::shared_ptr<Module> m = driver().modules.find(module);
    if (!m) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuModuleGetFunction: no such module, or one unloaded");
    const sheaf::emulator::Kernel* kernel = sheaf::emulator::find(*m->code, name);
    if (!kernel) return misuse(CUDA_ERROR_NOT_FOUND, fmt::format("cuModuleGetFunction: the module has no {}", name));
    FunctionPtr& f = m->functions[name];
    if (!f) {
      const std::int64_t dynamic_bytes = limits().shared_bytes - kernel->static_shared_bytes;
      f = std::make_shared<Function>(Function{m->device, m->code, kernel, dynamic_bytes});
      driver().functions.add<CUfunction>(f);
    }
    *function = reinterpret_cast<CUfunction>(f.get());
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return call_on_function("cuFuncSetAttribute", function, [&](const FunctionPtr& f) {
    if (attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) return CUDA_SUCCESS;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
      return misuse(CUDA_ERROR_INVALID_VALUE, "cuFuncSetAttribute: none that the fake driver can set");
    const std::int64_t most = limits().shared_bytes_opt_in - f->kernel->static_shared_bytes;
    if (value < 0 || value > most)
      return misuse(CUDA_ERROR_INVALID_VALUE,
                    fmt::format("cuFuncSetAttribute: {}: {} bytes of dynamic shared memory, the most is {}",
                                f->kernel->name, value, most));
    f->max_dynamic_bytes = value;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return call_on_function("cuFuncGetAttribute", function, [&](const FunctionPtr& f) {
    const auto& o = driver().options;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = f->kernel->max_threads; break;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = static_cast<int>(f->kernel->static_shared_bytes); break;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = static_cast<int>(f->max_dynamic_bytes); break;
      case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = o.major * 10 + o.minor; break;
      case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
      default: *value = 0;
    }
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_threads,
                                                                  std::size_t dynamic_shared_bytes) {
  return call_on_function("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, [&](const FunctionPtr& f) {
    if (block_threads < 1 || block_threads > 1024)
      return misuse(CUDA_ERROR_INVALID_VALUE,
                    "cuOccupancyMaxActiveBlocksPerMultiprocessor: a block of no, or too many threads");
    constexpr std::int64_t reserved_bytes = 1024;
    const Limits l = limits();
    const std::int64_t shared =
        f->kernel->static_shared_bytes + static_cast<std::int64_t>(dynamic_shared_bytes) + reserved_bytes;
    const int warps = (block_threads + 31) / 32;
    *blocks = std::min({l.blocks_per_multiprocessor, l.threads_per_multiprocessor / (warps * 32),
                        static_cast<int>(l.shared_bytes_per_multiprocessor / shared)});
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters,
                                       void** extra) {
  return call_on_stream("cuLaunchKernelEx", config->hStream, [&](Lock&, const StreamPtr& s) {
    const CUlaunchConfig& c = *config;
    const FunctionPtr f = driver().functions.find(handle);
    if (!f) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuLaunchKernelEx: no such function, or its module is unloaded");
    if (f->device != s->device || current_device() != s->device)
      return misuse(CUDA_ERROR_INVALID_HANDLE,
                    fmt::format("cuLaunchKernelEx: {} of device {} on {} while device {} is current", f->kernel->name,
                                f->device->ordinal, s->name(), current_device() ? current_device()->ordinal : -1));
    const std::string beyond = extra ? "extra parameters" : beyond_the_engine(c);
    if (!beyond.empty())
      return misuse(CUDA_ERROR_NOT_SUPPORTED,
                    fmt::format("cuLaunchKernelEx: {}: the fake driver does not know {}", f->kernel->name, beyond));
    const Launch launch{.grid = {c.gridDimX, c.gridDimY, c.gridDimZ},
                        .block = {c.blockDimX, c.blockDimY, c.blockDimZ},
                        .dynamic_shared_bytes = c.sharedMemBytes};
    if (const std::string wrong = wrong_with(*f, launch); !wrong.empty())
      return misuse(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernelEx: " + wrong);
    return submit(*s, LaunchCall{f, launch, arguments_of(*f, parameters)});
  });
}

namespace {

int element_bytes(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: return 4;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: return 8;
  }
  return 0;
}

constexpr unsigned swizzle_bytes(CUtensorMapSwizzle s) { return s == CU_TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << s; }

}  // namespace

// The engine's form of a map in the place of the real one: two-dimensional, as kernels use it.
SHEAF_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, std::uint32_t rank,
                                             void* address, const std::uint64_t* dims, const std::uint64_t* strides,
                                             const std::uint32_t* box, const std::uint32_t* element_strides,
                                             CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                             CUtensorMapFloatOOBfill) {
  return call("cuTensorMapEncodeTiled", [&](Lock&) {
    const auto wrong = [](const std::string& what) {
      return misuse(CUDA_ERROR_INVALID_VALUE, "cuTensorMapEncodeTiled: " + what);
    };
    const auto bytes = static_cast<unsigned>(element_bytes(type));
    if (rank != 2)
      return misuse(CUDA_ERROR_NOT_SUPPORTED,
                    fmt::format("cuTensorMapEncodeTiled: {} dims, the fake driver knows 2", rank));
    if (bytes == 0 || element_strides[0] != 1 || element_strides[1] != 1)
      return wrong("a type, or strides of elements, that the fake driver does not know");
    if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0 || strides[0] % 16 != 0)
      return wrong("an address or a stride that is no multiple of 16");
    if (box[0] == 0 || box[1] == 0 || box[0] > 256 || box[1] > 256)
      return wrong(fmt::format("a box of {} x {}, the limit is 256 x 256", box[0], box[1]));
    if (box[0] * bytes % 16 != 0)
      return wrong(fmt::format("a box {} bytes wide, which is no multiple of 16", box[0] * bytes));
    if (swizzle && box[0] * bytes > swizzle_bytes(swizzle))
      return wrong(fmt::format("a box {} bytes wide, its swizzle has {}", box[0] * bytes, swizzle_bytes(swizzle)));
    const sf_host::TensorMap encoded{.base = address,
                                     .dims = {dims[0], dims[1]},
                                     .row_bytes = strides[0],
                                     .box = {box[0], box[1]},
                                     .element_bytes = bytes,
                                     .swizzle_bytes = swizzle_bytes(swizzle),
                                     .unused = {}};
    static_assert(sizeof encoded == sizeof *map);
    std::memcpy(map, &encoded, sizeof encoded);
    return CUDA_SUCCESS;
  });
}
