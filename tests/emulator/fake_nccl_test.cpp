// The fake NCCL on the fake driver, through the product's loader: every collective in one thread and in one per rank;
// and what does not match, or does not come, reported instead of waited for.
#include <doctest/doctest.h>

#include <functional>
#include <numeric>
#include <thread>

#include "runtime/driver/nccl.h"
#include "tests/emulator/fake_gpu.h"
#include "tests/places.h"

using namespace sheaf::cuda;
using namespace sheaf::nccl;
using namespace sheaf::emulator;
using sheaf::runtime::Nccl;
using sheaf::tests::Variable;

namespace {

const std::string kFakeNccl = SHEAF_BINARY_DIR "/libsheaf_fake_nccl.so";

Nccl open_fake() {
  auto opened = Nccl::open({kFakeNccl});
  REQUIRE_MESSAGE(opened.ok(), opened.status().ToString());
  return *std::move(opened);
}

void* at(CUdeviceptr p) { return reinterpret_cast<void*>(p); }

/// One communicator over all devices, with a stream and a buffer of 8 floats for each.
struct Ranks {
  explicit Ranks(int count, std::initializer_list<FakeGpu::Option> more = {}) : gpu(options(count, more)) {
    comms.resize(static_cast<std::size_t>(count));
    REQUIRE(nccl.ncclCommInitAll(comms.data(), count, nullptr) == ncclSuccess);
    for (int r = 0; r < count; ++r) {
      gpu.use(r);
      streams.push_back(gpu.stream());
      given.push_back(gpu.memory(32));
      got.push_back(gpu.memory(32));
      REQUIRE(gpu.write(given.back(), values(r), streams.back()) == CUDA_SUCCESS);
    }
  }
  static std::vector<FakeGpu::Option> options(int count, std::initializer_list<FakeGpu::Option> more) {
    std::vector<FakeGpu::Option> all{{"DEVICES", std::to_string(count)}};
    all.insert(all.end(), more);
    return all;
  }
  /// 10 r, 10 r + 1, ...
  static std::vector<float> values(int rank) {
    std::vector<float> v(8);
    std::iota(v.begin(), v.end(), 10.0f * static_cast<float>(rank));
    return v;
  }
  std::size_t count() const { return comms.size(); }
  /// f(rank) for all, in one group.
  ncclResult_t together(const std::function<ncclResult_t(std::size_t)>& f) const {
    REQUIRE(nccl.ncclGroupStart() == ncclSuccess);
    for (std::size_t r = 0; r < count(); ++r) {
      const ncclResult_t result = f(r);
      if (result) return result;
    }
    return nccl.ncclGroupEnd();
  }
  std::vector<float> result(std::size_t rank, std::size_t n = 8) const {
    return gpu.read<float>(got[rank], n, streams[rank]);
  }
  ncclResult_t async_error(std::size_t rank) const {
    ncclResult_t error = ncclSuccess;
    CHECK(nccl.ncclCommGetAsyncError(comms[rank], &error) == ncclSuccess);
    return error;
  }

  FakeGpu gpu;
  Nccl nccl = open_fake();
  std::vector<ncclComm_t> comms;
  std::vector<CUstream> streams;
  std::vector<CUdeviceptr> given, got;
};

}  // namespace

TEST_CASE("an NCCL that is too old is told both versions") {
  const Variable version("SHEAF_FAKE_NCCL_VERSION", "21602");
  CHECK(Nccl::open({kFakeNccl}).status().ToString() ==
        "FAILED_PRECONDITION: " + kFakeNccl + " is NCCL 2.16.2, and Sheaf needs 2.18.1 or newer");
}

