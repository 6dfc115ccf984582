// Copies of an array's contents in the order in which products read them. Weights that stay the same from call to call
// are packed once: an array that is packed for the second time in the same way keeps the copy. Invariant: a copy lives
// and dies with the contents it was made of, and all copies of the process stay within SHEAF_PACKED_LIMIT bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace sheaf::runtime {

class Memory;

class PackedCopies {
 public:
  PackedCopies() = default;
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  /// Memory for a copy of `bytes` bytes in this layout, to be read if `is_made` and else to be written; null: whoever
  /// asks uses memory of its own. To be written it is until `finish`, by this asker alone.
  struct Place {
    std::shared_ptr<Memory> memory;
    bool is_made = false;
  };
  Place place(const std::string& layout, std::int64_t bytes);
  /// What was to be written has been, or has failed.
  void finish(const std::string& layout, bool is_made);

 private:
  struct Copy {
    std::string layout;
    std::int64_t bytes = 0;
    int uses = 0;
    bool is_made = false;
    std::shared_ptr<Memory> memory;  // null: not kept
  };
  void forget(Copy& copy);

  std::mutex mutex_;  // guards the rest
  std::vector<Copy> copies_;
};

}  // namespace sheaf::runtime
