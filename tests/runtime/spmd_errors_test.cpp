// Devices that fail, come late, or come to the wrong place: every device of the run raises, in time, and says why.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <future>

#include "tests/runtime/spmd.h"

using namespace sheaf;
using namespace sheaf::tests;
using ir::FunctionRef;
using ir::Literal;
using ir::Literals;
using std::chrono::milliseconds;

namespace {

/// The error that all outputs of all devices have.
std::string error_of(const PerDevice& outputs) {
  std::string error;
  for (const auto& of_device : outputs)
    for (const runtime::BufferPtr& y : of_device) {
      const std::string own(y->wait().message());
      if (!error.empty()) CHECK(own == error);
      error = own;
    }
  return error;
}

/// On four devices in two groups: whoever is listed fails its check before the sum.
const char* const kChecked = R"(mesh @m = [x=2, y=2]
func @f(%x: f32[8], %ok: bool[]) -> f32[8], f32[8] on @m {
  %0: token[] = check %ok {message="x is positive"}  loc(model.cpp:7)
  %y: f32[8] = all_reduce %x {axes=[y]}  loc(model.cpp:8)
  %z: f32[8] = all_reduce %y {axes=[x]}  loc(model.cpp:9)
  return %y, %z
}
)";

std::string error_where(std::initializer_list<int> failing) {
  const FunctionRef f = parsed(kChecked);
  std::vector<Literals> inputs(4, Literals{Literal(ir::Type(f32, {8})), Literal::scalar(bool_, 1)});
  for (const int d : failing) inputs[d][1] = Literal::scalar(bool_, 0);
  return error_of(start(load_local(f), to_devices(inputs)));
}

}  // namespace

TEST_CASE("one device that fails is named, and no other waits for it") {
  CHECK(error_where({2}) == of_platform("cpu:2 failed: model.cpp:7: check failed: x is positive"));
  CHECK(error_where({3, 1}) == of_platform("cpu:1 failed: model.cpp:7: check failed: x is positive"));
  CHECK(error_where({0, 1, 2, 3}) == "model.cpp:7: check failed: x is positive");
}

TEST_CASE("the next run is not touched by a failure, unless it takes what failed") {
  const FunctionRef f = parsed(kChecked);
  const runtime::ExecutablePtr executable = load_local(f);
  std::vector<Literals> good(4, Literals{Literal(f32, {8}, std::vector<double>(8, 1.0)), Literal::scalar(bool_, 1)});
  std::vector<Literals> bad = good;
  bad[1][1] = Literal::scalar(bool_, 0);
  const PerDevice inputs = to_devices(good);
  const PerDevice failed = start(executable, to_devices(bad)), fine = start(executable, inputs);
  PerDevice mixed = inputs;
  mixed[3][0] = failed[3][0];
  const std::string error = of_platform("cpu:1 failed: model.cpp:7: check failed: x is positive");
  CHECK(error_of(failed) == error);
  CHECK(to_host(fine, *f)[2][1].get(0) == 4);
  CHECK(error_of(start(executable, mixed)) == error);
}

TEST_CASE("a device that does not come is named with the place where the others wait") {
  const FunctionRef f = parsed(kChecked);
  const PerDevice inputs =
      to_devices(std::vector<Literals>(4, Literals{Literal(ir::Type(f32, {8})), Literal::scalar(bool_, 1)}));
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  for (const int d : {1, 3}) REQUIRE(runtime::device(d).queue().push([is_open] { is_open.wait(); }).ok());
  const auto before = std::chrono::steady_clock::now();
  const PerDevice outputs =
      start(load_local(f), inputs, {.donated = {}, .loc = {}, .collective_timeout = milliseconds(200)});
  const std::string error = error_of(outputs);
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
  const bool is_first = error.find(of_platform("cpu:1")) != std::string::npos;
  CHECK(error == fmt::format("model.cpp:8: all_reduce over y: {} did not come within 0.2 s; {} waited",
                             is_first ? of_platform("cpu:1") : of_platform("cpu:3"),
                             is_first ? of_platform("cpu:0") : of_platform("cpu:2")));
  gate.set_value();
  CHECK(error_of(outputs) == error);
  CHECK(to_host(start(load_local(f), inputs), *f).size() == 4);
}

TEST_CASE("all who are missing, and all who wait, are told") {
  const FunctionRef f = parsed(R"(mesh @m = [x=5]
func @f(%x: f32[8]) -> f32[8] on @m {
  %y: f32[8] = ppermute %x {axes=[x], sources=[0, 1, 2, 3, 4], targets=[1, 2, 3, 4, 0]}  loc(ring.cpp:4)
  return %y
}
)");
  const PerDevice inputs = to_devices(std::vector<Literals>(5, Literals{Literal(ir::Type(f32, {8}))}));
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  for (const int d : {1, 4}) REQUIRE(runtime::device(d).queue().push([is_open] { is_open.wait(); }).ok());
  const PerDevice outputs =
      start(load_local(f), inputs, {.donated = {}, .loc = {}, .collective_timeout = milliseconds(1500)});
  CHECK(error_of(outputs) ==
        of_platform(
            "ring.cpp:4: ppermute over x: cpu:1 and cpu:4 did not come within 1.5 s; cpu:0, cpu:2 and cpu:3 waited"));
  gate.set_value();
}

