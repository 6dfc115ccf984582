// A short list is a std::vector to whoever uses it, wherever its entries lie.
#include "ir/short_list.h"

#include <doctest/doctest.h>

#include <random>
#include <utility>
#include <vector>

using sheaf::ir::ShortList;

namespace {

using List = ShortList<int, 3>;
using Vector = std::vector<int>;

Vector entries(const List& list) { return {list.begin(), list.end()}; }

/// The same random changes to both, among them moves and copies from and to lists of other lengths.
void change_both(std::mt19937& random, List& list, Vector& vector) {
  const int value = static_cast<int>(random() % 100);
  const std::size_t at = random() % (vector.size() + 1);
  const Vector more(random() % 5, value);
  const List more_list(more.begin(), more.end());
  switch (random() % 10) {
    case 0: return list.push_back(value), vector.push_back(value);
    case 1: return list.resize(at + 2, value), vector.resize(at + 2, value);
    case 2: return (void)(list.insert(list.begin() + at, value), vector.insert(vector.begin() + at, value));
    case 3:
      list.insert(list.begin() + at, more.begin(), more.end());
      vector.insert(vector.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
      return;
    case 4:
      if (at == vector.size()) return;
      list.erase(list.begin() + at);
      vector.erase(vector.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    case 5: return (void)(list = more_list, vector = more);
    case 6: return (void)(list = List(more_list), vector = Vector(more));
    case 7: return (void)(list = List(std::move(list)), vector = Vector(std::move(vector)));
    case 8: return list.assign(at, value), vector.assign(at, value);
    case 9: return list.clear(), vector.clear();
  }
}

}  // namespace

TEST_CASE("a short list holds what a vector does after the same changes") {
  std::mt19937 random(1);
  List list;
  Vector vector;
  for (int i = 0; i < 20'000; ++i) {
    change_both(random, list, vector);
    REQUIRE(entries(list) == vector);
    REQUIRE(list == List(vector.begin(), vector.end()));
    REQUIRE(list.empty() == vector.empty());
    if (vector.empty()) continue;
    REQUIRE(list.front() == vector.front());
    REQUIRE(list.back() == vector.back());
  }
}

TEST_CASE("a short list moved from is empty and may be filled again") {
  for (const std::size_t count : {2, 3, 4, 40}) {
    List from(count, 7);
    const List into = std::move(from);
    CHECK(entries(into) == Vector(count, 7));
    CHECK(from.empty());
    from.push_back(8);
    CHECK(entries(from) == Vector{8});
    List& same = from;
    from = same;
    CHECK(entries(from) == Vector{8});
  }
}

TEST_CASE("a short list takes an entry of its own") {
  List list{1, 2, 3};
  list.push_back(list[0]);
  list.insert(list.begin(), list[3]);
  CHECK(entries(list) == Vector{1, 1, 2, 3, 1});
}
