// Warming up: a process records what it compiles, another compiles that before it is asked to, and then nothing more.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "codegen/fingerprint.h"
#include "ir/log.h"
#include "runtime/cache.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/folder.h"
#include "tests/full_disk.h"
#include "tests/message.h"

using namespace sheaf;
using tests::file_text;
using tests::Folder;
using tests::message_here;
using tests::message_of;
using tests::said_by_child;
using tests::write_file;

namespace {

struct State {
  Array w, m;
};

int host_calls = 0;

/// What a service does with its first request: programs on one device and on a mesh, with loops, donation, a check, a
/// function of the host, and operations outside of any jit.
void serve() {
  const auto step = jit(
      [](State s, Array x) {
        const Array g = grad([&](Array w) { return sum(square(tanh(dot(x, w)))); })(s.w);
        return State{s.w - 0.1 * (0.9 * s.m + g), 0.9 * s.m + g};
      },
      {.name = "step", .args = {"state", "x"}, .donate = {0}});
  State s{full({8, 4}, 0.25), zeros({8, 4})};
  for (int i = 0; i < 12; ++i) s = step(s, full({16, 8}, 0.5));

  const auto walk = jit(
      [](Array x) {
        check(sum(x) >= 0, "no walk begins below");
        const Array end = scan([](Array c, Array row) { return std::pair{c * 0.5 + row, none}; }, x[0], x).first;
        return while_loop([](Array c) { return sum(c) > 1; }, [](Array c) { return c * 0.25; }, end);
      },
      {.name = "walk"});
  walk(ones({7, 5}));

  const HostFunction counted("counted", [](std::span<const HostTensor> in, std::span<const HostTensor> out) {
    ++host_calls;
    std::ranges::copy(in[0].bytes, out[0].bytes.begin());
  });
  jit([&](Array x) { return counted({x * 3}, {x})[0]; }, {.name = "host"})(ones({3}));

  const Mesh mesh({{"data", 2}, {"model", 2}});
  const auto spread = jit([](Array x, Array w) { return sum(dot(x, w), {.axes = {0}}); },
                          {.name = "spread", .out_shardings = {P("model")}});
  spread(device_put(ones({8, 6}), {mesh, P("data")}), device_put(ones({6, 4}), {mesh, P(none, "model")}));
  (s.w * 2.0 + ones({8, 4})).wait();
}

std::string counts(const char* when) {
  const Stats s = stats();
  return std::string(when) + ": " + std::to_string(s.traces) + " traced, " + std::to_string(s.programs) +
         " programs, " + std::to_string(s.kernels_loaded) + " kernels loaded, " +
         std::to_string(s.interpreted_launches) + " interpreted, " + std::to_string(s.executions) + " runs\n";
}

/// The number before `what` in the text.
int number(const std::string& text, const std::string& what) {
  const std::size_t end = text.find(" " + what);
  REQUIRE(end != std::string::npos);
  const std::size_t begin = text.find_last_of(" \n", end - 1) + 1;
  return std::atoi(text.substr(begin, end - begin).c_str());
}

std::string recorded(const Folder& folder) {
  const std::string path = folder / "service.manifest";
  CHECK(said_by_child("warm", {{"SHEAF_MANIFEST", path}}).empty());
  return path;
}

}  // namespace

TEST_CASE("[warm] a program" * doctest::skip()) {
  ensure_devices(std::getenv("FEW_DEVICES") ? 1 : 4);
  if (const char* manifest = std::getenv("WARM_FROM")) {
    const WarmReport report = warm(manifest);
    const std::string before = counts("warm");
    std::fprintf(stderr, "%d in it, %d elsewhere, %d compiled, %d read\n%s", report.programs, report.elsewhere,
                 static_cast<int>(report.kernels_compiled), static_cast<int>(report.kernels_read), before.c_str());
    CHECK(host_calls == 0);
    if (std::getenv("FEW_DEVICES")) return;
    require_warm(true);
    serve();
    std::fprintf(stderr, "%s", counts("served").c_str());
    return;
  }
  serve();
}

TEST_CASE("what a manifest warmed up is traced by its first call and no more, in a process where nothing may compile") {
  const Folder folder;
  const std::string path = recorded(folder);
  const std::string text = said_by_child("warm", {{"WARM_FROM", path}});
  const std::string warmed = text.substr(text.find("warm: ")), served = text.substr(text.find("served: "));
  CHECK(number(text, "in it") == number(warmed, "programs"));
  CHECK(number(text, "elsewhere") == 0);
  CHECK(number(text, "compiled") > 0);
  CHECK(number(warmed, "traced") == 0);
  CHECK(number(warmed, "runs") == 0);
  CHECK(number(served, "traced") > 0);
  CHECK(number(served, "programs") == number(warmed, "programs"));
  CHECK(number(served, "kernels loaded") == number(warmed, "kernels loaded"));
  CHECK(number(served, "interpreted") == 0);
}

