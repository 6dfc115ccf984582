// Communicators of the fake NCCL: the ranks of a clique, and what they do together. Ranks are matched by the number of
// their calls, and calls that do not match are an error on all ranks instead of a hang.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/driver/nccl_abi.h"
#include "tests/emulator/fake_cuda/hooks.h"

namespace sheaf::nccl {

/// What a rank asks for, which all ranks must ask for alike.
struct Call {
  enum class Kind { all_reduce, all_gather, reduce_scatter, broadcast, message };
  Kind kind = Kind::all_reduce;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = -1;
  bool operator==(const Call&) const = default;
  std::string text() const;  // "all_reduce of 100 float32 by sum"
};

/// A collective: what each rank gave, and whether it did.
struct Exchange {
  Call call;
  int first = 0, joined = 0;  // the rank that called first, and how many did
  std::vector<fake_cuda::Bytes> given;  // by rank; null until that rank has called
  std::vector<fake_cuda::Gate> is_given;  // open when the bytes are there
};

/// From one rank to another.
struct Message {
  Call call;
  bool is_sent = false, is_awaited = false;
  fake_cuda::Bytes given;
  fake_cuda::Gate is_given, is_ready;  // the receiver has come so far
};

struct Clique {
  explicit Clique(int ranks) : devices(static_cast<std::size_t>(ranks), -1) {}
  int ranks() const { return static_cast<int>(devices.size()); }
  std::vector<int> devices;  // by rank; -1 until that rank has come
  int arrived = 0;
  std::map<std::uint64_t, std::shared_ptr<Exchange>> exchanges;  // those that not all have joined
  std::map<std::pair<int, int>, std::map<std::uint64_t, std::shared_ptr<Message>>> messages;
  std::vector<std::weak_ptr<fake_cuda::Event>> gates;  // of all that is under way
  std::atomic<ncclResult_t> error = ncclSuccess;  // for good; the driver's work looks at it without the lock
  std::string last_error;

  struct Split {
    int arrived = 0;
    std::vector<int> color, key;  // by rank
    std::map<int, std::shared_ptr<Clique>> parts;
  };
  std::map<std::uint64_t, Split> splits;
};

struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, device = 0;
  std::uint64_t exchanges = 0, splits = 0;
  std::map<int, std::uint64_t> sent, received;  // by peer
};

/// One lock for all cliques; told when a rank comes.
std::mutex& lock_of_cliques();
std::condition_variable& arrivals();

/// A gate that opens when the clique fails.
fake_cuda::Gate gate_of(Clique& clique);
bool is_under_way(const Clique& clique);
/// The clique is of no more use: nobody waits in it any longer, and every call on it says so.
ncclResult_t fail(Clique& clique, ncclResult_t error, const std::string& text);
/// An error of one call, which ncclGetLastError tells.
ncclResult_t refuse(ncclResult_t error, const std::string& text);
std::string& last_error();

/// Two steps of a call, so that calls of a group all begin before any of them waits.
struct Steps {
  std::function<ncclResult_t()> begin, end;
};
/// At once, or at the end of the thread's group.
ncclResult_t do_steps(Steps steps);
void begin_group();
ncclResult_t end_group();

/// SHEAF_FAKE_NCCL_FAULT: "" as it should be; "hang": no collective ends; "error": nor does it, and the clique has an
/// error that nobody is told who does not ask; "refuse": only rank 0's calls are taken.
std::string_view planted_fault();

/// Until all ranks came; false when one did not in time.
bool wait_for_ranks(std::unique_lock<std::mutex>& lock, const std::function<bool()>& all_came);

ncclResult_t collective(ncclComm_t comm, const Call& call, const void* send, void* receive, cuda::CUstream stream);
ncclResult_t send(ncclComm_t comm, const Call& call, const void* from, int peer, cuda::CUstream stream);
ncclResult_t receive(ncclComm_t comm, const Call& call, void* to, int peer, cuda::CUstream stream);

/// Of one element; 0 for a type that is none.
std::size_t size_of(ncclDataType_t type);
/// What rank `rank` gets, or null where a rank gave nothing.
fake_cuda::Bytes result_for(const Exchange& exchange, int rank);

}  // namespace sheaf::nccl
