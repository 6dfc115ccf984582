// Names and promotion of element types, and how places are worded.
#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "ir/check.h"
#include "sheaf/dtype.h"
#include "sheaf/error.h"

namespace sheaf {
namespace {

TEST_CASE("every dtype parses back from its name") {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType t = static_cast<DType>(i);
    CHECK(parse_dtype(name(t)) == t);
  }
  CHECK(name(DType::bool_) == "bool");
  CHECK_FALSE(parse_dtype("bool_").has_value());
  CHECK_FALSE(parse_dtype("").has_value());
}

// JAX's table for strong types, save that i64 with u64 is f64.
TEST_CASE("promotion is JAX's lattice") {
  constexpr DType kOrder[] = {DType::bool_, DType::u8,  DType::u16, DType::u32, DType::u64,
                              DType::i8,    DType::i16, DType::i32, DType::i64, DType::bf16,
                              DType::f16,   DType::f32, DType::f64, DType::c64, DType::c128};
  constexpr std::string_view kTable[] = {
      "bool u8  u16 u32 u64 i8  i16 i32 i64 bf16 f16 f32 f64 c64 c128",
      "u8   u8  u16 u32 u64 i16 i16 i32 i64 bf16 f16 f32 f64 c64 c128",
      "u16  u16 u16 u32 u64 i32 i32 i32 i64 bf16 f16 f32 f64 c64 c128",
      "u32  u32 u32 u32 u64 i64 i64 i64 i64 bf16 f16 f32 f64 c64 c128",
      "u64  u64 u64 u64 u64 f64 f64 f64 f64 bf16 f16 f32 f64 c64 c128",
      "i8   i16 i32 i64 f64 i8  i16 i32 i64 bf16 f16 f32 f64 c64 c128",
      "i16  i16 i32 i64 f64 i16 i16 i32 i64 bf16 f16 f32 f64 c64 c128",
      "i32  i32 i32 i64 f64 i32 i32 i32 i64 bf16 f16 f32 f64 c64 c128",
      "i64  i64 i64 i64 f64 i64 i64 i64 i64 bf16 f16 f32 f64 c64 c128",
      "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 f32 f64 c64 c128",
      "f16  f16 f16 f16 f16 f16 f16 f16 f16 f32 f16 f32 f64 c64 c128",
      "f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64 c64 c128",
      "f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 f64 c128 c128",
      "c64  c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c64 c128 c64 c128",
      "c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128 c128",
  };
  for (std::size_t row = 0; row < std::size(kOrder); ++row) {
    std::string_view rest = kTable[row];
    for (DType column : kOrder) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(word.size());
      rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(' ')));
      CAPTURE(name(kOrder[row]));
      CAPTURE(name(column));
      CHECK(name(promote(kOrder[row], column)) == word);
    }
  }
}

TEST_CASE("a storage-only type wins a promotion, so that the op that meets it can refuse it") {
  CHECK(promote(DType::f8e4m3, DType::f32) == DType::f8e4m3);
  CHECK(promote(DType::i32, DType::f8e5m2) == DType::f8e5m2);
}

TEST_CASE("a location shows the file's last component and the line") {
  CHECK(to_string(Loc{"a/b/mlp.cpp", 9}) == "mlp.cpp:9");
  CHECK(to_string(Loc{"mlp.cpp", 9}) == "mlp.cpp:9");
  CHECK(to_string(Loc{}) == "<unknown>");
  CHECK(std::string(ShapeError(Loc{"a/mlp.cpp", 9}, "dot: sizes differ").what()) == "mlp.cpp:9: dot: sizes differ");
  CHECK(std::string(ShapeError("no place").what()) == "no place");
}

TEST_CASE("a failed check names its condition and place") {
  try {
    SHEAF_CHECK(1 + 1 == 3, "arithmetic");
    FAIL("did not throw");
  } catch (const ir::InternalError& error) {
    const std::string text = error.what();
    CHECK(text.starts_with("internal error: vocabulary_test.cpp:"));
    CHECK(text.ends_with("1 + 1 == 3 does not hold: arithmetic"));
  }
}

}  // namespace
}  // namespace sheaf
