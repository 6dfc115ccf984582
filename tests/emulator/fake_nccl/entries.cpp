// Entry points of the fake NCCL. The driver it works on is the fake one, whose library it shares with the product.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "tests/emulator/fake_nccl/clique.h"

#define SHEAF_EXPORT extern "C" __attribute__((visibility("default")))

using namespace sheaf::nccl;
namespace fake_cuda = sheaf::fake_cuda;
using sheaf::cuda::CUstream;

namespace {

/// Cliques that not all ranks have come to yet, by their ids.
std::map<std::uint64_t, std::shared_ptr<Clique>>& cliques_by_id() {
  static auto& all = *new std::map<std::uint64_t, std::shared_ptr<Clique>>;
  return all;
}

std::uint64_t number_of(const ncclUniqueId& id) {
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  return number;
}

/// This rank is there, on its device; what is wrong with that.
ncclResult_t arrive(Clique& clique, int rank, int device) {
  if (device < 0) return refuse(ncclInvalidUsage, fmt::format("rank {}: no context is current", rank));
  if (clique.devices[static_cast<std::size_t>(rank)] >= 0)
    return fail(clique, ncclInvalidUsage, fmt::format("rank {} came twice", rank));
  for (int other : clique.devices)
    if (other == device) return fail(clique, ncclInvalidUsage, fmt::format("two ranks are on device {}", device));
  clique.devices[static_cast<std::size_t>(rank)] = device;
  ++clique.arrived;
  arrivals().notify_all();
  return ncclSuccess;
}

ncclResult_t wait_for_all(Clique& clique, const char* name) {
  std::unique_lock lock(lock_of_cliques());
  const auto is_over = [&] { return clique.arrived == clique.ranks() || clique.error; };
  if (wait_for_ranks(lock, is_over)) return clique.error;
  std::string missing;
  for (int r = 0; r < clique.ranks(); ++r)
    if (clique.devices[static_cast<std::size_t>(r)] < 0) missing += fmt::format(" {}", r);
  return fail(clique, ncclSystemError,
              fmt::format("{}: of {} ranks these did not come:{}", name, clique.ranks(), missing));
}

struct SplitRequest {
  int color = 0, key = 0;
};

/// The new cliques, once all ranks said where they belong: by key, and by rank where keys are equal.
void form_parts(const Clique& parent, Clique::Split& split) {
  std::map<int, int> sizes;
  for (int c : split.color)
    if (c >= 0) ++sizes[c];
  for (const auto& [color, size] : sizes) split.parts[color] = std::make_shared<Clique>(size);
  for (const auto& [color, part] : split.parts) {
    std::vector<int> members;
    for (int r = 0; r < parent.ranks(); ++r)
      if (split.color[static_cast<std::size_t>(r)] == color) members.push_back(r);
    std::stable_sort(members.begin(), members.end(), [&](int a, int b) {
      return split.key[static_cast<std::size_t>(a)] < split.key[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < members.size(); ++i)
      part->devices[i] = parent.devices[static_cast<std::size_t>(members[i])];
    part->arrived = part->ranks();
  }
}

ncclResult_t begin_split(ncclComm_t comm, std::uint64_t number, const SplitRequest& request) {
  const std::unique_lock lock(lock_of_cliques());
  Clique& clique = *comm->clique;
  if (clique.error) return clique.error;
  Clique::Split& split = clique.splits[number];
  split.color.resize(clique.devices.size());
  split.key.resize(clique.devices.size());
  split.color[static_cast<std::size_t>(comm->rank)] = request.color;
  split.key[static_cast<std::size_t>(comm->rank)] = request.key;
  if (++split.arrived == clique.ranks()) form_parts(clique, split);
  arrivals().notify_all();
  return ncclSuccess;
}

ncclResult_t end_split(ncclComm_t comm, std::uint64_t number, const SplitRequest& request, ncclComm_t* new_comm) {
  std::unique_lock lock(lock_of_cliques());
  Clique& clique = *comm->clique;
  Clique::Split& split = clique.splits[number];
  *new_comm = nullptr;
  if (!wait_for_ranks(lock, [&] { return split.arrived == clique.ranks() || clique.error; }))
    return fail(clique, ncclSystemError,
                fmt::format("ncclCommSplit: {} of {} ranks came", split.arrived, clique.ranks()));
  if (clique.error || request.color < 0) return clique.error;
  const std::shared_ptr<Clique>& part = split.parts[request.color];
  for (int r = 0; r < part->ranks(); ++r)
    if (part->devices[static_cast<std::size_t>(r)] == comm->device)
      *new_comm = new ncclComm{.clique = part, .rank = r, .device = comm->device, .sent = {}, .received = {}};
  return ncclSuccess;
}

ncclResult_t check_comm(ncclComm_t comm, const char* name) {
  return comm ? ncclSuccess : refuse(ncclInvalidArgument, fmt::format("{}: no communicator", name));
}

}  // namespace

// The declarations come from the product's list, so that a function of another type does not compile.
#define SHEAF_DECLARE(name, parameters) SHEAF_EXPORT ncclResult_t name parameters;
SHEAF_NCCL_ENTRY_POINTS(SHEAF_DECLARE)
#undef SHEAF_DECLARE

SHEAF_EXPORT ncclResult_t ncclGetVersion(int* version) {
  const char* text = std::getenv("SHEAF_FAKE_NCCL_VERSION");
  *version = text ? std::atoi(text) : 22809;
  return ncclSuccess;
}

SHEAF_EXPORT const char* ncclGetErrorString(ncclResult_t error) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return error < std::size(texts) ? texts[error] : "unknown result code";
}

SHEAF_EXPORT const char* ncclGetLastError(ncclComm_t comm) {
  return comm && !comm->clique->last_error.empty() ? comm->clique->last_error.c_str() : last_error().c_str();
}

SHEAF_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<std::uint64_t> next = 1;
  const std::uint64_t number = next++;
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

SHEAF_EXPORT ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks)
    return refuse(ncclInvalidArgument, fmt::format("ncclCommInitRank: rank {} of {}", rank, ranks));
  auto clique = std::make_shared<std::shared_ptr<Clique>>();
  const int device = fake_cuda::current_ordinal();
  const auto begin = [=]() -> ncclResult_t {
    const std::unique_lock lock(lock_of_cliques());
    std::shared_ptr<Clique>& named = cliques_by_id()[number_of(id)];
    if (!named) named = std::make_shared<Clique>(ranks);
    *clique = named;
    if (named->ranks() != ranks)
      return fail(*named, ncclInvalidArgument,
                  fmt::format("rank {} is one of {} ranks, others are of {}", rank, ranks, named->ranks()));
    if (const ncclResult_t r = arrive(*named, rank, device)) return r;
    if (named->arrived == ranks) cliques_by_id().erase(number_of(id));
    return ncclSuccess;
  };
  const auto end = [=]() -> ncclResult_t {
    *comm = nullptr;
    if (const ncclResult_t r = wait_for_all(**clique, "ncclCommInitRank")) return r;
    *comm = new ncclComm{.clique = *clique, .rank = rank, .device = device, .sent = {}, .received = {}};
    return ncclSuccess;
  };
  return do_steps({begin, end});
}

