// Matching and waiting. A collective is, on each rank's stream: read what is given, open a gate, wait at all ranks'
// gates, write the result.
#include "tests/emulator/fake_nccl/clique.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace sheaf::nccl {
namespace {

using cuda::CUDA_SUCCESS;
using fake_cuda::Bytes;

thread_local int group_depth = 0;
thread_local std::vector<Steps> group;

const char* name_of(ncclDataType_t type) {
  constexpr const char* names[] = {"int8",   "uint8",   "int32",   "uint32",  "int64",
                                   "uint64", "float16", "float32", "float64", "bfloat16"};
  return type < std::size(names) ? names[type] : "of no type";
}

const char* name_of(ncclRedOp_t op) {
  constexpr const char* names[] = {"sum", "product", "max", "min"};
  return op < std::size(names) ? names[op] : "no operation";
}

std::size_t bytes_of(const Call& call) { return call.count * size_of(call.type); }

Bytes make_bytes(std::size_t size) { return std::make_shared<std::vector<std::byte>>(size); }

/// What an aborted collective leaves.
Bytes garbage(std::size_t size) { return std::make_shared<std::vector<std::byte>>(size, std::byte{0xa5}); }

/// Success, or why this rank cannot call now.
ncclResult_t check(ncclComm_t comm, const Call& call, cuda::CUstream stream) {
  if (comm->clique->error) return comm->clique->error;
  if (planted_fault() == "refuse" && comm->rank > 0) return refuse(ncclInternalError, "out of channels");
  if (size_of(call.type) == 0) return refuse(ncclInvalidArgument, "a type that the fake NCCL does not know");
  if (call.op >= ncclAvg) return refuse(ncclInvalidArgument, "an operation that the fake NCCL does not know");
  const int device = fake_cuda::ordinal_of(stream);
  if (device == comm->device) return ncclSuccess;
  return refuse(ncclInvalidUsage, fmt::format("{}: rank {} is on device {}, its stream on device {}", call.text(),
                                              comm->rank, comm->device, device));
}

ncclResult_t result_of(Clique& clique, cuda::CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return ncclSuccess;
  const std::unique_lock lock(lock_of_cliques());
  return fail(clique, ncclUnhandledCudaError,
              fmt::format("{}: the driver says {}", what, static_cast<unsigned>(result)));
}

/// The collective that this call of the rank belongs to; null after a mismatch.
std::shared_ptr<Exchange> join(ncclComm_t comm, const Call& call) {
  Clique& clique = *comm->clique;
  const std::uint64_t number = comm->exchanges++;
  std::shared_ptr<Exchange>& at = clique.exchanges[number];
  if (!at) {
    at = std::make_shared<Exchange>(Exchange{.call = call, .first = comm->rank, .given = {}, .is_given = {}});
    at->given.resize(static_cast<std::size_t>(clique.ranks()));
    for (int i = 0; i < clique.ranks(); ++i) at->is_given.push_back(gate_of(clique));
  }
  const std::shared_ptr<Exchange> exchange = at;
  if (!(exchange->call == call)) {
    fail(clique, ncclInvalidUsage,
         fmt::format("call {} of the clique is {} on rank {}, and {} on rank {}", number, exchange->call.text(),
                     exchange->first, call.text(), comm->rank));
    return nullptr;
  }
  if (++exchange->joined == clique.ranks()) clique.exchanges.erase(number);
  return exchange;
}

/// What this rank puts in.
std::size_t given_bytes(const Call& call, const ncclComm& comm) {
  if (call.kind == Call::Kind::broadcast) return comm.rank == call.root ? bytes_of(call) : 0;
  const auto ranks = static_cast<std::size_t>(comm.clique->ranks());
  return call.kind == Call::Kind::reduce_scatter ? bytes_of(call) * ranks : bytes_of(call);
}

std::size_t received_bytes(const Call& call, const ncclComm& comm) {
  const auto ranks = static_cast<std::size_t>(comm.clique->ranks());
  return call.kind == Call::Kind::all_gather ? bytes_of(call) * ranks : bytes_of(call);
}

/// The next message between two ranks as one of them sees it; null after a mismatch.
std::shared_ptr<Message> join(Clique& clique, const Call& call, int from, int to, std::uint64_t number,
                              bool is_sender) {
  auto& all = clique.messages[{from, to}];
  std::shared_ptr<Message>& at = all[number];
  if (!at)
    at = std::make_shared<Message>(Message{
        .call = call, .given = make_bytes(bytes_of(call)), .is_given = gate_of(clique), .is_ready = gate_of(clique)});
  const std::shared_ptr<Message> message = at;
  (is_sender ? message->is_sent : message->is_awaited) = true;
  if (!(message->call == call)) {
    const Call &sent = is_sender ? call : message->call, &awaited = is_sender ? message->call : call;
    fail(clique, ncclInvalidUsage,
         fmt::format("message {} from rank {} to rank {} is {} where it is sent, and {} where it is received", number,
                     from, to, sent.text(), awaited.text()));
    return nullptr;
  }
  if (message->is_sent && message->is_awaited) all.erase(number);
  return message;
}

}  // namespace

