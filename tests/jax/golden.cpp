// Reads golden rows and makes the directions and batches that the generator made by the same rules.
#include "tests/jax/golden.h"

#include <doctest/doctest.h>

#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "ir/text.h"
#include "tests/places.h"

namespace sheaf::tests {
namespace {

// What stands before and after the first separator.
std::pair<std::string, std::string> cut(const std::string& text, std::string_view separator) {
  const std::size_t at = text.find(separator);
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + separator.size())};
}

ir::Literal read_operand(const std::string& text) {
  const auto [type_text, elements] = cut(text, "]");
  const auto type = ir::parse_type(type_text + "]");
  REQUIRE_MESSAGE(type.ok(), text);
  return read_elements(*type, elements);
}

// "vmap 0 -1: 3f800000 0*5 ; 2": the numbers before the colon, one list of elements for each result after it.
Quantity read_quantity(const std::string& line) {
  auto [head, body] = cut(line, ":");
  Quantity q;
  std::istringstream words(head);
  words >> q.kind;
  for (int number; words >> number;) q.numbers.push_back(number);
  while (true) {
    auto [first, rest] = cut(body, " ;");
    q.results.push_back(first);
    if (body.size() == first.size()) return q;
    body = rest;
  }
}

}  // namespace

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::vector<Row> read_golden(const std::string& family) {
  std::ifstream file(SHEAF_SOURCE_DIR "/tests/jax/golden/" + family + ".txt");
  REQUIRE_MESSAGE(file.good(), family);
  std::map<std::string, ir::Literal> operands;
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    const auto [keyword, rest] = cut(line, " ");
    if (keyword == "#") continue;
    if (keyword == "in") {
      const auto [name, value] = cut(rest, " ");
      operands.emplace(name, read_operand(value));
    } else if (keyword == "row") {
      const auto [text, names] = cut(rest, " | ");
      rows.push_back({.text = text, .operands = {}, .quantities = {}});
      for (const std::string& name : words(names)) rows.back().operands.push_back(operands.at(name));
    } else {
      rows.back().quantities.push_back(read_quantity(line));
    }
  }
  return rows;
}

ir::Literal read_elements(ir::Type type, const std::string& text) {
  ir::Literal x(type);
  std::int64_t at = 0;
  for (const std::string& word : words(text)) {
    const auto [element, times] = cut(word, "*");
    const std::uint64_t bits = element == "nan" ? ir::to_bits(type.dtype(), std::numeric_limits<double>::quiet_NaN())
                                                : std::stoull(element, nullptr, 16);
    for (int n = times.empty() ? 1 : std::stoi(times); n > 0; --n) x.set_bits(at++, bits);
  }
  REQUIRE(at == x.size());
  return x;
}

ir::Literal direction(ir::Type type, int shift) {
  constexpr double kDirections[] = {1, -0.5, 2, 0.75};
  ir::Literal d(type);
  for (std::int64_t i = 0; i < d.size(); ++i) d.set(i, kDirections[(i + shift) % 4]);
  return d;
}

ir::Literal batch_of_two(const ir::Literal& x, int axis) {
  Shape dims = x.dims();
  dims.insert(dims.begin() + axis, 2);
  ir::Literal both(ir::Type(x.dtype(), dims));
  std::int64_t inner = 1;  // elements of one slice below the new axis
  for (std::size_t d = axis + 1; d < dims.size(); ++d) inner *= dims[d];
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const std::int64_t to = i / inner * 2 * inner + i % inner;
    both.copy(to, x, i);
    both.copy(to + inner, x, (i + x.size() - 1) % x.size());
  }
  return both;
}

}  // namespace sheaf::tests
