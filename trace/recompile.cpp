// Keys are compared field by field; the nearest is that with the fewest differences, the last of them.
#include "trace/recompile.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "ir/log.h"
#include "ir/ops/attrs.h"
#include "ir/words.h"

namespace sheaf {
namespace {

std::string type_name(const std::type_info& type) {
  int status = 0;
  char* const name = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string text = status == 0 ? name : type.name();
  std::free(name);
  return text;
}

std::string leaves_text(const detail::Argument& a) {
  if (a.paths.empty()) return "no arrays";
  if (a.paths == std::vector<std::string>{""}) return "one array";
  return fmt::format("{}", fmt::join(a.paths, ", "));
}

std::string kind_text(const LeafType& t) { return t.is_weak ? "a C++ number" : "an array"; }

void compare_leaf(const std::string& name, const LeafType& was, const LeafType& is, std::vector<KeyChange>& out) {
  const auto field = [&](const std::string& f, std::string a, std::string b) {
    if (a != b) out.push_back({f.empty() ? name : name + ": " + f, std::move(a), std::move(b)});
  };
  if (was == is) return;
  const std::size_t before = out.size();
  field("", kind_text(was), kind_text(is));
  field("dtype", std::string(sheaf::name(was.type.dtype())), std::string(sheaf::name(is.type.dtype())));
  const Shape &from = was.type.dims(), &to = is.type.dims();
  if (from.size() != to.size()) field("shape", to_string(from), to_string(to));
  for (std::size_t d = 0; from.size() == to.size() && d < from.size(); ++d)
    field(fmt::format("dim {}", d), fmt::format("{}", from[d]), fmt::format("{}", to[d]));
  if (out.size() == before) field("type", ir::to_string(was.type), ir::to_string(is.type));
}

// The byte in which they differ, for what two values of one text are told apart by.
std::string hex_from_difference(const std::string& text, const std::string& other) {
  const auto at = std::ranges::mismatch(text, other).in1 - text.begin();
  std::string hex = fmt::format("byte {}:", at);
  for (std::size_t i = at; i < std::min<std::size_t>(text.size(), at + 8); ++i)
    hex += fmt::format(" {:02x}", static_cast<unsigned char>(text[i]));
  return hex;
}

std::string around_text(const std::string& key) { return key.empty() ? "none" : key; }

// One per line that made functions.
struct Site {
  struct Known {
    std::int64_t function = 0;
    OptionTexts options;
    Signature signature;
  };
  static constexpr std::size_t kMostKnown = 64;
  std::deque<Known> known;
  std::int64_t again = 0;
  std::map<std::string, std::pair<std::int64_t, KeyChange>> fields;  // how often each was new, and the last time
};

std::vector<KeyChange> changes(const Site::Known& was, const Site::Known& is) {
  std::vector<KeyChange> out;
  for (std::size_t i = 0; i < std::min(was.options.size(), is.options.size()); ++i) {
    const auto& [name, before] = was.options[i];
    if (before != is.options[i].second) out.push_back({"jit's option " + name, before, is.options[i].second});
  }
  if (out.empty() && was.function != is.function)
    out.push_back({"the object that is called, of a lambda that captures", fmt::format("number {}", was.function),
                   fmt::format("number {}", is.function)});
  for (KeyChange& c : changes(was.signature, is.signature)) out.push_back(std::move(c));
  if (out.empty()) out.push_back({"the trace around the call, whose values it uses", "an earlier one", "another"});
  return out;
}

std::int64_t warning_at() {
  static const std::int64_t at = [] {
    const char* text = std::getenv("SHEAF_RECOMPILE_WARNING");
    if (!text || !*text) return std::int64_t{16};
    const std::optional<std::int64_t> number = ir::parse_int(text);
    if (number && *number >= 0) return *number;
    ir::warn(fmt::format("SHEAF_RECOMPILE_WARNING={} is not a number from 0 on; using 16", text));
    return std::int64_t{16};
  }();
  return at;
}

// Counts, and gives the warning when it is due.
std::string count_again(Site& site, const std::string& what, Loc made_at, const std::vector<KeyChange>& news) {
  for (const KeyChange& c : news) {
    auto& [count, last] = site.fields[c.field];
    ++count;
    last = c;
  }
  if (++site.again != warning_at()) return "";
  std::vector<std::pair<std::int64_t, KeyChange>> all;
  for (const auto& [name, field] : site.fields) all.push_back(field);
  std::ranges::stable_sort(all, std::greater(), [](const auto& f) { return f.first; });
  std::string text =
      fmt::format("{} at {} has been compiled again {} times; new were", what, to_string(made_at), site.again);
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 4); ++i) {
    const auto& [count, last] = all[i];
    text += fmt::format("{} {} ({} times, last {} after {})", i ? "," : "", last.field, count, last.is, last.was);
  }
  return text;
}

