// A profile holds what was done while it lived, on host and devices, and tells it as a trace, as stacks and as a table.
#include "sheaf/profile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "ir/log.h"
#include "ir/profile.h"
#include "sheaf/sheaf.h"
#include "tests/child.h"
#include "tests/json.h"
#include "tests/places.h"

using namespace sheaf;
namespace fs = std::filesystem;

namespace {

std::vector<ProfileEvent> of_kind(const std::vector<ProfileEvent>& events, std::string_view kind) {
  std::vector<ProfileEvent> found;
  std::ranges::copy_if(events, std::back_inserter(found), [&](const ProfileEvent& e) { return e.kind == kind; });
  return found;
}

bool is_within(const ProfileEvent& e, const ProfileEvent& outer) {
  return e.begin_us >= outer.begin_us && e.begin_us + e.us <= outer.begin_us + outer.us;
}

std::string read(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

fs::path folder() {
  const fs::path path = fs::path(SHEAF_BINARY_DIR) / "profile_test";
  fs::create_directories(path);
  return path;
}

std::string device_name() { return to_string(Device{}); }

// A product and what follows it, 64 x 64.
auto layer() {
  return jit([](Array x, Array w) { return tanh(dot(x, w)) + 1.0; }, {.name = "profiled_layer", .args = {"x", "w"}});
}

}  // namespace

TEST_CASE("a profile has the call with its trace, passes and compilation within it, on the caller's row") {
  Profile scope = profile();
  auto f = jit([](Array x) { return sin(x) * 3.5; }, {.name = "profiled"});
  const int line = __LINE__ + 1;
  const Array y = f(ones({32}));
  scope.stop();
  const std::vector<ProfileEvent> events = scope.events();

  const std::vector<ProfileEvent> calls = of_kind(events, "call");
  const auto call = std::ranges::find(calls, "jit profiled", &ProfileEvent::name);
  REQUIRE(call != calls.end());
  CHECK(call->row == "host main");
  CHECK(call->loc.line == line);
  CHECK(call->call > 0);
  const std::vector<ProfileEvent> traces = of_kind(events, "trace");
  CHECK(std::ranges::count(traces, "jit profiled", &ProfileEvent::name) == 1);
  const std::vector<ProfileEvent> passes = of_kind(events, "pass");
  const auto fuse =
      std::ranges::find_if(passes, [&](const ProfileEvent& e) { return e.name == "fuse" && is_within(e, *call); });
  CHECK(fuse != passes.end());
  CHECK(fuse->call == call->call);
  const std::vector<ProfileEvent> compiled = of_kind(events, "compile");
  for (const char* part : {"passes of profiled", "kernels of profiled", "loading profiled"})
    CHECK(std::ranges::count(compiled, part, &ProfileEvent::name) == 1);
}

TEST_CASE("a profile has each kernel on its device's row, with its line, bytes and flops, and the call it is of") {
  auto f = layer();
  const Array x = ones({64, 64});
  (void)f(x, x);
  synchronize();
  Profile scope = profile();
  (void)f(x, x);
  (void)f(x, x);
  scope.stop();
  std::vector<std::uint64_t> numbers;
  for (const ProfileEvent& call : of_kind(scope.events(), "call")) numbers.push_back(call.call);
  REQUIRE(numbers.size() == 2);
  double flops = 0;
  for (const ProfileEvent& launch : of_kind(scope.events(), "launch")) {
    CHECK(launch.row == device_name() + " launch");
    CHECK(to_string(launch.loc).starts_with("profile_test.cpp:"));
    CHECK(launch.bytes >= 2 * 64 * 64 * 4);
    CHECK(std::ranges::count(numbers, launch.call) == 1);
    CHECK(launch.us >= 0);
    flops += launch.flops;
  }
  CHECK(flops >= 2 * 2 * 64.0 * 64 * 64);
  CHECK(flops <= 2 * (2 * 64.0 * 64 * 64 + 8 * 64 * 64));
}

TEST_CASE("copies to and from a device are on a row of their own, with their bytes") {
  Profile scope = profile();
  const Array x = array({1.0f, 2.0f, 3.0f}) + 1.0f;
  CHECK(x.to_vector<float>() == std::vector<float>{2, 3, 4});
  scope.stop();
  const std::vector<ProfileEvent> copies = of_kind(scope.events(), "copy");
  REQUIRE(!copies.empty());
  for (const ProfileEvent& copy : copies) CHECK(copy.row == device_name() + " copy");
  CHECK(std::ranges::any_of(copies, [](const ProfileEvent& e) { return e.bytes == 12; }));
}

TEST_CASE("the trace is JSON with a named row for each thread and device, and an arrow to each kernel from its call") {
  auto f = layer();
  const Array x = ones({64, 64});
  synchronize();  // else what makes it may be kept, without its call
  Profile scope = profile();
  (void)f(x, x);
  scope.stop();
  const std::string text = scope.trace();
  CHECK(tests::is_json(text));
  CHECK(text.find("\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"host\"}") != text.npos);
  CHECK(text.find(fmt::format("{{\"name\":\"{}\"}}", device_name())) != text.npos);
  CHECK(text.find("{\"name\":\"main\"}") != text.npos);
  CHECK(text.find("{\"name\":\"launch\"}") != text.npos);
  const auto count = [&](std::string_view word) {
    int n = 0;
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
    return n;
  };
  const int launches = static_cast<int>(of_kind(scope.events(), "launch").size());
  CHECK(launches > 0);
  CHECK(count("\"ph\":\"s\"") == launches);
  CHECK(count("\"ph\":\"f\"") == launches);
  CHECK(count("\"cat\":\"launch\"") == launches);
}

TEST_CASE("folded stacks hold the host's spans within each other, and kernels under their call, once each in time") {
  auto f = jit([](Array x) { return exp(x) - 2.5; }, {.name = "folded"});
  Profile scope = profile();
  (void)f(ones({16}));
  scope.stop();
  const std::string text = scope.folded();
  CHECK(text.find("host main;jit folded (profile_test.cpp:") != text.npos);
  CHECK(text.find(";passes of folded;fuse ") != text.npos);
  CHECK(text.find(device_name() + " launch;jit folded (profile_test.cpp:") != text.npos);
  std::istringstream lines(text);
  double total_ns = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t space = line.rfind(' ');
    REQUIRE(space != line.npos);
    total_ns += std::stod(line.substr(space + 1));
  }
  // Every span's time is counted in one stack: those that are in no other one add up to all of it.
  double outermost_us = 0;
  std::map<std::string, double> ends;
  for (const ProfileEvent& e : scope.events()) {
    double& end = ends[e.row];
    if (e.begin_us < end && e.row.starts_with("host")) continue;
    end = e.begin_us + e.us;
    outermost_us += e.us;
  }
  CHECK(total_ns / 1e3 == doctest::Approx(outermost_us).epsilon(0.01));
}

