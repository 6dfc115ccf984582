// One run of the compiler per text: the text, to the byte, then a table of its entries. The object is written under a
// name of its own and renamed, so readers see whole objects only.
#include "tests/emulator/host_compiler.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "codegen/fingerprint.h"
#include "tests/emulator/kernel_text.h"

namespace sheaf::emulator {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTextName = "kernel.cu";

// -O1 keeps loads and stores as a GPU's compiler would: those of a loop's invariants are gone, neighbours are not
// merged. The thread sanitizer's hooks are our own, so its library is not linked.
constexpr std::string_view kFlags =
    "-x c++ -std=c++17 -O1 -g1 -gdwarf-4 -w -fPIC -fsanitize=thread -ffp-contract=off -fno-math-errno "
    "-fno-strict-aliasing -fno-rtti -fasynchronous-unwind-tables -fno-stack-protector -fvisibility=hidden -Wno-psabi -DSF_HOST " SHEAF_EMULATOR_NO_ENTRY_HOOKS;

struct Run {
  int status = 0;
  std::string output;
};

Run run(const std::string& command) {
  Run result;
  std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe) return {-1, "cannot start " + command};
  char buffer[4096];
  for (std::size_t n = 0; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.output.append(buffer, n);
  result.status = pclose(pipe);
  return result;
}

std::string source_of(std::string_view text) {
  std::string entries;
  int count = 0;
  for (const TextEntry& e : entries_of(text)) {
    entries += fmt::format("    SF_ENTRY({}),\n", e.name);
    ++count;
  }
  return fmt::format(
      "# 1 \"{}\"\n{}\n# 1 \"entries\"\n"
      "static const sf_host::KernelEntry sf_entries[] = {{\n{}    {{}}}};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) const sf_host::ModuleTable sf_module = "
      "{{sf_entries, {}, __start_sf_shared, __stop_sf_shared}};\n",
      kTextName, text, entries, count);
}

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string& environment() {
  static const std::string text = contents(SHEAF_EMULATOR_DIR "/abi.h") + contents(SHEAF_EMULATOR_DIR "/shim.h") +
                                  contents(SHEAF_EMULATOR_DIR "/module_hooks.cpp");
  return text;
}

absl::StatusOr<fs::path> cache_folder() {
  const char* chosen = std::getenv("SHEAF_EMULATOR_CACHE");
  fs::path folder = chosen && *chosen ? chosen : SHEAF_EMULATOR_CACHE_DIR;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(fmt::format("{}: {}", folder.string(), error.message()));
  return folder;
}

/// Runs the compiler on `source`, laid beside `base`; `tail` are the arguments after the common ones.
absl::Status compile(const std::string& base, const std::string& source, const std::string& tail) {
  const std::string path = base + ".cu";
  if (!(std::ofstream(path, std::ios::binary) << source)) return absl::UnavailableError("cannot write " + path);
  const Run r = run(fmt::format("LC_ALL=C '{}' {} -include '{}/shim.h' '{}' {}", SHEAF_EMULATOR_COMPILER, kFlags,
                                SHEAF_EMULATOR_DIR, path, tail));
  fs::remove(path);
  return r.status == 0 ? absl::OkStatus() : absl::InvalidArgumentError(r.output);
}

std::string unique_base(const fs::path& folder, std::string_view key) {
  static std::atomic<int> next{0};
  return (folder / fmt::format("{}.{}.{}", key, getpid(), next++)).string();
}

}  // namespace

absl::StatusOr<std::string> compile_for_host(std::string_view text) {
  const auto folder = cache_folder();
  if (!folder.ok()) return folder.status();
  const std::string source = source_of(text);
  const std::string key =
      codegen::fingerprint(fmt::format("{}\n{}\n{}\n{}", SHEAF_EMULATOR_COMPILER_ID, kFlags, environment(), source));
  const std::string object = (*folder / (key + ".so")).string();
  if (fs::exists(object)) return object;
  const std::string base = unique_base(*folder, key);
  absl::Status status =
      compile(base, source,
              fmt::format("-x none '{}' -shared -nostdlib -Wl,-Bsymbolic -Wl,--build-id=none -o '{}.so'",
                          SHEAF_EMULATOR_HOOKS, base));
  if (!status.ok()) return status;
  std::error_code error;
  fs::rename(base + ".so", object, error);
  if (error) return absl::UnavailableError(fmt::format("{}: {}", object, error.message()));
  return object;
}

absl::Status check_text(std::string_view text) {
  const auto folder = cache_folder();
  if (!folder.ok()) return folder.status();
  return compile(unique_base(*folder, "check"), source_of(text), "-fsyntax-only");
}

int line_of(const std::string& object, std::uintptr_t site) {
  // Innermost first, "file:line" each; the shim's frames are not the text's.
  const Run r = run(fmt::format("addr2line -i -e '{}' {:#x}", object, site - 1));
  const std::string mark = fmt::format("{}:", kTextName);
  const std::size_t at = r.output.find(mark);
  return at == std::string::npos ? 0 : std::atoi(r.output.c_str() + at + mark.size());
}

}  // namespace sheaf::emulator