TEST_CASE("where one has failed and another does not come to an end, the run fails nevertheless") {
  const FunctionRef f = parsed(kChecked);
  std::vector<Literals> inputs(4, Literals{Literal(ir::Type(f32, {8})), Literal::scalar(bool_, 1)});
  inputs[2][1] = Literal::scalar(bool_, 0);
  std::promise<void> gate;
  const std::shared_future<void> is_open = gate.get_future().share();
  REQUIRE(runtime::device(1).queue().push([is_open] { is_open.wait(); }).ok());
  const PerDevice outputs =
      start(load_local(f), to_devices(inputs), {.donated = {}, .loc = {}, .collective_timeout = milliseconds(300)});
  CHECK(error_of(outputs) == of_platform("cpu:2 failed: model.cpp:7: check failed: x is positive"));
  gate.set_value();
}

TEST_CASE("a program without collectives fails on the device that fails, and waits for nobody") {
  const FunctionRef f = parsed(R"(mesh @m = [x=4]
func @f(%x: f32[8], %ok: bool[]) -> f32[8] on @m {
  %0: token[] = check %ok {message="x is positive"}  loc(model.cpp:7)
  %y: f32[8] = neg %x
  return %y
}
)");
  const runtime::ExecutablePtr executable = load_local(f);
  std::vector<Literals> inputs(4, Literals{Literal(f32, {8}, std::vector<double>(8, 2)), Literal::scalar(bool_, 1)});
  CHECK(to_host(start(executable, to_devices(inputs)), *f)[3][0].get(7) == -2);
  inputs[0][1] = Literal::scalar(bool_, 0);
  const auto before = std::chrono::steady_clock::now();
  CHECK(error_of(start(executable, to_devices(inputs))) ==
        of_platform("cpu:0 failed: model.cpp:7: check failed: x is positive"));
  CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
}

namespace {

std::string error_of_branches(const std::string& second, const std::string& third) {
  const FunctionRef f = parsed(fmt::format(R"(mesh @m = [x=2]
func @f(%i: i32[], %x: f32[8]) -> f32[8] on @m {{
  %y: f32[8] = cond %i, %x (%x: f32[8]) {{
    %0: f32[8] = all_reduce %x {{axes=[x]}}  loc(branch.cpp:3)
    return %0
  }} (%x: f32[8]) {{
    %0: f32[8] = {}  loc(branch.cpp:5)
    return %0
  }}
  return %y
}}
)",
                                           second + third));
  std::vector<Literals> inputs;
  for (const int d : {0, 1}) inputs.push_back({Literal::scalar(i32, d), Literal(ir::Type(f32, {8}))});
  return error_of(start(load_local(f), to_devices(inputs)));
}

}  // namespace

TEST_CASE("devices that part ways are told at once") {
  CHECK(error_of_branches("neg %x", "") ==
        of_platform("branch.cpp:3: all_reduce over x: cpu:1 ended without it; cpu:0 waited"));
  CHECK(error_of_branches("all_reduce %x", " {axes=[x], kind=max}") ==
        of_platform("the devices of a group came to different collectives: cpu:0 to all_reduce over x at branch.cpp:3, "
                    "cpu:1 to all_reduce over x at branch.cpp:5"));
}

TEST_CASE("a wrong set of devices is refused") {
  const FunctionRef f = parsed(kChecked);
  const runtime::ExecutablePtr executable = load_local(f);
  const PerDevice inputs =
      to_devices(std::vector<Literals>(4, Literals{Literal(ir::Type(f32, {8})), Literal::scalar(bool_, 1)}));
  const auto error_on = [&](const std::vector<runtime::Device*>& devices, const PerDevice& with) {
    return std::string(executable->run_spmd(devices, with).status().message());
  };
  std::vector<runtime::Device*> devices = first_devices(4);
  CHECK(error_on(first_devices(3), inputs) == "f runs on 4 devices; 3 and inputs for 4 were given");
  CHECK(executable->run(*devices[0], inputs[0]).status().message() ==
        of_platform("f runs on 4 devices, not on cpu:0 alone"));
  std::swap(devices[0], devices[1]);
  CHECK(error_on(devices, inputs) == of_platform("input 0 of f is on cpu:0, the run is on cpu:1"));
  devices = {devices[1], devices[1], devices[2], devices[3]};
  CHECK(error_on(devices, {inputs[0], inputs[0], inputs[2], inputs[3]}) == of_platform("f is given cpu:0 twice"));
}
