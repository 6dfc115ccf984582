// Which devices hold which part, drawn as grids: rows and columns are the last two dims, and every part of the dims
// before them has a grid of its own. A cell is a part; what is in it are the devices that hold it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/literal.h"
#include "sheaf/sharding.h"
#include "trace/placement.h"

namespace sheaf {
namespace {

struct Grid {
  std::string title;                 // "[0:4, :, :]" of an array of more than two dims, else empty
  std::int64_t rows = 1, columns = 1;
  std::vector<std::vector<int>> cells;  // devices, row-major
};

std::vector<Grid> grids_of(const Shape& shape, const ir::MeshAtoms& atoms, const ir::Sharding& layout,
                           const std::vector<Device>& devices) {
  const std::size_t rank = shape.size(), outer_rank = rank > 2 ? rank - 2 : 0;
  Shape counts;
  for (const ir::Atoms& dim : layout.dims) counts.push_back(atoms.size(dim));
  const Shape outer(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(outer_rank));
  const std::int64_t rows = rank >= 2 ? counts[rank - 2] : 1, columns = rank >= 1 ? counts[rank - 1] : 1;
  std::vector<Grid> grids;
  std::vector<std::int64_t> index(outer_rank, 0);
  do {
    Grid& g = grids.emplace_back();
    g.rows = rows, g.columns = columns;
    g.cells.resize(static_cast<std::size_t>(rows * columns));
    std::vector<std::string> ranges;
    for (std::size_t d = 0; d < outer_rank; ++d) {
      const std::int64_t extent = shape[d] / counts[d];
      ranges.push_back(counts[d] == 1 ? ":" : fmt::format("{}:{}", index[d] * extent, (index[d] + 1) * extent));
    }
    if (outer_rank > 0) g.title = fmt::format("[{}, :, :]", fmt::join(ranges, ", "));
  } while (ir::next_index(index, outer));
  for (std::int64_t i = 0; i < atoms.mesh().size(); ++i) {
    std::int64_t grid = 0, cell = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      std::int64_t& at = d < outer_rank ? grid : cell;
      at = at * counts[d] + atoms.coordinate(layout.dims[d], i);
    }
    grids[grid].cells[cell].push_back(devices.empty() ? static_cast<int>(i) : devices[i].id);
  }
  for (Grid& g : grids)
    for (std::vector<int>& cell : g.cells) std::sort(cell.begin(), cell.end());
  return grids;
}

// "cpu:" is on every device: numbers alone are told.
std::size_t longest_text(const std::vector<Grid>& grids) {
  std::size_t longest = 1;
  for (const Grid& g : grids)
    for (const std::vector<int>& cell : g.cells) longest = std::max(longest, numbers_text(cell).size());
  return longest;
}

std::string text_of(const std::vector<Grid>& grids) {
  const std::size_t width = longest_text(grids);
  std::string text;
  for (const Grid& g : grids) {
    if (!g.title.empty()) text += g.title + "\n";
    std::string line = "+";
    for (std::int64_t c = 0; c < g.columns; ++c) line += std::string(width + 2, '-') + "+";
    text += line + "\n";
    for (std::int64_t r = 0; r < g.rows; ++r) {
      text += "|";
      for (std::int64_t c = 0; c < g.columns; ++c)
        text += fmt::format(" {:^{}} |", numbers_text(g.cells[r * g.columns + c]), width);
      text += "\n" + line + "\n";
    }
  }
  return text;
}

// Neighbours differ: hues a golden angle apart.
std::string colour(int device) { return fmt::format("hsl({}, 60%, 80%)", (device * 137) % 360); }

std::string svg_of(const std::vector<Grid>& grids) {
  constexpr std::int64_t kLeast = 90, kCharacter = 8, kHeight = 40, kTitle = 20, kGap = 10;
  const std::int64_t width = std::max(kLeast, kCharacter * (static_cast<std::int64_t>(longest_text(grids)) + 2));
  std::int64_t columns = 1, height = kGap;
  std::string body;
  for (const Grid& g : grids) {
    columns = std::max(columns, g.columns);
    if (!g.title.empty()) {
      body +=
          fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"start\">{}</text>\n", kGap, height + kTitle - 6, g.title);
      height += kTitle;
    }
    for (std::int64_t i = 0; i < g.rows * g.columns; ++i) {
      const std::int64_t x = kGap + i % g.columns * width, y = height + i / g.columns * kHeight;
      const std::vector<int>& cell = g.cells[i];
      body += fmt::format(
          "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"black\"/>\n"
          "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
          x, y, width, kHeight, cell.empty() ? "white" : colour(cell[0]), x + width / 2, y + kHeight / 2 + 4,
          numbers_text(cell));
    }
    height += g.rows * kHeight + kGap;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n{}</svg>\n",
      2 * kGap + columns * width, height, body);
}

std::vector<Grid> grids_of(const std::string& who, const Shape& shape, const NamedSharding& s, Loc loc) {
  const ir::Sharding layout = checked_layout(who, s.mesh, s.spec, shape, to_string(shape), loc);
  return grids_of(shape, atoms_of(s.mesh), layout, s.mesh.devices());
}

}  // namespace

std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding, Loc loc) {
  return text_of(grids_of("visualize_sharding", shape, sharding, loc));
}
std::string visualize_sharding(const Array& x, Loc loc) { return visualize_sharding(x.shape(), x.sharding(loc), loc); }

std::string sharding_svg(const Shape& shape, const NamedSharding& sharding, Loc loc) {
  return svg_of(grids_of("sharding_svg", shape, sharding, loc));
}
std::string sharding_svg(const Array& x, Loc loc) { return sharding_svg(x.shape(), x.sharding(loc), loc); }

}  // namespace sheaf
