// SHEAF_DUMP writes one folder per program; every .sheaf file in it parses, and prints as it was written.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/text.h"
#include "sheaf/sheaf.h"

using namespace sheaf;
namespace fs = std::filesystem;

TEST_CASE("dumps hold every pass with the user's lines, the kernels and the timings, and parse again") {
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "dump_test";
  fs::remove_all(root);
  fs::create_directories(root / "dumped" / "kept");
  for (const char* name : {"01-old.sheaf", "kernel-77-old.s", "mine.txt"})
    std::ofstream(root / "dumped" / name) << "old";
  const char* before = std::getenv("SHEAF_DUMP");
  const std::string restored = before ? before : "";
  setenv("SHEAF_DUMP", root.c_str(), 1);
  auto f = jit([](Array x, Array w) { return softmax(dot(x, w) * 1.25, 1); }, {.name = "dumped", .args = {"x", "w"}});
  const Array y = f(ones({3, 5}), ones({5, 7}));
  setenv("SHEAF_DUMP", restored.c_str(), 1);
  CHECK(y.shape() == Shape{3, 7});

  const fs::path folder = root / "dumped";
  CHECK(!fs::exists(folder / "01-old.sheaf"));  // of an earlier run
  CHECK(!fs::exists(folder / "kernel-77-old.s"));
  CHECK(fs::exists(folder / "mine.txt"));  // the user's
  CHECK(fs::exists(folder / "kept"));
  int programs = 0, kernels = 0, of_gpu = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const fs::path& path = entry.path();
    kernels += path.extension() == ".kir";
    of_gpu += path.extension() == ".cu";
    if (path.extension() != ".sheaf") continue;
    ++programs;
    std::ifstream file(path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    CHECK(text.find("dump_test.cpp:") != std::string::npos);
    const auto module = ir::parse(text);
    REQUIRE_MESSAGE(module.ok(), path.string(), ": ", module.status().ToString());
    CHECK(ir::print(*module, {.locs = true, .names = true}) == text);
  }
  CHECK(programs >= 8);
  CHECK(kernels >= 1);
  CHECK(of_gpu >= 1);
  CHECK(fs::exists(folder / "timings.txt"));
  CHECK(fs::exists(folder / "memory.txt"));
  CHECK(fs::exists(folder / "steps.txt"));
}
