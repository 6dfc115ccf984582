// A file is written under a name of its own beside the other, and renamed: of two processes that write the same, either
// one's stays.
#include "runtime/private_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "fmt/format.h"

namespace sheaf::runtime {
namespace {

namespace fs = std::filesystem;

/// More than any file here has; what claims to be larger would take all memory.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 32;

absl::Status status_of(int error) {
  const std::string text = std::strerror(error);
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

absl::Status check_trusted(const struct stat& s) {
  if (s.st_uid != geteuid() && s.st_uid != 0)
    return absl::PermissionDeniedError(
        fmt::format("it belongs to user {}, and this process is user {}'s", s.st_uid, geteuid()));
  if (s.st_mode & (S_IWGRP | S_IWOTH))
    return absl::PermissionDeniedError(
        fmt::format("others can write there (its mode is {:o}); chmod go-w ends that", s.st_mode & 07777));
  return absl::OkStatus();
}

/// Which no other process or thread has, on whatever machine.
std::string unfinished_name(const std::string& path) {
  static const std::uint64_t process = [] {  // process ids repeat where containers share a folder
    std::uint64_t random = 0;
    return getrandom(&random, sizeof random, GRND_NONBLOCK) == sizeof random ? random : 0;
  }();
  static std::atomic<int> next{0};
  return fmt::format("{}.{}.{:x}.{}{}", path, getpid(), process, next++, kUnfinished);
}

absl::Status make_folders(const fs::path& path) {
  struct stat s;
  if (path.empty() || stat(path.c_str(), &s) == 0) return absl::OkStatus();  // no folder: the next step says so
  if (absl::Status status = make_folders(path.parent_path()); !status.ok()) return status;
  return mkdir(path.c_str(), 0700) == 0 || errno == EEXIST ? absl::OkStatus() : status_of(errno);
}

absl::Status write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return status_of(n < 0 ? errno : ENOSPC);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PrivateFilePtr> PrivateFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe without a writer is not waited for
  if (fd < 0) return status_of(errno);
  struct stat s{};
  absl::Status status = fstat(fd, &s) == 0 ? check_trusted(s) : status_of(errno);
  const std::shared_ptr<const PrivateFile> file(
      new PrivateFile(fd, s.st_size, s.st_mtim.tv_sec * std::int64_t{1'000'000'000} + s.st_mtim.tv_nsec));
  if (status.ok() && !S_ISREG(s.st_mode)) status = absl::UnavailableError("it is no file");
  if (!status.ok()) return status;
  return file;
}

PrivateFile::~PrivateFile() { close(fd_); }

void PrivateFile::touch() const { (void)futimens(fd_, nullptr); }

std::optional<std::string> PrivateFile::read(std::int64_t offset, std::int64_t bytes) const {
  if (offset < 0 || bytes < 0 || bytes > kMostBytes || bytes > bytes_ - offset) return {};
  std::string text(static_cast<std::size_t>(bytes), '\0');
  for (std::size_t got = 0; got < text.size();) {
    const ssize_t n = pread(fd_, text.data() + got, text.size() - got, offset + static_cast<std::int64_t>(got));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};  // it has been cut meanwhile, or the disk is broken
    got += static_cast<std::size_t>(n);
  }
  return text;
}

absl::Status check_private_folder(const std::string& path) {
  struct stat s;
  return stat(path.c_str(), &s) == 0 ? check_trusted(s) : status_of(errno);
}

absl::Status make_private_folders_for(const std::string& path) { return make_folders(fs::path(path).parent_path()); }

absl::Status write_whole_file(const std::string& path, std::string_view text, unsigned mode) {
  if (absl::Status status = make_private_folders_for(path); !status.ok()) return status;
  const std::string beside = unfinished_name(path);
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return status_of(errno);
  absl::Status status = write_all(fd, text);
  if (close(fd) != 0) status.Update(status_of(errno));
  if (status.ok() && rename(beside.c_str(), path.c_str()) != 0) status = status_of(errno);
  if (!status.ok()) (void)unlink(beside.c_str());
  return status;
}

}  // namespace sheaf::runtime
