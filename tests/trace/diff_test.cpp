// What a report says that a pass changed.
#include "trace/report/diff.h"

#include <doctest/doctest.h>

#include <random>
#include <string>

using namespace sheaf;

namespace {

// Lines as "= same", "- before", "+ after".
std::string told(std::string_view before, std::string_view after) {
  std::string text;
  for (const DiffLine& line : diff(before, after)) {
    const bool is_same = line.kind == DiffLine::Kind::same;
    text += is_same ? "= " : line.kind == DiffLine::Kind::removed ? "- " : "+ ";
    text += std::string(line.kind == DiffLine::Kind::removed ? line.before : line.after) + "\n";
  }
  return text;
}

std::string all_of(std::string_view before, std::string_view after, bool is_before) {
  std::string text;
  for (const DiffLine& line : diff(before, after)) {
    if (line.kind == (is_before ? DiffLine::Kind::added : DiffLine::Kind::removed)) continue;
    text += std::string(is_before ? line.before : line.after) + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("a line that was put in or taken out is told, and the others are the same whatever their numbers") {
  CHECK(told("a %0\nb %1\nc %2\n", "a %0\nb %1\nc %2\n") == "= a %0\n= b %1\n= c %2\n");
  CHECK(told("a %0\nb %1\nc %2\n", "a %0\nc %1\n") == "= a %0\n- b %1\n= c %1\n");
  CHECK(told("a %0\nc %1\n", "a %0\nb %1\nc %12\n") == "= a %0\n+ b %1\n= c %12\n");
  CHECK(told("", "a\n") == "+ a\n");
  CHECK(told("a\n", "") == "- a\n");
  CHECK(told("x\nx\ny\nx\n", "x\ny\nx\nx\n") == "= x\n- x\n= y\n+ x\n= x\n");
}

TEST_CASE("both texts can be read off a diff, whatever they are") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string texts[2];
    for (std::string& text : texts) {
      const int lines = static_cast<int>(random() % 30);
      for (int k = 0; k < lines; ++k) text += std::string(1, static_cast<char>('a' + random() % 12)) + " %3\n";
    }
    CHECK(all_of(texts[0], texts[1], true) == texts[0]);
    CHECK(all_of(texts[0], texts[1], false) == texts[1]);
  }
}
