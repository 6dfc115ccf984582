// Compiled programs in files: what one process compiled another loads and calls, without tracing and without a
// compiler.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

#include "codegen/cpu_target.h"
#include "codegen/fingerprint.h"
#include "codegen/target.h"
#include "sheaf/load.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/folder.h"
#include "tests/full_disk.h"
#include "tests/message.h"
#include "tests/places.h"

using namespace sheaf;
using tests::file_text;
using tests::Folder;
using tests::message_here;
using tests::said_by_child;
using tests::write_file;

namespace {

using V = std::vector<double>;
V values(const Array& x) { return x.to_vector<double>(); }

struct State {
  Array w;
  int steps = 0;
  std::vector<Array> rest = {};
  std::optional<Array> extra = {};
  std::string name = {};
};

const auto step = [](State s, Array x, int by) {
  const Array g = grad([&](Array w) { return sum(square(tanh(dot(x, w)))); })(s.w);
  State next{s.w - 0.1 * g, s.steps + by, {}, sum(x), s.name + "'"};
  for (const Array& r : s.rest) next.rest.push_back(r * by + 1);
  return next;
};
State state() { return {full({3, 2}, 0.25), 4, {ones({2}), ones({3}, i32)}, {}, "a"}; }

std::string text_of(const State& s) {
  std::string text = to_string(s.w) + " " + std::to_string(s.steps) + " " + s.name;
  for (const Array& r : s.rest) text += " " + to_string(r);
  return text + (s.extra ? " " + to_string(*s.extra) : "") + "\n";
}

std::string sharding_text(const Array& x) { return to_string(x.sharding().spec); }

auto spread() {
  return jit([](Array x, Array w) { return std::pair{sum(dot(x, w), {.axes = {0}}), x * 2}; }, {.name = "spread"});
}

}  // namespace

TEST_CASE("[load] a program" * doctest::skip()) {
  if (std::getenv("DEVICES")) ensure_devices(4);
  try {
    if (const char* path = std::getenv("STEP")) {
      const auto f = load<State(State, Array, int)>(path, Loc{"program.cpp", 1});
      const Array x = full({5, 3}, 0.5);
      State s = state();
      for (int i = 0; i < 3; ++i) s = f(State{s.w, 4, s.rest, {}, "a"}, x, 2);
      std::fprintf(stderr, "%s", text_of(s).c_str());
    }
    if (const char* path = std::getenv("SPREAD")) {
      const Array w = ones({3, 2});
      const Array x = std::getenv("DEVICES") ? device_put(ones({8, 3}), {Mesh({{"x", 4}}), P("x")}) : ones({8, 3});
      const auto f = load<std::pair<Array, Array>(Array, Array)>(path, Loc{"program.cpp", 2});
      const auto [y, twice] = f(x, w);
      std::fprintf(stderr, "%s %s\n", to_string(y).c_str(), sharding_text(twice).c_str());
    }
    std::fprintf(stderr, "%d traced, %d compiled\n", static_cast<int>(stats().traces),
                 static_cast<int>(stats().kernels_compiled));
  } catch (const Error& e) { std::fprintf(stderr, "%s\n", e.what()); }
}

namespace {

const std::vector<std::pair<std::string, std::string>> kNoCompiler = {{"SHEAF_LLVM_PLUGIN", "/nowhere.so"},
                                                                      {"SHEAF_CACHE_DIR", "off"}};

std::string said(std::vector<std::pair<std::string, std::string>> more) {
  more.insert(more.end(), kNoCompiler.begin(), kNoCompiler.end());
  return said_by_child("load", more);
}

}  // namespace

