// Profiles as data, and their text.
#include "passes/sharding/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ir/check.h"
#include "ir/log.h"
#include "ir/words.h"

namespace sheaf::passes {
namespace {

constexpr std::string_view kHead = "sheaf profile 1";

constexpr std::string_view kKinds[] = {"all_reduce", "all_gather", "reduce_scatter",
                                       "all_to_all", "ppermute",   "axis_index"};

// Of cpu: devices that are threads of one process. nvlink and pcie: one server, links as its devices reach them with
// all of them sending. ib: one network card per device; half of a measured round trip.
const std::vector<Profile>& built_in() {
  static const auto& profiles = *new std::vector<Profile>{
      {.name = "cpu", .links = {{.link = {2e-5, 4e9}}}, .flops = 2e10, .memory = 1e10, .launch = 1e-6},
      {.name = "nvlink",
       .links = {{.link = {3e-6, 3.5e11}}},
       .flops = 6e13,
       .flops_of = {{DType::f16, 9e14}, {DType::bf16, 9e14}, {DType::f64, 3e13}},
       .memory = 3.3e12,
       .launch = 4e-6,
       .capacity = 8e10},
      {.name = "pcie",
       .links = {{.link = {1e-5, 2e10}}},
       .flops = 3e13,
       .flops_of = {{DType::f16, 3e14}, {DType::bf16, 3e14}, {DType::f64, 5e11}},
       .memory = 1e12,
       .launch = 4e-6,
       .capacity = 2.4e10},
      {.name = "ib",
       .links = {{.link = {3.4e-5, 5.5e10}}},
       .flops = 6e13,
       .flops_of = {{DType::f16, 9e14}, {DType::bf16, 9e14}, {DType::f64, 3e13}},
       .memory = 3.3e12,
       .launch = 4e-6,
       .capacity = 8e10},
      {.name = "flat", .links = {{.link = {1e-8, 1e9}}}, .flops = 1e11, .memory = 1e12, .launch = 0},
  };
  return profiles;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// All of the text as a number above 0, or 0 too where that makes sense.
std::optional<double> parse_rate(std::string_view text, bool may_be_zero = false) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (!std::isfinite(value) || value < 0 || (value == 0 && !may_be_zero)) return std::nullopt;
  return value;
}

std::optional<Link> parse_link(std::string_view text) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  const std::optional<double> latency = parse_rate(text.substr(0, space), true);
  const std::optional<double> bandwidth = parse_rate(trimmed(text.substr(space)));
  if (!latency || !bandwidth) return std::nullopt;
  return Link{*latency, *bandwidth};
}

std::optional<CollectiveKind> parse_kind(std::string_view text) {
  for (std::size_t k = 0; k < std::size(kKinds); ++k)
    if (kKinds[k] == text && static_cast<CollectiveKind>(k) != CollectiveKind::axis_index)
      return static_cast<CollectiveKind>(k);
  return std::nullopt;
}

bool assign(double& to, std::optional<double> value) {
  if (value) to = *value;
  return value.has_value();
}

/// Whether "key = value" is a line of a profile.
bool read_entry(std::string_view key, std::string_view value, Profile& p) {
  const std::size_t at = key.find('@');
  const std::string_view head = key.substr(0, at);
  const std::string_view tail = at == std::string_view::npos ? std::string_view() : key.substr(at + 1);
  if (at != std::string_view::npos && tail.empty()) return false;
  if (key == "name") {
    p.name = value;
    return true;
  }
  if (key == "flops") return assign(p.flops, parse_rate(value));
  if (key == "memory") return assign(p.memory, parse_rate(value));
  if (key == "launch") return assign(p.launch, parse_rate(value, true));
  if (key == "capacity") return assign(p.capacity, parse_rate(value, true));
  if (head == "flops") {
    const std::optional<DType> dtype = parse_dtype(tail);
    const std::optional<double> rate = parse_rate(value);
    if (dtype && rate) p.flops_of.emplace_back(*dtype, *rate);
    return dtype && rate;
  }
  const std::optional<CollectiveKind> kind = parse_kind(head);
  const std::optional<Link> link = parse_link(value);
  if ((!kind && head != "link") || !link) return false;
  p.links.push_back({.kind = kind, .axis = std::string(tail), .link = *link});
  return true;
}

}  // namespace

