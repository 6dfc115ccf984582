// A map whose values are costly to make. Invariant: for one key one thread makes the value while the others that want
// it wait for the same result; an error goes to all who waited, and the next request tries again.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace sheaf::runtime {

/// Key -> Value with one maker per key. `Value` is copied out, so it is a pointer or small.
template <class Key, class Value>
class SingleFlightMap {
 public:
  /// The value of `key`, made by `make` if there is none. `make` runs without any lock held; asking for `key` again
  /// from inside it is an error, not a deadlock.
  absl::StatusOr<Value> get_or_make(const Key& key, absl::FunctionRef<absl::StatusOr<Value>()> make) {
    std::shared_ptr<Flight> flight;
    {
      std::unique_lock lock(mutex_);
      if (auto it = values_.find(key); it != values_.end()) return it->second;
      if (auto it = flights_.find(key); it != flights_.end()) {
        flight = it->second;
        if (flight->maker == std::this_thread::get_id())
          return absl::InternalError("a value was asked for while it was being made");
        landed_.wait(lock, [&] { return flight->result.has_value(); });
        return *flight->result;
      }
      flight = std::make_shared<Flight>();
      flights_.emplace(key, flight);
    }
    Landing landing{*this, key, *flight};  // also when `make` throws
    landing.result = make();
    return landing.result;
  }

  std::optional<Value> find(const Key& key) {
    std::lock_guard lock(mutex_);
    const auto it = values_.find(key);
    return it == values_.end() ? std::nullopt : std::optional(it->second);
  }

  /// Those there are.
  std::vector<Value> values() {
    std::lock_guard lock(mutex_);
    std::vector<Value> all;
    for (const auto& [key, value] : values_) all.push_back(value);
    return all;
  }

  void erase(const Key& key) {
    std::lock_guard lock(mutex_);
    values_.erase(key);
  }

 private:
  struct Flight {
    std::thread::id maker = std::this_thread::get_id();
    std::optional<absl::StatusOr<Value>> result;
  };
  struct Landing {
    SingleFlightMap& map;
    const Key& key;
    Flight& flight;
    absl::StatusOr<Value> result = absl::AbortedError("the thread that was making this value threw an exception");

    ~Landing() {
      std::lock_guard lock(map.mutex_);
      if (result.ok()) map.values_.emplace(key, *result);
      flight.result = result;
      map.flights_.erase(key);
      map.landed_.notify_all();
    }
  };

  std::mutex mutex_;
  std::condition_variable landed_;
  absl::flat_hash_map<Key, Value> values_;
  absl::flat_hash_map<Key, std::shared_ptr<Flight>> flights_;
};

}  // namespace sheaf::runtime
