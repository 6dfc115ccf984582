// The gate lets nobody in once it is closed, and is not closed while another thread is inside.
#include "runtime/compiler_gate.h"

#include <doctest/doctest.h>

#include <atomic>
#include <latch>
#include <thread>

namespace sheaf::runtime {
namespace {

TEST_CASE("a closed gate refuses everyone") {
  CompilerGate gate;
  CHECK(bool(CompilerGate::Visit(gate)));
  gate.close();
  CHECK_FALSE(bool(CompilerGate::Visit(gate)));
  gate.close();
}

TEST_CASE("closing waits for the thread that is inside") {
  CompilerGate gate;
  std::latch is_inside(1);
  std::atomic<bool> has_left{false};
  std::thread compiling([&] {
    const CompilerGate::Visit visit(gate);
    is_inside.count_down();
    while (CompilerGate::Visit(gate)) continue;  // until the gate is closing
    has_left = true;
  });
  is_inside.wait();
  gate.close();
  CHECK(has_left);
  compiling.join();
}

TEST_CASE("a thread that is inside itself does not wait for itself") {
  CompilerGate gate;
  {
    const CompilerGate::Visit visit(gate);
    gate.close();
  }
  CHECK_FALSE(bool(CompilerGate::Visit(gate)));
}

}  // namespace
}  // namespace sheaf::runtime
