// dlopen, dlsym, and the life of one nvrtcProgram; and what its log says, of a text that is wrong and of one that is
// right.
#include "codegen/cuda/nvrtc.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

namespace sheaf::codegen {
namespace {

std::vector<std::string> usual_paths() {
  if (const char* path = std::getenv("SHEAF_LIBNVRTC"); path && *path) return {path};
  return {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "/usr/local/cuda/lib64/libnvrtc.so"};
}

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

// Of "Used 32 registers" and " registers", 32; 0 where it is not there.
std::int64_t number_before(std::string_view line, std::string_view what) {
  std::size_t end = line.find(what);
  if (end == line.npos) return 0;
  std::size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  std::int64_t number = 0;
  std::from_chars(line.data() + begin, line.data() + end, number);
  return number;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Of "kernel.cu(12): error: ...".
std::optional<int> first_error_line(std::string_view log) {
  const std::size_t end = log.find("): error");
  const std::size_t begin = end == log.npos ? log.npos : log.rfind('(', end);
  if (begin == log.npos) return {};
  int line = 0;
  const auto [stop, error] = std::from_chars(log.data() + begin + 1, log.data() + end, line);
  if (error != std::errc() || stop != log.data() + end) return {};
  return line;
}

// Two lines on each side of the first error, that one marked.
std::string lines_around_error(std::string_view text, std::string_view log) {
  const std::optional<int> at = first_error_line(log);
  const std::vector<std::string_view> lines = lines_of(text);
  if (!at || *at < 1 || *at > std::ssize(lines)) return "";
  std::string around;
  for (int n = std::max(*at - 2, 1); n <= std::min<int>(*at + 2, static_cast<int>(lines.size())); ++n)
    around += fmt::format("\n{} {:4} | {}", n == *at ? '>' : ' ', n, lines[static_cast<std::size_t>(n - 1)]);
  return around;
}

std::string_view without_end_of_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::span<const char* const> nvrtc_options() {
  static constexpr const char* kOptions[] = {"--std=c++17",     "--fmad=false",     "--ftz=false",
                                             "--prec-div=true", "--prec-sqrt=true", "--no-source-include"};
  return kOptions;
}

std::vector<CudaFunction> functions_in_log(std::string_view log) {
  constexpr std::string_view kBegin = "Compiling entry function '";
  std::vector<CudaFunction> functions;
  for (const std::string_view line : lines_of(log)) {
    if (const std::size_t at = line.find(kBegin); at != line.npos) {
      const std::string_view name = line.substr(at + kBegin.size());
      functions.push_back({.entry = std::string(name.substr(0, name.find('\'')))});
    }
    if (functions.empty()) continue;
    CudaFunction& f = functions.back();
    if (line.find(" bytes stack frame") != line.npos) {
      // Once for the entry, and once for each function that was not inlined into it.
      f.stack_bytes = std::max(f.stack_bytes, number_before(line, " bytes stack frame"));
      f.spill_bytes += number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    } else if (line.find("Used ") != line.npos) {
      f.registers = static_cast<int>(number_before(line, " registers"));
      f.shared_bytes = number_before(line, " bytes smem");
    }
  }
  return functions;
}

absl::StatusOr<const Nvrtc*> Nvrtc::load() {
  static const auto& loaded = *new absl::StatusOr<Nvrtc>(open(usual_paths()));
  if (!loaded.ok()) return loaded.status();
  return &*loaded;
}

absl::StatusOr<Nvrtc> Nvrtc::open(const std::vector<std::string>& paths) {
  std::string tried;
  for (const std::string& path : paths) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      tried += fmt::format("\n  {}", dlerror());
      continue;
    }
    Nvrtc nvrtc;
    nvrtc.path_ = path;
    Functions& f = nvrtc.f_;
    const bool is_whole =
        find(library, "nvrtcVersion", f.version) && find(library, "nvrtcGetNumSupportedArchs", f.num_architectures) &&
        find(library, "nvrtcGetSupportedArchs", f.architectures) && find(library, "nvrtcCreateProgram", f.create) &&
        find(library, "nvrtcCompileProgram", f.compile) && find(library, "nvrtcDestroyProgram", f.destroy) &&
        find(library, "nvrtcGetProgramLogSize", f.log_size) && find(library, "nvrtcGetProgramLog", f.log) &&
        find(library, "nvrtcGetCUBINSize", f.cubin_size) && find(library, "nvrtcGetCUBIN", f.cubin);
    const bool tells = f.version && f.version(&nvrtc.major_, &nvrtc.minor_) == 0;
    if (tells && nvrtc.major_ * 1000 + nvrtc.minor_ * 10 < kMinVersion)
      return absl::FailedPreconditionError(fmt::format("{} is {}, and Sheaf needs NVRTC {}.{} or newer", path,
                                                       nvrtc.name(), kMinVersion / 1000, kMinVersion % 1000 / 10));
    if (is_whole && tells) return nvrtc;
    tried += fmt::format("\n  {}: lacks an entry point", path);
  }
  return absl::UnavailableError(fmt::format(
      "no NVRTC; tried:{}\nSheaf compiles for GPUs with NVIDIA's NVRTC {}.{} or newer; SHEAF_LIBNVRTC names one that "
      "lies elsewhere",
      tried, kMinVersion / 1000, kMinVersion % 1000 / 10));
}

std::string Nvrtc::name() const { return fmt::format("NVRTC {}.{}", major_, minor_); }

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
  const std::string base = architecture.ends_with('a') ? architecture.substr(0, architecture.size() - 1) : architecture;
  const std::vector<std::string> all = architectures();
  return std::find(all.begin(), all.end(), base) != all.end();
}