TEST_CASE("collectives give every rank what they say") {
  const Ranks ranks(4);
  const auto& [given, got] = std::tie(ranks.given, ranks.got);
  const Nccl& nccl = ranks.nccl;
  const auto run = [&](const std::function<ncclResult_t(std::size_t)>& f) { CHECK(ranks.together(f) == ncclSuccess); };
  run([&](std::size_t r) {
    return nccl.ncclAllReduce(at(given[r]), at(got[r]), 8, ncclFloat32, ncclSum, ranks.comms[r], ranks.streams[r]);
  });
  for (std::size_t r = 0; r < 4; ++r) CHECK(ranks.result(r) == std::vector<float>{60, 64, 68, 72, 76, 80, 84, 88});
  run([&](std::size_t r) {
    return nccl.ncclAllReduce(at(given[r]), at(got[r]), 8, ncclFloat32, ncclMax, ranks.comms[r], ranks.streams[r]);
  });
  for (std::size_t r = 0; r < 4; ++r) CHECK(ranks.result(r) == Ranks::values(3));
  run([&](std::size_t r) {
    return nccl.ncclAllGather(at(given[r]), at(got[r]), 2, ncclFloat32, ranks.comms[r], ranks.streams[r]);
  });
  for (std::size_t r = 0; r < 4; ++r) CHECK(ranks.result(r) == std::vector<float>{0, 1, 10, 11, 20, 21, 30, 31});
  run([&](std::size_t r) {
    return nccl.ncclReduceScatter(at(given[r]), at(got[r]), 2, ncclFloat32, ncclSum, ranks.comms[r], ranks.streams[r]);
  });
  CHECK(ranks.result(0, 2) == std::vector<float>{60, 64});
  CHECK(ranks.result(3, 2) == std::vector<float>{84, 88});
  run([&](std::size_t r) {
    return nccl.ncclBroadcast(at(given[r]), at(got[r]), 8, ncclFloat32, 2, ranks.comms[r], ranks.streams[r]);
  });
  for (std::size_t r = 0; r < 4; ++r) CHECK(ranks.result(r) == Ranks::values(2));
  CHECK(ranks.gpu.fault().empty());
}

TEST_CASE("an all_reduce in place reads what it had before anyone writes") {
  const Ranks ranks(2);
  CHECK(ranks.together([&](std::size_t r) {
    return ranks.nccl.ncclAllReduce(at(ranks.given[r]), at(ranks.given[r]), 8, ncclFloat32, ncclProd, ranks.comms[r],
                                    ranks.streams[r]);
  }) == ncclSuccess);
  for (std::size_t r = 0; r < 2; ++r)
    CHECK(ranks.gpu.read<float>(ranks.given[r], 3, ranks.streams[r]) == std::vector<float>{0, 11, 24});
}

TEST_CASE("blocks are exchanged between all ranks by sends and receives of one group") {
  const Ranks ranks(4);
  CHECK(ranks.together([&](std::size_t r) {
    for (std::size_t peer = 0; peer < 4; ++peer) {
      const int p = static_cast<int>(peer);
      CHECK(ranks.nccl.ncclSend(at(ranks.given[r] + 8 * peer), 2, ncclFloat32, p, ranks.comms[r], ranks.streams[r]) ==
            ncclSuccess);
      CHECK(ranks.nccl.ncclRecv(at(ranks.got[r] + 8 * peer), 2, ncclFloat32, p, ranks.comms[r], ranks.streams[r]) ==
            ncclSuccess);
    }
    return ncclSuccess;
  }) == ncclSuccess);
  CHECK(ranks.result(1) == std::vector<float>{2, 3, 12, 13, 22, 23, 32, 33});
  CHECK(ranks.result(3) == std::vector<float>{6, 7, 16, 17, 26, 27, 36, 37});
}

