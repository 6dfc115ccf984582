// What each member's part is in NCCL's terms, put into all streams in one group under one lock. A group of one only
// copies. Bytes that a device keeps are copied on it.
#include "runtime/cuda_collectives.h"

#include <atomic>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "fmt/format.h"
#include "ir/check.h"
#include "ir/log.h"
#include "runtime/collective_guard.h"
#include "runtime/cuda_address.h"
#include "runtime/device.h"
#include "runtime/device_span.h"
#include "runtime/driver/nccl.h"

namespace sheaf::runtime {
namespace {

using namespace nccl;
using Kind = ir::lowering::Collective::Kind;
using Part = Rendezvous::Part;
using Streams = absl::InlinedVector<cuda::CUstream, 8>;

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::i8: return ncclInt8;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::bool_:
    case DType::u8: return ncclUint8;
    case DType::u32: return ncclUint32;
    case DType::u64: return ncclUint64;
    case DType::f16: return ncclFloat16;
    case DType::bf16: return ncclBfloat16;
    case DType::f32: return ncclFloat32;
    case DType::f64: return ncclFloat64;
    default: SHEAF_CHECK(false, "NCCL does not combine this dtype"); return ncclInt8;
  }
}

ncclRedOp_t operation_of(ir::ReduceKind kind) {
  switch (kind) {
    case ir::ReduceKind::sum: return ncclSum;
    case ir::ReduceKind::prod: return ncclProd;
    case ir::ReduceKind::and_:  // of bools, which are bytes of 0 and 1
    case ir::ReduceKind::min: return ncclMin;
    case ir::ReduceKind::or_:
    case ir::ReduceKind::max: return ncclMax;
  }
  return ncclSum;
}

SpanOf span_of(const Part& part) {
  const std::int64_t bytes = part.what->operand.bytes + part.what->result.bytes;
  return {.activity = ir::Activity::collective,
          .name = part.what->name,
          .loc = part.loc,
          .work = {.bytes = static_cast<double>(bytes)},
          .call = part.call};
}

/// Within one GPU's memory; `from` null: zeros.
absl::Status keep(const CudaContext& gpu, cuda::CUstream stream, std::byte* to, const std::byte* from,
                  std::int64_t bytes) {
  if (bytes == 0 || to == from) return absl::OkStatus();
  if (absl::Status status = gpu.enter(); !status.ok()) return status;
  const auto size = static_cast<std::size_t>(bytes);
  if (!from) return gpu.cuda.status(gpu.cuda.cuMemsetD8Async(cuda_address(to), 0, size, stream), "cuMemsetD8Async");
  return gpu.cuda.status(gpu.cuda.cuMemcpyDtoDAsync(cuda_address(to), cuda_address(from), size, stream),
                         "cuMemcpyDtoDAsync");
}

/// One collective in the members' streams.
class Enqueue {
 public:
  Enqueue(const Nccl& nccl, std::span<const Part> parts, std::span<const ncclComm_t> comms, const Streams& streams)
      : nccl_(nccl), what_(*parts[0].what), parts_(parts), comms_(comms), streams_(streams) {}

  absl::Status run() const {
    if (absl::Status status = keep_own(); !status.ok() || parts_.size() == 1) return status;
    if (what_.operand.bytes == 0 && what_.result.bytes == 0) return absl::OkStatus();
    if (absl::Status status = checked(nccl_.ncclGroupStart(), "ncclGroupStart"); !status.ok()) return status;
    absl::Status status;
    for (int k = 0; k < size() && status.ok(); ++k) status = call(k);
    absl::Status ended = checked(nccl_.ncclGroupEnd(), "ncclGroupEnd", comms_[0]);  // also after an error
    return status.ok() ? ended : status;
  }

 private:
  int size() const { return static_cast<int>(parts_.size()); }
  /// Of what goes from one to one.
  std::int64_t block_bytes() const { return what_.operand.bytes / (what_.kind == Kind::all_to_all ? size() : 1); }
  absl::Status checked(ncclResult_t result, std::string_view call, ncclComm_t comm = nullptr) const {
    return nccl_.status(result, call, comm);
  }

