// What every entry point of the fake driver does first: take the lock, and refuse what a real driver refuses.
#pragma once

#include <functional>

#include "tests/emulator/fake_cuda/driver.h"
#include "tests/emulator/fake_cuda/graph.h"

#define SHEAF_EXPORT extern "C" __attribute__((visibility("default")))

namespace sheaf::fake_cuda {

/// Calls that need cuInit only.
CUresult call(const char* name, const std::function<CUresult(Lock&)>& body);
/// Calls on the current context's device, which fail for good after a fault there.
CUresult call_on_device(const char* name, const std::function<CUresult(Lock&, Device&)>& body);
/// Calls on a stream's device, whatever is current; null and the driver's own stream handles are refused, since the
/// default stream waits for all others and Sheaf never uses it.
CUresult call_on_stream(const char* name, cuda::CUstream stream,
                        const std::function<CUresult(Lock&, const StreamPtr&)>& body);
/// The same for calls that wait, which a capture does not survive.
CUresult wait_on_stream(const char* name, cuda::CUstream stream,
                        const std::function<CUresult(Lock&, const StreamPtr&)>& body);

/// Success where no capture in the global mode is under way; else it forbids calls that may wait.
CUresult forbid_in_capture(const char* name);

}  // namespace sheaf::fake_cuda
