// The fake driver's captures and graphs: what is captured runs when launched, with the arguments it was patched to; and
// what a capture forbids.
#include <doctest/doctest.h>

#include "tests/emulator/fake_gpu.h"

using namespace sheaf::cuda;
using namespace sheaf::emulator;

namespace {

const char* const kText = R"(
extern "C" __global__ void __launch_bounds__(32) add(const int* x, int* y, int more) {
  y[threadIdx.x] = x[threadIdx.x] + more;
}
)";

struct Fixture {
  explicit Fixture(std::initializer_list<FakeGpu::Option> options = {}) : gpu(options) {}
  FakeGpu gpu;
  CUstream s = gpu.stream(), t = gpu.stream();
  CUfunction add = gpu.function(gpu.module(kText), "add");
  CUdeviceptr x = memory(1), y = memory(0), z = memory(0);

  CUdeviceptr memory(int value) const {
    const CUdeviceptr p = gpu.memory(128);
    REQUIRE(gpu.write(p, std::vector<int>(32, value), s) == CUDA_SUCCESS);
    REQUIRE(gpu->cuStreamSynchronize(s) == CUDA_SUCCESS);
    return p;
  }
  int first(CUdeviceptr p) const { return gpu.read<int>(p, 32, s)[0]; }

  /// y = x + 10, then z = y + 100.
  CUgraph capture() const {
    CUgraph graph = nullptr;
    REQUIRE(gpu->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(gpu.launch(add, 1, 32, s, x, y, 10) == CUDA_SUCCESS);
    REQUIRE(gpu.launch(add, 1, 32, s, y, z, 100) == CUDA_SUCCESS);
    REQUIRE(gpu->cuStreamEndCapture(s, &graph) == CUDA_SUCCESS);
    return graph;
  }
  CUgraphExec instantiate(CUgraph graph) const {
    CUgraphExec executable = nullptr;
    REQUIRE(gpu->cuGraphInstantiateWithFlags(&executable, graph, 0) == CUDA_SUCCESS);
    return executable;
  }
  std::vector<CUgraphNode> nodes(CUgraph graph) const {
    std::size_t count = 0;
    REQUIRE(gpu->cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS);
    std::vector<CUgraphNode> all(count);
    REQUIRE(gpu->cuGraphGetNodes(graph, all.data(), &count) == CUDA_SUCCESS);
    return all;
  }
};

}  // namespace

TEST_CASE("captured work runs when its graph is launched, as often as that is") {
  const Fixture f;
  const CUgraph graph = f.capture();
  CHECK(f.first(f.z) == 0);
  const CUgraphExec executable = f.instantiate(graph);
  CHECK(f.gpu->cuGraphDestroy(graph) == CUDA_SUCCESS);
  for (int value : {1, 2, 3}) {
    CHECK(f.gpu->cuMemsetD32Async(f.x, static_cast<unsigned>(value), 32, f.s) == CUDA_SUCCESS);
    CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_SUCCESS);
    CHECK(f.first(f.z) == value + 110);
  }
  CHECK(f.gpu.counters().graph_launches == 3);
  CHECK(f.gpu.counters().kernels == 6);
  CHECK(f.gpu->cuGraphExecDestroy(executable) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_ERROR_INVALID_HANDLE);
}

TEST_CASE("a patched node is patched for later launches only") {
  const Fixture f;
  const CUgraph graph = f.capture();
  const CUgraphExec executable = f.instantiate(graph);
  const CUgraphNode last = f.nodes(graph).back();
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CHECK(f.gpu->cuGraphNodeGetType(last, &type) == CUDA_SUCCESS);
  CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS parameters{};
  CHECK(f.gpu->cuGraphKernelNodeGetParams(last, &parameters) == CUDA_SUCCESS);
  CHECK(parameters.blockDimX == 32);
  CHECK(*static_cast<int*>(parameters.kernelParams[2]) == 100);
  CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_SUCCESS);
  CUdeviceptr from = f.y, to = f.memory(0);
  int more = 1000;
  void* arguments[] = {&from, &to, &more};
  parameters.kernelParams = arguments;
  CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphExecKernelNodeSetParams(executable, last, &parameters) == CUDA_SUCCESS);
  CHECK(f.first(f.z) == 111);
  CHECK(f.first(to) == 0);
  CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_SUCCESS);
  CHECK(f.first(to) == 1011);
  CHECK(f.gpu.counters().patched_nodes == 1);
  parameters.gridDimY = 70'000;
  CHECK(f.gpu->cuGraphExecKernelNodeSetParams(executable, last, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(f.gpu.fault() ==
        "cuGraphExecKernelNodeSetParams: add: a grid of (1, 70000, 1), the limit is (2147483647, 65535, 65535)");
  CHECK(f.gpu->cuGraphDestroy(graph) == CUDA_SUCCESS);
  parameters.gridDimY = 1;
  CHECK(f.gpu->cuGraphExecKernelNodeSetParams(executable, last, &parameters) == CUDA_ERROR_INVALID_VALUE);
  CHECK(f.gpu.fault() ==
        "cuGraphExecKernelNodeSetParams: no node of the graph that this was made from, or that is destroyed");
}

TEST_CASE("a graph of the same shape updates an executable one, another does not") {
  const Fixture f;
  const CUgraphExec executable = f.instantiate(f.capture());
  CUgraph other = nullptr;
  CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.s, f.x, f.y, 20) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.s, f.y, f.z, 200) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamEndCapture(f.s, &other) == CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  CHECK(f.gpu->cuGraphExecUpdate(executable, other, &info) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphLaunch(executable, f.s) == CUDA_SUCCESS);
  CHECK(f.first(f.z) == 221);
  CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.s, f.x, f.y, 20) == CUDA_SUCCESS);
  CHECK(f.gpu->cuMemsetD8Async(f.z, 0, 4, f.s) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamEndCapture(f.s, &other) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphExecUpdate(executable, other, &info) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  CHECK(info.errorNode == f.nodes(other)[1]);
}

