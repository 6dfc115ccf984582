// Golden files: tests/golden/<area>/<name>.sheaf holds a program, the pass to run on it, and the exact text that must
// come out. SHEAF_BLESS=1 rewrites the expectation; reviewers read the diff.
//   // RUN: sheaf opt --pass=simplify
//   func @f(...) ...
//   // ----
//   func @f(...) ...
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pass.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

constexpr std::string_view kRun = "// RUN: sheaf opt", kPass = " --pass=", kLine = "// ----\n";

std::string read(const std::filesystem::path& path) {
  std::ostringstream s;
  s << std::ifstream(path).rdbuf();
  return s.str();
}

struct Golden {
  std::string head, passes, input, expected;
};

Golden split(const std::string& text) {
  Golden g;
  const std::size_t end_of_run = text.find('\n', text.find(kRun));
  const std::size_t line = text.find(kLine);
  REQUIRE(text.find(kRun) != std::string::npos);
  REQUIRE(line != std::string::npos);
  const std::string run = text.substr(0, end_of_run);
  if (const std::size_t at = run.rfind(kPass); at != std::string::npos) g.passes = run.substr(at + kPass.size());
  g.head = text.substr(0, line + kLine.size());
  g.input = text.substr(0, line);
  g.expected = text.substr(line + kLine.size());
  return g;
}

std::string run_passes(const Golden& g) {
  const auto module = ir::parse(g.input);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  if (g.passes.empty()) return ir::print(*module);
  ir::FunctionRef f = module->functions.at(0);
  std::istringstream names(g.passes);
  for (std::string name; std::getline(names, name, ',');) {
    const passes::Pass* pass = passes::find_pass(name);
    REQUIRE_MESSAGE(pass, "no pass named ", name);
    f = pass->run(f, {});
    const absl::Status s = ir::verify(*f);
    REQUIRE_MESSAGE(s.ok(), std::string(s.message()));
  }
  return ir::print(f);
}

}  // namespace

TEST_CASE("every golden file comes out as written, and its output reads back as itself") {
  const char* bless = std::getenv("SHEAF_BLESS");
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(SHEAF_SOURCE_DIR "/tests/golden")) {
    if (entry.path().extension() != ".sheaf") continue;
    ++files;
    INFO("file: ", entry.path().string());
    const Golden g = split(read(entry.path()));
    const std::string out = run_passes(g);
    if (bless && *bless == '1') std::ofstream(entry.path()) << g.head << out;
    else CHECK(out == g.expected);
    const auto again = ir::parse(out);
    REQUIRE(again.ok());
    CHECK(ir::print(*again) == out);
  }
  CHECK(files >= 12);
}