std::string Call::text() const {
  constexpr const char* kinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "a message"};
  std::string text = fmt::format("{} of {} {}", kinds[static_cast<int>(kind)], count, name_of(type));
  if (kind == Kind::all_reduce || kind == Kind::reduce_scatter) text += fmt::format(" by {}", name_of(op));
  if (kind == Kind::broadcast) text += fmt::format(" from rank {}", root);
  return text;
}

std::mutex& lock_of_cliques() {
  static auto& m = *new std::mutex;
  return m;
}

std::condition_variable& arrivals() {
  static auto& c = *new std::condition_variable;
  return c;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

ncclResult_t refuse(ncclResult_t error, const std::string& text) {
  last_error() = text;
  fake_cuda::report_misuse("NCCL: " + text);
  return error;
}

fake_cuda::Gate gate_of(Clique& clique) {
  std::erase_if(clique.gates, [](const auto& gate) { return gate.expired(); });
  fake_cuda::Gate gate = fake_cuda::make_gate();
  clique.gates.push_back(gate);
  return gate;
}

std::string_view planted_fault() {
  const char* fault = std::getenv("SHEAF_FAKE_NCCL_FAULT");
  return fault ? fault : "";
}

bool is_under_way(const Clique& clique) {
  return std::any_of(clique.gates.begin(), clique.gates.end(), [](const auto& gate) { return !gate.expired(); });
}

ncclResult_t fail(Clique& clique, ncclResult_t error, const std::string& text) {
  for (const std::weak_ptr<fake_cuda::Event>& gate : clique.gates)
    if (const fake_cuda::Gate g = gate.lock()) fake_cuda::open_now(g);
  if (clique.error) return clique.error;
  clique.error = error;
  clique.last_error = text;
  return refuse(error, text);
}

ncclResult_t do_steps(Steps steps) {
  if (group_depth > 0) {
    group.push_back(std::move(steps));
    return ncclSuccess;
  }
  if (const ncclResult_t r = steps.begin()) return r;
  return steps.end();
}

void begin_group() { ++group_depth; }

ncclResult_t end_group() {
  if (group_depth == 0) return refuse(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
  if (--group_depth > 0) return ncclSuccess;
  const std::vector<Steps> all = std::move(group);
  group.clear();
  ncclResult_t result = ncclSuccess;
  for (const auto step : {&Steps::begin, &Steps::end})
    for (const Steps& s : all)
      if (!result) result = (s.*step)();
  return result;
}

bool wait_for_ranks(std::unique_lock<std::mutex>& lock, const std::function<bool()>& all_came) {
  return arrivals().wait_for(lock, fake_cuda::patience(), all_came);
}

ncclResult_t collective(ncclComm_t comm, const Call& call, const void* send, void* receive, cuda::CUstream stream) {
  auto exchange = std::make_shared<std::shared_ptr<Exchange>>();
  const std::string what = fmt::format("{} on rank {}", call.text(), comm->rank);
  const auto begin = [=]() -> ncclResult_t {
    Clique& clique = *comm->clique;
    if (const ncclResult_t r = check(comm, call, stream)) return r;
    const Bytes given = make_bytes(given_bytes(call, *comm));
    {
      const std::unique_lock lock(lock_of_cliques());
      *exchange = join(comm, call);
      if (!*exchange) return clique.error;
      (*exchange)->given[static_cast<std::size_t>(comm->rank)] = given;
    }
    const cuda::CUresult read = fake_cuda::enqueue_read(stream, what, send, given);
    if (read != CUDA_SUCCESS) return result_of(clique, read, what);
    return result_of(clique,
                     fake_cuda::enqueue_open(stream, what, (*exchange)->is_given[static_cast<std::size_t>(comm->rank)]),
                     what);
  };
  const auto end = [=]() -> ncclResult_t {
    for (int r = 0; r < comm->clique->ranks(); ++r) {
      const std::string peer = fmt::format("{} on rank {}", call.text(), r);
      fake_cuda::enqueue_wait(stream, peer, (*exchange)->is_given[static_cast<std::size_t>(r)]);
    }
    if (planted_fault() == "hang" || planted_fault() == "error")
      fake_cuda::enqueue_wait(stream, "a collective that does not end", gate_of(*comm->clique));
    if (planted_fault() == "error") {
      comm->clique->last_error = "the link is down";
      comm->clique->error = ncclRemoteError;
    }
    const std::size_t bytes = received_bytes(call, *comm);
    const auto make = [clique = comm->clique, done = *exchange, rank = comm->rank, bytes] {
      return clique->error ? garbage(bytes) : result_for(*done, rank);
    };
    return result_of(*comm->clique, fake_cuda::enqueue_write(stream, what, receive, bytes, make), what);
  };
  return do_steps({begin, end});
}

ncclResult_t send(ncclComm_t comm, const Call& call, const void* from, int peer, cuda::CUstream stream) {
  auto message = std::make_shared<std::shared_ptr<Message>>();
  const std::string what = fmt::format("{} from rank {} to rank {}", call.text(), comm->rank, peer);
  const auto begin = [=]() -> ncclResult_t {
    Clique& clique = *comm->clique;
    if (const ncclResult_t r = check(comm, call, stream)) return r;
    {
      const std::unique_lock lock(lock_of_cliques());
      *message = join(clique, call, comm->rank, peer, comm->sent[peer]++, true);
      if (!*message) return clique.error;
    }
    const cuda::CUresult read = fake_cuda::enqueue_read(stream, what, from, (*message)->given);
    if (read != CUDA_SUCCESS) return result_of(clique, read, what);
    return result_of(clique, fake_cuda::enqueue_open(stream, what, (*message)->is_given), what);
  };
  // It is over when the receiver has come: two ranks that send to each other, one after the other, wait for good.
  const auto end = [=] {
    return result_of(*comm->clique, fake_cuda::enqueue_wait(stream, what, (*message)->is_ready), what);
  };
  return do_steps({begin, end});
}

ncclResult_t receive(ncclComm_t comm, const Call& call, void* to, int peer, cuda::CUstream stream) {
  auto message = std::make_shared<std::shared_ptr<Message>>();
  const std::string what = fmt::format("{} from rank {} to rank {}", call.text(), peer, comm->rank);
  const auto begin = [=]() -> ncclResult_t {
    Clique& clique = *comm->clique;
    if (const ncclResult_t r = check(comm, call, stream)) return r;
    {
      const std::unique_lock lock(lock_of_cliques());
      *message = join(clique, call, peer, comm->rank, comm->received[peer]++, false);
      if (!*message) return clique.error;
    }
    return result_of(clique, fake_cuda::enqueue_open(stream, what, (*message)->is_ready), what);
  };
  const auto end = [=]() -> ncclResult_t {
    const cuda::CUresult waited = fake_cuda::enqueue_wait(stream, what, (*message)->is_given);
    if (waited != CUDA_SUCCESS) return result_of(*comm->clique, waited, what);
    const auto make = [clique = comm->clique, done = *message] {
      return clique->error ? garbage(done->given->size()) : done->given;
    };
    return result_of(*comm->clique, fake_cuda::enqueue_write(stream, what, to, bytes_of(call), make), what);
  };
  return do_steps({begin, end});
}

}  // namespace sheaf::nccl
