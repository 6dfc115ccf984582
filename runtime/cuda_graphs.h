// The sequences of launches that one program ran on one GPU, as graphs of the driver's: asked for with one call.
// Between two runs only the addresses of inputs and results change, and only launches that see them are patched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "runtime/backend.h"
#include "runtime/cuda_context.h"

namespace sheaf::runtime {

class CudaGraphs final : public Replays {
 public:
  /// `capture` is a stream of the GPU that is used for nothing else.
  CudaGraphs(CudaContext& gpu, cuda::CUstream capture) : gpu_(gpu), capture_(capture) {}
  ~CudaGraphs() override;
  CudaGraphs(const CudaGraphs&) = delete;
  CudaGraphs& operator=(const CudaGraphs&) = delete;

  /// False where the launches are few, many, or new here. Each kernel is loaded by its first run.
  absl::StatusOr<bool> run(std::span<const Launch> launches, cuda::CUstream stream);
  /// Makes all graphs that runs of these kernels, which are loaded, will use; false where there will be none.
  bool prepare(std::span<const Launch> launches);

 private:
  /// One phase of one of the launches.
  struct Node {
    cuda::CUgraphNode node = nullptr;
    std::size_t launch = 0;
    int phase = 0;
  };
  struct Graph {
    cuda::CUgraph graph = nullptr;
    cuda::CUgraphExec executable = nullptr;
    std::vector<Node> nodes = {};
    std::vector<void*> buffers = {};  // of all launches, as they are in the graph
    std::uint64_t last_run = 0;  // 0: never
  };
  struct Sequence {
    std::vector<const Kernel*> kernels;
    std::vector<Graph> graphs = {};  // two, so that a caller whose buffers take turns patches nothing
    std::uint64_t runs = 0;
    bool is_refused = false;  // by the driver
  };

  /// Null where there are to be no graphs.
  Sequence* sequence_of(std::span<const Launch> launches);
  /// Null where the driver refuses.
  Graph* add_graph(Sequence& sequence, std::span<const Launch> launches);
  absl::StatusOr<Graph> capture(std::span<const Launch> launches);
  absl::Status find_nodes(std::span<const Launch> launches, Graph& graph);
  absl::Status patch(Graph& graph, std::span<const Launch> launches);
  void destroy(Graph& graph);

  CudaContext& gpu_;
  const cuda::CUstream capture_;
  absl::flat_hash_map<std::size_t, Sequence> sequences_;  // by their kernels
};

}  // namespace sheaf::runtime
