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

TEST_CASE("text that ends too early is an error at its end") {
  CHECK(error_of("func") == "1:5: expected '@'\nfunc\n    ^");
  CHECK(error_of("func x y") == "1:6: expected '@'\nfunc x y\n     ^");
  CHECK(error_of("func @") == "1:7: expected a function name\nfunc @\n      ^");
  CHECK(error_of("mesh @") == "1:7: expected a mesh name\nmesh @\n      ^");
  CHECK(std::string(parse_type("f32[2]{").status().message()) == "1:7: expected the end of the type\nf32[2]{\n      ^");
  CHECK(std::string(parse_type("f32[2, -1]").status().message()) ==
        "1:8: a dim cannot be negative\nf32[2, -1]\n       ^");
}

TEST_CASE("shapes too large to count are refused where they stand") {
  CHECK(std::string(parse_type("f32[1099511627776, 1099511627776]").status().message()) ==
        "1:33: [1099511627776, 1099511627776] has too many elements\nf32[1099511627776, 1099511627776]\n"
        "                                ^");
  CHECK(parse_type("f32[1099511627776, 1099511627776, 0]").ok());
  CHECK(body_error("  %0: f32[2] = iota {shape=[9223372036854775807, 3], dim=[0]}")
            .starts_with("2:16: iota: a result i32[9223372036854775807, 3] has too many elements\n"));
  CHECK(body_error("  %0: f32[2] = pad %x, 0.0:f32 {low=[9223372036854775807], high=[1], interior=[0]}")
            .starts_with(
                "2:16: pad: dim 0 of f32[2] cannot be padded by low 9223372036854775807, high 1 and interior 0\n"));
}

TEST_CASE("a file name of any characters can be read back") {
  Builder b("f");
  const Value x = b.param(Type(f32, {2}), "x");
  b.set_loc({"src/my-model (old).cpp", 7}, "jvp");
  const FunctionRef f = b.finish({b.emit(ops::exp, {x})});
  const std::string text = print(f, {.locs = true});
  CHECK(text.find("exp %x  loc(\"my-model (old).cpp\":7, jvp)\n") != std::string::npos);
  const auto module = parse(text);
  REQUIRE(module.ok());
  CHECK(print(*module, {.locs = true}) == text);
}

TEST_CASE("layouts that the mesh of a function does not have are refused") {
  const auto error = [](const std::string& type) {
    const auto module =
        parse("mesh @m = [a=4, b=2]\nfunc @f(%x: " + type + ") -> " + type + " on @m {\n  return %x\n}\n");
    const std::string text(module.status().message());
    return text.substr(0, text.find('\n'));
  };
  CHECK(error("f32[8@c]") == "2:41: f32[8@c]: the mesh [a=4, b=2] has no axis \"c\"");
  CHECK(error("f32[8@a, 4@a]").ends_with("f32[8@a, 4@a] is split over axis \"a\" twice"));
  CHECK(error("f32[8@a, 4@a:(2)2]").ends_with("f32[8@a, 4@a:(2)2] is split over axis \"a:(2)2\" twice"));
  CHECK(error("f32[8@a:(3)2]").ends_with("the mesh [a=4, b=2] has no axis \"a:(3)2\""));
  CHECK(error("f32[8@a:(1)2]{sum@a:(2)2}").empty());
}

TEST_CASE("reasons of any text behind the transforms can be read back") {
  Builder b("f");
  const Value x = b.param(Type(f32, {2}), "x");
  b.set_loc({"a.cpp", 7}, "jvp, transpose, partition: operand 1 of \"mul\" wanted as [x, _], is [_, x], 2 combined");
  const Value y = b.emit(ops::exp, {x});
  b.set_loc({"a.cpp", 8}, "partition: (a) reduces, loc(b.cpp:9)");
  const std::string text = print(b.finish({b.emit(ops::exp, {y})}), {.locs = true});
  CHECK(text.find("loc(a.cpp:7, jvp, transpose, \"partition: operand 1 of \\\"mul\\\" wanted as [x, _], is [_, x], 2 "
                  "combined\")\n") != std::string::npos);
  const auto module = parse(text);
  REQUIRE_MESSAGE(module.ok(), std::string(module.status().message()));
  CHECK(print(*module, {.locs = true}) == text);
  CHECK(std::string(module->functions[0]->eqns()[0]->how) ==
        "jvp, transpose, partition: operand 1 of \"mul\" wanted as [x, _], is [_, x], 2 combined");
}

