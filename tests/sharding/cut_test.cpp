// Minimum cuts of small flows of sums, worked out by hand.
#include "passes/sharding/cut.h"

#include <doctest/doctest.h>

using sheaf::passes::UnmadeSum;

namespace {

std::vector<bool> cut(const std::vector<UnmadeSum>& sums) { return sheaf::passes::cheapest_cut(sums); }

}  // namespace

TEST_CASE("a sum is made where it is cheapest on its way, and first of equally cheap places") {
  CHECK(cut({{.cost = 5, .begins = true, .flows_to = {1}},
             {.cost = 3, .flows_to = {2}},
             {.cost = 4, .is_taken_whole = true}}) == std::vector<bool>{false, true, false});
  CHECK(cut({{.cost = 5, .begins = true, .flows_to = {1}},
             {.cost = 5, .flows_to = {2}},
             {.cost = 5, .is_taken_whole = true}}) == std::vector<bool>{true, false, false});
}

TEST_CASE("a sum that goes several ways is made before they part if that is less than all of their ends") {
  const auto fork = [](std::int64_t small, std::int64_t large) {
    return cut({{.cost = 64, .begins = true, .flows_to = {1, 2}},
                {.cost = small, .is_taken_whole = true},
                {.cost = large, .is_taken_whole = true}});
  };
  CHECK(fork(1, 64) == std::vector<bool>{true, false, false});
  CHECK(fork(1, 62) == std::vector<bool>{false, true, true});
}

TEST_CASE("sums that are added up are made once, behind the last") {
  CHECK(cut({{.cost = 7, .begins = true, .flows_to = {2}},
             {.cost = 7, .begins = true, .flows_to = {2}},
             {.cost = 7, .is_taken_whole = true}}) == std::vector<bool>{false, false, true});
}

TEST_CASE("what nobody takes whole is not made, and what costs nothing is") {
  CHECK(cut({{.cost = 7, .begins = true, .flows_to = {1}}, {.cost = 7}}) == std::vector<bool>{false, false});
  CHECK(cut({{.cost = 0, .begins = true, .is_taken_whole = true}}) == std::vector<bool>{true});
  CHECK(cut({}).empty());
}

TEST_CASE("of many layers each is cut on its own") {
  std::vector<UnmadeSum> sums;
  for (int i = 0; i < 1000; ++i) {
    sums.push_back({.cost = 2 + i % 3, .begins = true, .flows_to = {2 * i + 1}});
    sums.push_back({.cost = 3, .is_taken_whole = true});
  }
  const std::vector<bool> made = cut(sums);
  for (int i = 0; i < 1000; ++i) CHECK(made[2 * i] == (i % 3 < 2));
}
