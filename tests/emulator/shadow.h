// Who touched each byte of a range last, and where in the text. A page of it comes into being when touched, with a cell
// per word until an access needs a cell per byte.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/emulator/history.h"

namespace sheaf::emulator {

using Site = std::uint16_t;  // an instruction of the text, numbered as met

struct Cell {
  Clock written_at = 0, read_at = 0;  // 0: never. For several readers, when the first of them read
  std::uint16_t writer = 0, reader = 0;  // of Party
  Site write_site = 0, read_site = 0;
};

/// Who, in 16 bits. Readers since the last write that no order connects are one party of several.
struct Party {
  static constexpr std::uint16_t kWarp = 0x800;  // + number: several threads of one warp
  static constexpr std::uint16_t kWarpgroups = 0xc00;  // + one bit for each: the products of several warpgroups
  static constexpr std::uint16_t kAnyone = 0xfff;
  static constexpr std::uint16_t kMask = 0xfff;
  static constexpr std::uint16_t kInFlight = 0x4000;  // the write has begun and nobody has waited for it
  static constexpr std::uint16_t kAtomic = 0x8000;
};

class Shadow {
 public:
  explicit Shadow(std::int64_t bytes) : bytes_(bytes) {}

  /// Calls f(cell, offset of its first byte) for the cells of [offset, offset + bytes).
  template <class F>
  void visit(std::int64_t offset, std::int64_t bytes, const F& f) {
    while (bytes > 0) {
      Page& page = page_at(offset);
      const std::int64_t within = offset % kPageBytes, count = std::min(bytes, kPageBytes - within);
      if (page.cell_bytes == kWord && (within | count) % kWord != 0) split(page);
      for (std::int64_t at = within; at < within + count; at += page.cell_bytes) {
        f(page.cells[static_cast<std::size_t>(at / page.cell_bytes)], offset - within + at);
      }
      offset += count;
      bytes -= count;
    }
  }

 private:
  static constexpr std::int64_t kPageBytes = 1024, kWord = 4;
  struct Page {
    std::int64_t cell_bytes = kWord;
    std::vector<Cell> cells = std::vector<Cell>(kPageBytes / kWord);
  };

  Page& page_at(std::int64_t offset) {
    if (pages_.empty()) pages_.resize(static_cast<std::size_t>((bytes_ + kPageBytes - 1) / kPageBytes));
    std::unique_ptr<Page>& page = pages_[static_cast<std::size_t>(offset / kPageBytes)];
    if (!page) page = std::make_unique<Page>();
    return *page;
  }
  static void split(Page& page) {
    std::vector<Cell> cells(kPageBytes);
    for (std::size_t i = 0; i < cells.size(); ++i) cells[i] = page.cells[i / kWord];
    page = {1, std::move(cells)};
  }

  std::int64_t bytes_;
  std::vector<std::unique_ptr<Page>> pages_;  // none until the first touch: a launch sees far more than it touches
};

}  // namespace sheaf::emulator
