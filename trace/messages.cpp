// Error texts. The traced values know which argument they were, so a message can say it in the user's words.
#include "trace/messages.h"

#include <fmt/format.h>

#include "trace/placement.h"

namespace sheaf {

std::string type_text(const ArrayNode& node) {
  if (!node.placement) return ir::to_string(node.type);
  return ir::to_string(ir::with_sharding(node.type, node.placement->atoms(), node.placement->layout));
}

std::string type_text(const Array& x) { return x.has_value() ? type_text(*x.node()) : "an Array without a value"; }

std::string trace_text(const TraceInfo& info) {
  return info.loc ? fmt::format("{}, {}", info.what, to_string(info.loc)) : info.what;
}

namespace {

// What the user calls the value: the argument's name or path, and where it comes from. `known`: the trace the message
// has named already.
std::pair<std::string, std::string> origin(const ArrayNode& node, const TraceInfo*& known) {
  const bool is_argument = node.kind == ArrayNode::Kind::traced && node.value.is_param() &&
                           static_cast<std::size_t>(node.value.index()) < node.trace->param_places.size();
  if (!is_argument) {
    if (!node.made_at) return {"", ""};
    return {"", fmt::format("made at {}", to_string(node.made_at))};
  }
  const TraceInfo& info = *node.trace;
  const int i = node.value.index();
  const bool is_known = std::exchange(known, &info) == &info;
  return {info.param_names[i],
          is_known ? info.param_places[i] : fmt::format("{} of {}", info.param_places[i], trace_text(info))};
}

}  // namespace

std::string describe(std::span<const Named> operands) {
  std::string text;
  const TraceInfo* known = nullptr;
  for (const Named& x : operands) {
    if (!x.array || !x.array->has_value()) continue;
    const ArrayNode& node = *x.array->node();
    const auto [name, where] = origin(node, known);
    text += fmt::format("\n  {}{}{}: {}", x.role, name.empty() ? "" : " ", name, type_text(node));
    if (!where.empty()) text += fmt::format("   ({})", where);
  }
  return text;
}

void throw_leaked(const ArrayNode& node, Loc use) {
  throw LeakedTracerError(use,
                          fmt::format("a traced value is used after its trace ended: {} made at {} while tracing {}. "
                                      "Return it from the traced function instead of storing it elsewhere",
                                      type_text(node), to_string(node.made_at), trace_text(*node.trace)));
}

void throw_traced(const ArrayNode& node, Loc use, std::string_view wanted, std::string_view fix) {
  throw TracedBoolError(use ? use : node.made_at,
                        fmt::format("a traced value has no {}: {} made at {} while tracing {}. {}", wanted,
                                    type_text(node), to_string(node.made_at), trace_text(*node.trace), fix));
}

}  // namespace sheaf
