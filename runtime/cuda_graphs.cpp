// The first run of a sequence is launched one by one, since a capture must not load code; the second makes the graph. A
// driver that refuses is asked once: everything works without graphs.
#include "runtime/cuda_graphs.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/hash/hash.h"
#include "fmt/format.h"
#include "ir/log.h"
#include "runtime/counters.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_module.h"
#include "runtime/kernel.h"

namespace sheaf::runtime {
namespace {

constexpr std::size_t kFewest = 3;
constexpr std::size_t kMostSequences = 64;
constexpr std::size_t kMostGraphs = 2;

std::vector<const Kernel*> kernels_of(std::span<const Launch> launches) {
  std::vector<const Kernel*> kernels;
  for (const Launch& launch : launches) kernels.push_back(launch.kernel);
  return kernels;
}

std::vector<void*> buffers_of(std::span<const Launch> launches) {
  std::vector<void*> buffers;
  for (const Launch& launch : launches) buffers.insert(buffers.end(), launch.buffers.begin(), launch.buffers.end());
  return buffers;
}

std::size_t differences(const std::vector<void*>& a, const std::vector<void*>& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

/// Whether the phase is to be given anything else than it was.
bool differs(const codegen::Phase& phase, std::span<void* const> buffers, void* const* before) {
  return std::ranges::any_of(pointers_of(phase, buffers.size()),
                             [&](const codegen::PointerRun& run) {
                               return !std::equal(&buffers[run.first], &buffers[run.first] + run.count,
                                                  before + run.first);
                             }) ||
         std::ranges::any_of(phase.maps,
                             [&](const codegen::TensorMap& map) { return buffers[map.buffer] != before[map.buffer]; });
}

absl::StatusOr<const CudaKernel::Functions*> functions_of(const CudaContext& gpu, const Launch& launch) {
  return launch.kernel->compiled()->cuda->on(gpu.cuda, gpu.ordinal);
}

}  // namespace

CudaGraphs::~CudaGraphs() {
  if (!gpu_.enter().ok()) return;
  for (auto& [hash, sequence] : sequences_)
    for (Graph& graph : sequence.graphs) destroy(graph);
}

void CudaGraphs::destroy(Graph& graph) {
  if (graph.executable) (void)gpu_.cuda.cuGraphExecDestroy(graph.executable);
  if (graph.graph) (void)gpu_.cuda.cuGraphDestroy(graph.graph);
}

CudaGraphs::Sequence* CudaGraphs::sequence_of(std::span<const Launch> launches) {
  if (launches.size() < kFewest) return nullptr;
  std::vector<const Kernel*> kernels = kernels_of(launches);
  const std::size_t hash = absl::HashOf(kernels);
  if (sequences_.size() == kMostSequences && !sequences_.contains(hash)) return nullptr;
  Sequence& sequence = sequences_.try_emplace(hash, Sequence{kernels}).first->second;
  return sequence.is_refused || sequence.kernels != kernels ? nullptr : &sequence;
}

CudaGraphs::Graph* CudaGraphs::add_graph(Sequence& sequence, std::span<const Launch> launches) {
  absl::StatusOr<Graph> captured = capture(launches);
  if (captured.ok()) return &sequence.graphs.emplace_back(*std::move(captured));
  ir::log(ir::LogTopic::runtime, "{}: no graph of {} kernels: {}", gpu_.name, launches.size(),
          std::string(captured.status().message()));
  sequence.is_refused = true;
  return nullptr;
}

bool CudaGraphs::prepare(std::span<const Launch> launches) {
  Sequence* const sequence = sequence_of(launches);
  if (!sequence) return false;
  sequence->runs = std::max<std::uint64_t>(sequence->runs, 1);  // its kernels are loaded, as by a first run
  while (sequence->graphs.size() < kMostGraphs) {
    Graph* const graph = add_graph(*sequence, launches);
    if (!graph) return false;
    graph->buffers = buffers_of(launches);
  }
  return true;
}

absl::StatusOr<bool> CudaGraphs::run(std::span<const Launch> launches, cuda::CUstream stream) {
  Sequence* const found = sequence_of(launches);
  if (!found || found->runs++ == 0) return false;
  Sequence& sequence = *found;

  const std::vector<void*> buffers = buffers_of(launches);
  const auto nearest = std::ranges::min_element(sequence.graphs, {}, [&](const Graph& graph) {
    const std::size_t count = differences(graph.buffers, buffers);
    return std::tuple(count > 0, graph.last_run > 0, count, graph.last_run);  // one that never ran before one in use
  });
  Graph* graph = nearest == sequence.graphs.end() ? nullptr : &*nearest;
  const bool is_known = graph && graph->buffers == buffers;
  if (!is_known && sequence.graphs.size() < kMostGraphs) {
    graph = add_graph(sequence, launches);
    if (!graph) return false;
  } else if (!is_known) {
    if (absl::Status status = patch(*graph, launches); !status.ok()) {
      std::ranges::fill(graph->buffers, this);  // no buffer is there: the next run patches every launch
      return status;
    }
  }
  graph->buffers = buffers;
  graph->last_run = sequence.runs;
  counters().graph_launches.fetch_add(1, std::memory_order_relaxed);
  counters().launches.fetch_add(std::ssize(launches), std::memory_order_relaxed);
  absl::Status status = gpu_.cuda.status(gpu_.cuda.cuGraphLaunch(graph->executable, stream), "cuGraphLaunch");
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<CudaGraphs::Graph> CudaGraphs::capture(std::span<const Launch> launches) {
  const Cuda& cuda = gpu_.cuda;
  absl::Status status = cuda.status(cuda.cuStreamBeginCapture(capture_, cuda::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
                                    "cuStreamBeginCapture");
  if (!status.ok()) return status;
  Graph graph;
  for (std::size_t l = 0; l < launches.size() && status.ok(); ++l) {
    const absl::StatusOr<const CudaKernel::Functions*> functions = functions_of(gpu_, launches[l]);
    status = functions.status();
    const std::vector<codegen::Phase>& phases = launches[l].kernel->code().phases;
    for (int p = 0; p < std::ssize(phases) && status.ok(); ++p) {
      if (phases[p].extent == 0) continue;
      status = CudaLaunch((**functions)[p], phases[p], launches[l].buffers).on(cuda, capture_);
      graph.nodes.push_back({.launch = l, .phase = p});
    }
  }
  absl::Status ended = cuda.status(cuda.cuStreamEndCapture(capture_, &graph.graph), "cuStreamEndCapture");
  if (status.ok()) status = std::move(ended);
  if (status.ok()) status = find_nodes(launches, graph);
  if (status.ok())
    status =
        cuda.status(cuda.cuGraphInstantiateWithFlags(&graph.executable, graph.graph, 0), "cuGraphInstantiateWithFlags");
  if (!status.ok()) {
    destroy(graph);
    return status;
  }
  counters().graphs_instantiated.fetch_add(1, std::memory_order_relaxed);
  return graph;
}

/// The driver lists nodes in the order of their capture, though it does not say so: each is looked at.
absl::Status CudaGraphs::find_nodes(std::span<const Launch> launches, Graph& graph) {
  const Cuda& cuda = gpu_.cuda;
  std::size_t count = graph.nodes.size();
  std::vector<cuda::CUgraphNode> nodes(count + 1);
  std::size_t found = nodes.size();
  absl::Status status = cuda.status(cuda.cuGraphGetNodes(graph.graph, nodes.data(), &found), "cuGraphGetNodes");
  if (!status.ok()) return status;
  if (found != count) return absl::InternalError(fmt::format("{} launches became {} nodes", count, found));
  for (std::size_t n = 0; n < count; ++n) {
    Node& node = graph.nodes[n];
    node.node = nodes[n];
    const Launch& launch = launches[node.launch];
    cuda::CUDA_KERNEL_NODE_PARAMS there = {};
    status = cuda.status(cuda.cuGraphKernelNodeGetParams(node.node, &there), "cuGraphKernelNodeGetParams");
    if (!status.ok()) return status;
    const absl::StatusOr<const CudaKernel::Functions*> functions = functions_of(gpu_, launch);
    if (!functions.ok()) return functions.status();
    bool is_it = !there.func || there.func == (**functions)[node.phase];  // a driver may name the kernel instead
    const PointerRuns runs = pointers_of(launch.kernel->code().phases[node.phase], launch.buffers.size());
    for (std::size_t p = 0; p < runs.size() && is_it; ++p)
      is_it = std::equal(&launch.buffers[runs[p].first], &launch.buffers[runs[p].first] + runs[p].count,
                         static_cast<void* const*>(there.kernelParams[p]));
    if (!is_it) return absl::InternalError(fmt::format("node {} is not launch {}", n, n));
  }
  return absl::OkStatus();
}

absl::Status CudaGraphs::patch(Graph& graph, std::span<const Launch> launches) {
  std::vector<void* const*> before;  // the buffers of each launch
  for (std::size_t at = 0; const Launch& launch : launches) {
    before.push_back(graph.buffers.data() + at);
    at += launch.buffers.size();
  }
  for (const Node& node : graph.nodes) {
    const Launch& launch = launches[node.launch];
    if (!differs(launch.kernel->code().phases[node.phase], launch.buffers, before[node.launch])) continue;
    const absl::StatusOr<const CudaKernel::Functions*> functions = functions_of(gpu_, launch);
    if (!functions.ok()) return functions.status();
    CudaLaunch patched((**functions)[node.phase], launch.kernel->code().phases[node.phase], launch.buffers);
    const absl::StatusOr<cuda::CUDA_KERNEL_NODE_PARAMS> parameters = patched.node(gpu_.cuda);
    if (!parameters.ok()) return parameters.status();
    counters().nodes_patched.fetch_add(1, std::memory_order_relaxed);
    absl::Status status =
        gpu_.cuda.status(gpu_.cuda.cuGraphExecKernelNodeSetParams(graph.executable, node.node, &*parameters),
                         "cuGraphExecKernelNodeSetParams");
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sheaf::runtime