TEST_CASE("a manifest and a disk cache together need no compiler") {
  const Folder folder;
  const std::string path = recorded(folder);
  const std::string compiled = said_by_child("warm", {{"WARM_FROM", path}, {"SHEAF_CACHE_DIR", folder / "cache"}});
  const std::string read = said_by_child(
      "warm", {{"WARM_FROM", path}, {"SHEAF_CACHE_DIR", folder / "cache"}, {"SHEAF_LLVM_PLUGIN", "/nowhere.so"}});
  CHECK(number(compiled, "compiled") == number(read, "read"));
  CHECK(number(read, "compiled") == 0);
}

TEST_CASE("what is in a manifest already is not written again, and a manifest may be begun late") {
  const Folder folder;
  const std::string path = recorded(folder), first = file_text(path);
  CHECK(said_by_child("warm", {{"SHEAF_MANIFEST", path}}).empty());
  CHECK(file_text(path) == first);

  const auto f = jit([](Array x) { return sinh(x) + 0.125; }, {.name = "late"});
  f(ones({3}));
  const std::string late = folder / "late.manifest";
  record_manifest(late);
  f(ones({4}));
  record_manifest("");
  f(ones({5}));
  const std::string text = file_text(late);
  CHECK(text.find("func @late(%arg0: f32[3]") != std::string::npos);
  CHECK(text.find("func @late(%arg0: f32[4]") != std::string::npos);
  CHECK(text.find("func @late(%arg0: f32[5]") == std::string::npos);
  const WarmReport again = warm(late);
  CHECK(again.known == again.programs);
}

TEST_CASE("a program for devices that a process lacks is compiled, and counted as one for elsewhere") {
  const Folder folder;
  const std::string text = said_by_child("warm", {{"WARM_FROM", recorded(folder)}, {"FEW_DEVICES", "1"}});
  CHECK(number(text, "elsewhere") > 0);
  CHECK(number(text, "elsewhere") < number(text, "in it"));
  CHECK(number(text.substr(text.find("warm: ")), "programs") + number(text, "elsewhere") == number(text, "in it"));
}

TEST_CASE("progress is told to the thread that warms up, program by program, and may itself compute") {
  const Folder folder;
  const std::string path = folder / "m";
  record_manifest(path);
  for (int n = 1; n <= 3; ++n) jit([](Array x) { return cosh(x) - 0.375; }, {.name = "small"})(ones({n}));
  record_manifest("");
  std::vector<int> done;
  const std::thread::id self = std::this_thread::get_id();
  warm(path, {.threads = 2, .progress = [&](const WarmProgress& p) {
                CHECK(std::this_thread::get_id() == self);
                CHECK(ones({2}).to_vector<double>() == std::vector<double>{1, 1});
                done.push_back(p.done);
                CHECK(p.of >= 3);
              }});
  CHECK(std::ranges::is_sorted(done));
  CHECK(done.size() >= 3);
  CHECK(to_string(WarmProgress{.done = 6, .of = 12, .program = "jit step", .seconds = 0.84}) ==
        "[##########          ] 6/12 jit step, 0.8 s");
}

TEST_CASE("a manifest can be compiled for a GPU on a machine without one, as far as there is a compiler") {
  const Folder folder;
  const std::string path = folder / "m";
  record_manifest(path);
  jit([](Array x) { return tanh(x) * 0.625; }, {.name = "small"})(ones({9}));
  record_manifest("");
  const auto loaded = [&] { warm(path, {.target = "sm_90a"}); };
  CHECK(message_here<RuntimeError>(loaded) ==
        "HERE: warm: .target is for .only_compile: what is loaded is for the devices there are");
  const auto unknown = [&] { warm(path, {.only_compile = true, .target = "gpu"}); };
  CHECK(message_here<RuntimeError>(unknown).starts_with("HERE: warm: "));
  const std::int64_t programs = stats().programs;
  CHECK(warm(path, {.only_compile = true}).programs >= 1);
  CHECK(stats().programs == programs);
}

