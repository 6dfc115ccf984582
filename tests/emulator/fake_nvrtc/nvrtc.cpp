// NVRTC where there is none: its image is a header that says "machine code for an NVIDIA GPU" and, behind it, the text
// itself, which the fake driver hands to the emulator. Texts are compiled when loaded; SHEAF_EMULATOR_CHECK_TEXT=1 lets
// the host compiler judge them here, so that a wrong text fails as it does on a real one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "tests/emulator/host_compiler.h"
#include "tests/emulator/image.h"

namespace {

// Of nvrtcResult.
constexpr int kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5, kCompilation = 6;
constexpr int kArchitectures[] = {80, 90, 100, 120};

struct Program {
  std::string text, log, image;
};

bool is_known(std::string_view architecture) {
  return std::any_of(std::begin(kArchitectures), std::end(kArchitectures), [&](int number) {
    const std::string plain = fmt::format("sm_{}", number);
    return architecture == plain || (number >= 90 && architecture == plain + "a");
  });
}

int copy_out(const std::string& from, std::size_t* size) {
  *size = from.size() + 1;
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return kSuccess;
}

int nvrtcGetNumSupportedArchs(int* count) {
  *count = std::size(kArchitectures);
  return kSuccess;
}

int nvrtcGetSupportedArchs(int* numbers) {
  std::copy(std::begin(kArchitectures), std::end(kArchitectures), numbers);
  return kSuccess;
}

int nvrtcCreateProgram(Program** program, const char* text, const char* /*name*/, int headers, const char* const*,
                       const char* const*) {
  if (!program || !text || headers != 0) return kInvalidInput;
  *program = new Program{.text = text, .log = "", .image = ""};
  return kSuccess;
}

int nvrtcDestroyProgram(Program** program) {
  if (!program || !*program) return kInvalidProgram;
  delete *program;
  *program = nullptr;
  return kSuccess;
}

int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (!program) return kInvalidProgram;
  std::string architecture;
  for (const std::string_view option : std::span(options, static_cast<std::size_t>(count))) {
    constexpr std::string_view kPrefix = "--gpu-architecture=";
    if (option.starts_with(kPrefix)) architecture = option.substr(kPrefix.size());
  }
  if (!is_known(architecture)) {
    program->log = fmt::format("nvrtc: error: invalid value for --gpu-architecture ({})\n", architecture);
    return kInvalidOption;
  }
  const char* check = std::getenv("SHEAF_EMULATOR_CHECK_TEXT");
  if (check && *check == '1') {
    const absl::Status status = sheaf::emulator::check_text(program->text);
    if (!status.ok()) {
      program->log = std::string(status.message());
      return kCompilation;
    }
  }
  program->image = sheaf::emulator::write_image({program->text, architecture});
  return kSuccess;
}

int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
  return program ? copy_out(program->log, size) : kInvalidProgram;
}

int nvrtcGetProgramLog(Program* program, char* log) {
  if (!program) return kInvalidProgram;
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return kSuccess;
}

int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  if (!program || program->image.empty()) return kInvalidProgram;
  *size = program->image.size();
  return kSuccess;
}

int nvrtcGetCUBIN(Program* program, char* image) {
  if (!program || program->image.empty()) return kInvalidProgram;
  std::memcpy(image, program->image.data(), program->image.size());
  return kSuccess;
}

}  // extern "C"
#pragma GCC visibility pop
