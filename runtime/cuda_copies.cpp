// The driver copies blocks of three dims at once: runs of bytes, rows of them, and planes. What has more is several
// copies. Devices that can reach each other's memory are told to, so that nothing goes through the host.
#include "runtime/cuda_copies.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "runtime/cuda_address.h"
#include "runtime/cuda_context.h"

namespace sheaf::runtime {
namespace {

/// Once for each pair. Where they cannot, the driver goes through the host by itself.
absl::Status open_memory(const CudaContext& to, const CudaContext& from) {
  static auto& mutex = *new std::mutex;
  static auto& known = *new std::set<std::pair<int, int>>;
  if (to.ordinal == from.ordinal) return absl::OkStatus();
  std::lock_guard lock(mutex);
  if (!known.emplace(to.ordinal, from.ordinal).second) return absl::OkStatus();
  const Cuda& cuda = to.cuda;
  cuda::CUdevice device = 0, peer = 0;
  int can = 0;
  absl::Status status = cuda.status(cuda.cuDeviceGet(&device, to.ordinal), "cuDeviceGet");
  if (status.ok()) status = cuda.status(cuda.cuDeviceGet(&peer, from.ordinal), "cuDeviceGet");
  if (status.ok()) status = cuda.status(cuda.cuDeviceCanAccessPeer(&can, device, peer), "cuDeviceCanAccessPeer");
  if (!status.ok() || !can) return status;
  const cuda::CUresult opened = cuda.cuCtxEnablePeerAccess(from.context, 0);
  if (opened == cuda::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return absl::OkStatus();
  return cuda.status(opened, "cuCtxEnablePeerAccess");
}

/// One array's side of a block: bytes from one index of a dim to the next, and where the block begins.
struct Side {
  std::vector<std::int64_t> strides;
  std::int64_t begin = 0;
};

Side side_of(const Region& block, std::int64_t element_bytes) {
  Side side{.strides = std::vector<std::int64_t>(block.dims.size())};
  std::int64_t stride = element_bytes;
  for (std::size_t d = block.dims.size(); d-- > 0; stride *= block.dims[d]) {
    side.strides[d] = stride;
    side.begin += block.start[d] * stride;
  }
  return side;
}

/// The dims of a block that one copy takes: the last are one run, and before it are rows and planes.
struct Cut {
  std::size_t run = 0, rows = 0, planes = 0;  // each begins at this dim; what is before `planes` is copy by copy
  std::int64_t run_bytes = 0;
};

Cut cut_of(const Region& in, const Region& out, const Shape& extent, std::int64_t element_bytes, const Side& read,
           const Side& write) {
  constexpr std::int64_t kMostPitch = (std::int64_t{1} << 31) - 1;  // of the driver
  Cut cut{.run = extent.size(), .rows = 0, .planes = 0, .run_bytes = element_bytes};
  while (cut.run > 0) {
    --cut.run;
    cut.run_bytes *= extent[cut.run];
    if (extent[cut.run] != in.dims[cut.run] || extent[cut.run] != out.dims[cut.run]) break;
  }
  cut.rows = cut.run;
  if (cut.rows > 0 && std::max(read.strides[cut.rows - 1], write.strides[cut.rows - 1]) <= kMostPitch) --cut.rows;
  cut.planes = cut.rows;
  if (cut.planes > 0 && cut.rows < cut.run) --cut.planes;
  return cut;
}

/// What all copies of one block have in common.
cuda::CUDA_MEMCPY3D_PEER copy_of(const BlockOnGpu& block, const Cut& cut, const Side& read, const Side& write) {
  cuda::CUDA_MEMCPY3D_PEER copy{};
  copy.srcMemoryType = copy.dstMemoryType = cuda::CU_MEMORYTYPE_DEVICE;
  copy.WidthInBytes = static_cast<std::size_t>(cut.run_bytes);
  copy.Height = copy.Depth = 1;
  if (cut.rows < cut.run) {
    copy.Height = static_cast<std::size_t>(block.extent[cut.rows]);
    copy.srcPitch = static_cast<std::size_t>(read.strides[cut.rows]);
    copy.dstPitch = static_cast<std::size_t>(write.strides[cut.rows]);
    copy.srcHeight = static_cast<std::size_t>(block.in.dims[cut.rows]);
    copy.dstHeight = static_cast<std::size_t>(block.out.dims[cut.rows]);
  }
  if (cut.planes < cut.rows) copy.Depth = static_cast<std::size_t>(block.extent[cut.planes]);
  return copy;
}

absl::Status ask(const CudaContext& to, const CudaContext& from, const cuda::CUDA_MEMCPY3D_PEER& copy) {
  const Cuda& cuda = to.cuda;
  if (copy.Height > 1 || copy.Depth > 1)
    return cuda.status(cuda.cuMemcpy3DPeerAsync(&copy, to.copies), "cuMemcpy3DPeerAsync");
  return cuda.status(
      cuda.cuMemcpyPeerAsync(copy.dstDevice, to.context, copy.srcDevice, from.context, copy.WidthInBytes, to.copies),
      fmt::format("cuMemcpyPeerAsync of {} bytes", copy.WidthInBytes));
}

absl::Status copy_block(const CudaContext& to, std::byte* into, const BlockOnGpu& block, std::int64_t element_bytes) {
  const Shape& extent = block.extent;
  if (std::find(extent.begin(), extent.end(), 0) != extent.end()) return absl::OkStatus();
  const Side read = side_of(block.in, element_bytes), write = side_of(block.out, element_bytes);
  const Cut cut = cut_of(block.in, block.out, extent, element_bytes, read, write);
  cuda::CUDA_MEMCPY3D_PEER copy = copy_of(block, cut, read, write);
  copy.srcContext = block.gpu->context;
  copy.dstContext = to.context;
  std::vector<std::int64_t> index(cut.planes, 0);
  for (;;) {
    std::int64_t read_at = read.begin, write_at = write.begin;
    for (std::size_t d = 0; d < index.size(); ++d) {
      read_at += index[d] * read.strides[d];
      write_at += index[d] * write.strides[d];
    }
    copy.srcDevice = cuda_address(block.from->data() + read_at);
    copy.dstDevice = cuda_address(into + write_at);
    if (absl::Status status = ask(to, *block.gpu, copy); !status.ok()) return status;
    std::size_t d = index.size();
    while (d > 0 && ++index[d - 1] == extent[d - 1]) index[--d] = 0;
    if (d == 0) return absl::OkStatus();
  }
}

/// In the target's copy stream, after those who make the block.
absl::Status fetch(const CudaContext& to, std::byte* into, const BlockOnGpu& block, std::int64_t element_bytes) {
  if (block.made_by) {
    if (absl::Status status = block.made_by->wait_for_issue(); !status.ok()) return status;
    for (const EventPtr& made : block.made_by->events())
      if (absl::Status status = to.await(to.copies, *made); !status.ok()) return status;
  }
  absl::Status status = to.enter();
  if (status.ok()) status = open_memory(to, *block.gpu);
  return status.ok() ? copy_block(to, into, block, element_bytes) : status;
}

}  // namespace

void copy_across(Backend& target, const std::shared_ptr<Storage>& into, std::span<const BlockOnGpu> blocks,
                 std::int64_t element_bytes, const std::shared_ptr<Completion>& completion) {
  CudaContext& to = *target.cuda_context();
  absl::Status status;
  for (const BlockOnGpu& block : blocks)
    if (status.ok()) status = fetch(to, into->data(), block, element_bytes);
  const absl::StatusOr<EventPtr> end = to.record(to.copies);
  if (!end.ok()) return completion->finish(status.ok() ? end.status() : status);
  Flight::Load load{.end = *end, .what = "a copy to " + to.name, .keeps = {into}};
  for (const BlockOnGpu& block : blocks) {
    block.from->add_reader(*end);
    load.keeps.push_back(block.from);
    if (block.made_by && !block.made_by->is_known_ready()) load.inputs.push_back(block.made_by);
  }
  if (status.ok()) return end_in_flight(target, completion, std::move(load));
  (void)(*end)->wait();  // what was asked for is done with the memory
  completion->finish(std::move(status));
}

}  // namespace sheaf::runtime
