// All three read the same list. On a row of the host spans lie within each other, so a stack of those that are open
// tells which is in which; what a device does belongs to a call, and to nothing else of its row.
#include "trace/profile_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "absl/container/flat_hash_map.h"

namespace sheaf {
namespace {

/// Bytes of the first character of a text that is not empty; 0: it does not begin with one in UTF-8.
std::size_t length_of_character(std::string_view text) {
  struct Lead {
    unsigned char first, last;  // of the first byte
    unsigned char low, high;  // of the second
    std::size_t length;
  };
  constexpr Lead kLeads[] = {{0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
                             {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
                             {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  const auto is_from = [&](std::size_t i, unsigned char low, unsigned char high) {
    return i < text.size() && static_cast<unsigned char>(text[i]) >= low && static_cast<unsigned char>(text[i]) <= high;
  };
  for (const Lead& lead : kLeads) {
    if (!is_from(0, lead.first, lead.last)) continue;
    bool is_whole = lead.length == 1 || is_from(1, lead.low, lead.high);
    for (std::size_t i = 2; i < lead.length; ++i) is_whole &= is_from(i, 0x80, 0xBF);
    return is_whole ? lead.length : 0;
  }
  return 0;
}

/// As a string of JSON has it; what is not UTF-8 is U+FFFD.
std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = length_of_character(text);
    if (length == 0) out += "\uFFFD";
    else if (static_cast<unsigned char>(text[0]) < ' ') out += fmt::format("\\u{:04x}", static_cast<int>(text[0]));
    else out.append(text[0] == '"' || text[0] == '\\' ? "\\" : "").append(text.substr(0, length));
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

/// For texts that end at the line's end.
std::string on_one_line(std::string text) {
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' '; }, ' ');
  return text;
}

bool is_of_host(const ProfileEvent& e) { return e.row.starts_with("host "); }

// Times are whole nanoseconds, so that what ends where another begins is not within it.
std::int64_t begin_ns(const ProfileEvent& e) { return std::llround(e.begin_us * 1e3); }
std::int64_t end_ns(const ProfileEvent& e) { return std::llround((e.begin_us + e.us) * 1e3); }

/// "host", "cpu:0": a process of the trace; and "main", "launch": a thread of it.
std::pair<std::string, std::string> halves_of(const std::string& row) {
  const std::size_t at = row.find(' ');
  return {row.substr(0, at), row.substr(at + 1)};
}

// ---- Trace ----

/// The row of each event as it is drawn. What a device does for several threads at once overlaps, and a viewer drops
/// what does: the second of two at once is on the row "cpu:0 launch 2".
std::vector<std::string> drawn_rows(const std::vector<ProfileEvent>& events) {
  std::map<std::string, std::vector<std::int64_t>> ends;  // per row of a device: of each that it is drawn as
  std::vector<std::string> rows;
  for (const ProfileEvent& e : events) {
    if (is_of_host(e)) {
      rows.push_back(e.row);
      continue;
    }
    std::vector<std::int64_t>& of_row = ends[e.row];
    auto free = std::ranges::find_if(of_row, [&](std::int64_t end) { return end <= begin_ns(e); });
    if (free == of_row.end()) free = of_row.insert(free, 0);
    *free = end_ns(e);
    const auto number = free - of_row.begin();
    rows.push_back(number == 0 ? e.row : fmt::format("{} {}", e.row, number + 1));
  }
  return rows;
}

/// Numbers of processes and threads, as the trace names them once; the host comes first.
class Numbers {
 public:
  explicit Numbers(const std::vector<std::string>& rows) {
    process_of_["host"] = 1;
    for (const std::string& row : std::set(rows.begin(), rows.end())) {
      const std::string of = halves_of(row).first;
      const int process = process_of_.try_emplace(of, static_cast<int>(process_of_.size()) + 1).first->second;
      ids_[row] = {process, static_cast<int>(ids_.size()) + 1};
    }
  }

  std::string of(const std::string& row) const {
    const auto [process, thread] = ids_.at(row);
    return fmt::format("\"pid\":{},\"tid\":{}", process, thread);
  }

  std::string metadata() const {
    std::string text;
    for (const auto& [name, number] : process_of_)
      text += fmt::format(
          "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"{1}\"}}}},\n"
          "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"args\":{{\"sort_index\":{0}}}}},\n",
          number, escaped(name));
    for (const auto& [row, ids] : ids_)
      text += fmt::format("{{\"ph\":\"M\",\"name\":\"thread_name\",{},\"args\":{{\"name\":\"{}\"}}}},\n", of(row),
                          escaped(halves_of(row).second));
    return text;
  }

 private:
  std::map<std::string, int> process_of_;
  std::map<std::string, std::pair<int, int>> ids_;
};

std::string arguments_of(const ProfileEvent& e) {
  std::string text;
  if (e.loc) text += fmt::format(",\"line\":\"{}\"", escaped(to_string(e.loc)));
  if (e.bytes > 0) text += fmt::format(",\"bytes\":{:.0f}", e.bytes);
  if (e.flops > 0) text += fmt::format(",\"flops\":{:.0f}", e.flops);
  if (e.bytes > 0 && e.us > 0) text += fmt::format(",\"GB/s\":{:.3f}", e.bytes / e.us * 1e-3);
  if (e.flops > 0 && e.us > 0) text += fmt::format(",\"GFLOP/s\":{:.3f}", e.flops / e.us * 1e-3);
  if (e.call > 0) text += fmt::format(",\"call\":{}", e.call);
  return text.empty() ? text : text.substr(1);
}

using Calls = absl::flat_hash_map<std::uint64_t, const ProfileEvent*>;

Calls calls_of(const std::vector<ProfileEvent>& events) {
  Calls calls;
  for (const ProfileEvent& e : events)
    if (e.kind == "call") calls.emplace(e.call, &e);
  return calls;
}

/// From the call to what the device did for it.
void add_arrow(std::string& text, const ProfileEvent& call, const ProfileEvent& e, const std::string& row,
               const Numbers& numbers, int id) {
  constexpr const char* kEnd = "{{\"ph\":\"{}\",\"name\":\"call\",\"cat\":\"call\",\"id\":{},{},\"ts\":{:.3f}{}}},\n";
  text += fmt::format(fmt::runtime(kEnd), "s", id, numbers.of(call.row), call.begin_us, "");
  text += fmt::format(fmt::runtime(kEnd), "f", id, numbers.of(row), e.begin_us, ",\"bp\":\"e\"");
}

}  // namespace

std::string trace_text(const ProfileData& profile) {
  const std::vector<std::string> rows = drawn_rows(profile.events);
  const Numbers numbers(rows);
  const Calls calls = calls_of(profile.events);
  std::string text = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + numbers.metadata();
  int arrows = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ProfileEvent& e = profile.events[i];
    fmt::format_to(std::back_inserter(text),
                   "{{\"ph\":\"X\",\"name\":\"{}\",\"cat\":\"{}\",{},\"ts\":{:.3f},\"dur\":{:.3f},\"args\":{{{}}}}},\n",
                   escaped(e.name), e.kind, numbers.of(rows[i]), e.begin_us, e.us, arguments_of(e));
    if (is_of_host(e)) continue;
    if (const auto call = calls.find(e.call); call != calls.end())
      add_arrow(text, *call->second, e, rows[i], numbers, ++arrows);
  }
  return text +
         fmt::format("{{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":1,\"args\":{{\"labels\":\"{}\"}}}}\n]}}\n",
                     profile.left_out ? fmt::format("{} events left out", profile.left_out) : "");
}

// ---- Folded stacks ----

namespace {

/// "jit step (mlp.cpp:30)"; a frame has no semicolon.
std::string frame_of(const ProfileEvent& e) {
  std::string frame = on_one_line(e.loc ? fmt::format("{} ({})", e.name, to_string(e.loc)) : e.name);
  std::ranges::replace(frame, ';', ',');
  return frame;
}

/// What is open on one row of the host, and the time of each that is not that of one within it.
class OpenSpans {
 public:
  OpenSpans(const std::string& row, std::map<std::string, double>& stacks) : row_(row), stacks_(stacks) {}
  ~OpenSpans() { close_until(std::numeric_limits<std::int64_t>::max()); }
  OpenSpans(const OpenSpans&) = delete;
  OpenSpans& operator=(const OpenSpans&) = delete;

