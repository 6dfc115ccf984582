// What the fake NCCL asks of the fake driver, whose streams it works on: reads and writes of device memory in their
// place in a stream, and gates that one stream opens and others wait at.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/driver/cuda_abi.h"

#pragma GCC visibility push(default)
namespace sheaf::fake_cuda {

struct Event;
using Gate = std::shared_ptr<Event>;
using Bytes = std::shared_ptr<std::vector<std::byte>>;

/// -1 where there is none.
int ordinal_of(cuda::CUstream stream);
int current_ordinal();
void use_device(int ordinal);

Gate make_gate();
/// Opens it without a stream, for those who would wait in vain.
void open_now(const Gate& gate);

// Each adds to the end of a stream; `what` is what reports call it.
cuda::CUresult enqueue_read(cuda::CUstream stream, const std::string& what, const void* from, Bytes into);
/// Writes what `make` returns, which is called then; null writes nothing.
cuda::CUresult enqueue_write(cuda::CUstream stream, const std::string& what, void* to, std::size_t bytes,
                             std::function<Bytes()> make);
cuda::CUresult enqueue_open(cuda::CUstream stream, const std::string& what, const Gate& gate);
cuda::CUresult enqueue_wait(cuda::CUstream stream, const std::string& what, const Gate& gate);

/// Options::patience_ms.
std::chrono::milliseconds patience();
/// Keeps, counts and writes a misuse, as the driver's own are.
void report_misuse(const std::string& text);

}  // namespace sheaf::fake_cuda
#pragma GCC visibility pop
