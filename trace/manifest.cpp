// Recording and reading. An entry that the file has already is not written again, however often the program is run.
#include "trace/manifest.h"

#include <absl/container/flat_hash_set.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "codegen/fingerprint.h"
#include "ir/log.h"
#include "ir/words.h"
#include "sheaf/warm.h"
#include "trace/text_file.h"

namespace sheaf {
namespace {

constexpr std::string_view kFirstLine = "sheaf manifest 1\n";

struct RawEntry {
  std::string fingerprint;
  std::string_view body;
};

// Of "program FINGERPRINT BYTES\n" and the bytes behind it; takes them off the text.
absl::StatusOr<RawEntry> next_entry(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::vector<std::string_view> words = ir::split(text.substr(0, end), ' ');
  const std::optional<std::int64_t> bytes = words.size() == 3 ? ir::parse_int(words[2]) : std::nullopt;
  if (end == std::string_view::npos || words.size() != 3 || words[0] != "program" || !bytes || *bytes < 0)
    return absl::InvalidArgumentError(
        fmt::format("its line '{}' is none of a manifest", line_text(text.substr(0, std::min<std::size_t>(end, 60)))));
  const std::string_view body = text.substr(end + 1, static_cast<std::size_t>(*bytes));
  if (std::ssize(body) < *bytes)
    return absl::InvalidArgumentError(fmt::format("it is cut off after {} of {} bytes", body.size(), *bytes));
  if (codegen::fingerprint(body) != words[1])
    return absl::InvalidArgumentError("it is damaged: its fingerprint is another one");
  RawEntry entry{std::string(words[1]), body};
  text.remove_prefix(end + 1 + body.size());
  return entry;
}

absl::StatusOr<std::vector<RawEntry>> entries_of(std::string_view text) {
  std::vector<RawEntry> entries;
  if (text.empty()) return absl::InvalidArgumentError("it is empty");
  if (!text.starts_with(kFirstLine))
    return absl::InvalidArgumentError(
        fmt::format("is no manifest, or of another version: it begins with '{}' and not with '{}'",
                    line_text(text.substr(0, std::min<std::size_t>(text.find('\n'), 40))),
                    kFirstLine.substr(0, kFirstLine.size() - 1)));
  while (!text.empty()) {
    if (text.starts_with(kFirstLine)) {  // two processes began the file
      text.remove_prefix(kFirstLine.size());
      continue;
    }
    absl::StatusOr<RawEntry> entry = next_entry(text);
    if (!entry.ok())
      return absl::InvalidArgumentError(
          fmt::format("program {}: {}", entries.size() + 1, std::string(entry.status().message())));
    entries.push_back(*std::move(entry));
  }
  return entries;
}

class Recording {
 public:
  explicit Recording(std::string path) : path_(std::move(path)) {
    const std::string there = contents_of(path_).value_or("");
    if (!there.empty()) {
      const auto entries = entries_of(there);
      if (!entries.ok()) {
        stop(std::string(entries.status().message()));
        return;
      }
      for (const RawEntry& entry : *entries) known_.insert(entry.fingerprint);
    }
    file_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0) stop(std::strerror(errno));
    else if (there.empty()) append(std::string(kFirstLine));
  }
  ~Recording() {
    if (file_ >= 0) close(file_);
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  void add(const ProgramSource& source) {
    const std::string body = to_text(source), fingerprint = codegen::fingerprint(body);
    std::lock_guard lock(mutex_);
    if (file_ < 0 || !known_.insert(fingerprint).second) return;
    append(fmt::format("program {} {}\n{}", fingerprint, body.size(), body));
  }

 private:
  // Whole or not at all: a part, where the disk is full, would spoil what is there.
  void append(const std::string& text) {
    flock(file_, LOCK_EX);  // of processes that record; it goes with the file
    const off_t end = lseek(file_, 0, SEEK_END);
    const ssize_t written = write(file_, text.data(), text.size());
    const std::string why = written < 0 ? std::strerror(errno) : "it takes no more";
    const bool is_cut = written > 0 && written < std::ssize(text);
    if (is_cut && ftruncate(file_, end) != 0) ir::log(ir::LogTopic::cache, "{} stays cut off", path_);
    flock(file_, LOCK_UN);
    if (written != std::ssize(text)) stop(why);
  }
  void stop(const std::string& why) {
    if (file_ >= 0) close(std::exchange(file_, -1));
    ir::warn(fmt::format("the manifest is not written: {}: {}", path_, why));
  }

  const std::string path_;
  std::mutex mutex_;
  absl::flat_hash_set<std::string> known_;
  int file_ = -1;
};

}  // namespace

std::vector<ManifestEntry> read_manifest(const std::string& path, Loc loc) {
  const auto fail = [&](const std::string& why) { throw RuntimeError(loc, fmt::format("warm: {}: {}", path, why)); };
  const absl::StatusOr<std::string> text = contents_of(path);
  if (!text.ok()) fail(std::string(text.status().message()));
  const absl::StatusOr<std::vector<RawEntry>> raw = entries_of(*text);
  if (!raw.ok()) fail(std::string(raw.status().message()));
  std::vector<ManifestEntry> entries;
  for (const RawEntry& entry : *raw) {
    const int number = static_cast<int>(entries.size()) + 1;
    absl::StatusOr<ProgramSource> source = parse_program(entry.body);
    if (!source.ok()) fail(fmt::format("program {}: {}", number, std::string(source.status().message())));
    entries.push_back({number, *std::move(source)});
  }
  return entries;
}

void record_manifest(const std::string& path) {
  if (path.empty()) return observe_compilations(nullptr);
  const auto recording = std::make_shared<Recording>(path);
  observe_compilations([recording](const ProgramSource& source) { recording->add(source); });
  for (const CompiledPtr& program : compiled_programs()) recording->add(program->source);
}

void record_manifest_if_asked() {
  static const bool asked = [] {
    const char* path = std::getenv("SHEAF_MANIFEST");
    if (path && *path) record_manifest(path);
    return true;
  }();
  (void)asked;
}

}  // namespace sheaf
