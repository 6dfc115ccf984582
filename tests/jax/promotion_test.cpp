// The dtype of maximum(x, y) for all pairs of dtypes and weak numbers, against JAX's tables. Sheaf has 64-bit types
// always, so strong dtypes follow JAX's table with x64 on; a literal alone is i32 or f32, so weak numbers follow the
// one with x64 off.
#include <doctest/doctest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "sheaf/sheaf.h"
#include "tests/places.h"

using namespace sheaf;

namespace {

// result[{x, y}], of one mode.
using Table = std::map<std::pair<std::string, std::string>, std::string>;

Table read_table(const std::string& mode) {
  std::ifstream file(SHEAF_SOURCE_DIR "/tests/jax/golden/promotion.txt");
  REQUIRE(file.good());
  Table table;
  std::vector<std::string> columns;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, word;
    words >> first;
    if (first == "table") {
      words >> word;
      inside = word == mode;
      columns.clear();
      while (words >> word) columns.push_back(word);
    } else if (inside) {
      for (const std::string& column : columns) words >> table[{first, column}];
    }
  }
  REQUIRE_FALSE(table.empty());
  return table;
}

bool is_weak(const std::string& name) { return name.back() == '*'; }
bool is_complex_name(const std::string& name) { return name[0] == 'c'; }
bool is_complex_number(const std::string& name) { return name == "c*"; }  // C++ numbers are real

Array operand(const std::string& name) {
  if (name == "i*") return 1;
  if (name == "f*") return 1.0;
  return zeros({}, *parse_dtype(name));
}

// Something that takes both: bool has no sum, and complex numbers no maximum.
Array joined(const std::string& x, const std::string& y) {
  return is_complex_name(x) || is_complex_name(y) ? operand(x) + operand(y) : maximum(operand(x), operand(y));
}

}  // namespace

TEST_CASE("strong dtypes promote as in JAX with 64-bit types on") {
  for (const auto& [pair, result] : read_table("x64")) {
    const auto& [x, y] = pair;
    if (is_weak(x) || is_weak(y)) continue;
    INFO(x, " with ", y);
    // i64 and u64 have no common integer: JAX's weak float is f64 there.
    CHECK(name(promote(*parse_dtype(x), *parse_dtype(y))) == (result == "f*" ? "f64" : result));
  }
}

TEST_CASE("a C++ number takes the dtype of the array it meets, as JAX's weak types do with 64-bit types off") {
  for (const auto& [pair, result] : read_table("x32")) {
    const auto& [x, y] = pair;
    if (is_complex_number(x) || is_complex_number(y)) continue;
    INFO(x, " with ", y);
    // A sum of u32 and a signed integer is i64 here, for want of a type that holds both in 32 bits.
    const bool is_wider = (x == "u32" && y[0] == 'i' && !is_weak(y)) || (y == "u32" && x[0] == 'i' && !is_weak(x));
    const std::string expected = is_wider ? "i64" : result == "f*" ? "f32" : result == "i*" ? "i32" : result;
    CHECK(name(joined(x, y).dtype()) == expected);
  }
}

TEST_CASE("64-bit arrays keep their dtype beside C++ numbers") {
  for (const char* t : {"i64", "u64", "f64"}) {
    CHECK(name((operand(t) + 1).dtype()) == t);
    CHECK(name((1 + operand(t)).dtype()) == t);
  }
  CHECK((operand("f64") * 2.5).dtype() == f64);
  CHECK((operand("i64") * 2.5).dtype() == f32);  // as alone: a float literal is f32
}

TEST_CASE("wherever JAX's strict rules accept two dtypes, Sheaf gives the same one") {
  for (const auto& [pair, result] : read_table("strict")) {
    const auto& [x, y] = pair;
    if (result == "-" || is_complex_number(x) || is_complex_number(y)) continue;
    INFO(x, " with ", y);
    CHECK(name(joined(x, y).dtype()) == (result == "f*" ? "f32" : result == "i*" ? "i32" : result));
  }
}