TEST_CASE(
    "a saved program is called in a process that neither traces nor compiles, trees, statics and donation as ever") {
  const Folder folder;
  const auto f = jit(step, {.name = "step", .args = {"s", "x", "by"}, .donate = {0}});
  const auto compiled = f.trace(state(), abstract({5, 3}), 2).lower().compile();
  compiled.save(folder / "step");
  const Array x = full({5, 3}, 0.5);
  State s = state();
  for (int i = 0; i < 3; ++i) s = f(State{s.w, 4, s.rest, {}, "a"}, x, 2);
  CHECK(said({{"STEP", folder / "step"}}) == text_of(s) + "0 traced, 0 compiled\n");

  // Here too, from the bytes alone; it tells of itself what the one it was made of does.
  const auto again = load<State(State, Array, int)>(compiled.serialize());
  CHECK(again.text() == compiled.text());
  CHECK(again.cost().flops == compiled.cost().flops);
  CHECK(again.memory().donations.size() == compiled.memory().donations.size());
  const State old = state();
  CHECK(text_of(again(old, x, 2)) == text_of(f(state(), x, 2)));
  CHECK_THROWS_AS(old.w.to_vector<double>(), RuntimeError);
  CHECK(message_here<TypeError>([&] { again(state(), x, 3); }) ==
        "HERE: compiled jit step: the arguments are not those it was compiled for\n"
        "  argument 2: 2 was compiled, 3 is given");
}

TEST_CASE("a saved program has what it captured, values and places") {
  const Array captured = arange(6, f32), number = Array(2.5);
  const auto f = jit([=](Array x) { return x * captured + number; });
  const auto bytes = f.trace(abstract({6})).lower().compile().serialize();
  const auto g = load<Array(Array)>(bytes);
  CHECK(values(g(full({6}, 2.0))) == V{2.5, 4.5, 6.5, 8.5, 10.5, 12.5});
}

TEST_CASE("a saved program of a mesh runs on it, and is told where its devices are not") {
  const Folder folder;
  ensure_devices(4);
  const Mesh mesh({{"x", 4}});
  const Array x = device_put(ones({8, 3}), {mesh, P("x")});
  spread().trace(x, abstract({3, 2})).lower().compile().save(folder / "spread");
  CHECK(said({{"SPREAD", folder / "spread"}, {"DEVICES", "4"}}) == "[24. 24.] P(\"x\")\n0 traced, 0 compiled\n");
  CHECK(said({{"SPREAD", folder / "spread"}}) ==
        "program.cpp:2: load: " + folder / "spread" +
            ": jit spread runs on devices of the mesh [x=4] that are not here\n");
}

TEST_CASE("a file that is none, is damaged, for another machine or of another signature is an error that says so") {
  const Folder folder;
  const std::string path = folder / "p";
  const auto f = jit([](Array x) { return std::pair{x * 2, std::vector<Array>{x}}; }, {.name = "f"});
  f.trace(abstract({4})).lower().compile().save(path);
  const std::string whole = file_text(path);
  using Right = std::pair<Array, std::vector<Array>>(Array);
  const auto message = [&](const std::string& text) {
    write_file(path, text);
    const std::string m = message_here<RuntimeError>([&] { load<Right>(path); });
    const std::string begin = "HERE: load: " + path + ": ";
    return m.starts_with(begin) ? m.substr(begin.size()) : m;
  };
  CHECK(message_here<RuntimeError>([&] { load<Right>(path + ".not"); }) ==
        "HERE: load: " + path + ".not: No such file or directory");
  CHECK(message("PK") ==
        "is no compiled program, or of another version: it begins with 'PK' and not with 'sheaf program 1'");
  for (std::size_t n = 20; n < whole.size(); n += 37) CHECK(message(whole.substr(0, n)).starts_with("it is damaged"));
  for (std::size_t n = 20; n < whole.size(); n += 41) {
    std::string flipped = whole;
    flipped[n] = static_cast<char>(flipped[n] ^ 1);
    CHECK(message(flipped) == "it is damaged: its fingerprint is another one");
  }
  const auto sealed = [](const std::string& body) {
    return "sheaf program 1\n" + codegen::fingerprint(body) + " " + std::to_string(body.size()) + "\n" + body;
  };
  for (const char* key : {"llvm-9.9-0123\\nx86-64-v9", "cuda sm_90a --of-its-own", "cuda sm_zz"})
    CHECK(message(sealed(std::string("key: ") + key + "\nwhat another version writes: 1\n"))
              .starts_with("it was compiled by another version of Sheaf or for another machine: its "));
  const std::string own = codegen::key_of({}), compiler = own.substr(0, own.find('\n')),
                    cpu = codegen::host_cpu_target().key();
  const auto of_key = [&](const std::string& key) {
    const std::string text = message(sealed("key: " + key + "\n"));
    return text.substr(text.find("its "));
  };
  CHECK(of_key("llvm-9.9-0123\\nx86-64-v9") ==
        "its compiler is llvm-9.9-0123, and here it is " + compiler + "; its CPU is x86-64-v9, and here it is " + cpu);
  CHECK(of_key(compiler + "\\nx86-64") ==
        "its CPU is x86-64, and here it is " + cpu + ": load it with SHEAF_CPU_ISA=x86-64");
  CHECK(of_key(compiler + "\\nx86-64+more") ==
        "its CPU is x86-64+more, and here it is " + cpu + ": save it again and load it with SHEAF_CPU_ISA=x86-64");
  CHECK(message(sealed(whole.substr(whole.find("key: "), whole.find("\nwhat: ") - whole.find("key: ") + 1) + "x\n")) ==
        "there should be 'what:' where 'x' is");
  write_file(path, whole);
  CHECK(message_here<TypeError>([&] { load<Array(Array, Array)>(path); }) ==
        "HERE: load: " + path + ": jit f takes 1 arguments, and the signature has 2");
  CHECK(message_here<TypeError>([&] { load<Array(Array)>(path); }) ==
        "HERE: load: " + path + ": the result of jit f has other leaves than the signature's: [[0], [1][0]]");
  CHECK(values(load<Right>(path)(ones({4})).first) == V{2, 2, 2, 2});
}

