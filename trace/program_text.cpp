// Fields, one a line, then the function and those it calls as ir/text.h prints them.
#include "trace/program_text.h"

#include <absl/container/node_hash_set.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <mutex>

#include "ir/text.h"
#include "ir/words.h"
#include "runtime/device.h"

namespace sheaf {
namespace {

std::string devices_text(const Mesh& mesh) {
  std::vector<int> ids;
  for (const Device d : mesh.devices()) ids.push_back(d.id);
  return fmt::format("{}", fmt::join(ids, ","));
}

std::string results_text(const std::vector<std::optional<ir::Spec>>& results) {
  std::vector<std::string> texts;
  for (const auto& spec : results) texts.push_back(spec ? "(" + ir::to_text(*spec) + ")" : "any");
  return fmt::format("{}", fmt::join(texts, " "));
}

std::vector<std::optional<ir::Spec>> parse_results(std::string_view text, FieldReader& in) {
  std::vector<std::optional<ir::Spec>> results;
  for (const std::string_view word : ir::split(text, ' ')) {
    if (word == "any") {
      results.emplace_back();
      continue;
    }
    const bool is_spec = word.size() >= 2 && word.front() == '(' && word.back() == ')';
    auto spec = is_spec ? ir::parse_spec(word.substr(1, word.size() - 2)) : absl::InvalidArgumentError("no spec");
    if (!spec.ok()) {
      in.fail(fmt::format("results: '{}': {}", word, std::string(spec.status().message())));
      return {};
    }
    results.emplace_back(*std::move(spec));
  }
  return results;
}

// Names of files live as long as the process, as those of the compiler's do.
const char* interned(std::string file) {
  static auto& mutex = *new std::mutex;
  static auto& files = *new absl::node_hash_set<std::string>;
  std::lock_guard lock(mutex);
  return files.insert(std::move(file)).first->c_str();
}

// Without devices where this process lacks one of them.
Mesh mesh_of(const ir::Mesh& axes, std::string_view devices, FieldReader& in) {
  std::vector<MeshAxis> named;
  for (const ir::MeshAxis& a : axes.axes()) named.push_back({a.name, a.size});
  std::vector<Device> list;
  bool are_there = true;
  for (const std::string_view word : ir::split(devices, ',')) {
    const std::optional<std::int64_t> id = ir::parse_int(word);
    if (!id || *id < 0) {
      in.fail(fmt::format("devices: '{}' is no device", word));
      return {};
    }
    are_there &= *id < std::ssize(runtime::devices());
    list.push_back({static_cast<int>(*id)});
  }
  if (list.empty() || !are_there) return Mesh::abstract(std::move(named), Loc{});
  if (std::ssize(list) == axes.size()) return Mesh(std::move(named), std::move(list), Loc{});
  in.fail(fmt::format("devices: {} of them, for a mesh of {}", list.size(), axes.size()));
  return {};
}

}  // namespace

std::string flags_text(const std::vector<bool>& flags) {
  std::string text;
  for (const bool f : flags) text += f ? '1' : '0';
  return text;
}
std::vector<bool> parse_flags(std::string_view text) {
  std::vector<bool> flags;
  for (const char c : text) flags.push_back(c == '1');
  return flags;
}

std::string line_text(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string("\\n") : c == '\\' ? "\\\\" : std::string(1, c);
  return line;
}
std::string text_of_line(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const bool is_escaped = line[i] == '\\' && i + 1 < line.size();
    if (is_escaped) ++i;
    text += is_escaped && line[i] == 'n' ? '\n' : line[i];
  }
  return text;
}

std::string loc_field(Loc loc) { return loc ? to_string(loc) : ""; }
Loc parse_loc_field(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  return {interned(std::string(text.substr(0, colon))),
          static_cast<int>(ir::parse_int(text.substr(colon + 1)).value_or(0))};
}

std::string FieldReader::take(std::string_view name) {
  if (!status_.ok()) return "";
  const std::string begin = std::string(name) + ":";
  const std::size_t end = text_.find('\n');
  if (!text_.starts_with(begin) || end == std::string_view::npos) {
    fail(fmt::format("there should be '{}' where '{}' is", begin,
                     line_text(text_.substr(0, std::min<std::size_t>(end, 40)))));
    return "";
  }
  std::string_view value = text_.substr(begin.size(), end - begin.size());
  if (value.starts_with(' ')) value.remove_prefix(1);
  text_.remove_prefix(end + 1);
  return std::string(value);
}

std::string_view FieldReader::take_bytes(std::size_t count) {
  if (!status_.ok()) return "";
  if (text_.size() < count + 1 || text_[count] != '\n') {
    fail("it is cut off");
    return "";
  }
  const std::string_view bytes = text_.substr(0, count);
  text_.remove_prefix(count + 1);
  return bytes;
}

void FieldReader::fail(std::string why) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(why);
}

std::string to_text(const ProgramSource& source) {
  const MeshProgram& p = source.program;
  return fmt::format("what: {}\nat: {}\ntarget: {}\ndevices: {}\nresults: {}\ndonated: {}\n{}", line_text(source.what),
                     loc_field(source.loc), to_string(p.target), devices_text(p.mesh), results_text(p.results),
                     flags_text(source.donated), ir::print(p.function, {.locs = true}));
}

absl::StatusOr<ProgramSource> parse_program(std::string_view text) {
  FieldReader in(text);
  ProgramSource source;
  source.what = text_of_line(in.take("what"));
  source.loc = parse_loc_field(in.take("at"));
  const std::string target = in.take("target");
  const std::string devices = in.take("devices");
  source.program.results = parse_results(in.take("results"), in);
  source.donated = parse_flags(in.take("donated"));
  if (!in.status().ok()) return in.status();
  const absl::StatusOr<codegen::Target> parsed = codegen::parse_target(target);
  if (!parsed.ok()) return parsed.status();
  source.program.target = *parsed;
  const absl::StatusOr<ir::Module> module = ir::parse(in.rest());
  if (!module.ok()) return module.status();
  if (module->functions.empty()) return absl::InvalidArgumentError("there is no function in it");
  source.program.function = module->functions[0];
  const std::size_t params = source.program.function->params().size();
  if (!source.donated.empty() && source.donated.size() != params)
    return absl::InvalidArgumentError(
        fmt::format("donated: {} flags for {} parameters", source.donated.size(), params));
  if (const ir::Mesh axes = source.program.function->mesh()) source.program.mesh = mesh_of(axes, devices, in);
  if (!in.status().ok()) return in.status();
  return source;
}

}  // namespace sheaf