TEST_CASE("unknown names are named") {
  CHECK(body_error("  %0: f32[2] = explode %x") ==
        "2:16: no op named 'explode'\n  %0: f32[2] = explode %x\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %y") == "2:20: %y is not defined\n  %0: f32[2] = exp %y\n                   ^");
  CHECK(body_error("  %0: f99[2] = exp %x") == "2:7: expected a dtype\n  %0: f99[2] = exp %x\n      ^");
  CHECK(body_error("  %0: f32[2] = reverse %x {dms=[0]}") ==
        "2:28: reverse: no attribute named 'dms'\n  %0: f32[2] = reverse %x {dms=[0]}\n                           ^");
  CHECK(
      body_error("  %0: f32[2] = reverse %x {dims=0}") ==
      "2:28: reverse: attribute 'dims' must be a list of integers, not '0'\n  %0: f32[2] = reverse %x {dims=0}\n                           ^");
  CHECK(body_error("  %0: f32[2] = reduce %x {kind=mean}") ==
        "2:27: reduce: attribute 'kind' must be one of sum, prod, max, min, and, or, not 'mean'\n"
        "  %0: f32[2] = reduce %x {kind=mean}\n                          ^");
  CHECK(body_error("  %0: f32[2] = exp %x {a=1}") ==
        "2:23: exp has no attributes\n  %0: f32[2] = exp %x {a=1}\n                      ^");
  CHECK(body_error("  %0: f32[2] = call @g %x") ==
        "2:22: no function named @g\n  %0: f32[2] = call @g %x\n                     ^");
}

TEST_CASE("types and shapes that do not fit say both sides") {
  CHECK(body_error("  %0: f32[3] = exp %x") ==
        "2:16: exp: result is f32[2], not f32[3]\n  %0: f32[3] = exp %x\n               ^");
  CHECK(
      body_error("  %0: f32[2] = add %x, %n") ==
      "2:16: add: operands 0 (f32[2]) and 1 (i32[3]) must have the same dtype\n  %0: f32[2] = add %x, %n\n               ^");
  CHECK(body_error("  %0: i32[3] = exp %n") ==
        "2:16: exp: operand 0 (i32[3]) must be floating point or complex\n  %0: i32[3] = exp %n\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %x, %x") ==
        "2:16: exp: takes 1 operand, not 2\n  %0: f32[2] = exp %x, %x\n               ^");
  CHECK(body_error("  %0: f32[2] = exp %x\n  %0: f32[2] = sin %x") ==
        "3:16: %0 is defined twice\n  %0: f32[2] = sin %x\n               ^");
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
  CHECK(body_error("  %0: f32[2] = add %x, 1.0:c128").starts_with("2:24: '1.0' is not a c128 number"));
  CHECK(body_error("  %0: f32[2] = add %x, 1:token").starts_with("2:24: '1' is not a token number"));
  CHECK(body_error("  %0: f32[2] = add %x, bits(fffff):f16").starts_with("2:24: '0xfffff' is not a f16 number"));
  CHECK(body_error("  %0: f32[2] = exp %x  loc(a.cpp:99999999999)").starts_with("2:34: expected a line number"));
}

TEST_CASE("the verifier names the function, the fault and the equation") {
  Builder outer("outer");
  const Value x = outer.param(Type(f32, {2}), "x");
  const Value y = outer.emit(ops::exp, {x});
  const FunctionRef f = outer.finish({y});
  CHECK(verify(*f).ok());
  const FunctionRef orphan = f->with_params(std::vector<int>{});
  CHECK(std::string(verify(*orphan).message()) ==
        "@outer: an operand is not defined before its use in this function\n  in: %v1: f32[2] = exp %x");
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