TEST_CASE("a program that cannot be saved whole leaves what was there") {
  const Folder folder;
  const std::string path = folder / "p";
  const auto compiled = jit([](Array x) { return x * 2; }, {.name = "f"}).trace(abstract({4})).lower().compile();
  compiled.save(path);
  const std::string before = file_text(path);
  const auto save_to_full_disk = [&] {
    const tests::FullDisk disk(1000);
    compiled.save(path);
  };
  CHECK(message_here<RuntimeError>(save_to_full_disk) == "HERE: save: " + path + ": File too large");
  CHECK(file_text(path) == before);
  CHECK(message_here<RuntimeError>([&] { compiled.save("/proc/p"); }) ==
        "HERE: save: /proc/p: No such file or directory");
}

TEST_CASE("a program that calls functions of this process cannot be saved") {
  const HostFunction host("host", [](std::span<const HostTensor>, std::span<const HostTensor>) {});
  const auto f = jit([&](Array x) { return host({x}, {x})[0]; }, {.name = "f"});
  const auto compiled = f.trace(abstract({3})).lower().compile();
  CHECK(message_here<TypeError>([&] {
          compiled.serialize();
        }).starts_with("HERE: serialize: jit f calls a function of this process at HERE"));
}

TEST_CASE("a saved program is for the machine code of one kind of CPU") {
  const Folder folder;
  jit(step).trace(state(), abstract({5, 3}), 2).lower().compile().save(folder / "step");
  const std::string text = said({{"STEP", folder / "step"}, {"SHEAF_CPU_ISA", "x86-64"}});
  CHECK(text == "program.cpp:1: load: " + folder / "step" +
                    ": it was compiled by another version of Sheaf or for another machine: its CPU is " +
                    codegen::host_cpu_target().key() +
                    ", and here it is x86-64: save it again with SHEAF_CPU_ISA=x86-64\n");
}

TEST_CASE("a saved program is for the kind of device that it was compiled for") {
  const Folder folder;
  jit(step, {.name = "step"}).trace(state(), abstract({5, 3}), 2).lower().compile().save(folder / "step");
  CHECK(said({{"STEP", folder / "step"},
              {"SHEAF_PLATFORM", "cuda"},
              {"SHEAF_LIBCUDA", SHEAF_BINARY_DIR "/libsheaf_fake_cuda.so"}}) ==
        "program.cpp:1: load: " + folder / "step" + ": jit step was compiled for cpu, and cuda:0 is one of sm_90a\n");
}