TEST_CASE("the table and the rows name the collective that devices meet in") {
  ensure_devices(2);
  const std::vector<Device> all = devices();
  REQUIRE(all.size() >= 2);
  const Mesh mesh({{"data", 2}}, {all[0], all[1]});
  const Array x = device_put(ones({64, 8}), mesh, P("data"));
  auto total = jit([](Array a) { return sum(a, {.axes = {0}}); }, {.name = "total"});
  synchronize();
  Profile scope = profile();
  CHECK(total(x).to_vector<float>() == std::vector<float>(8, 64));
  scope.stop();
  const std::vector<ProfileEvent> collectives = of_kind(scope.events(), "collective");
  CHECK(std::ranges::count(collectives, "all_reduce over data", &ProfileEvent::name) == 2);
  for (const Device d : {all[0], all[1]})
    CHECK(std::ranges::count(collectives, to_string(d) + " collective", &ProfileEvent::row) == 1);
  CHECK(collectives[0].bytes > 0);
  for (const ProfileEvent& e : collectives)
    if (e.name != "await") CHECK(e.call == of_kind(scope.events(), "call")[0].call);
  CHECK(scope.table().find("collective all_reduce over data  profile_test.cpp:") != std::string::npos);
}

TEST_CASE("names of any bytes make a trace that is JSON, and lines of stacks and of a table") {
  const std::string name = "a \"b\" \\ ; <i>\x01\n\t\u00e4\u65e5 \xff\xc3 \xed\xa0\x80 \xf4\x90\x80\x80";
  auto f = jit([](Array x) { return x * 6.5; }, {.name = name, .args = {name}});
  Profile scope = profile();
  (void)f(ones({4}));
  scope.stop();
  CHECK(of_kind(scope.events(), "call").back().name == "jit " + name);
  CHECK(tests::is_json(scope.trace()));
  CHECK(scope.trace().find("jit a \\\"b\\\" \\\\ ; <i>\\u0001\\u000a\\u0009\u00e4\u65e5 \uFFFD\uFFFD \uFFFD") !=
        std::string::npos);
  const std::string shown = "jit a \"b\" \\ , <i>   \u00e4\u65e5";
  CHECK(scope.folded().find("host main;" + shown) != std::string::npos);
  std::istringstream table(scope.table());
  bool is_there = false;
  for (std::string line; std::getline(table, line);)
    is_there |= line.find("<i>   \u00e4\u65e5") != line.npos && line.find("call") != line.npos;
  CHECK(is_there);
}