SHEAF_EXPORT ncclResult_t ncclCommInitAll(ncclComm_t* comms, int devices, const int* device_list) {
  if (devices < 1) return refuse(ncclInvalidArgument, fmt::format("ncclCommInitAll: {} devices", devices));
  const auto clique = std::make_shared<Clique>(devices);
  const std::unique_lock lock(lock_of_cliques());
  for (int r = 0; r < devices; ++r)
    if (const ncclResult_t result = arrive(*clique, r, device_list ? device_list[r] : r)) return result;
  for (int r = 0; r < devices; ++r)
    comms[r] = new ncclComm{.clique = clique,
                            .rank = r,
                            .device = clique->devices[static_cast<std::size_t>(r)],
                            .sent = {},
                            .received = {}};
  return ncclSuccess;
}

SHEAF_EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* new_comm, ncclConfig_t*) {
  if (const ncclResult_t r = check_comm(comm, "ncclCommSplit")) return r;
  const std::uint64_t number = comm->splits++;
  const SplitRequest request{color, key};
  return do_steps(
      {[=] { return begin_split(comm, number, request); }, [=] { return end_split(comm, number, request, new_comm); }});
}

SHEAF_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}

// The other ranks learn of it at once; with the real one they would wait until they abort too.
SHEAF_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
  if (const ncclResult_t r = check_comm(comm, "ncclCommAbort")) return r;
  {
    const std::unique_lock lock(lock_of_cliques());
    if (is_under_way(*comm->clique))
      fail(*comm->clique, ncclRemoteError, fmt::format("rank {} has aborted", comm->rank));
  }
  delete comm;
  return ncclSuccess;
}