TEST_CASE("a second stream takes part in a capture by an event, and must be waited for") {
  const Fixture f;
  const CUevent begun = f.gpu.event(), done = f.gpu.event();
  CUgraph graph = nullptr;
  const auto fork = [&] {
    CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(f.gpu->cuEventRecord(begun, f.s) == CUDA_SUCCESS);
    CHECK(f.gpu->cuStreamWaitEvent(f.t, begun, 0) == CUDA_SUCCESS);
    CHECK(f.gpu.launch(f.add, 1, 32, f.t, f.x, f.y, 10) == CUDA_SUCCESS);
  };
  fork();
  CHECK(f.gpu->cuStreamEndCapture(f.s, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  CHECK(f.gpu.fault() ==
        "cuStreamEndCapture: work of another stream is in the capture, and stream 0 of device 0 does not wait for it");
  fork();
  CHECK(f.gpu->cuEventRecord(done, f.t) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamWaitEvent(f.s, done, 0) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.s, f.y, f.z, 100) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamEndCapture(f.t, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  CHECK(f.gpu->cuEventSynchronize(done) == CUDA_ERROR_CAPTURED_EVENT);
  CHECK(f.gpu->cuStreamEndCapture(f.s, &graph) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphLaunch(f.instantiate(graph), f.t) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamSynchronize(f.t) == CUDA_SUCCESS);
  CHECK(f.first(f.z) == 111);
}

TEST_CASE("a missing edge between two streams of a capture gives a wrong result") {
  const Fixture f;
  const CUevent begun = f.gpu.event(), done = f.gpu.event();
  CUgraph graph = nullptr;
  CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(f.gpu->cuEventRecord(begun, f.s) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamWaitEvent(f.t, begun, 0) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.s, f.x, f.y, 10) == CUDA_SUCCESS);
  CHECK(f.gpu.launch(f.add, 1, 32, f.t, f.y, f.z, 100) == CUDA_SUCCESS);  // and nothing says that y comes first
  CHECK(f.gpu->cuEventRecord(done, f.t) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamWaitEvent(f.s, done, 0) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamEndCapture(f.s, &graph) == CUDA_SUCCESS);
  CHECK(f.gpu->cuGraphLaunch(f.instantiate(graph), f.s) == CUDA_SUCCESS);
  CHECK(f.first(f.z) == 100);
}

TEST_CASE("a capture forbids calls that wait, and events from outside") {
  const Fixture f;
  CUgraph graph = nullptr;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const auto status_now = [&] {
    CHECK(f.gpu->cuStreamIsCapturing(f.s, &status) == CUDA_SUCCESS);
    return status;
  };
  CUdeviceptr p = 0;
  CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(f.gpu->cuMemAlloc(&p, 16) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(f.gpu.fault() == "cuMemAlloc: called while a stream is being captured");
  CHECK(status_now() == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(f.gpu->cuStreamSynchronize(f.s) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(f.gpu.fault() == "cuStreamSynchronize: stream 0 of device 0 is being captured");
  CHECK(status_now() == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CHECK(f.gpu->cuStreamEndCapture(f.s, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(status_now() == CU_STREAM_CAPTURE_STATUS_NONE);
  const CUevent e = f.gpu.event();
  CHECK(f.gpu->cuEventRecord(e, f.t) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamBeginCapture(f.s, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(f.gpu->cuStreamWaitEvent(f.s, e, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  CHECK(f.gpu.fault() ==
        "the capture of stream 0 of device 0 is lost: an event from outside of the capture is waited for");
  CHECK(f.gpu->cuStreamEndCapture(f.s, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
