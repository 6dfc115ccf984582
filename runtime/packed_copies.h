// Copies of an array's contents in the order in which products read them. Weights that stay the same from call to call
// are packed once: an array that is packed for the second time in the same way keeps the copy. Invariant: a copy lives
// and dies with the contents it was made of, all copies of the process stay within SHEAF_PACKED_LIMIT bytes, and where
// they would not, those give way that nobody has read since the newcomer was last packed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sheaf::runtime {

class Memory;
struct PackedCopy;

class PackedCopies {
 public:
  PackedCopies();
  ~PackedCopies();
  PackedCopies(const PackedCopies&) = delete;
  PackedCopies& operator=(const PackedCopies&) = delete;

  /// Memory for a copy of `bytes` bytes in this layout, to be read if `is_made` and else to be written; null: whoever
  /// asks uses memory of its own. To be written it is until `finish`, by this asker alone. Whoever reads it keeps it.
  struct Place {
    std::shared_ptr<Memory> memory;
    bool is_made = false;
  };
  Place place(const std::string& layout, std::int64_t bytes);
  /// What was to be written has been, or has failed.
  void finish(const std::string& layout, bool is_made);

 private:
  std::vector<std::unique_ptr<PackedCopy>> copies_;  // by layout
};

/// Lets go of all copies, for where memory runs out; false where there is none to let go of.
bool drop_packed_copies();

}  // namespace sheaf::runtime