  absl::Status keep_own() const {
    for (int k = 0; k < size(); ++k) {
      const Part& part = parts_[k];
      const auto own = [&](std::byte* to, const std::byte* from) {
        return keep(*part.gpu, streams_[k], to, from, block_bytes());
      };
      absl::Status status;
      if (what_.kind == Kind::ppermute && what_.source[k] < 0) status = own(part.result, nullptr);
      else if (size() == 1 || (what_.kind == Kind::ppermute && what_.source[k] == k))
        status = own(part.result, part.operand);
      else if (what_.kind == Kind::all_to_all)
        status = own(part.result + k * block_bytes(), part.operand + k * block_bytes());
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status call(int k) const {
    const Part& part = parts_[k];
    const ncclComm_t comm = comms_[k];
    const cuda::CUstream stream = streams_[k];
    const auto count = [&](const codegen::BufferRef& ref, std::int64_t size) {
      return static_cast<std::size_t>(ref.bytes / size);
    };
    switch (what_.kind) {
      case Kind::all_reduce:
        return checked(nccl_.ncclAllReduce(part.operand, part.result, count(what_.operand, size_bytes(what_.dtype)),
                                           type_of(what_.dtype), operation_of(what_.reduce), comm, stream),
                       "ncclAllReduce", comm);
      case Kind::reduce_scatter:
        return checked(nccl_.ncclReduceScatter(part.operand, part.result, count(what_.result, size_bytes(what_.dtype)),
                                               type_of(what_.dtype), operation_of(what_.reduce), comm, stream),
                       "ncclReduceScatter", comm);
      case Kind::all_gather:
        return checked(nccl_.ncclAllGather(part.operand, part.result, count(what_.operand, 1), ncclUint8, comm, stream),
                       "ncclAllGather", comm);
      case Kind::all_to_all: return exchange(k);
      case Kind::ppermute: return pass_on(k);
      case Kind::axis_index: break;
    }
    return absl::OkStatus();
  }

  absl::Status send(int k, int to, const std::byte* from) const {
    return checked(nccl_.ncclSend(from, static_cast<std::size_t>(block_bytes()), ncclUint8, to, comms_[k], streams_[k]),
                   "ncclSend", comms_[k]);
  }
  absl::Status receive(int k, int from, std::byte* to) const {
    return checked(nccl_.ncclRecv(to, static_cast<std::size_t>(block_bytes()), ncclUint8, from, comms_[k], streams_[k]),
                   "ncclRecv", comms_[k]);
  }

  absl::Status exchange(int k) const {
    absl::Status status;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == k) continue;
      if (status.ok()) status = send(k, peer, parts_[k].operand + peer * block_bytes());
      if (status.ok()) status = receive(k, peer, parts_[k].result + peer * block_bytes());
    }
    return status;
  }

  absl::Status pass_on(int k) const {
    absl::Status status;
    for (int to = 0; to < size(); ++to)
      if (what_.source[to] == k && to != k && status.ok()) status = send(k, to, parts_[k].operand);
    const int from = what_.source[k];
    return status.ok() && from >= 0 && from != k ? receive(k, from, parts_[k].result) : status;
  }

  const Nccl& nccl_;
  const codegen::Collective& what_;
  const std::span<const Part> parts_;
  const std::span<const ncclComm_t> comms_;
  const Streams& streams_;
};

class ByNccl final : public CudaCollectives {
 public:
  explicit ByNccl(const Nccl& nccl)
      : nccl_(nccl), guard_(nccl, [this](const std::shared_ptr<Clique>& broken) {
          std::lock_guard lock(mutex_);
          forget_locked(broken);
        }) {}

  absl::Status begin(std::span<const Part> parts, std::chrono::milliseconds timeout,
                     const std::shared_ptr<LateError>& late) override;
  void look() override { guard_.look(); }
  void stop_looking() override { guard_.stop(); }

 private:
  absl::StatusOr<std::shared_ptr<Clique>> clique_of(std::span<const Part> parts);
  absl::StatusOr<cuda::CUstream> stream_of(const CudaContext& gpu);
  absl::Status enqueue(std::span<const Part> parts, const Clique& clique);
  void forget_locked(const std::shared_ptr<Clique>& broken);

  const Nccl& nccl_;
  CollectiveGuard guard_;
  std::mutex mutex_;  // guards what follows, and the order in which streams get collectives
  std::map<std::vector<int>, std::shared_ptr<Clique>> cliques_;  // by the ordinals of their members
  std::map<int, cuda::CUstream> streams_;  // by ordinal
};

