// The report of a compiled program is one page: kernels with their source lines, memory, sharding, collectives, passes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <vector>

#include "sheaf/sheaf.h"
#include "tests/places.h"

using namespace sheaf;
namespace fs = std::filesystem;

namespace {

int count(std::string_view text, std::string_view word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Whether every element of the page is closed, in order.
bool is_balanced(std::string_view html) {
  const std::set<std::string_view> empty = {"meta", "input", "br", "!DOCTYPE", "rect", "line", "polygon"};
  std::vector<std::string_view> open;
  for (std::size_t at = html.find('<'); at != html.npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == html.npos) return false;
    const bool closes = html[at + 1] == '/';
    const std::string_view tag =
        html.substr(at + 1 + closes, html.find_first_of(" >/", at + 1 + closes) - at - 1 - closes);
    if (empty.contains(tag)) continue;
    if (!closes) {
      open.push_back(tag);
      continue;
    }
    if (open.empty() || open.back() != tag) return false;
    open.pop_back();
  }
  return open.empty();
}

auto network() {
  return jit(
      [](Array w, Array x) {
        auto loss = [&](Array v) { return mean(square(tanh(dot(tanh(dot(x, v)), v)))); };
        return w - 0.1 * grad(loss)(w);  // the step
      },
      {.name = "network", .args = {"w", "x"}, .donate = {0}});
}

}  // namespace

TEST_CASE("a report is one page with the kernels, their source lines, the memory and every pass") {
  const std::string html = network().report(ones({64, 64}), ones({32, 64}));
  CHECK(html.starts_with("<!DOCTYPE html>"));
  CHECK(is_balanced(html));
  CHECK(html.find("<title>jit network</title>") != html.npos);
  for (const char* id : {"kernels", "memory", "passes"}) CHECK(count(html, fmt::format("<section id=\"{}\"", id)) == 1);
  CHECK(html.find("return w - 0.1 * grad(loss)(w);  // the step") != html.npos);
  CHECK(html.find("Result 0 is in the buffer of w, which is donated.") != html.npos);
  CHECK(html.find("kept for the backward pass") != html.npos);
  CHECK(html.find("<b>fuse</b> <small>equations into groups, one kernel each") != html.npos);
  CHECK(html.find("loop nest</summary>") != html.npos);
}

TEST_CASE("a page needs no other file, and no script") {
  const std::string html = network().report(ones({64, 64}), ones({32, 64}));
  for (const char* word : {"<script", "<link", "<img", "url(", "@import", "src="}) CHECK(html.find(word) == html.npos);
  CHECK(count(html, "http") == count(html, "http://www.w3.org/2000/svg"));
}

TEST_CASE("equal programs have equal reports") {
  const Array w = ones({64, 64}), x = ones({32, 64});
  CHECK(network().report(w, x) == network().report(w, x));
}

TEST_CASE("a report of a program on a mesh draws where arrays lie and lists what devices send, with the reason") {
  const Mesh mesh = Mesh::abstract({{"data", 4}});
  auto f = jit([](Array x, Array w) { return sum(dot(x, w), {.axes = {0}}); }, {.name = "spread", .args = {"x", "w"}});
  const auto lowered = f.trace(abstract({64, 16}, f32, NamedSharding{mesh, P("data")}), abstract({16, 8})).lower();
  const std::string html = lowered.compile_for("cpu").report();
  CHECK(is_balanced(html));
  CHECK(count(html, "<section id=\"sharding\"") == 1);
  CHECK(html.find("<figcaption>x<br>") != html.npos);
  CHECK(html.find("Whole on every device, or not drawn: w, result 0.") != html.npos);
  CHECK(html.find("<code>all_reduce over data</code>") != html.npos);
  CHECK(html.find("a dim split on data") != html.npos);
}

TEST_CASE("a report for a GPU has the CUDA text of its kernels, on any machine") {
  auto f = jit([](Array x) { return exp(x) + 1.0; }, {.name = "shown"});
  const std::string html = f.trace(abstract({128})).lower().compile_for("sm_90a").report();
  CHECK(is_balanced(html));
  CHECK(html.find("CUDA C++</summary>") != html.npos);
  CHECK(html.find("for sm_90a.") != html.npos);
}

TEST_CASE("a loop's own arena is one box, and what is in a loop counts as often as it runs") {
  auto f = jit([](Array x) { return fori_loop(0, 10, [](Array, Array v) { return sum(exp(v)) * v + sort(v); }, x); },
               {.name = "looping"});
  const std::string html = f.report(ones({256}));
  CHECK(is_balanced(html));
  CHECK(html.find("<td class=\"n\">10</td>") != html.npos);
}

TEST_CASE("a report is written to a file, and one that cannot be is an error on the user's line") {
  auto f = jit([](Array x) { return x + 2.0; }, {.name = "written"});
  const auto compiled = f.trace(abstract({8})).lower().compile();
  const fs::path path = fs::path(SHEAF_BINARY_DIR) / "report_test.html";
  compiled.report(path.string());
  std::ifstream file(path);
  CHECK(std::string(std::istreambuf_iterator<char>(file), {}) == compiled.report());
  const int line = __LINE__ + 1;
  CHECK_THROWS_WITH_AS(compiled.report("/nowhere/r.html"),
                       fmt::format("report_test.cpp:{}: report: /nowhere/r.html cannot be written: No such file or "
                                   "directory",
                                   line)
                           .c_str(),
                       RuntimeError);
}
