// A launch copies what it needs, so later changes of the executable graph are for later launches.
#include "tests/emulator/fake_cuda/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace sheaf::fake_cuda {
namespace {

using namespace cuda;

CUresult add_node(Stream& stream, Node node) {
  Capture& capture = *stream.capture;
  if (!capture.is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream.device != capture.graph->device)
    return invalidate(
        capture, fmt::format("{} takes part in a capture on device {}", stream.name(), capture.graph->device->ordinal));
  node.after = stream.captured_after;
  stream.captured_after = {static_cast<int>(capture.graph->nodes.size())};
  capture.graph->nodes.push_back(std::make_shared<Node>(std::move(node)));
  return CUDA_SUCCESS;
}

void leave(Stream& stream) {
  stream.capture = nullptr;
  stream.captured_after.clear();
}

// Whether all of the capture's work comes before the end of its first stream.
bool is_joined(const Capture& capture, const std::vector<int>& ends) {
  std::vector<char> is_before(capture.graph->nodes.size(), 0);
  for (int n : ends) is_before[static_cast<std::size_t>(n)] = 1;
  for (std::size_t n = is_before.size(); n-- > 0;)
    if (is_before[n])
      for (int before : capture.graph->nodes[n]->after) is_before[static_cast<std::size_t>(before)] = 1;
  return std::find(is_before.begin(), is_before.end(), 0) == is_before.end();
}

// Among nodes that may come next: the one captured last, or any. Neither is the order in which they were captured.
std::vector<int> order_of(const GraphExec& executable) {
  std::vector<int> order, left(executable.nodes.size());
  std::iota(left.begin(), left.end(), 0);
  std::vector<char> done(left.size(), 0);
  const auto is_done = [&](int n) { return done[static_cast<std::size_t>(n)] != 0; };
  while (!left.empty()) {
    std::vector<int> ready;
    for (int n : left) {
      const auto& after = executable.nodes[static_cast<std::size_t>(n)].after;
      if (std::all_of(after.begin(), after.end(), is_done)) ready.push_back(n);
    }
    const bool is_random = driver().options.order == Options::Order::random;
    const int chosen = is_random ? ready[driver().random() % ready.size()] : ready.back();
    order.push_back(chosen);
    done[static_cast<std::size_t>(chosen)] = 1;
    std::erase(left, chosen);
  }
  return order;
}

void point_at_arguments(Node& node) {
  node.parameters.clear();
  if (!node.launch) return;
  for (auto& a : node.launch->arguments) node.parameters.push_back(a.data());
}

}  // namespace

CUresult submit(Stream& stream, Work work, CUgraphNodeType type) {
  if (stream.capture) return add_node(stream, {.type = type, .after = {}, .launch = {}, .work = std::move(work)});
  enqueue(stream, std::move(work));
  return CUDA_SUCCESS;
}

CUresult submit(Stream& stream, LaunchCall call) {
  if (stream.capture)
    return add_node(stream, {.type = CU_GRAPH_NODE_TYPE_KERNEL, .after = {}, .launch = std::move(call)});
  enqueue(stream, work_of(std::move(call)));
  return CUDA_SUCCESS;
}

CUresult begin_capture(const StreamPtr& stream, CUstreamCaptureMode mode) {
  if (stream->capture)
    return misuse(CUDA_ERROR_ILLEGAL_STATE, "cuStreamBeginCapture: " + stream->name() + " is being captured already");
  auto graph = std::make_shared<Graph>(Graph{.device = stream->device});
  stream->capture = std::make_shared<Capture>(
      Capture{.graph = std::move(graph), .origin = stream.get(), .mode = mode, .joined = {stream}});
  driver().captures += mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  return CUDA_SUCCESS;
}

CUresult end_capture(const StreamPtr& stream, CUgraph* graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture)
    return misuse(CUDA_ERROR_ILLEGAL_STATE, "cuStreamEndCapture: " + stream->name() + " is not being captured");
  if (capture->origin != stream.get())
    return misuse(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
                  "cuStreamEndCapture: the capture began on " + capture->origin->name());
  const std::vector<int> ends = stream->captured_after;
  for (const auto& j : capture->joined)
    if (const StreamPtr s = j.lock()) leave(*s);
  driver().captures -= capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  if (!capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!is_joined(*capture, ends))
    return misuse(CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
                  "cuStreamEndCapture: work of another stream is in the capture, and " + stream->name() +
                      " does not wait for it");
  for (const auto& node : capture->graph->nodes) {
    point_at_arguments(*node);
    driver().nodes.add<CUgraphNode>(node);
  }
  *graph = driver().graphs.add<CUgraph>(capture->graph);
  return CUDA_SUCCESS;
}

void record_in_capture(Stream& stream, Event& event) {
  event.capture = stream.capture;
  event.captured_after = stream.captured_after;
}

CUresult wait_in_capture(const StreamPtr& stream, const Event& event) {
  if (stream->capture && stream->capture != event.capture)
    return invalidate(*stream->capture, event.capture ? "an event of another capture is waited for"
                                                      : "an event from outside of the capture is waited for");
  if (!stream->capture) {
    if (!stream->is_idle() && !event.capture->is_valid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture = event.capture;
    event.capture->joined.push_back(stream);
  }
  for (int n : event.captured_after)
    if (std::find(stream->captured_after.begin(), stream->captured_after.end(), n) == stream->captured_after.end())
      stream->captured_after.push_back(n);
  return CUDA_SUCCESS;
}

CUresult invalidate(Capture& capture, const std::string& why) {
  capture.is_valid = false;
  return misuse(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "the capture of " + capture.origin->name() + " is lost: " + why);
}

std::shared_ptr<GraphExec> instantiate(const Graph& graph) {
  auto executable = std::make_shared<GraphExec>(GraphExec{.device = graph.device});
  for (const auto& node : graph.nodes) {
    executable->nodes.push_back({.type = node->type, .after = node->after, .launch = node->launch, .work = node->work});
    executable->origins.push_back(node);
  }
  return executable;
}

void launch(const GraphExec& executable, Stream& stream) {
  ++driver().counters.graph_launches;
  for (int n : order_of(executable)) {
    const Node& node = executable.nodes[static_cast<std::size_t>(n)];
    enqueue(stream, node.launch ? work_of(*node.launch) : node.work);
  }
}

}  // namespace sheaf::fake_cuda
