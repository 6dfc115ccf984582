// The check is a host function on the positions: it runs where a callback does, and can name the position it met.
#include "trace/debug_index.h"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <mutex>
#include <vector>

#include "ir/callbacks.h"
#include "ir/environment.h"
#include "ir/op.h"
#include "ir/ops/attrs.h"
#include "trace/apply.h"
#include "trace/recorder.h"

namespace sheaf {
namespace {

bool is_on() {
  static const bool on = ir::is_switched_on("SHEAF_DEBUG_INDEX");
  return on;
}

std::string text_of(std::string_view position, const PositionRange& r) {
  const std::string window = r.window == 1 ? "" : fmt::format(" for a window of {}", r.window);
  return fmt::format("index {} is out of range for axis {} of extent {}{}", position, r.axis, r.extent, window);
}

absl::Status check_literal(const ir::Literal& positions, std::span<const PositionRange> ranges) {
  for (std::int64_t i = 0; i < positions.size(); ++i) {
    const PositionRange& r = ranges[i % std::ssize(ranges)];
    const std::int64_t p = positions.get_int(i);
    const bool is_huge = is_unsigned_int(positions.dtype()) && p < 0;
    if (!is_huge && p >= (r.wraps ? -r.extent : 0) && p <= r.extent - r.window) continue;
    const std::string text = is_huge ? std::to_string(static_cast<std::uint64_t>(p)) : std::to_string(p);
    return absl::OutOfRangeError(text_of(text, r));
  }
  return absl::OkStatus();
}

// One slot for equal ranges, so that tracing a function again gives the same program.
int slot_of(std::span<const PositionRange> ranges) {
  static auto& mutex = *new std::mutex;
  static auto& slots = *new absl::flat_hash_map<std::vector<std::int64_t>, int>;
  std::vector<std::int64_t> key;
  for (const PositionRange& r : ranges) key.insert(key.end(), {r.axis, r.extent, r.window, r.wraps});
  std::lock_guard lock(mutex);
  const auto [it, is_new] = slots.try_emplace(std::move(key), -1);
  if (is_new)
    it->second = ir::add_callback(
        [all = std::vector(ranges.begin(), ranges.end())](std::span<const ir::Literal> in, std::span<ir::Literal>) {
          return check_literal(in[0], all);
        });
  return it->second;
}

ir::Literal literal_of(const Array& x, Loc loc) {
  ir::Literal value(node_of(x, loc).type);
  check(buffer_of(x, value.type(), loc)->to_host(std::span(value.data(), value.bytes())), loc);
  return value;
}

}  // namespace

void check_positions(std::string_view name, const Array& positions, std::span<const PositionRange> ranges, Loc own) {
  if (!is_on()) return;
  const Loc loc = UserLine::or_own(own);
  if (Recorder* r = Recorder::current()) {
    const ir::Value value = r->lift(positions, loc);
    r->builder().set_loc(loc);
    r->builder().emit_all(&ir::ops::callback, {value},
                          std::make_shared<const ir::ops::CallbackAttrs>(
                              ir::ops::CallbackAttrs{.name = std::string(name), .slot = slot_of(ranges)}));
  } else if (const absl::Status s = check_literal(literal_of(positions, loc), ranges); !s.ok()) {
    throw RuntimeError(loc, fmt::format("{}: {}", name, std::string(s.message())));
  }
}

}  // namespace sheaf