absl::Status ByNccl::begin(std::span<const Part> parts, std::chrono::milliseconds timeout,
                           const std::shared_ptr<LateError>& late) {
  const std::string what = fmt::format("{}: {}", to_string(parts[0].loc), parts[0].what->name);
  const auto of_this = [&](const absl::Status& s) {
    return absl::Status(s.code(), fmt::format("{}: {}", what, std::string(s.message())));
  };
  std::lock_guard lock(mutex_);
  const absl::StatusOr<std::shared_ptr<Clique>> clique = clique_of(parts);
  if (!clique.ok()) return of_this(clique.status());
  CollectiveGuard::UnderWay begun{
      .clique = *clique, .what = what, .ready = {}, .done = {}, .timeout = timeout, .late = late};
  absl::Status status = enqueue(parts, **clique);
  for (const Part& part : parts) {
    begun.ready.push_back(part.ready);
    if (status.ok()) begun.done.push_back(*part.done);
  }
  if (!status.ok()) {  // whoever waits in his stream for the others is to be let go
    begun.error = status = of_this(status);
    forget_locked(*clique);
    guard_.look();
  }
  guard_.watch(std::move(begun));
  return status;
}

absl::StatusOr<std::shared_ptr<Clique>> ByNccl::clique_of(std::span<const Part> parts) {
  std::vector<int> ordinals;
  for (const Part& part : parts) ordinals.push_back(part.gpu->ordinal);
  if (const auto known = cliques_.find(ordinals); known != cliques_.end()) return known->second;
  auto clique = std::make_shared<Clique>();
  for (const Part& part : parts) clique->gpus.push_back(part.gpu);
  if (parts.size() > 1) {
    clique->comms.resize(parts.size());
    absl::Status made =
        nccl_.status(nccl_.ncclCommInitAll(clique->comms.data(), static_cast<int>(ordinals.size()), ordinals.data()),
                     "ncclCommInitAll");
    if (!made.ok()) return made;
    ir::log(ir::LogTopic::runtime, "NCCL {}: a communicator of {} GPUs", nccl_version_text(nccl_.version()),
            parts.size());
  }
  cliques_.emplace(std::move(ordinals), clique);
  return clique;
}

absl::StatusOr<cuda::CUstream> ByNccl::stream_of(const CudaContext& gpu) {
  if (const auto known = streams_.find(gpu.ordinal); known != streams_.end()) return known->second;
  cuda::CUstream stream = nullptr;
  absl::Status status = gpu.enter();
  if (status.ok())
    status = gpu.cuda.status(gpu.cuda.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (!status.ok()) return status;
  streams_.emplace(gpu.ordinal, stream);
  return stream;
}

absl::Status ByNccl::enqueue(std::span<const Part> parts, const Clique& clique) {
  Streams streams;
  for (const Part& part : parts) {
    const absl::StatusOr<cuda::CUstream> stream = stream_of(*part.gpu);
    absl::Status status = stream.ok() ? part.gpu->await(*stream, *part.ready) : stream.status();
    if (!status.ok()) return status;
    streams.push_back(*stream);
  }
  {
    std::deque<DeviceSpan> spans;  // of each member's part
    if (ir::is_profiled())
      for (std::size_t k = 0; k < parts.size(); ++k)
        spans.emplace_back(*parts[k].gpu, streams[k], [&] { return span_of(parts[k]); });
    if (absl::Status status = Enqueue(nccl_, parts, clique.comms, streams).run(); !status.ok()) return status;
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    absl::StatusOr<EventPtr> done = parts[k].gpu->record(streams[k]);
    if (!done.ok()) return done.status();
    *parts[k].done = *std::move(done);
  }
  return absl::OkStatus();
}

void ByNccl::forget_locked(const std::shared_ptr<Clique>& broken) {
  std::erase_if(cliques_, [&](const auto& known) { return known.second == broken; });
}

std::atomic<CudaCollectives*> in_use = nullptr;

}  // namespace

CudaCollectives* CudaCollectives::between(std::span<Device* const> devices) {
  for (const Device* device : devices)
    if (!device->backend().cuda_context()) return nullptr;
  static CudaCollectives* const of_process = []() -> CudaCollectives* {
    const absl::StatusOr<const Nccl*> nccl = Nccl::load();
    if (nccl.ok()) return in_use = new ByNccl(**nccl);
    ir::warn(fmt::format("collectives between GPUs go through the host's memory, which is slow: {}",
                         std::string(nccl.status().message())));
    return nullptr;
  }();
  return of_process;
}

void CudaCollectives::finish() {
  if (CudaCollectives* all = in_use) all->stop_looking();
}

}  // namespace sheaf::runtime