TEST_CASE("ranks may be threads that meet by an id") {
  const FakeGpu gpu{{"DEVICES", "3"}};
  const Nccl nccl = open_fake();
  ncclUniqueId id;
  CHECK(nccl.ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::vector<int>> results(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      gpu->cuCtxSetCurrent(gpu.context(r));
      ncclComm_t comm = nullptr;
      CUstream s = nullptr;
      CUdeviceptr x = 0;
      nccl.ncclCommInitRank(&comm, 3, id, r);
      gpu->cuStreamCreate(&s, CU_STREAM_NON_BLOCKING);
      gpu->cuMemAlloc(&x, 8);
      gpu.write(x, std::vector{r, 100}, s);
      for (int i = 0; i < 20; ++i) nccl.ncclAllReduce(at(x), at(x), 2, ncclInt32, i % 2 ? ncclMax : ncclMin, comm, s);
      nccl.ncclAllReduce(at(x), at(x), 2, ncclInt32, ncclSum, comm, s);
      results[static_cast<std::size_t>(r)] = gpu.read<int>(x, 2, s);
      nccl.ncclCommDestroy(comm);
    });
  for (std::thread& t : threads) t.join();
  for (const auto& result : results) CHECK(result == std::vector{0, 300});
  CHECK(gpu.fault().empty());
}

TEST_CASE("a split makes communicators by color, in the order of the keys") {
  const Ranks ranks(4);
  std::vector<ncclComm_t> parts(4);
  const int colors[] = {0, 1, 0, -1};
  CHECK(ranks.together([&](std::size_t r) {
    return ranks.nccl.ncclCommSplit(ranks.comms[r], colors[r], -static_cast<int>(r), &parts[r], nullptr);
  }) == ncclSuccess);
  CHECK(parts[3] == nullptr);
  CHECK(ranks.nccl.ncclGroupStart() == ncclSuccess);
  for (std::size_t r : {0, 2})
    CHECK(ranks.nccl.ncclAllGather(at(ranks.given[r]), at(ranks.got[r]), 2, ncclFloat32, parts[r], ranks.streams[r]) ==
          ncclSuccess);
  CHECK(ranks.nccl.ncclGroupEnd() == ncclSuccess);
  for (std::size_t r : {0, 2}) CHECK(ranks.result(r, 4) == std::vector<float>{20, 21, 0, 1});
}

TEST_CASE("a ring adds up in another order than the ranks'") {
  const auto sum = [](const char* order) {
    const Variable variable("SHEAF_FAKE_NCCL_ORDER", order);
    const Ranks ranks(3);
    const float terms[] = {1e8f, -1e8f, 1};
    for (std::size_t r = 0; r < 3; ++r)
      CHECK(ranks.gpu.write(ranks.given[r], std::vector{terms[r]}, ranks.streams[r]) == CUDA_SUCCESS);
    CHECK(ranks.together([&](std::size_t r) {
      return ranks.nccl.ncclAllReduce(at(ranks.given[r]), at(ranks.got[r]), 1, ncclFloat32, ncclSum, ranks.comms[r],
                                      ranks.streams[r]);
    }) == ncclSuccess);
    return ranks.result(0, 1)[0];
  };
  CHECK(sum("ranks") == 1);
  CHECK(sum("ring") == 0);  // 1e8 - (1e8 - 1)
}

TEST_CASE("calls that do not match are an error on all ranks, and nobody waits") {
  const Ranks ranks(2);
  const Nccl& nccl = ranks.nccl;
  CHECK(nccl.ncclGroupStart() == ncclSuccess);
  CHECK(nccl.ncclAllReduce(at(ranks.given[0]), at(ranks.got[0]), 8, ncclFloat32, ncclSum, ranks.comms[0],
                           ranks.streams[0]) == ncclSuccess);
  CHECK(nccl.ncclAllReduce(at(ranks.given[1]), at(ranks.got[1]), 4, ncclFloat32, ncclSum, ranks.comms[1],
                           ranks.streams[1]) == ncclSuccess);
  const ncclResult_t result = nccl.ncclGroupEnd();
  CHECK(
      nccl.status(result, "ncclGroupEnd", ranks.comms[0]).ToString() ==
      "INTERNAL: ncclGroupEnd: invalid usage (5): call 0 of the clique is all_reduce of 8 float32 by sum on rank 0, and "
      "all_reduce of 4 float32 by sum on rank 1");
  for (std::size_t r : {0, 1}) {
    CHECK(ranks.async_error(r) == ncclInvalidUsage);
    CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[r]) == CUDA_SUCCESS);
  }
  CHECK(nccl.ncclAllReduce(at(ranks.given[0]), at(ranks.got[0]), 8, ncclFloat32, ncclSum, ranks.comms[0],
                           ranks.streams[0]) == ncclInvalidUsage);
}