TEST_CASE("what several threads ask of a device at once is drawn on as many rows as it takes, and nothing is lost") {
  constexpr int kThreads = 8, kCalls = 50;
  auto f = jit([](Array x) { return x * 5.5; }, {.name = "at_once"});
  const Array x = ones({1000});
  f(x).wait();
  Profile scope = profile();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) f(x).wait();
    });
  for (std::thread& thread : threads) thread.join();
  scope.stop();
  CHECK(of_kind(scope.events(), "call").size() == kThreads * kCalls);
  CHECK(of_kind(scope.events(), "launch").size() == kThreads * kCalls);
  const std::string text = scope.trace();
  CHECK(tests::is_json(text));
  std::istringstream lines(text);
  std::map<int, double> ends;  // by row
  int launches = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t numbers = line.find("\"cat\":\"launch\",\"pid\"");
    if (numbers == line.npos) continue;
    ++launches;
    int process = 0, row = 0;
    double begin = 0, length = 0;
    REQUIRE(std::sscanf(line.c_str() + numbers, "\"cat\":\"launch\",\"pid\":%d,\"tid\":%d,\"ts\":%lf,\"dur\":%lf",
                        &process, &row, &begin, &length) == 4);
    CHECK(begin >= ends[row] - 1e-6);
    ends[row] = begin + length;
  }
  CHECK(launches == kThreads * kCalls);
}

TEST_CASE("what had begun before a profile begins with it") {
  Profile outer = profile();
  std::optional<Profile> inner;
  const HostFunction begin("begin", [&](std::span<const HostTensor>, std::span<const HostTensor> out) {
    if (!inner) inner.emplace(profile());
    out[0].as<float>()[0] = 1;
  });
  jit([&](Array x) { return x + begin({}, {abstract({1})})[0]; }, {.name = "beginning"})(ones({1})).wait();
  inner->stop();
  const std::vector<ProfileEvent> events = inner->events();
  CHECK(std::ranges::count(of_kind(events, "launch"), "begin", &ProfileEvent::name) == 1);
  for (const ProfileEvent& e : events) {
    CHECK(e.begin_us >= 0);
    CHECK(e.us >= 0);
  }
}

TEST_CASE("what threads do is on rows of their own") {
  auto f = jit([](Array x) { return x * 4.5; }, {.name = "threaded"});
  Profile scope = profile();
  std::thread other([&] { (void)f(ones({8})); });
  other.join();
  (void)f(ones({8}));
  scope.stop();
  std::vector<std::string> rows;
  for (const ProfileEvent& call : of_kind(scope.events(), "call"))
    if (call.name == "jit threaded") rows.push_back(call.row);
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].starts_with("host thread "));
  CHECK(rows[1] == "host main");
}

TEST_CASE("nothing is kept where there is no profile, and two at once have each what is theirs") {
  auto f = jit([](Array x) { return x - 7.5; }, {.name = "twice"});
  const Array x = ones({8});
  (void)f(x);
  const auto calls = [](const Profile& p) { return of_kind(p.events(), "call").size(); };
  CHECK(!ir::is_profiled());
  CHECK(ir::profile_since(0).spans.empty());
  {
    Profile outer = profile();
    (void)f(x);
    {
      Profile inner = profile();
      (void)f(x);
      inner.stop();
      (void)f(x);
      CHECK(calls(inner) == 1);
    }
    CHECK(ir::is_profiled());
    const Profile moved = std::move(outer);
    CHECK(calls(moved) == 3);
  }
  CHECK(!ir::is_profiled());
  CHECK(ir::profile_since(0).spans.empty());
}

TEST_CASE("a profile that is full leaves out what is new, and says how much") {
  Profile scope = profile();
  const ir::ProfileSpan span{.row = ir::thread_row(), .name = ir::profile_name("filler")};
  for (std::size_t i = 0; i < ir::kMostSpans + 5; ++i) ir::add_span(span);
  const ir::ProfileLog log = ir::profile_since(0);
  CHECK(log.spans.size() == ir::kMostSpans);
  CHECK(log.left_out == 5);
}

