// Blocks are copied in runs that are contiguous on both sides.
#include "runtime/assemble.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "runtime/counters.h"
#include "runtime/cuda_copies.h"
#include "runtime/device.h"
#include "runtime/device_span.h"

namespace sheaf::runtime {
namespace {

std::int64_t position(const std::vector<std::int64_t>& index, const Region& block) {
  std::int64_t p = 0;
  for (std::size_t d = 0; d < block.dims.size(); ++d) p = p * block.dims[d] + block.start[d] + index[d];
  return p;
}

// Dims from here on are contiguous: all but the first of them are whole in both arrays.
std::size_t first_contiguous(const Region& in, const Region& out, const Shape& extent) {
  std::size_t d = extent.size();
  while (d > 0) {
    --d;
    if (extent[d] != in.dims[d] || extent[d] != out.dims[d]) break;
  }
  return d;
}

// The pieces, kept from being overwritten, and what they wait for.
struct Source {
  Piece piece;
  Pin pin;
  std::shared_ptr<Completion> before;
};

bool are_on_gpus(const std::vector<Source>& sources, const Device& target) {
  return target.backend().cuda_context() && std::ranges::all_of(sources, [](const Source& s) {
           return s.piece.from->device().backend().cuda_context() != nullptr;
         });
}

std::vector<BlockOnGpu> blocks_of(std::vector<Source>& sources) {
  std::vector<BlockOnGpu> blocks;
  for (Source& s : sources)
    blocks.push_back({.gpu = s.piece.from->device().backend().cuda_context(),
                      .from = s.pin.storage(),
                      .made_by = std::move(s.before),
                      .in = std::move(s.piece.in),
                      .out = std::move(s.piece.out),
                      .extent = std::move(s.piece.extent)});
  return blocks;
}

/// In the host's memory, where it lies or in `copy`; beside the work of its device, since it is ready.
absl::StatusOr<const std::byte*> on_host(const Source& s, std::vector<std::byte>& copy) {
  const std::byte* const at = s.pin.storage()->data();
  Backend& backend = s.piece.from->device().backend();
  if (backend.is_host()) return at;
  const std::int64_t bytes = s.piece.from->bytes();
  counters().bytes_through_host.fetch_add(bytes, std::memory_order_relaxed);
  copy.resize(static_cast<std::size_t>(bytes));
  if (absl::Status status = backend.download(copy.data(), at, bytes); !status.ok()) return status;
  return copy.data();
}

SpanOf move_span(std::int64_t bytes, Loc loc) {
  return {.activity = ir::Activity::copy,
          .name = "from other devices",
          .loc = loc,
          .work = {.bytes = static_cast<double>(bytes)}};
}

/// Pieces that are not in the host's memory, or do not go there, are put together on the host. When the target has
/// them; null: now.
absl::StatusOr<EventPtr> copy_all(std::vector<Source>& sources, Backend& target, std::byte* to, std::int64_t bytes,
                                  std::int64_t element_bytes, Loc loc) {
  const DeviceSpan span(target, [&] { return move_span(bytes, loc); }, DeviceSpan::Stream::copies);
  std::vector<std::byte> elsewhere(target.is_host() ? 0 : static_cast<std::size_t>(bytes));
  std::byte* const whole = target.is_host() ? to : elsewhere.data();
  for (Source& s : sources) {
    if (s.before) {
      if (absl::Status ready = s.before->wait(); !ready.ok()) return ready;
    }
    std::vector<std::byte> copy;
    const absl::StatusOr<const std::byte*> piece = on_host(s, copy);
    if (!piece.ok()) return piece.status();
    copy_block(*piece, s.piece.in, whole, s.piece.out, s.piece.extent, element_bytes);
  }
  sources.clear();
  if (target.is_host()) return nullptr;
  counters().bytes_through_host.fetch_add(bytes, std::memory_order_relaxed);
  return target.upload(to, whole, bytes);
}

void end_copy(Device& to, const std::shared_ptr<Completion>& completion, absl::StatusOr<EventPtr> there,
              std::shared_ptr<Storage> into) {
  if (!there.ok()) return completion->finish(there.status());
  end_in_flight(to.backend(), completion,
                {.end = *std::move(there), .what = "a copy to " + to.name(), .keeps = {std::move(into)}});
}

}  // namespace

void copy_block(const std::byte* from, const Region& in, std::byte* to, const Region& out, const Shape& extent,
                std::int64_t element_bytes) {
  if (std::find(extent.begin(), extent.end(), 0) != extent.end()) return;
  const std::size_t inner = first_contiguous(in, out, extent);
  std::int64_t run = element_bytes;
  for (std::size_t d = inner; d < extent.size(); ++d) run *= extent[d];
  std::vector<std::int64_t> index(extent.size(), 0);
  for (;;) {
    std::memcpy(to + position(index, out) * element_bytes, from + position(index, in) * element_bytes,
                static_cast<std::size_t>(run));
    std::size_t d = inner;
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

absl::StatusOr<BufferPtr> assemble(Device& to, std::int64_t bytes, std::int64_t element_bytes,
                                   std::vector<Piece> pieces, Loc made_at) {
  std::unique_lock launch(launch_mutex());
  std::vector<Source> sources;
  bool is_pending = false;
  for (Piece& piece : pieces) {
    absl::StatusOr<Pin> pin = piece.from->pin();
    if (!pin.ok()) return pin.status();
    is_pending |= piece.from->is_pending();
    std::shared_ptr<Completion> before = piece.from->completion();
    sources.push_back({std::move(piece), *std::move(pin), std::move(before)});
  }
  const bool is_later = is_pending || !to.backend().is_host();
  auto completion = is_later ? std::make_shared<Completion>() : nullptr;
  absl::StatusOr<BufferPtr> made = Buffer::allocate(to, bytes, made_at, completion);
  if (!made.ok()) return made;
  absl::StatusOr<Pin> into = (*made)->pin();
  if (!into.ok()) return into.status();
  if (are_on_gpus(sources, to)) {
    auto ask = [sources = std::move(sources), into = into->storage(), completion, bytes, element_bytes, made_at,
                &to]() mutable {
      const DeviceSpan span(to.backend(), [&] { return move_span(bytes, made_at); }, DeviceSpan::Stream::copies);
      copy_across(to.backend(), into, blocks_of(sources), element_bytes, completion);
    };
    if (absl::Status status = to.queue().push(std::move(ask)); !status.ok()) return status;
    return made;
  }
  if (!is_pending) {
    launch.unlock();  // the pins keep what is read
    absl::StatusOr<EventPtr> there =
        copy_all(sources, to.backend(), into->storage()->data(), bytes, element_bytes, made_at);
    if (!completion) return there.ok() ? made : Buffer::failed(to, bytes, there.status(), made_at);
    end_copy(to, completion, std::move(there), into->storage());
    return made;
  }
  auto run = [sources = std::move(sources), into = std::make_unique<Pin>(*std::move(into)), completion, bytes,
              element_bytes, made_at, &to]() mutable {
    std::shared_ptr<Storage> storage = into->storage();
    absl::StatusOr<EventPtr> there = copy_all(sources, to.backend(), storage->data(), bytes, element_bytes, made_at);
    sources.clear();
    into.reset();
    end_copy(to, completion, std::move(there), std::move(storage));
  };
  if (absl::Status status = to.queue().push(std::move(run)); !status.ok()) return status;
  return made;
}

}  // namespace sheaf::runtime