TEST_CASE("other kinds, types, operations, roots and messages do not match either") {
  using Step = std::function<ncclResult_t(const Ranks&, std::size_t)>;
  const auto why = [](const Step& on_0, const Step& on_1) {
    const Ranks ranks(2);
    CHECK(ranks.together([&](std::size_t r) { return (r == 0 ? on_0 : on_1)(ranks, r); }) == ncclInvalidUsage);
    return std::string(ranks.nccl.ncclGetLastError(ranks.comms[1]));
  };
  const auto reduce = [](ncclDataType_t type, ncclRedOp_t op) -> Step {
    return [=](const Ranks& k, std::size_t r) {
      return k.nccl.ncclAllReduce(at(k.given[r]), at(k.got[r]), 4, type, op, k.comms[r], k.streams[r]);
    };
  };
  const auto broadcast = [](int root) -> Step {
    return [=](const Ranks& k, std::size_t r) {
      return k.nccl.ncclBroadcast(at(k.given[r]), at(k.got[r]), 4, ncclInt32, root, k.comms[r], k.streams[r]);
    };
  };
  const auto send = [](std::size_t count) -> Step {
    return [=](const Ranks& k, std::size_t r) {
      return k.nccl.ncclSend(at(k.given[r]), count, ncclFloat32, 1, k.comms[r], k.streams[r]);
    };
  };
  const auto receive = [](std::size_t count) -> Step {
    return [=](const Ranks& k, std::size_t r) {
      return k.nccl.ncclRecv(at(k.got[r]), count, ncclFloat32, 0, k.comms[r], k.streams[r]);
    };
  };
  const std::string begin = "call 0 of the clique is ";
  CHECK(why(reduce(ncclFloat32, ncclSum), reduce(ncclInt32, ncclSum)) ==
        begin + "all_reduce of 4 float32 by sum on rank 0, and all_reduce of 4 int32 by sum on rank 1");
  CHECK(why(reduce(ncclFloat32, ncclSum), reduce(ncclFloat32, ncclMax)) ==
        begin + "all_reduce of 4 float32 by sum on rank 0, and all_reduce of 4 float32 by max on rank 1");
  CHECK(why(broadcast(0), broadcast(1)) ==
        begin + "broadcast of 4 int32 from rank 0 on rank 0, and broadcast of 4 int32 from rank 1 on rank 1");
  CHECK(why(broadcast(0), reduce(ncclInt32, ncclMin)) ==
        begin + "broadcast of 4 int32 from rank 0 on rank 0, and all_reduce of 4 int32 by min on rank 1");
  CHECK(
      why(send(4), receive(5)) ==
      "message 0 from rank 0 to rank 1 is a message of 4 float32 where it is sent, and a message of 5 float32 where it is received");
}

TEST_CASE("a rank that does not come is named, instead of waited for") {
  const Ranks ranks(2, {{"PATIENCE_MS", "50"}});
  CHECK(ranks.nccl.ncclAllReduce(at(ranks.given[0]), at(ranks.got[0]), 8, ncclFloat32, ncclSum, ranks.comms[0],
                                 ranks.streams[0]) == ncclSuccess);
  CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[0]) == CUDA_ERROR_UNKNOWN);
  CHECK(ranks.gpu.fault() ==
        "nothing can go on:\n  stream 0 of device 0 waits for all_reduce of 8 float32 by sum on rank 1");
}