TEST_CASE("the end of a file's name says what is written, and %p is the process's number") {
  {
    Profile scope = profile(folder() / "a.%p.json");
    (void)(ones({4}) + 1.5);
    scope.write(folder() / "a.folded");
    scope.write(folder() / "a.txt");
  }
  const fs::path trace = folder() / fmt::format("a.{}.json", getpid());
  CHECK(tests::is_json(read(trace)));
  CHECK(read(folder() / "a.folded").find("host main;") != std::string::npos);
  CHECK(read(folder() / "a.txt").find("longest ms") != std::string::npos);
  fs::remove(trace);
}

TEST_CASE("a profile's file that cannot be written is an error of write, and a warning at the end of the scope") {
  std::vector<std::string> said;
  const ir::LogSink before = ir::set_log_sink([&](std::string_view line) { said.emplace_back(line); });
  {
    const int line = __LINE__ + 1;
    Profile scope = profile("/nowhere/p.json");
    CHECK_THROWS_WITH_AS(scope.write("/nowhere/p.txt"),
                         fmt::format("profile_test.cpp:{}: profile: /nowhere/p.txt cannot be written: No such file or "
                                     "directory",
                                     line)
                             .c_str(),
                         RuntimeError);
  }
  ir::set_log_sink(before);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("profile: /nowhere/p.json cannot be written: No such file or directory") != std::string::npos);
}

TEST_CASE("a profile that an exception ends is written with what was done until then") {
  const fs::path path = folder() / "thrown.json";
  try {
    Profile scope = profile(path);
    const Array x = jit([](Array a) { return a * 8.5; }, {.name = "before_it"})(ones({4}));
    (void)dot(x, ones({3}));
  } catch (const ShapeError&) {}
  CHECK(tests::is_json(read(path)));
  CHECK(read(path).find("\"name\":\"jit before_it\"") != std::string::npos);
}

TEST_CASE("[leaving] a program" * doctest::skip()) {
  Profile scope = profile(std::getenv("LEAVES"));
  (void)jit([](Array a) { return a * 9.5; }, {.name = "last_words"})(ones({4}));
  std::exit(0);
}

TEST_CASE("a profile that is open when the process exits is written then") {
  const fs::path path = folder() / "exit.json";
  CHECK(tests::said_by_child("leaving", {{"LEAVES", path}}) == "");
  CHECK(tests::is_json(read(path)));
  CHECK(read(path).find("\"name\":\"jit last_words\"") != std::string::npos);
}

TEST_CASE("a forked child has no part in its parent's profile, and may have one of its own") {
  const fs::path path = folder() / "forked.json";
  fs::remove(path);
  {
    std::optional<Profile> scope = profile(path);
    (void)(ones({4}) + 2.5);
    const pid_t child = fork();
    if (child == 0) {
      const bool was_on = ir::is_profiled();
      const std::size_t events = scope->events().size();
      scope.reset();
      const Profile own = profile();
      { const ir::Span span(ir::Activity::call, "of the child"); }
      _exit(!was_on && events == 0 && !fs::exists(path) && own.events().size() == 1 && ir::is_profiled() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    (void)(ones({4}) + 3.5);
  }
  CHECK(tests::is_json(read(path)));
  CHECK(read(path).find("of the child") == std::string::npos);
}

TEST_CASE("[profile] a program" * doctest::skip()) {
  auto f = jit([](Array x) { return x * 2.5; }, {.name = "whole_process"});
  CHECK(f(ones({4})).to_vector<float>() == std::vector<float>(4, 2.5f));
}

TEST_CASE("SHEAF_PROFILE=file profiles the whole process, and warns where the file cannot be written") {
  const std::string path = folder() / "process.json";
  fs::remove(path);
  CHECK(tests::said_by_child("profile", {{"SHEAF_PROFILE", path}}) == "");
  const std::string text = read(path);
  CHECK(tests::is_json(text));
  CHECK(text.find("\"name\":\"jit whole_process\",\"cat\":\"call\"") != text.npos);
  CHECK(text.find("\"cat\":\"launch\"") != text.npos);
  CHECK(tests::said_by_child("profile", {{"SHEAF_PROFILE", "/nowhere/p.json"}}) ==
        "sheaf warning: SHEAF_PROFILE: /nowhere/p.json cannot be written: No such file or directory\n");
}
