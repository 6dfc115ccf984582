// A program as text that another process can compile: its IR with the user's lines, and all else that its key is made
// of. Invariant: what is read back has the key of what was written.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "trace/execute.h"

namespace sheaf {

std::string to_text(const ProgramSource& source);
/// The mesh has its devices where this process has those, else none. InvalidArgument says what is wrong, and where.
absl::StatusOr<ProgramSource> parse_program(std::string_view text);

/// "0110"; "" where the list is empty.
std::string flags_text(const std::vector<bool>& flags);
std::vector<bool> parse_flags(std::string_view text);

/// Lines "name: value" in a fixed order, then the rest. Whoever reads a field is told of it by name where it is
/// missing.
class FieldReader {
 public:
  explicit FieldReader(std::string_view text) : text_(text) {}
  /// The value of the next line, which must be of this name; after an error "".
  std::string take(std::string_view name);
  /// So many bytes, and the end of their line.
  std::string_view take_bytes(std::size_t count);
  /// What is left.
  std::string_view rest() const { return text_; }
  void fail(std::string why);
  const absl::Status& status() const { return status_; }

 private:
  std::string_view text_;
  absl::Status status_;
};

/// On one line.
std::string line_text(std::string_view text);
std::string text_of_line(std::string_view line);
std::string loc_field(Loc loc);
Loc parse_loc_field(std::string_view text);

}  // namespace sheaf