std::string_view name(CollectiveKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

Link Profile::link(CollectiveKind kind, std::string_view axis) const {
  const LinkRow* best = nullptr;
  int most = -1;
  for (const LinkRow& row : links) {
    if ((row.kind && *row.kind != kind) || (!row.axis.empty() && row.axis != axis)) continue;
    const int said = 2 * !row.axis.empty() + row.kind.has_value();
    if (said > most) best = &row, most = said;
  }
  SHEAF_CHECK(best, "the profile " + name + " has no link for all axes");
  return best->link;
}

double Profile::flops_per_second(DType dtype) const {
  for (const auto& [of, rate] : flops_of)
    if (of == dtype) return rate;
  return flops;
}

const Profile* built_in_profile(std::string_view name) {
  for (const Profile& p : built_in())
    if (p.name == name) return &p;
  return nullptr;
}

std::string to_text(const Profile& p) {
  std::string s = fmt::format("{}\nname = {}\nflops = {}\n", kHead, p.name, p.flops);
  for (const auto& [dtype, rate] : p.flops_of) s += fmt::format("flops@{} = {}\n", name(dtype), rate);
  s += fmt::format("memory = {}\nlaunch = {}\n", p.memory, p.launch);
  if (p.capacity > 0) s += fmt::format("capacity = {}\n", p.capacity);
  for (const LinkRow& row : p.links)
    s += fmt::format("{}{}{} = {} {}\n", row.kind ? name(*row.kind) : "link", row.axis.empty() ? "" : "@", row.axis,
                     row.link.latency, row.link.bandwidth);
  return s;
}

absl::StatusOr<Profile> parse_profile(std::string_view text) {
  Profile p;
  int number = 0;
  bool is_headed = false;
  for (std::string_view line : ir::split(text, '\n')) {
    ++number;
    line = trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    if (!is_headed) {
      if (line != kHead)
        return absl::InvalidArgumentError(fmt::format("line {}: a profile starts with \"{}\"", number, kHead));
      is_headed = true;
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos ||
        !read_entry(trimmed(line.substr(0, equals)), trimmed(line.substr(equals + 1)), p))
      return absl::InvalidArgumentError(fmt::format("line {}: \"{}\" is no line of a profile", number, line));
  }
  for (std::size_t k = 0; k < std::size(kKinds); ++k) {
    const auto serves = [&](const LinkRow& row) {
      return row.axis.empty() && (!row.kind || static_cast<std::size_t>(*row.kind) == k);
    };
    if (kKinds[k] != name(CollectiveKind::axis_index) && std::none_of(p.links.begin(), p.links.end(), serves))
      return absl::InvalidArgumentError(fmt::format("no link for {}", kKinds[k]));
  }
  return p;
}

absl::StatusOr<Profile> load_profile(const std::string& name_or_file) {
  if (const Profile* p = built_in_profile(name_or_file)) return *p;
  std::ifstream file(name_or_file);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf()))
    return absl::NotFoundError(fmt::format("{} is neither a profile nor a file that can be read", name_or_file));
  absl::StatusOr<Profile> p = parse_profile(text.str());
  if (!p.ok())
    return absl::InvalidArgumentError(fmt::format("{}: {}", name_or_file, std::string(p.status().message())));
  return p;
}

const Profile& chosen_profile(const ir::Target& target) {
  static const Profile* const named = []() -> const Profile* {
    const char* wanted = std::getenv("SHEAF_MESH_PROFILE");
    if (!wanted || !*wanted) return nullptr;
    absl::StatusOr<Profile> p = load_profile(wanted);
    if (p.ok()) return new Profile(*std::move(p));
    ir::warn(fmt::format("SHEAF_MESH_PROFILE: {}; using that of the devices", std::string(p.status().message())));
    return nullptr;
  }();
  return named ? *named : *built_in_profile(target.is_gpu() ? "nvlink" : "cpu");
}

}  // namespace sheaf::passes