SHEAF_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (const ncclResult_t r = check_comm(comm, "ncclCommGetAsyncError")) return r;
  const std::unique_lock lock(lock_of_cliques());
  *error = comm->clique->error;
  return ncclSuccess;
}

SHEAF_EXPORT ncclResult_t ncclGroupStart() {
  begin_group();
  return ncclSuccess;
}

SHEAF_EXPORT ncclResult_t ncclGroupEnd() { return end_group(); }

SHEAF_EXPORT ncclResult_t ncclAllReduce(const void* send_buffer, void* receive_buffer, std::size_t count,
                                        ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclAllReduce")) return r;
  return collective(comm, {.kind = Call::Kind::all_reduce, .count = count, .type = type, .op = op}, send_buffer,
                    receive_buffer, stream);
}

SHEAF_EXPORT ncclResult_t ncclAllGather(const void* send_buffer, void* receive_buffer, std::size_t count,
                                        ncclDataType_t type, ncclComm_t comm, CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclAllGather")) return r;
  return collective(comm, {.kind = Call::Kind::all_gather, .count = count, .type = type}, send_buffer, receive_buffer,
                    stream);
}

SHEAF_EXPORT ncclResult_t ncclReduceScatter(const void* send_buffer, void* receive_buffer, std::size_t count,
                                            ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclReduceScatter")) return r;
  return collective(comm, {.kind = Call::Kind::reduce_scatter, .count = count, .type = type, .op = op}, send_buffer,
                    receive_buffer, stream);
}

SHEAF_EXPORT ncclResult_t ncclBroadcast(const void* send_buffer, void* receive_buffer, std::size_t count,
                                        ncclDataType_t type, int root, ncclComm_t comm, CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclBroadcast")) return r;
  if (root < 0 || root >= comm->clique->ranks())
    return refuse(ncclInvalidArgument, fmt::format("ncclBroadcast: root {} of {} ranks", root, comm->clique->ranks()));
  return collective(comm, {.kind = Call::Kind::broadcast, .count = count, .type = type, .root = root}, send_buffer,
                    receive_buffer, stream);
}

SHEAF_EXPORT ncclResult_t ncclSend(const void* buffer, std::size_t count, ncclDataType_t type, int peer,
                                   ncclComm_t comm, CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclSend")) return r;
  if (peer < 0 || peer >= comm->clique->ranks())
    return refuse(ncclInvalidArgument, fmt::format("ncclSend: rank {} of {}", peer, comm->clique->ranks()));
  return send(comm, {.kind = Call::Kind::message, .count = count, .type = type}, buffer, peer, stream);
}

SHEAF_EXPORT ncclResult_t ncclRecv(void* buffer, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                                   CUstream stream) {
  if (const ncclResult_t r = check_comm(comm, "ncclRecv")) return r;
  if (peer < 0 || peer >= comm->clique->ranks())
    return refuse(ncclInvalidArgument, fmt::format("ncclRecv: rank {} of {}", peer, comm->clique->ranks()));
  return receive(comm, {.kind = Call::Kind::message, .count = count, .type = type}, buffer, peer, stream);
}
