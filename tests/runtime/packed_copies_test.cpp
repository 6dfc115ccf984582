// Which packed copies are kept where not all fit: those that are read, and of the others the last.
#include "runtime/packed_copies.h"

#include <doctest/doctest.h>

#include <string>

#include "runtime/buffer.h"
#include "runtime/counters.h"
#include "tests/child.h"

using namespace sheaf;
using runtime::PackedCopies;

namespace {

// What a product that reads an array of 600 bytes has to do.
std::string use(PackedCopies& copies) {
  const PackedCopies::Place place = copies.place("rows of 8", 600);
  if (!place.memory) return "pack";
  if (place.is_made) return "read";
  copies.finish("rows of 8", true);
  return "pack and keep";
}

}  // namespace

TEST_CASE("[packed copies] a program" * doctest::skip()) {
  const auto dropped = [] { return runtime::counters().packed_copies_dropped.load(); };
  {
    PackedCopies old, fresh;
    CHECK(use(old) == "pack");
    CHECK(use(old) == "pack and keep");
    const PackedCopies::Place reading = old.place("rows of 8", 600);
    CHECK(reading.is_made);

    // It gives way to one that has been packed since, and stays with whoever reads it.
    CHECK(use(fresh) == "pack");
    CHECK(use(fresh) == "pack and keep");
    CHECK(dropped() == 1);
    CHECK(reading.memory.use_count() == 1);

    // Used in turn, they do not drop each other: one is read every time.
    for (int i = 0; i < 5; ++i) {
      CHECK(use(old) == "pack");
      CHECK(use(fresh) == "read");
    }
    CHECK(dropped() == 1);

    CHECK(use(old) == "pack");
    CHECK(use(old) == "pack and keep");  // the other is out of use
    CHECK(use(fresh) == "pack");
    CHECK(dropped() == 2);
  }
  // The room of arrays that are gone is free; what is being written is not given away, nor kept where it failed.
  PackedCopies writing, waiting;
  use(writing);
  CHECK_FALSE(writing.place("rows of 8", 600).is_made);
  CHECK(use(waiting) == "pack");
  CHECK(use(waiting) == "pack");
  writing.finish("rows of 8", false);
  CHECK(use(waiting) == "pack and keep");
  CHECK(dropped() == 2);
  PackedCopies large;
  CHECK_FALSE(large.place("rows of 8", 1200).memory);
  CHECK_FALSE(large.place("rows of 8", 1200).memory);  // and drops nothing for what never fits
  CHECK(use(waiting) == "read");
}

TEST_CASE("where packed copies do not fit together, those make room that nobody has read since") {
  CHECK(tests::said_by_child("packed copies", {{"SHEAF_PACKED_LIMIT", "1000"}}) == "");
}
