// The parser's and the verifier's messages, word for word: place, what is wrong, the line, a caret.
#include "ir/text.h"

#include <doctest/doctest.h>

#include "ir/builder.h"
#include "ir/ops/attrs.h"
#include "ir/rewrite.h"
#include "ir/verify.h"

using namespace sheaf;
using namespace sheaf::ir;

namespace {

std::string error_of(std::string_view text) {
  const auto module = parse(text);
  return module.ok() ? "parsed" : std::string(module.status().message());
}

std::string body_error(const std::string& statement) {
  return error_of("func @f(%x: f32[2], %n: i32[3]) -> f32[2] {\n" + statement + "\n  return %x\n}\n");
}

}  // namespace

TEST_CASE("a syntax error names line and column and points at the place") {
  CHECK(error_of("func @f(%x: f32[2) -> f32[2] { return %x }") ==
        "1:18: expected ']'\nfunc @f(%x: f32[2) -> f32[2] { return %x }\n                 ^");
  CHECK(error_of("fun") == "1:1: expected 'func' or 'mesh'\nfun\n^");
  CHECK(error_of("func @f() -> () {\n  return\n") == "3:1: expected a value or a number\n\n^");
  CHECK(error_of("func $") == "1:6: unexpected character '$'\nfunc $\n     ^");
  CHECK(error_of("func \"f") == "1:6: string without an end\nfunc \"f\n     ^");
  CHECK(error_of("") == "parsed");
}

TEST_CASE("unknown names are named") {
  CHECK(body_error("  %0: f32[2] = explode %x") == "2:16: no op named 'explode'\n  %0: f32[2] = explode %x\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %y") == "2:20: %y is not defined\n  %0: f32[2] = exp %y\n                   ^");
  CHECK(body_error("  %0: f99[2] = exp %x") == "2:7: expected a dtype\n  %0: f99[2] = exp %x\n      ^");
  CHECK(body_error("  %0: f32[2] = reverse %x {dms=[0]}") ==
        "2:28: reverse: no attribute named 'dms'\n  %0: f32[2] = reverse %x {dms=[0]}\n                           ^");
  CHECK(body_error("  %0: f32[2] = reverse %x {dims=0}") ==
        "2:28: reverse: attribute 'dims' must be a list of integers, not '0'\n  %0: f32[2] = reverse %x {dims=0}\n                           ^");
  CHECK(body_error("  %0: f32[2] = exp %x {a=1}") == "2:23: exp has no attributes\n  %0: f32[2] = exp %x {a=1}\n                      ^");
  CHECK(body_error("  %0: f32[2] = call @g %x") == "2:22: no function named @g\n  %0: f32[2] = call @g %x\n                     ^");
}

TEST_CASE("types and shapes that do not fit say both sides") {
  CHECK(body_error("  %0: f32[3] = exp %x") == "2:16: exp: result is f32[2], not f32[3]\n  %0: f32[3] = exp %x\n               ^");
  CHECK(body_error("  %0: f32[2] = add %x, %n") ==
        "2:16: add: operands 0 (f32[2]) and 1 (i32[3]) must have the same dtype\n  %0: f32[2] = add %x, %n\n               ^");
  CHECK(body_error("  %0: i32[3] = exp %n") ==
        "2:16: exp: operand 0 (i32[3]) must be floating point\n  %0: i32[3] = exp %n\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %x, %x") == "2:16: exp: takes 1 operands, not 2\n  %0: f32[2] = exp %x, %x\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %x\n  %0: f32[2] = sin %x") == "3:16: %0 is defined twice\n  %0: f32[2] = sin %x\n               ^");
  CHECK(error_of("func @f(%x: f32[2]) -> f32[3] {\n  return %x\n}") ==
        "1:31: @f returns f32[2], not f32[3]\nfunc @f(%x: f32[2]) -> f32[3] {\n                              ^");
}

TEST_CASE("functions may come in any order, but may not call themselves") {
  CHECK(error_of("func @a(%x: f32[]) -> f32[] {\n  %0: f32[] = call @b %x\n  return %0\n}\n"
                 "func @b(%x: f32[]) -> f32[] {\n  return %x\n}") == "parsed");
  CHECK(error_of("func @a(%x: f32[]) -> f32[] {\n  %0: f32[] = call @a %x\n  return %0\n}") ==
        "2:21: @a calls itself\n  %0: f32[] = call @a %x\n                    ^");
}

TEST_CASE("numbers that do not fit their dtype are refused") {
  CHECK(body_error("  %0: i32[3] = add %n, 1.5:i32").starts_with("2:24: '1.5' is not a i32 number"));
  CHECK(body_error("  %0: i32[3] = add %n, 3000000000:i32").starts_with("2:24: '3000000000' is not a i32 number"));
  CHECK(body_error("  %0: i32[3] = add %n, true:i32").starts_with("2:24: 'true' is not a i32 number"));
}

TEST_CASE("the verifier names the function, the fault and the equation") {
  Builder outer("outer");
  const Value x = outer.param(Type(f32, {2}), "x");
  const Value y = outer.emit(ops::exp, {x});
  const FunctionRef f = outer.finish({y});
  CHECK(verify(*f).ok());
  const FunctionRef orphan = f->with_params(std::vector<int>{});
  CHECK(std::string(verify(*orphan).message()) == "@outer: an operand is not defined before its use in this function\n  in: %v1: f32[2] = exp %x");
}

TEST_CASE("equal programs have equal canonical text, whatever their names and lines") {
  const auto make = [](const char* name, const char* param, Loc loc) {
    Builder b(name);
    b.set_loc(loc);
    const Value x = b.param(Type(f32, {2}), param);
    return b.finish({b.emit(ops::exp, {x})});
  };
  CHECK(canonical_text(make("f", "x", {"a.cpp", 1})) == canonical_text(make("g", "weights", {"b.cpp", 2})));
}