std::mutex& sites_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}
Site& site_of(const FunctionSite& where) {
  using Key = std::tuple<const void*, const void*, std::string, int>;
  static auto& sites = *new std::map<Key, std::unique_ptr<Site>>;
  const Loc at = where.made_at;
  std::unique_ptr<Site>& site = sites[{where.identity.type, where.identity.address, at.file ? at.file : "", at.line}];
  if (!site) site = std::make_unique<Site>();
  return *site;
}

}  // namespace

std::string to_string(std::span<const KeyChange> changes) {
  std::string text;
  for (const KeyChange& c : changes)
    text += fmt::format("{}{} was {} and is {}", text.empty() ? "" : "; ", c.field, c.was, c.is);
  return text;
}

std::string to_string(const Recompilation& r) {
  return fmt::format("{}: {} again: {}", to_string(r.called_at), r.is_traced ? "traced" : "compiled",
                     to_string(r.changes));
}

std::vector<KeyChange> changes(const Signature& was, const Signature& is) {
  std::vector<KeyChange> out;
  if (was.arguments.size() != is.arguments.size()) {
    out.push_back(
        {"the number of arguments", fmt::format("{}", was.arguments.size()), fmt::format("{}", is.arguments.size())});
  }
  std::size_t from = 0, to = 0;  // first leaves
  for (std::size_t k = 0; k < std::min(was.arguments.size(), is.arguments.size()); ++k) {
    const detail::Argument &a = was.arguments[k], &b = is.arguments[k];
    const std::string name = argument_place(k, is.names);
    if (*a.type != *b.type) out.push_back({name + ": C++ type", type_name(*a.type), type_name(*b.type)});
    if (a.paths != b.paths) out.push_back({name + ": leaves", leaves_text(a), leaves_text(b)});
    const bool is_array = a.paths == std::vector<std::string>{""};
    const auto text = [](const detail::Argument& x) { return x.text.empty() ? "nothing static" : x.text; };
    if (!is_array && a.text != b.text) out.push_back({name, text(a), text(b)});
    for (std::size_t i = 0; a.paths == b.paths && i < a.paths.size(); ++i)
      compare_leaf(name + (a.paths[i].empty() ? "" : " " + a.paths[i]), was.types[from + i], is.types[to + i], out);
    from += a.paths.size();
    to += b.paths.size();
  }
  if (was.around != is.around)
    out.push_back({"the named axes around the call", around_text(was.around), around_text(is.around)});
  if (was.precision != is.precision)
    out.push_back({"the PrecisionScope around the call", std::string(ir::enum_words<Precision>[int(was.precision)]),
                   std::string(ir::enum_words<Precision>[int(is.precision)])});
  if (out.empty() && was.statics != is.statics)
    out.push_back({"the bytes of static arguments", hex_from_difference(was.statics, is.statics),
                   hex_from_difference(is.statics, was.statics)});
  return out;
}

std::vector<KeyChange> note_trace(const std::string& what, const FunctionSite& where, std::int64_t function,
                                  const OptionTexts& options, const Signature& signature) {
  Site::Known is{function, options, signature};
  std::vector<KeyChange> nearest;
  std::string warning;
  {
    std::lock_guard lock(sites_mutex());
    Site& site = site_of(where);
    for (const Site::Known& was : site.known) {
      std::vector<KeyChange> news = changes(was, is);
      if (nearest.empty() || news.size() <= nearest.size()) nearest = std::move(news);
    }
    if (!nearest.empty()) warning = count_again(site, what, where.made_at, nearest);
    if (site.known.size() == Site::kMostKnown) site.known.pop_front();
    site.known.push_back(std::move(is));
  }
  if (!warning.empty()) ir::warn(warning);
  return nearest;
}

void note_compile(const std::string& what, const FunctionSite& where, const std::vector<KeyChange>& changes) {
  std::string warning;
  {
    std::lock_guard lock(sites_mutex());
    warning = count_again(site_of(where), what, where.made_at, changes);
  }
  if (!warning.empty()) ir::warn(warning);
}

void Recompilations::add(Recompilation r) {
  std::lock_guard lock(mutex_);
  if (list_.size() == Site::kMostKnown) list_.erase(list_.begin());
  list_.push_back(std::move(r));
}
std::vector<Recompilation> Recompilations::list() const {
  std::lock_guard lock(mutex_);
  return list_;
}

std::string why_text(const Asked& asked) {
  return asked.changes.empty() ? "it has not been compiled before" : to_string(asked.changes);
}

}  // namespace sheaf
