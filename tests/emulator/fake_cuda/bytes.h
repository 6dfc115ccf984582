// The bytes of device memory as work in a stream reads and writes them: alive, in order with other work, and written
// before they are read.
#pragma once

#include <string>

#include "tests/emulator/fake_cuda/driver.h"

namespace sheaf::fake_cuda {

std::string hex(CUdeviceptr pointer);
/// Within one block of pinned or registered memory.
bool is_pinned(const void* pointer, std::size_t bytes);

/// What is wrong with this work touching these bytes is a fault of `device`, which does it.
CUresult claim(Device& device, const Range& range, bool is_write, const Position& at);
CUresult write_bytes(Device& device, const Range& to, const void* from, const Position& at);
/// All of them must have been written.
CUresult read_bytes(Device& device, void* to, const Range& from, const Position& at);
/// What was not written is not written there either.
CUresult copy_bytes(Device& device, const Range& to, const Range& from, const Position& at);

}  // namespace sheaf::fake_cuda
