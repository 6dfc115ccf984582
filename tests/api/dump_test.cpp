// SHEAF_DUMP writes one folder per program; every .sheaf file in it parses, and prints as it was written.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ir/text.h"
#include "runtime/device.h"
#include "sheaf/sheaf.h"
#include "tests/environment.h"
#include "tests/places.h"

using namespace sheaf;
namespace fs = std::filesystem;

namespace {

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The programs in the folder, each of which parses and prints as it was written; all of their text.
std::pair<int, std::string> programs_read_back(const fs::path& folder) {
  int programs = 0;
  std::string all;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".sheaf") continue;
    ++programs;
    const std::string text = read(entry.path());
    const auto module = ir::parse(text);
    REQUIRE_MESSAGE(module.ok(), entry.path().string(), ": ", module.status().ToString());
    CHECK(ir::print(*module, {.locs = true, .names = true}) == text);
    all += text;
  }
  return {programs, all};
}

}  // namespace

TEST_CASE("dumps hold every pass with the user's lines, the kernels and the timings, and parse again") {
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "dump_test";
  fs::remove_all(root);
  fs::create_directories(root / "dumped" / "kept");
  for (const char* name : {"01-old.sheaf", "kernel-77-old.s", "mine.txt"})
    std::ofstream(root / "dumped" / name) << "old";
  {
    const tests::Variable on("SHEAF_DUMP", root);
    auto f = jit([](Array x, Array w) { return softmax(dot(x, w) * 1.25, 1); }, {.name = "dumped", .args = {"x", "w"}});
    CHECK(f(ones({3, 5}), ones({5, 7})).shape() == Shape{3, 7});
  }

  const fs::path folder = root / "dumped";
  CHECK(!fs::exists(folder / "01-old.sheaf"));  // of an earlier run
  CHECK(!fs::exists(folder / "kernel-77-old.s"));
  CHECK(fs::exists(folder / "mine.txt"));  // the user's
  CHECK(fs::exists(folder / "kept"));
  int kernels = 0;
  for (const auto& entry : fs::directory_iterator(folder)) { kernels += entry.path().extension() == ".kir"; }
  const auto [programs, text] = programs_read_back(folder);
  CHECK(text.find("dump_test.cpp:") != std::string::npos);
  CHECK(programs >= 8);
  CHECK(kernels >= 1);
  CHECK(fs::exists(folder / "timings.txt"));
  CHECK(fs::exists(folder / "memory.txt"));
  CHECK(fs::exists(folder / "steps.txt"));
}

TEST_CASE("dumps of a program on a mesh parse again, reasons of collectives and all, and hold the report of them") {
  ensure_devices(4);
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "dump_test";
  fs::remove_all(root);
  const Mesh mesh({{"data", 2}, {"model", 2}});
  const Array x = device_put(ones({8, 4}), mesh, P("data")), w = device_put(ones({4, 6}), mesh, P(none, "model"));
  const auto f = jit(
      [mesh](Array a, Array b) {
        return grad([&](Array v) { return sum(tanh(with_sharding(dot(a, v), mesh, P("model")))); })(b);
      },
      {.name = "spread", .args = {"x", "w"}});
  {
    const tests::Variable on("SHEAF_DUMP", root);
    CHECK(f(x, w).shape() == Shape{4, 6});
  }
  const auto [programs, text] = programs_read_back(root / "spread");
  CHECK(programs >= 8);
  CHECK(text.find("\"partition: ") != std::string::npos);
  CHECK(text.find("wanted as [") != std::string::npos);
  CHECK(read(root / "spread" / "collectives.txt") == f.trace(x, w).lower().collectives().text);
}

TEST_CASE("steps.txt has a line for each kind of step that the host runs") {
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "dump_test";
  const tests::Variable on("SHEAF_DUMP", root);
  const auto all = [](Array x) {
    check(x(0, 0) > 0, "positive");
    debug_print("{}", x(0, 0));
    const Array factor = linalg::cholesky(x);
    const Array looped = scan([](Array c, Array row) { return std::pair{c + row, none}; }, x[0], factor).first;
    const Array grown = while_loop([](Array v) { return sum(v) < 9; }, [](Array v) { return 2 * v; }, looped);
    return cond(grown[0] > 1, [](Array v) { return sin(v); }, [](Array v) { return cos(v); }, grown);
  };
  set_debug_output([](std::string_view) {});
  jit(all, {.name = "steps"})(eye(2)).wait();
  set_debug_output(nullptr);
  const std::string text = read(root / "steps" / "steps.txt");
  for (const char* step : {"check \"positive\"  dump_test.cpp:", "callback ", "cholesky, 1 of 2 x 2  dump_test.cpp:",
                           "scan, 2 steps  ", "while  ", "do\n", "branch 0 of 2  ", "branch 1 of 2  "})
    CHECK_MESSAGE(text.find(step) != std::string::npos, step, " in\n", text);
}

TEST_CASE("steps.txt says which kernels are launched together") {
  if (!runtime::device(0).backend().is_host()) return;
  const fs::path root = fs::path(SHEAF_BINARY_DIR) / "dump_test";
  const tests::Variable on("SHEAF_DUMP", root);
  const auto both = [](Array a, Array b) { return std::pair{exp(a), sin(b)}; };
  jit(both, {.name = "together"})(ones({3}), ones({4})).first.wait();
  const std::string text = read(root / "together" / "steps.txt");
  CHECK_MESSAGE(text.find(", together with the next  dump_test.cpp:") != std::string::npos, text);
}
