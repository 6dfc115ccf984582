// Pieces of an HTML page, and the page around them: one file that needs nothing else, for wide and narrow windows,
// light and dark.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trace/report/diff.h"
#include "trace/report/memory_map.h"

namespace sheaf {

std::string escaped_html(std::string_view text);
/// "1.5 MiB", "12.3 G".
std::string bytes_text(double bytes);
std::string count_text(double n);

/// A table in a box of its own, that scrolls where it is too wide. Cells are HTML; columns from `first_number` on are
/// set to the right.
struct Table {
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows = {};
  std::vector<bool> is_number = {};  // per column; beyond the list: no
  std::string html() const;
};

/// Something that is shown when it is asked for.
std::string details(const std::string& summary, const std::string& body, bool is_open = false);
std::string section(const std::string& id, const std::string& title, const std::string& body);
std::string code_block(std::string_view text);
/// The lines with what was taken away and put in; a choice above shows either text alone. `id` is its own in the page.
std::string diff_block(const std::vector<DiffLine>& lines, const std::string& id);
/// A bar of this part of the whole, with its text.
std::string bar(double part, const std::string& text);
/// Bytes over steps above, and below the arena: each box is a value.
std::string memory_svg(const MemoryMap& map);

std::string page(const std::string& title, const std::string& intro, const std::vector<std::string>& sections);

}  // namespace sheaf
