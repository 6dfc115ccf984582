// The fake driver as tests use it: opened by the product's own loader, fresh for each case, with the first device's
// context current. What went wrong is asked of it as text.
#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <deque>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "codegen/cuda/emit.h"
#include "runtime/driver/cuda.h"
#include "tests/emulator/fake_cuda/fake_cuda.h"
#include "tests/emulator/image.h"
#include "tests/environment.h"
#include "tests/places.h"

namespace sheaf::emulator {

inline const std::string kFakeCuda = SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so";

class FakeGpu {
 public:
  struct Option {
    std::string name, value;  // SHEAF_FAKE_CUDA_<name>=value
  };
  FakeGpu() : FakeGpu(std::vector<Option>{}) {}
  FakeGpu(std::initializer_list<Option> options) : FakeGpu(std::vector<Option>(options)) {}
  explicit FakeGpu(const std::vector<Option>& options) {
    variables_.emplace_back("SHEAF_FAKE_CUDA_REPORT", "/dev/null");
    for (const Option& o : options) variables_.emplace_back("SHEAF_FAKE_CUDA_" + o.name, o.value);
    library_ = dlopen(kFakeCuda.c_str(), RTLD_NOW | RTLD_LOCAL);
    REQUIRE_MESSAGE(library_, dlerror());
    reset();
    auto opened = runtime::Cuda::open({kFakeCuda});
    REQUIRE_MESSAGE(opened.ok(), opened.status().ToString());
    cuda_ = *std::move(opened);
    for (int i = 0; i < cuda_.num_devices(); ++i) {
      contexts_.push_back(nullptr);
      REQUIRE(cuda_.cuDevicePrimaryCtxRetain(&contexts_.back(), i) == cuda::CUDA_SUCCESS);
    }
    use(0);
  }

  /// Forgets everything, and reads the options again.
  void reset() const { extra<decltype(sheafFakeCudaReset)>("sheafFakeCudaReset")(); }

  const runtime::Cuda* operator->() const { return &cuda_; }
  /// "" or what the driver says of it.
  std::string text(cuda::CUresult result) const { return std::string(cuda_.status(result, "it").message()); }
  std::string fault() const { return extra<decltype(sheafFakeCudaLastFault)>("sheafFakeCudaLastFault")(); }
  std::string leaks() const { return extra<decltype(sheafFakeCudaLeaks)>("sheafFakeCudaLeaks")(); }
  fake_cuda::Counters counters() const {
    fake_cuda::Counters c;
    extra<decltype(sheafFakeCudaCounters)>("sheafFakeCudaCounters")(&c);
    return c;
  }

  cuda::CUcontext context(int device) const { return contexts_[static_cast<std::size_t>(device)]; }
  void use(int device) const { REQUIRE(cuda_.cuCtxSetCurrent(context(device)) == cuda::CUDA_SUCCESS); }

  cuda::CUstream stream() const {
    cuda::CUstream s = nullptr;
    REQUIRE(cuda_.cuStreamCreate(&s, cuda::CU_STREAM_NON_BLOCKING) == cuda::CUDA_SUCCESS);
    return s;
  }
  cuda::CUevent event() const {
    cuda::CUevent e = nullptr;
    REQUIRE(cuda_.cuEventCreate(&e, cuda::CU_EVENT_DISABLE_TIMING) == cuda::CUDA_SUCCESS);
    return e;
  }
  cuda::CUdeviceptr memory(std::size_t bytes) const {
    cuda::CUdeviceptr p = 0;
    REQUIRE(cuda_.cuMemAlloc(&p, bytes) == cuda::CUDA_SUCCESS);
    return p;
  }
  template <class T>
  T* pinned(std::size_t count) const {
    void* p = nullptr;
    REQUIRE(cuda_.cuMemAllocHost(&p, count * sizeof(T)) == cuda::CUDA_SUCCESS);
    return static_cast<T*>(p);
  }
  cuda::CUmodule module(const std::string& functions) const {
    const std::string image = write_image({codegen::cuda_program(functions), "sm_90"});
    cuda::CUmodule m = nullptr;
    REQUIRE(cuda_.cuModuleLoadDataEx(&m, image.data(), 0, nullptr, nullptr) == cuda::CUDA_SUCCESS);
    return m;
  }
  cuda::CUfunction function(cuda::CUmodule module, const char* name) const {
    cuda::CUfunction f = nullptr;
    REQUIRE(cuda_.cuModuleGetFunction(&f, module, name) == cuda::CUDA_SUCCESS);
    return f;
  }

  template <class... Arguments>
  cuda::CUresult launch(cuda::CUfunction function, unsigned blocks, unsigned threads, cuda::CUstream stream,
                        Arguments... arguments) const {
    void* parameters[] = {&arguments...};
    const cuda::CUlaunchConfig config{.gridDimX = blocks,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = threads,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .sharedMemBytes = 0,
                                      .hStream = stream,
                                      .attrs = nullptr,
                                      .numAttrs = 0};
    return cuda_.cuLaunchKernelEx(&config, function, parameters, nullptr);
  }
  template <class T>
  cuda::CUresult write(cuda::CUdeviceptr to, const std::vector<T>& values, cuda::CUstream stream) const {
    return cuda_.cuMemcpyHtoDAsync(to, values.data(), values.size() * sizeof(T), stream);
  }
  template <class T>
  std::vector<T> read(cuda::CUdeviceptr from, std::size_t count, cuda::CUstream stream) const {
    std::vector<T> values(count, T{-77});
    cuda_.cuMemcpyDtoHAsync(values.data(), from, count * sizeof(T), stream);
    return values;
  }

 private:
  template <class F>
  F* extra(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }

  std::deque<tests::Variable> variables_;
  void* library_ = nullptr;
  runtime::Cuda cuda_;
  std::vector<cuda::CUcontext> contexts_;
};

}  // namespace sheaf::emulator
