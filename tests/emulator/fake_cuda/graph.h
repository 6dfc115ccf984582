// Captured work as graphs: nodes in the order of their capture, each after some earlier ones. A launch does the nodes
// in any order that their edges allow, so that a missing edge shows.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/emulator/fake_cuda/kernel.h"

namespace sheaf::fake_cuda {

struct Node {
  cuda::CUgraphNodeType type = cuda::CU_GRAPH_NODE_TYPE_EMPTY;
  std::vector<int> after = {};  // nodes of the same graph
  std::optional<LaunchCall> launch = {};  // of a kernel
  std::vector<void*> parameters = {};  // into launch->arguments, for cuGraphKernelNodeGetParams
  Work work = {};  // of everything else
};

struct Graph {
  Device* device = nullptr;
  std::vector<std::shared_ptr<Node>> nodes = {};  // a handle is a node's address
};

/// A graph in the making.
struct Capture {
  std::shared_ptr<Graph> graph = {};
  Stream* origin = nullptr;
  cuda::CUstreamCaptureMode mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool is_valid = true;
  std::vector<std::weak_ptr<Stream>> joined = {};
};

struct GraphExec {
  Device* device = nullptr;
  std::vector<Node> nodes = {};
  std::vector<std::shared_ptr<Node>> origins = {};  // the node of the graph that each was made from
};

/// `work` at the end of `stream`: at once, or as a node where the stream is being captured.
CUresult submit(Stream& stream, Work work, cuda::CUgraphNodeType type);
CUresult submit(Stream& stream, LaunchCall call);

CUresult begin_capture(const StreamPtr& stream, cuda::CUstreamCaptureMode mode);
CUresult end_capture(const StreamPtr& stream, cuda::CUgraph* graph);
void record_in_capture(Stream& stream, Event& event);
/// `stream` goes on after a captured event: it takes part in the capture from here.
CUresult wait_in_capture(const StreamPtr& stream, const Event& event);
/// For calls that a capture forbids: it can then only be ended, and gives no graph.
CUresult invalidate(Capture& capture, const std::string& why);

std::shared_ptr<GraphExec> instantiate(const Graph& graph);
void launch(const GraphExec& executable, Stream& stream);

}  // namespace sheaf::fake_cuda
