// Entry points of the fake driver: captures and graphs.
#include <fmt/format.h>

#include <algorithm>

#include "tests/emulator/fake_cuda/entry.h"

using namespace sheaf::cuda;
using namespace sheaf::fake_cuda;

namespace {

CUresult call_on_graph(const char* name, CUgraph handle, const std::function<CUresult(Graph&)>& body) {
  return call(name, [&](Lock&) {
    const std::shared_ptr<Graph> graph = driver().graphs.find(handle);
    return graph ? body(*graph)
                 : misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such graph, or one destroyed", name));
  });
}

CUresult call_on_executable(const char* name, CUgraphExec handle, const std::function<CUresult(GraphExec&)>& body) {
  return call(name, [&](Lock&) {
    const std::shared_ptr<GraphExec> executable = driver().executables.find(handle);
    if (!executable)
      return misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such executable graph, or one destroyed", name));
    return executable->device->sticky ? executable->device->sticky : body(*executable);
  });
}

CUresult call_on_node(const char* name, CUgraphNode handle, const std::function<CUresult(Node&)>& body) {
  return call(name, [&](Lock&) {
    const std::shared_ptr<Node> node = driver().nodes.find(handle);
    return node ? body(*node)
                : misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such node, or its graph is destroyed", name));
  });
}

/// The launch that parameters of a node describe, or what is wrong with it.
CUresult launch_of(const char* name, const CUDA_KERNEL_NODE_PARAMS& p, const Device& device, LaunchCall* call) {
  const FunctionPtr f = driver().functions.find(p.func);
  if (!f || f->device != &device)
    return misuse(CUDA_ERROR_INVALID_HANDLE, fmt::format("{}: no such function on device {}", name, device.ordinal));
  *call = {f,
           {.grid = {p.gridDimX, p.gridDimY, p.gridDimZ},
            .block = {p.blockDimX, p.blockDimY, p.blockDimZ},
            .dynamic_shared_bytes = p.sharedMemBytes},
           arguments_of(*f, p.kernelParams)};
  const std::string wrong = wrong_with(*f, call->launch);
  return wrong.empty() ? CUDA_SUCCESS : misuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{}: {}", name, wrong));
}

CUgraphExecUpdateResult difference(const GraphExec& executable, const Graph& graph, std::size_t* at) {
  *at = 0;
  if (executable.nodes.size() != graph.nodes.size()) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  for (std::size_t& n = *at; n < graph.nodes.size(); ++n) {
    if (executable.nodes[n].type != graph.nodes[n]->type) return CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    if (executable.nodes[n].after != graph.nodes[n]->after) return CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  }
  return CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

}  // namespace

SHEAF_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return call_on_stream("cuStreamBeginCapture", stream,
                        [&](Lock&, const StreamPtr& s) { return begin_capture(s, mode); });
}

SHEAF_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call_on_stream("cuStreamEndCapture", stream, [&](Lock&, const StreamPtr& s) { return end_capture(s, graph); });
}

SHEAF_EXPORT CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return call_on_stream("cuStreamIsCapturing", stream, [&](Lock&, const StreamPtr& s) {
    *status = !s->capture            ? CU_STREAM_CAPTURE_STATUS_NONE
              : s->capture->is_valid ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                     : CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return call_on_graph("cuGraphGetNodes", graph, [&](Graph& g) {
    if (nodes)
      for (std::size_t n = 0; n < std::min(*count, g.nodes.size()); ++n)
        nodes[n] = reinterpret_cast<CUgraphNode>(g.nodes[n].get());
    *count = g.nodes.size();
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return call_on_node("cuGraphNodeGetType", node, [&](Node& n) {
    *type = n.type;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* parameters) {
  return call_on_node("cuGraphKernelNodeGetParams", node, [&](Node& n) {
    if (!n.launch) return misuse(CUDA_ERROR_INVALID_VALUE, "cuGraphKernelNodeGetParams: the node is no kernel");
    const auto& [grid, block, shared] = n.launch->launch;
    *parameters = {.func = reinterpret_cast<CUfunction>(n.launch->function.get()),
                   .gridDimX = grid.x,
                   .gridDimY = grid.y,
                   .gridDimZ = grid.z,
                   .blockDimX = block.x,
                   .blockDimY = block.y,
                   .blockDimZ = block.z,
                   .sharedMemBytes = static_cast<unsigned>(shared),
                   .kernelParams = n.parameters.data(),
                   .extra = nullptr,
                   .kern = nullptr,
                   .ctx = nullptr};
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return call_on_graph("cuGraphInstantiateWithFlags", graph, [&](Graph& g) {
    *executable = driver().executables.add<CUgraphExec>(instantiate(g));
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return call_on_stream("cuGraphLaunch", stream, [&](Lock&, const StreamPtr& s) {
    const std::shared_ptr<GraphExec> e = driver().executables.find(executable);
    if (!e) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuGraphLaunch: no such executable graph, or one destroyed");
    if (e->device != s->device)
      return misuse(CUDA_ERROR_INVALID_VALUE,
                    fmt::format("cuGraphLaunch: a graph of device {} on {}", e->device->ordinal, s->name()));
    if (s->capture) return misuse(CUDA_ERROR_NOT_SUPPORTED, "cuGraphLaunch: the fake driver captures no graphs");
    launch(*e, *s);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec executable, CUgraphNode node,
                                                        const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return call_on_executable("cuGraphExecKernelNodeSetParams", executable, [&](GraphExec& e) {
    const auto origin = std::find(e.origins.begin(), e.origins.end(), driver().nodes.find(node));
    if (!driver().nodes.find(node) || origin == e.origins.end())
      return misuse(
          CUDA_ERROR_INVALID_VALUE,
          "cuGraphExecKernelNodeSetParams: no node of the graph that this was made from, or that is destroyed");
    Node& patched = e.nodes[static_cast<std::size_t>(origin - e.origins.begin())];
    if (!patched.launch)
      return misuse(CUDA_ERROR_INVALID_VALUE, "cuGraphExecKernelNodeSetParams: the node is no kernel");
    LaunchCall call;
    if (const CUresult r = launch_of("cuGraphExecKernelNodeSetParams", *parameters, *e.device, &call)) return r;
    patched.launch = std::move(call);
    ++driver().counters.patched_nodes;
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec executable, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  return call_on_executable("cuGraphExecUpdate", executable, [&](GraphExec& e) {
    const std::shared_ptr<Graph> g = driver().graphs.find(graph);
    if (!g) return misuse(CUDA_ERROR_INVALID_HANDLE, "cuGraphExecUpdate: no such graph, or one destroyed");
    std::size_t at = 0;
    *result = {.result = difference(e, *g, &at), .errorNode = nullptr, .errorFromNode = nullptr};
    if (result->result != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
      if (at < g->nodes.size()) result->errorNode = reinterpret_cast<CUgraphNode>(g->nodes[at].get());
      return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    e.nodes = std::move(instantiate(*g)->nodes);
    return CUDA_SUCCESS;
  });
}

SHEAF_EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call("cuGraphExecDestroy", [&](Lock&) {
    if (driver().executables.remove(executable)) return CUDA_SUCCESS;
    return misuse(CUDA_ERROR_INVALID_HANDLE, "cuGraphExecDestroy: no such executable graph, or one destroyed");
  });
}

SHEAF_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  return call_on_graph("cuGraphDestroy", graph, [&](Graph& g) {
    for (const auto& node : g.nodes) driver().nodes.remove(node.get());
    driver().graphs.remove(graph);
    return CUDA_SUCCESS;
  });
}