TEST_CASE(
    "a manifest that is none, is cut off, damaged, of another version or not understood is an error that says so") {
  const Folder folder;
  const std::string path = folder / "m";
  const auto said = [&](const std::string& text) {
    write_file(path, text);
    const std::string message = message_here<RuntimeError>([&] { warm(path); });
    const std::string begin = "HERE: warm: " + path + ": ";
    return message.starts_with(begin) ? message.substr(begin.size()) : message;
  };
  CHECK(message_here<RuntimeError>([&] { warm(path + ".not"); }) ==
        "HERE: warm: " + path + ".not: No such file or directory");
  CHECK(said("") == "it is empty");
  CHECK(said("sheaf manifest 2\n") ==
        "is no manifest, or of another version: it begins with 'sheaf manifest 2' and not with 'sheaf manifest 1'");
  CHECK(said("sheaf manifest 1\nprogramme\n") == "program 1: its line 'programme' is none of a manifest");

  std::filesystem::remove(path);
  record_manifest(path);
  jit([](Array x) { return asinh(x) * 0.6875; }, {.name = "small"})(ones({9}));
  record_manifest("");
  const std::string whole = file_text(path);
  const std::size_t last = whole.rfind("\nprogram ") + 1;
  const std::string one = "sheaf manifest 1\n" + whole.substr(last), body = one.substr(one.find("what: "));
  for (std::size_t n = one.size() - 1; n > 17; n -= 7) {
    const std::string message = said(one.substr(0, n));
    CHECK(message.starts_with("program 1: it"));
  }
  for (std::size_t n = 17; n < one.size(); n += 5) {
    std::string flipped = one;
    flipped[n] = static_cast<char>(flipped[n] ^ 4);
    CHECK(said(flipped).starts_with("program 1: it"));
  }
  std::string unknown = body;  // an operation that this version has not
  unknown.replace(unknown.find("asinh"), 5, "asinq");
  const std::string message =
      said(fmt::format("sheaf manifest 1\nprogram {} {}\n{}", codegen::fingerprint(unknown), unknown.size(), unknown));
  CHECK(message.starts_with("program 1: "));
  CHECK(message.find("no op named 'asinq'") != std::string::npos);
}

TEST_CASE("a damaged manifest is not written on") {
  const Folder folder;
  const std::string path = folder / "m";
  write_file(path, "sheaf manifest 1\nprogram 0 5\nab");
  CHECK(said_by_child("warm", {{"SHEAF_MANIFEST", path}}) ==
        "sheaf warning: the manifest is not written: " + path + ": program 1: it is cut off after 2 of 5 bytes\n");
  CHECK(file_text(path) == "sheaf manifest 1\nprogram 0 5\nab");
  CHECK(said_by_child("warm", {{"SHEAF_MANIFEST", "/nowhere/m"}}) ==
        "sheaf warning: the manifest is not written: /nowhere/m: No such file or directory\n");
}

TEST_CASE("a disk that takes a part of a program and no more ends a manifest behind the one before") {
  const Folder folder;
  const std::string path = folder / "m";
  record_manifest(path);
  jit([](Array x) { return asinh(x) * 0.4375; }, {.name = "first"})(ones({9}));
  const std::string before = file_text(path);
  std::vector<std::string> lines;
  const ir::LogSink sink = ir::set_log_sink([&](std::string_view line) { lines.emplace_back(line); });
  {
    const tests::FullDisk disk(before.size() + 100);
    jit([](Array x) { return asinh(x) * 0.3125; }, {.name = "second"})(ones({9}));
  }
  ir::set_log_sink(sink);
  record_manifest("");
  CHECK(lines ==
        std::vector<std::string>{"sheaf warning: the manifest is not written: " + path + ": it takes no more"});
  CHECK(file_text(path) == before);
  CHECK(warm(path).programs >= 1);
}

TEST_CASE("a function is warmed up for signatures, and its first call compiles nothing") {
  const auto f = jit([](Array x, int n) { return cumsum(x * n) + 0.8125; }, {.name = "f"});
  warm(f, abstract({30}), 2);
  warm(f, std::vector{std::tuple(abstract({31}), 2), std::tuple(abstract({32}), 3)});
  const Array x = ones({30}), y = ones({31}), z = ones({32});
  require_warm(true);  // compiles what other cases left to the interpreter
  runtime::KernelCache::global().wait_for_background();
  const Stats before = stats();
  CHECK(compiles(f) == 0);  // those that calls have used
  for (const Array& r : {f(x, 2), f(y, 2), f(z, 3)}) r.wait();
  require_warm(false);
  CHECK(traces(f) == 3);
  CHECK(compiles(f) == 3);
  CHECK(stats().programs == before.programs);
  CHECK(stats().kernels_loaded == before.kernels_loaded);
  CHECK(stats().interpreted_launches == before.interpreted_launches);
}
