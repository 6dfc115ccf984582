// NVRTC where there is none: its image is a header that says "machine code for an NVIDIA GPU" and, behind it, the text
// itself, which the fake driver hands to the emulator. Texts are compiled when loaded; SHEAF_EMULATOR_CHECK_TEXT=1 lets
// the host compiler judge them here, so that a wrong text fails as it does on a real one. Its log says what an
// assembler's does, of functions that take 32 registers each. SHEAF_FAKE_NVRTC_SPILLS=guess: each spills unless it says
// how many of its blocks should run at once; always: each spills. A text with the word that SHEAF_FAKE_NVRTC_REFUSES is
// has an error there, and SHEAF_FAKE_NVRTC_VERSION=11080 makes this the NVRTC of CUDA 11.8.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <string_view>

#include "tests/emulator/host_compiler.h"
#include "tests/emulator/image.h"
#include "tests/emulator/kernel_text.h"

namespace {

// Of nvrtcResult.
constexpr int kSuccess = 0, kInvalidInput = 3, kInvalidProgram = 4, kInvalidOption = 5, kCompilation = 6;
constexpr int kArchitectures[] = {80, 90, 100, 120};

struct Program {
  std::string text, name, log, image;
};

bool is_known(std::string_view architecture) {
  return std::any_of(std::begin(kArchitectures), std::end(kArchitectures), [&](int number) {
    const std::string plain = fmt::format("sm_{}", number);
    return architecture == plain || (number >= 90 && architecture == plain + "a");
  });
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// What ptxas writes with -v.
std::string assembler_log(std::string_view text, std::string_view architecture) {
  const std::string when = variable("SHEAF_FAKE_NVRTC_SPILLS");
  std::string log = "ptxas info    : 0 bytes gmem\n";
  for (const sheaf::emulator::TextEntry& e : sheaf::emulator::entries_of(text)) {
    const bool says_how_many = text.find(fmt::format("__launch_bounds__({}, ", e.max_threads)) != text.npos;
    const int spilled = when == "always" || (when == "guess" && !says_how_many) ? 24 : 0;
    log += fmt::format(
        "ptxas info    : Compiling entry function '{0}' for '{1}'\nptxas info    : Function properties for {0}\n"
        "ptxas         .     {2} bytes stack frame, {2} bytes spill stores, {2} bytes spill loads\n"
        "ptxas info    : Used 32 registers, used 1 barriers\n",
        e.name, architecture, spilled);
  }
  return log;
}

// "kernel.cu:7:3: error: text" of the host compiler as "name(7): error: text".
std::string as_nvrtc_says(const std::string& log, const std::string& name) {
  std::string out;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    int number = 0, column = 0, end = 0;
    if (std::sscanf(line.c_str(), "kernel.cu:%d:%d: error: %n", &number, &column, &end) == 2 && end > 0)
      line = fmt::format("{}({}): error: {}", name, number, line.substr(static_cast<std::size_t>(end)));
    out += line + "\n";
  }
  return out;
}

int copy_out(const std::string& from, std::size_t* size) {
  *size = from.size() + 1;
  return kSuccess;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int nvrtcVersion(int* major, int* minor) {
  const std::string chosen = variable("SHEAF_FAKE_NVRTC_VERSION");
  const int version = chosen.empty() ? 13000 : std::atoi(chosen.c_str());
  *major = version / 1000;
  *minor = version % 1000 / 10;
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

int nvrtcCreateProgram(Program** program, const char* text, const char* name, int headers, const char* const*,
                       const char* const*) {
  if (!program || !text || headers != 0) return kInvalidInput;
  *program = new Program{.text = text, .name = name, .log = "", .image = ""};
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
  if (const std::size_t at = program->text.find(variable("SHEAF_FAKE_NVRTC_REFUSES"));
      at != std::string::npos && at > 0) {
    const auto line =
        1 + std::count(program->text.begin(), program->text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    program->log = fmt::format("{}({}): error: this word is refused\n\n1 error detected.\n", program->name, line);
    return kCompilation;
  }
  if (variable("SHEAF_EMULATOR_CHECK_TEXT") == "1") {
    const absl::Status status = sheaf::emulator::check_text(program->text);
    if (!status.ok()) {
      program->log = as_nvrtc_says(std::string(status.message()), program->name);
      return kCompilation;
    }
  }
  program->log = assembler_log(program->text, architecture);
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
