// dlopen, dlsym, and the life of one nvrtcProgram.
#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace sheaf::codegen {
namespace {

std::vector<std::string> candidates() {
  if (const char* path = std::getenv("SHEAF_LIBNVRTC"); path && *path) return {path};
  return {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
}

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

absl::StatusOr<const Nvrtc*> Nvrtc::load() {
  static const absl::StatusOr<const Nvrtc*> loaded = open();
  return loaded;
}

absl::StatusOr<const Nvrtc*> Nvrtc::open() {
  std::string tried;
  for (const std::string& path : candidates()) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    static Nvrtc nvrtc;
    Functions& f = nvrtc.f_;
    const bool is_whole =
        find(library, "nvrtcVersion", f.version) && find(library, "nvrtcGetNumSupportedArchs", f.num_architectures) &&
        find(library, "nvrtcGetSupportedArchs", f.architectures) && find(library, "nvrtcCreateProgram", f.create) &&
        find(library, "nvrtcCompileProgram", f.compile) && find(library, "nvrtcDestroyProgram", f.destroy) &&
        find(library, "nvrtcGetProgramLogSize", f.log_size) && find(library, "nvrtcGetProgramLog", f.log) &&
        find(library, "nvrtcGetCUBINSize", f.cubin_size) && find(library, "nvrtcGetCUBIN", f.cubin);
    if (is_whole && f.version(&nvrtc.major_, &nvrtc.minor_) == 0) return &nvrtc;
    tried += fmt::format("\n  {}: lacks an entry point", path);
  }
  return absl::UnavailableError("no NVRTC; tried:" + tried);
}

std::vector<std::string> Nvrtc::architectures() const {
  int count = 0;
  if (f_.num_architectures(&count) != 0) return {};
  std::vector<int> numbers(static_cast<std::size_t>(count));
  if (f_.architectures(numbers.data()) != 0) return {};
  std::vector<std::string> names;
  for (int n : numbers) names.push_back(fmt::format("sm_{}", n));
  return names;
}

bool Nvrtc::supports(const std::string& architecture) const {
  // "sm_90a" is a variant of sm_90.
  const std::string base = architecture.back() == 'a' ? architecture.substr(0, architecture.size() - 1) : architecture;
  const std::vector<std::string> all = architectures();
  return std::find(all.begin(), all.end(), base) != all.end();
}

absl::StatusOr<std::vector<std::byte>> Nvrtc::compile(const std::string& text, const std::string& name,
                                                      const std::string& architecture) const {
  Program program = nullptr;
  if (f_.create(&program, text.c_str(), name.c_str(), 0, nullptr, nullptr) != 0) {
    return absl::InternalError("nvrtcCreateProgram failed");
  }
  const std::string arch_option = "--gpu-architecture=" + architecture;
  const char* options[] = {arch_option.c_str(), "--std=c++17",      "--fmad=false", "--ftz=false",
                           "--prec-div=true",   "--prec-sqrt=true", "--minimal"};
  const int result = f_.compile(program, static_cast<int>(std::size(options)), options);
  absl::StatusOr<std::vector<std::byte>> code = absl::InternalError(name + ": no machine code");
  std::size_t size = 0;
  if (result != 0) {
    std::string log;
    if (f_.log_size(program, &size) == 0 && size > 0) {
      log.resize(size);
      f_.log(program, log.data());
    }
    code = absl::InternalError(fmt::format("{} for {}: {}", name, architecture, log));
  } else if (f_.cubin_size(program, &size) == 0 && size > 0) {
    code = std::vector<std::byte>(size);
    f_.cubin(program, reinterpret_cast<char*>(code->data()));
  }
  f_.destroy(&program);
  return code;
}

}  // namespace sheaf::codegen
