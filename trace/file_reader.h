// A data file read from front to back: exactly the bytes asked for, gunzipped on the way when the file is gzipped.
// Memory grows with what the file holds, never with what its header claims, so a corrupt header costs no allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sheaf/dtype.h"
#include "sheaf/source.h"

namespace sheaf {

class FileReader {
 public:
  /// `reader` is the public function at work, for messages; `loc` its caller.
  FileReader(const char* reader, std::string path, Loc loc);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  /// The next `count` bytes; `what` names them when the file ends too early.
  std::vector<std::byte> take(std::int64_t count, const char* what);
  /// The product of `dims` times the element size; fails if it does not fit in 63 bits.
  std::int64_t bytes_of(std::span<const std::int64_t> dims, DType dtype) const;
  /// Fails if anything is left.
  void expect_end();
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  /// Fills `out` as far as the file goes; returns the bytes read.
  std::size_t read(std::span<std::byte> out);

  const char* reader_;
  std::string path_;
  Loc loc_;
  void* file_;  // gzFile
};

/// Reverses the bytes of each `width`-byte word.
void swap_bytes(std::span<std::byte> bytes, int width);

}  // namespace sheaf