TEST_CASE("two communicators in opposite orders wait for each other, and that is told") {
  const Ranks ranks(2, {{"PATIENCE_MS", "50"}});
  std::vector<ncclComm_t> others(2);
  CHECK(ranks.nccl.ncclCommInitAll(others.data(), 2, nullptr) == ncclSuccess);
  const auto gather = [&](ncclComm_t comm, std::size_t r) {
    CHECK(ranks.nccl.ncclAllGather(at(ranks.given[r]), at(ranks.got[r]), 2, ncclFloat32, comm, ranks.streams[r]) ==
          ncclSuccess);
  };
  gather(ranks.comms[0], 0);
  gather(others[0], 0);
  gather(others[1], 1);
  gather(ranks.comms[1], 1);
  CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[0]) == CUDA_ERROR_UNKNOWN);
  CHECK(ranks.gpu.fault().find("stream 0 of device 0 waits for all_gather of 2 float32 on rank 1") !=
        std::string::npos);
  CHECK(ranks.gpu.fault().find("stream 1 of device 1 waits for all_gather of 2 float32 on rank 0") !=
        std::string::npos);
}

TEST_CASE("sends to each other without a group wait for each other") {
  const Ranks ranks(2, {{"PATIENCE_MS", "50"}});
  for (std::size_t r : {0, 1}) {
    const int peer = 1 - static_cast<int>(r);
    CHECK(ranks.nccl.ncclSend(at(ranks.given[r]), 2, ncclFloat32, peer, ranks.comms[r], ranks.streams[r]) ==
          ncclSuccess);
    CHECK(ranks.nccl.ncclRecv(at(ranks.got[r]), 2, ncclFloat32, peer, ranks.comms[r], ranks.streams[r]) == ncclSuccess);
  }
  CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[0]) == CUDA_ERROR_UNKNOWN);
}

TEST_CASE("after an abort the others go on, and are told") {
  const Ranks ranks(2);
  CHECK(ranks.nccl.ncclAllReduce(at(ranks.given[0]), at(ranks.got[0]), 8, ncclFloat32, ncclSum, ranks.comms[0],
                                 ranks.streams[0]) == ncclSuccess);
  CHECK(ranks.nccl.ncclCommAbort(ranks.comms[1]) == ncclSuccess);
  CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[0]) == CUDA_SUCCESS);
  CHECK(ranks.async_error(0) == ncclRemoteError);
  CHECK(std::string(ranks.nccl.ncclGetLastError(ranks.comms[0])) == "rank 1 has aborted");
}

TEST_CASE("a result that is read on another stream without a wait is reported") {
  const Ranks ranks(2);
  CHECK(ranks.together([&](std::size_t r) {
    return ranks.nccl.ncclAllReduce(at(ranks.given[r]), at(ranks.got[r]), 8, ncclFloat32, ncclSum, ranks.comms[r],
                                    ranks.streams[r]);
  }) == ncclSuccess);
  CHECK(ranks.gpu->cuStreamSynchronize(ranks.streams[1]) == CUDA_SUCCESS);
  ranks.gpu.use(0);
  ranks.gpu.read<float>(ranks.got[0], 8, ranks.gpu.stream());
  CHECK(ranks.gpu.counters().faults == 1);
}

TEST_CASE("a rank comes once, on a device of its own, and all come") {
  const FakeGpu gpu{{"DEVICES", "2"}, {"PATIENCE_MS", "50"}};
  const Nccl nccl = open_fake();
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  const auto why = [&](ncclResult_t result) { return std::string(nccl.status(result, "it").message()); };
  CHECK(nccl.ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(why(nccl.ncclCommInitRank(&comm, 2, id, 2)) == "it: invalid argument (4): ncclCommInitRank: rank 2 of 2");
  CHECK(why(nccl.ncclCommInitRank(&comm, 2, id, 0)) ==
        "it: unhandled system error (2): ncclCommInitRank: of 2 ranks these did not come: 1");
  const int same[] = {1, 1};
  ncclComm_t comms[2];
  CHECK(why(nccl.ncclCommInitAll(comms, 2, same)) == "it: invalid usage (5): two ranks are on device 1");
  CHECK(why(nccl.ncclGroupEnd()) == "it: invalid usage (5): ncclGroupEnd without ncclGroupStart");
}