  void open(const ProfileEvent& e) {
    close_until(begin_ns(e));
    const std::string& outer = open_.empty() ? row_ : open_.back().stack;
    if (!open_.empty()) open_.back().own_us -= e.us;
    open_.push_back({.stack = outer + ";" + frame_of(e), .end_ns = end_ns(e), .own_us = e.us});
  }

 private:
  struct Span {
    std::string stack;
    std::int64_t end_ns = 0;
    double own_us = 0;
  };
  /// Those that end by then.
  void close_until(std::int64_t ns) {
    while (!open_.empty() && open_.back().end_ns <= ns) {
      stacks_[open_.back().stack] += std::max(open_.back().own_us, 0.0);
      open_.pop_back();
    }
  }

  const std::string row_;
  std::map<std::string, double>& stacks_;
  std::vector<Span> open_;
};

}  // namespace

std::string folded_text(const ProfileData& profile) {
  const Calls calls = calls_of(profile.events);
  std::map<std::string, double> stacks;
  {
    std::map<std::string, OpenSpans> rows;
    for (const ProfileEvent& e : profile.events) {
      if (is_of_host(e)) {
        rows.try_emplace(e.row, e.row, stacks).first->second.open(e);
        continue;
      }
      const auto call = calls.find(e.call);
      stacks[fmt::format("{};{}{}", e.row, call == calls.end() ? "" : frame_of(*call->second) + ";", frame_of(e))] +=
          e.us;
    }
  }
  std::string text;
  for (const auto& [stack, us] : stacks) text += fmt::format("{} {:.0f}\n", stack, us * 1e3);
  return text;
}

// ---- Table ----

namespace {

struct TableRow {
  double us = 0, longest_us = 0, bytes = 0, flops = 0;
  int count = 0;
};

std::string quantity(double n) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  std::size_t unit = 0;
  for (; n >= 1000 && unit + 1 < std::size(kUnits); ++unit) n /= 1000;
  return n == 0 ? "-" : fmt::format("{:.3g}{}", n, kUnits[unit]);
}

}  // namespace

std::string table_text(const ProfileData& profile) {
  std::map<std::tuple<std::string, std::string, std::string>, TableRow> rows;
  double device_us = 0;
  for (const ProfileEvent& e : profile.events) {
    TableRow& row = rows[{e.kind, on_one_line(e.name), e.loc ? to_string(e.loc) : ""}];
    row.us += e.us;
    row.longest_us = std::max(row.longest_us, e.us);
    row.bytes += e.bytes;
    row.flops += e.flops;
    ++row.count;
    if (!is_of_host(e)) device_us += e.us;
  }
  using Entry = std::pair<std::tuple<std::string, std::string, std::string>, TableRow>;
  std::vector<Entry> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(sorted, std::greater(), [](const Entry& e) { return e.second.us; });
  std::string text = fmt::format("{:>10} {:>7} {:>10} {:>7} {:>8} {:>8}  {:<10} {}\n", "ms", "times", "longest ms",
                                 "device", "bytes/s", "flop/s", "kind", "what");
  for (const auto& [key, row] : sorted) {
    const auto& [kind, name, line] = key;
    const bool is_of_device = kind == "launch" || kind == "copy" || kind == "collective";
    const std::string share = is_of_device && device_us > 0 ? fmt::format("{:.1f}%", 100 * row.us / device_us) : "-";
    const double seconds = row.us * 1e-6;
    text += fmt::format("{:>10.3f} {:>7} {:>10.3f} {:>7} {:>8} {:>8}  {:<10} {}{}\n", row.us * 1e-3, row.count,
                        row.longest_us * 1e-3, share, seconds > 0 ? quantity(row.bytes / seconds) : "-",
                        seconds > 0 ? quantity(row.flops / seconds) : "-", kind, name, line.empty() ? "" : "  " + line);
  }
  if (profile.left_out > 0) text += fmt::format("{} events are left out for want of room\n", profile.left_out);
  return text;
}

}  // namespace sheaf
