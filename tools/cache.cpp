// A table of commands; each works on one place, a folder or a pack.
#include "tools/cache.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <ranges>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "ir/text.h"
#include "runtime/allocator.h"
#include "runtime/cache.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_pack.h"
#include "runtime/counters.h"
#include "runtime/disk_cache.h"
#include "runtime/private_file.h"
#include "sheaf/error.h"
#include "sheaf/warm.h"
#include "trace/execute.h"
#include "trace/text_file.h"

namespace sheaf {
namespace {

using runtime::CacheEntry;
using runtime::CacheFile;
using runtime::CacheFolder;
using runtime::CachePlacePtr;

constexpr const char* kUsage = R"(sheaf cache: looks after compiled kernels on disk

  sheaf cache list [PLACE]                  every entry: its kind and key, bytes of the disk, hours since its last use,
                                            and what it is
  sheaf cache stats [PLACE]                 how many entries there are, and how large
  sheaf cache verify [PLACE]                read every entry, and name those that are damaged; fails if there are any
  sheaf cache purge [--to=SIZE] [FOLDER]    delete all entries, or those used longest ago until SIZE is left
  sheaf cache build [--target=NAME] FILE... compile what manifests tell of, and every function of .sheaf files, into the
                                            folder that processes use here; for a GPU's architecture, such as sm_90a,
                                            or for cpu, in place of what a manifest says
  sheaf cache pack FILE [PLACE]             write all whole entries into one file, for SHEAF_CACHE_READONLY
  sheaf cache unpack FILE [FOLDER]          put the entries of a pack into a folder

PLACE is a folder or a pack; without one it is the folder that processes use here: SHEAF_CACHE_DIR, else
$XDG_CACHE_HOME/sheaf or ~/.cache/sheaf.
)";

struct Arguments {
  std::vector<std::string> words;
  std::string target, to;
};

Arguments parse(const std::vector<std::string>& arguments) {
  Arguments a;
  for (const std::string& text : arguments) {
    if (text.starts_with("--target=")) a.target = text.substr(9);
    else if (text.starts_with("--to=")) a.to = text.substr(5);
    else if (text.starts_with("--")) throw Error("unknown option " + text + "; see sheaf cache --help");
    else a.words.push_back(text);
  }
  return a;
}

std::string folder_here() {
  const runtime::DiskCacheOptions options = runtime::disk_cache_options();
  if (options.folder.empty()) throw Error("no folder is used as a cache here, and none was named");
  return options.folder;
}

std::string place_of(const Arguments& a, std::size_t word) {
  if (a.words.size() > word + 1) throw Error("one place at a time: " + a.words[word] + " and " + a.words[word + 1]);
  return word < a.words.size() ? a.words[word] : folder_here();
}

CachePlacePtr opened(const absl::StatusOr<CachePlacePtr>& place, const std::string& path) {
  if (!place.ok()) throw RuntimeError(path + ": " + std::string(place.status().message()));
  return *place;
}

CachePlacePtr open(const std::string& path) { return opened(runtime::open_cache_place(path), path); }

/// Without a word the folder here, which is empty where no process has made it yet.
CachePlacePtr open_or_here(const Arguments& a) {
  const std::string path = place_of(a, 0);
  const absl::StatusOr<CachePlacePtr> place = runtime::open_cache_place(path);
  if (a.words.empty() && absl::IsNotFound(place.status())) return std::make_shared<const CacheFolder>(path);
  return opened(place, path);
}

void check(const absl::Status& status, const std::string& path) {
  if (!status.ok()) throw RuntimeError(path + ": " + std::string(status.message()));
}

/// All files of the place, the whole ones as texts of entries; the others are told.
std::vector<std::string> whole_entries(const runtime::CachePlace& place) {
  std::vector<std::string> files;
  for (const CacheFile& file : place.list()) {
    if (file.key.empty()) continue;
    std::string text = place.read(file.kind, file.key).value_or("");
    const std::optional<CacheEntry> entry = runtime::parse_entry(text);
    if (entry && entry->kind == file.kind && entry->key == file.key) files.push_back(std::move(text));
    else fmt::print("{}: {} {} is damaged\n", file.path, file.kind, file.key);
  }
  return files;
}

int list(const Arguments& a) {
  const CachePlacePtr place = open_or_here(a);
  std::vector<CacheFile> files = place->list();
  std::ranges::sort(files, std::greater(), &CacheFile::used_ns);
  const auto now = static_cast<double>(std::time(nullptr));
  for (const CacheFile& file : files) {
    if (file.key.empty()) continue;
    const std::string text = place->read(file.kind, file.key).value_or("");
    const std::optional<CacheEntry> entry = runtime::parse_entry(text);
    fmt::print("{:<8} {} {:>9} {:>7.1f} h  {}\n", file.kind, file.key, file.bytes,
               std::max(0.0, now - static_cast<double>(file.used_ns) / 1e9) / 3600,
               entry ? entry->about : "damaged, or of another version");
  }
  return 0;
}

int stats(const Arguments& a) {
  const std::string path = place_of(a, 0);
  struct Sum {
    std::int64_t entries = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  Sum all;
  const CachePlacePtr place = open_or_here(a);
  for (const CacheFile& file : place->list())
    for (Sum* sum : {&sums[file.key.empty() ? "unfinished" : file.kind], &all})
      ++sum->entries, sum->bytes += file.bytes;
  constexpr const char* kRow = "{:<10} {:>8} {:>14} bytes\n";
  fmt::print("{}\n", path);
  for (const auto& [kind, sum] : sums) fmt::print(kRow, kind, sum.entries, sum.bytes);
  fmt::print(kRow, "all", all.entries, all.bytes);
  if (a.words.empty()) fmt::print(kRow, "limit", "", runtime::disk_cache_options().limit_bytes);
  return 0;
}

int verify(const Arguments& a) {
  const std::string path = place_of(a, 0);
  const CachePlacePtr place = open_or_here(a);
  const std::int64_t entries = std::ranges::count_if(place->list(), [](const CacheFile& f) { return !f.key.empty(); });
  const std::int64_t whole = std::ssize(whole_entries(*place));
  fmt::print("{}: {} of {} entries are whole\n", path, whole, entries);
  return whole == entries ? 0 : 1;
}

int purge(const Arguments& a) {
  const std::string path = place_of(a, 0);
  std::int64_t limit = 0;
  if (!a.to.empty()) {
    const absl::StatusOr<std::int64_t> size = runtime::parse_bytes(a.to);
    if (!size.ok()) throw Error("--to: " + std::string(size.status().message()));
    limit = *size;
  }
  if (!std::filesystem::is_directory(path)) throw RuntimeError(path + ": it is no folder");
  fmt::print("{}: {} bytes deleted\n", path, CacheFolder(path).sweep(limit));
  return 0;
}

// ---- build ----

/// Every kernel of the function, small ones too, which a process would begin to interpret.
void compile_all(const ir::FunctionRef& f, const codegen::Target& target) {
  const CompiledPtr program = compile({.function = f, .target = target}, {}, {});
  if (!program->executable()) throw Error("SHEAF_INTERPRET=1 compiles nothing");
  const absl::Status status = runtime::KernelCache::global().compile(program->executable()->kernels());
  if (!status.ok()) throw RuntimeError(std::string(status.message()));
}

/// Of a manifest, or of a .sheaf file; how many programs there are.
int build_file(const std::string& file, const Arguments& a) {
  const absl::StatusOr<std::string> text = contents_of(file);
  check(text.status(), file);
  if (text->starts_with("sheaf manifest "))
    return warm(file, {.progress = progress_bar(), .only_compile = true, .target = a.target}, {}).programs;
  if (text->empty()) throw Error(file + ": it is empty");
  const absl::StatusOr<ir::Module> module = ir::parse(*text);
  if (!module.ok()) throw Error(file + ":" + std::string(module.status().message()));
  if (module->functions.empty()) throw Error(file + ": holds no function");
  for (const ir::FunctionRef& f : module->functions)
    compile_all(f, *codegen::parse_target(a.target.empty() ? "cpu" : a.target));
  return static_cast<int>(module->functions.size());
}

int build(const Arguments& a) {
  if (a.words.empty()) throw Error("no FILE; see sheaf cache --help");
  if (!a.target.empty())
    if (const auto target = codegen::parse_target(a.target); !target.ok())
      throw Error("--target: " + std::string(target.status().message()));
  const std::string folder = folder_here();
  int programs = 0;
  for (const std::string& file : a.words) programs += build_file(file, a);
  const CacheStats stats = cache_stats();
  if (stats.not_stored > 0) throw RuntimeError("not all was kept: " + stats.trouble);
  const runtime::Counters& c = runtime::counters();
  fmt::print("{}: {} programs, {} kernels compiled, {} were there\n", folder, programs, c.kernels_compiled.load(),
             c.kernels_read.load());
  return 0;
}

// ---- packs ----

int pack(const Arguments& a) {
  if (a.words.empty()) throw Error("no FILE; see sheaf cache --help");
  const std::vector<std::string> files = whole_entries(*open(place_of(a, 1)));
  check(runtime::write_whole_file(a.words[0], runtime::to_pack(files), 0644), a.words[0]);
  fmt::print("{}: {} entries\n", a.words[0], files.size());
  return 0;
}

int unpack(const Arguments& a) {
  if (a.words.empty()) throw Error("no FILE; see sheaf cache --help");
  const std::string path = place_of(a, 1);
  const CacheFolder folder(path);
  const std::vector<std::string> files = whole_entries(*open(a.words[0]));
  for (const std::string& file : files) {
    const CacheEntry entry = *runtime::parse_entry(file);
    check(folder.write(entry.kind, entry.key, file), path);
  }
  fmt::print("{}: {} entries\n", path, files.size());
  return 0;
}

}  // namespace

int cache_command(const std::vector<std::string>& arguments) {
  static const std::map<std::string, int (*)(const Arguments&)> commands = {
      {"list", list},   {"stats", stats}, {"verify", verify}, {"purge", purge},
      {"build", build}, {"pack", pack},   {"unpack", unpack}};
  const std::string name = arguments.empty() ? "" : arguments[0];
  if (name == "--help" || name == "help") return std::fputs(kUsage, stdout), 0;
  const auto command = commands.find(name);
  if (command == commands.end())
    throw Error(fmt::format("{}: there are {}; see sheaf cache --help",
                            name.empty() ? "cache takes a command" : "no command 'cache " + name + "'",
                            fmt::join(std::views::keys(commands), ", ")));
  return command->second(parse({arguments.begin() + 1, arguments.end()}));
}

}  // namespace sheaf
