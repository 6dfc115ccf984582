// The table of slots, and the loop over the examples of a batch.
#include "ir/callbacks.h"

#include <fmt/format.h>

#include <deque>
#include <exception>
#include <mutex>

namespace sheaf::ir {
namespace {

struct Slot {
  Callback callback;
  bool is_watcher;
};

struct Table {
  std::mutex mutex;
  std::deque<Slot> slots;  // grows only: a running callback stays where it is
};

Table& table() {
  static auto& t = *new Table;
  return t;
}

int add(Slot slot) {
  std::lock_guard lock(table().mutex);
  table().slots.push_back(std::move(slot));
  return static_cast<int>(table().slots.size()) - 1;
}

const Slot* find(int slot) {
  std::lock_guard lock(table().mutex);
  return slot >= 0 && slot < std::ssize(table().slots) ? &table().slots[slot] : nullptr;
}

// Example `lane` of `all`: the type without the batch dims, the bytes at their place.
Literal lane_of(const Literal& all, std::int64_t lane, std::int64_t lanes, int batch_dims) {
  Literal one(Type(all.dtype(), Shape(all.dims().begin() + batch_dims, all.dims().end())));
  if (one.bytes() > 0) std::memcpy(one.data(), all.data() + all.bytes() / lanes * lane, one.bytes());
  return one;
}

// How many leading dims make up the lanes.
int batch_dims_of(const Literal& x, std::int64_t lanes) {
  std::int64_t product = 1;
  int dims = 0;
  while (product < lanes) product *= x.dims()[dims++];
  return dims;
}

}  // namespace

int add_callback(Callback callback) { return add({std::move(callback), false}); }
int add_watcher(Callback watcher) { return add({std::move(watcher), true}); }

bool is_watcher(int slot) {
  const Slot* found = find(slot);
  return found && found->is_watcher;
}

absl::Status run_callback(int slot, std::int64_t lanes, std::span<const Literal> in, std::span<Literal> out) {
  const Slot* found = find(slot);
  if (!found) return absl::FailedPreconditionError(fmt::format("slot {} belongs to another process", slot));
  const Callback& callback = found->callback;
  try {
    if (lanes == 1) return callback(in, out);
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      Literals operands, results;
      for (const Literal& x : in) operands.push_back(lane_of(x, lane, lanes, batch_dims_of(x, lanes)));
      for (const Literal& x : out) results.push_back(lane_of(x, lane, lanes, batch_dims_of(x, lanes)));
      if (absl::Status s = callback(operands, results); !s.ok()) return s;
      for (std::size_t j = 0; j < out.size(); ++j)
        if (results[j].bytes() > 0)
          std::memcpy(out[j].data() + results[j].bytes() * lane, results[j].data(), results[j].bytes());
    }
    return absl::OkStatus();
  } catch (const std::exception& e) { return absl::UnknownError(e.what()); } catch (...) {
    return absl::UnknownError("the function threw something that is no std::exception");
  }
}

}  // namespace sheaf::ir