std::string Nvrtc::log_of(Program program) const {
  std::size_t size = 0;
  if (f_.log_size(program, &size) != 0 || size < 2) return "";
  std::string log(size, '\0');
  if (f_.log(program, log.data()) != 0) return "";
  log.pop_back();  // the zero at its end
  return log;
}

absl::StatusOr<CudaImage> Nvrtc::compile(const std::string& text, const std::string& name,
                                         const std::string& architecture) const {
  if (!supports(architecture))
    return absl::UnimplementedError(fmt::format("{} does not compile for {}, only for {}", this->name(), architecture,
                                                fmt::join(architectures(), ", ")));
  Program program = nullptr;
  if (f_.create(&program, text.c_str(), name.c_str(), 0, nullptr, nullptr) != 0)
    return absl::InternalError(this->name() + ": nvrtcCreateProgram failed");
  const std::string arch_option = "--gpu-architecture=" + architecture;
  std::vector<const char*> options(nvrtc_options().begin(), nvrtc_options().end());
  options.insert(options.end(), {arch_option.c_str(), "--ptxas-options=-v"});
  if (major_ > 12 || minor_ >= 4) options.push_back("--minimal");  // the same code, sooner
  const int result = f_.compile(program, static_cast<int>(options.size()), options.data());
  const std::string log = log_of(program);
  absl::StatusOr<CudaImage> image = absl::InternalError(this->name() + " made no machine code");
  std::size_t size = 0;
  if (result != 0) {
    image = absl::InvalidArgumentError(fmt::format("{} refuses the text for {}:\n{}{}", this->name(), architecture,
                                                   without_end_of_line(log), lines_around_error(text, log)));
  } else if (f_.cubin_size(program, &size) == 0 && size > 0) {
    image = CudaImage{.code = std::vector<std::byte>(size), .functions = functions_in_log(log)};
    if (f_.cubin(program, reinterpret_cast<char*>(image->code.data())) != 0)
      image = absl::InternalError(this->name() + ": nvrtcGetCUBIN failed");
  }
  f_.destroy(&program);
  return image;
}

}  // namespace sheaf::codegen
