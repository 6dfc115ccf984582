// Pinned memory is never given back: it is little, and the driver takes it with the process.
#include "runtime/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <deque>

#include "fmt/format.h"
#include "runtime/cuda_address.h"

namespace sheaf::runtime {
namespace {

absl::StatusOr<std::byte*> pinned(const Cuda& cuda, std::int64_t bytes) {
  void* data = nullptr;
  absl::Status status = cuda.status(cuda.cuMemAllocHost(&data, static_cast<std::size_t>(bytes)),
                                    fmt::format("cuMemAllocHost of {} bytes", bytes));
  if (!status.ok()) return status;
  return static_cast<std::byte*>(data);
}

}  // namespace

absl::Status CudaStaging::start() {
  if (absl::Status status = gpu_.enter(); !status.ok() || slots_[0].data) return status;
  const absl::StatusOr<std::byte*> data = pinned(gpu_.cuda, kSlots * kSlotBytes);
  if (!data.ok()) return data.status();
  for (Slot& slot : slots_) {
    if (slot.end) continue;  // had before the memory could not be
    const absl::StatusOr<cuda::CUevent> end = gpu_.take_event();
    if (!end.ok()) return end.status();
    slot.end = *end;
  }
  for (int i = 0; i < kSlots; ++i) slots_[i].data = *data + i * kSlotBytes;
  return absl::OkStatus();
}

absl::StatusOr<CudaStaging::Slot*> CudaStaging::take() {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % kSlots;
  if (absl::Status status = gpu_.cuda.status(gpu_.cuda.cuEventSynchronize(slot.end), "work on " + gpu_.name);
      !status.ok())
    return status;
  return &slot;
}

absl::Status CudaStaging::write(cuda::CUstream stream, std::byte* to, const std::byte* host, std::int64_t bytes) {
  std::lock_guard lock(mutex_);
  if (absl::Status status = start(); !status.ok()) return status;
  for (std::int64_t done = 0; done < bytes; done += kSlotBytes) {
    const absl::StatusOr<Slot*> slot = take();
    if (!slot.ok()) return slot.status();
    const auto piece = static_cast<std::size_t>(std::min(kSlotBytes, bytes - done));
    std::memcpy((*slot)->data, host + done, piece);
    absl::Status status =
        gpu_.cuda.status(gpu_.cuda.cuMemcpyHtoDAsync(cuda_address(to + done), (*slot)->data, piece, stream),
                         fmt::format("cuMemcpyHtoDAsync of {} bytes", piece));
    if (status.ok()) status = gpu_.cuda.status(gpu_.cuda.cuEventRecord((*slot)->end, stream), "cuEventRecord");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CudaStaging::read(cuda::CUstream stream, std::byte* host, const std::byte* from, std::int64_t bytes) {
  struct Piece {
    Slot* slot;
    std::byte* to;
    std::size_t bytes;
  };
  std::lock_guard lock(mutex_);
  if (absl::Status status = start(); !status.ok()) return status;
  std::deque<Piece> under_way;
  const auto finish_oldest = [&] {
    const Piece piece = under_way.front();
    under_way.pop_front();
    absl::Status status = gpu_.cuda.status(gpu_.cuda.cuEventSynchronize(piece.slot->end), "work on " + gpu_.name);
    if (status.ok()) std::memcpy(piece.to, piece.slot->data, piece.bytes);
    return status;
  };
  for (std::int64_t done = 0; done < bytes; done += kSlotBytes) {
    if (under_way.size() == kSlots)
      if (absl::Status status = finish_oldest(); !status.ok()) return status;
    const absl::StatusOr<Slot*> slot = take();
    if (!slot.ok()) return slot.status();
    const auto piece = static_cast<std::size_t>(std::min(kSlotBytes, bytes - done));
    absl::Status status =
        gpu_.cuda.status(gpu_.cuda.cuMemcpyDtoHAsync((*slot)->data, cuda_address(from + done), piece, stream),
                         fmt::format("cuMemcpyDtoHAsync of {} bytes", piece));
    if (status.ok()) status = gpu_.cuda.status(gpu_.cuda.cuEventRecord((*slot)->end, stream), "cuEventRecord");
    if (!status.ok()) return status;
    under_way.push_back({*slot, host + done, piece});
  }
  while (!under_way.empty())
    if (absl::Status status = finish_oldest(); !status.ok()) return status;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<std::byte>> CudaNotes::take() {
  constexpr std::int64_t kAtOnce = 1024;
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    if (absl::Status status = gpu_.enter(); !status.ok()) return status;
    const absl::StatusOr<std::byte*> more = pinned(gpu_.cuda, kAtOnce * kBytes);
    if (!more.ok()) return more.status();
    for (std::int64_t i = 0; i < kAtOnce; ++i) free_.push_back(*more + i * kBytes);
  }
  std::byte* const note = free_.back();
  free_.pop_back();
  return std::shared_ptr<std::byte>(note, [this](std::byte* at) {
    std::lock_guard again(mutex_);
    free_.push_back(at);
  });
}

}  // namespace sheaf::runtime
