// The check is a host function on the positions: it runs where a callback does, and can name the position it met.
#include "trace/debug_index.h"

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
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

// "position [1, 2] along axes [0, 1]"
std::string place_text(const Shape& at, std::span<const PositionRange> ranges) {
  Shape axes;
  for (const PositionRange& r : ranges) axes.push_back(r.axis);
  return fmt::format("position {} along axes {}", to_string(at), to_string(axes));
}

// The places of one run: each index vector after the other, in the order of the indices.
class Places {
 public:
  Places(const ir::Literal& vectors, std::span<const PositionRange> ranges, const Promise& promise)
      : vectors_(vectors), ranges_(ranges), promise_(promise), index_dims_(vectors.dims()), windows_(ranges.size()) {
    index_dims_.pop_back();
    for (std::size_t k = 0; k < ranges.size(); ++k) windows_[k] = ranges[k].window;
    for (std::size_t k = 0; k < ranges.size(); ++k) by_axis_.push_back(k);
    std::sort(by_axis_.begin(), by_axis_.end(), [&](auto a, auto b) { return ranges[a].axis < ranges[b].axis; });
  }

  absl::Status check() {
    if (num_elements(index_dims_) == 0) return absl::OkStatus();
    std::vector<std::int64_t> index(index_dims_.size());
    std::int64_t row = 0;
    do {
      Shape batch;
      for (const std::int64_t d : promise_.batch) batch.push_back(index[d]);
      if (absl::Status s = check_one(start_of(row++), batch); !s.ok()) return s;
    } while (ir::next_index(index, index_dims_));
    return absl::OkStatus();
  }

 private:
  struct Start {
    Shape at;  // moved to where the window fits
    bool is_dropped = false;
  };

  Start start_of(std::int64_t row) const {
    Start start;
    const std::int64_t count = std::ssize(ranges_);
    for (std::int64_t k = 0; k < count; ++k) {
      std::int64_t p = vectors_.get_int(row * count + k);
      if (is_unsigned_int(vectors_.dtype()) && p < 0) p = std::numeric_limits<std::int64_t>::max();
      start.at.push_back(
          std::clamp<std::int64_t>(p, 0, std::max<std::int64_t>(ranges_[k].extent - ranges_[k].window, 0)));
      start.is_dropped |= start.at.back() != p && !promise_.clips;
    }
    return start;
  }

  absl::Status check_one(const Start& start, const Shape& batch) {
    if (promise_.sorted) {
      Shape ordered;
      for (const std::size_t k : by_axis_) ordered.push_back(start.at[k]);
      const auto [last, is_first] = last_.try_emplace(batch, ordered);
      if (!is_first && ordered < last->second)
        return absl::InvalidArgumentError(fmt::format("{} comes after {}, and sorted was promised",
                                                      place_text(start.at, ranges_), to_string(last->second)));
      last->second = std::move(ordered);
    }
    return promise_.unique && !start.is_dropped ? write_window(start.at, batch) : absl::OkStatus();
  }

  absl::Status write_window(const Shape& start, const Shape& batch) {
    std::vector<std::int64_t> inside(windows_.size());
    do {
      Shape at = start;
      for (std::size_t k = 0; k < at.size(); ++k) at[k] += inside[k];
      if (!written_.emplace(batch, at).second)
        return absl::InvalidArgumentError(
            fmt::format("{} is written twice, and unique was promised", place_text(at, ranges_)));
    } while (ir::next_index(inside, windows_));
    return absl::OkStatus();
  }

  const ir::Literal& vectors_;
  std::span<const PositionRange> ranges_;
  const Promise& promise_;
  Shape index_dims_, windows_;
  std::vector<std::size_t> by_axis_;  // components, in the order of their axes
  absl::flat_hash_map<Shape, Shape> last_;
  absl::flat_hash_set<std::pair<Shape, Shape>> written_;
};

using Check = std::function<absl::Status(const ir::Literal& positions)>;
using Key = std::vector<std::int64_t>;

Key key_of(std::span<const PositionRange> ranges) {
  Key key;
  for (const PositionRange& r : ranges) key.insert(key.end(), {r.axis, r.extent, r.window, r.wraps});
  return key;
}

// One slot for equal checks, so that tracing a function again gives the same program.
int slot_of(const Key& key, Check check) {
  static auto& mutex = *new std::mutex;
  static auto& slots = *new absl::flat_hash_map<Key, int>;
  std::lock_guard lock(mutex);
  const auto [it, is_new] = slots.try_emplace(key, -1);
  if (is_new)
    it->second = ir::add_watcher(
        [check = std::move(check)](std::span<const ir::Literal> in, std::span<ir::Literal>) { return check(in[0]); });
  return it->second;
}

ir::Literal literal_of(const Array& x, Loc loc) {
  ir::Literal value(node_of(x, loc).type);
  check(buffer_of(x, value.type(), loc)->to_host(std::span(value.data(), value.bytes())), loc);
  return value;
}

// Now, or in the run of what is traced.
void check_now_or_then(std::string_view name, const Array& positions, const Key& key, Check check, Loc own) {
  const Loc loc = UserLine::or_own(own);
  if (Recorder* r = Recorder::current()) {
    const ir::Value value = r->lift(positions, loc);
    r->builder().set_loc(loc);
    r->builder().emit_all(&ir::ops::callback, {value},
                          std::make_shared<const ir::ops::CallbackAttrs>(ir::ops::CallbackAttrs{
                              .name = std::string(name), .slot = slot_of(key, std::move(check))}));
  } else if (const absl::Status s = check(literal_of(positions, loc)); !s.ok()) {
    throw RuntimeError(loc, fmt::format("{}: {}", name, std::string(s.message())));
  }
}

}  // namespace

bool checks_indices() {
  static const bool on = ir::is_switched_on("SHEAF_DEBUG_INDEX");
  return on;
}

void check_positions(std::string_view name, const Array& positions, std::span<const PositionRange> ranges, Loc loc) {
  if (!checks_indices()) return;
  const auto check = [all = std::vector(ranges.begin(), ranges.end())](const ir::Literal& p) {
    return check_literal(p, all);
  };
  check_now_or_then(name, positions, key_of(ranges), check, loc);
}

void check_promise(std::string_view name, const Array& vectors, std::span<const PositionRange> ranges,
                   const Promise& promise, Loc loc) {
  if (!checks_indices() || (!promise.unique && !promise.sorted)) return;
  const Key all_ranges = key_of(ranges);
  Key key{-1, promise.unique, promise.sorted, promise.clips, std::ssize(ranges)};  // -1 is no axis of check_positions
  key.insert(key.end(), all_ranges.begin(), all_ranges.end());
  key.insert(key.end(), promise.batch.begin(), promise.batch.end());
  const auto check = [all = std::vector(ranges.begin(), ranges.end()), promise](const ir::Literal& v) {
    return Places(v, all, promise).check();
  };
  check_now_or_then(name, vectors, key, check, loc);
}

}  // namespace sheaf
