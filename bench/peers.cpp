// Processes, pipes and lines. A peer that fails in a row, or is silent for too long, is absent from that row only.
#include "peers.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>

#include "team.h"

namespace bench {
namespace {

using Words = std::vector<std::string>;

// malloc keeps what is freed, on huge pages: with a page fault for every 4 KB, large arrays would cost 20 times as
// much.
const char* const kKeptMemory =
    "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592:"
    "glibc.malloc.top_pad=268435456";

// OpenMP's threads do not spin while others take their turns. ATen takes AVX2 on processors that it does not know.
Words environment() {
  const std::string threads = fmt::format("{}", Team::global().size());
  Words env{"OMP_WAIT_POLICY=passive", "OMP_NUM_THREADS=" + threads, "OPENBLAS_NUM_THREADS=" + threads,
            "PYTHONDONTWRITEBYTECODE=1"};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    env.push_back("ATEN_CPU_CAPABILITY=avx512");
#endif
  return env;
}

constexpr int kMostSeconds = 30;

}  // namespace

class Peer {
 public:
  /// `name` is what it is called while it has not said so itself.
  Peer(std::string name, Words command) : name_(std::move(name)), command_(std::move(command)) { start(); }
  ~Peer() { end(); }

  const std::string& name() const { return name_; }
  const std::string& version() const { return version_; }  // or why it is missing

  bool knows(const std::string& request, std::vector<double>& values) {
    if (is_missing_) return false;
    if (pid_ < 0) start();  // it had to be ended
    std::istringstream answer(ask("prepare " + request));
    std::string verb, why;
    answer >> verb;
    if (verb == "values") {
      for (double v; answer >> v;) values.push_back(v);
      return true;
    }
    if (std::getline(answer, why) && !why.empty()) fmt::print(stderr, "{}: {}:{}\n", name_, request, why);
    return false;
  }

  /// NaN: it could not.
  double turn(int count) {
    const std::string answer = pid_ < 0 ? "none is gone" : ask(fmt::format("turn {}", count));
    char* rest = nullptr;
    const double seconds = std::strtod(answer.c_str(), &rest);
    if (rest != answer.c_str()) return seconds;
    fmt::print(stderr, "{}: {}\n", name_, answer);
    return std::nan("");
  }

 private:
  void start() {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    std::vector<char*> argv;
    for (std::string& word : command_) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(to[0], STDIN_FILENO);
      dup2(from[1], STDOUT_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(to[0]), close(from[1]);
    to_ = to[1], from_ = from[0];
    const std::string hello = read_line();
    is_missing_ = !hello.starts_with("is ");
    version_ = is_missing_ ? name_ + ": " + (hello.starts_with("missing ") ? hello.substr(8) : "cannot be started")
                           : hello.substr(3);
    if (is_missing_) end();
    else name_ = version_.substr(0, version_.find(' '));
  }

  void end() {
    if (pid_ < 0) return;
    close(to_), close(from_);  // it ends with its input
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    rest_.clear();
  }

  std::string ask(const std::string& line) {
    const std::string text = line + "\n";
    if (write(to_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) return end(), "none is gone";
    return read_line();
  }

  std::string read_line() {
    for (;;) {
      if (const std::size_t at = rest_.find('\n'); at != std::string::npos) {
        std::string line = rest_.substr(0, at);
        rest_.erase(0, at + 1);
        return line;
      }
      pollfd wait{.fd = from_, .events = POLLIN, .revents = 0};
      if (poll(&wait, 1, kMostSeconds * 1000) <= 0)
        return end(), fmt::format("none takes more than {} seconds", kMostSeconds);
      char text[4096];
      const ssize_t count = read(from_, text, sizeof text);
      if (count <= 0) return end(), "none has ended";
      rest_.append(text, static_cast<std::size_t>(count));
    }
  }

  std::string name_, version_;
  Words command_;
  bool is_missing_ = false;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string rest_;  // read, and not yet a line
};

Peers::Peers(const Options& options) {
  std::signal(SIGPIPE, SIG_IGN);
  const std::string threads = fmt::format("{}", Team::global().size());
  const auto add = [&](std::string name, const std::vector<Words>& parts) {
    Words command{"/usr/bin/env"};
    for (const Words& part : parts) command.insert(command.end(), part.begin(), part.end());
    if (options.cpu_time) command.push_back("--cpu");
    peers_.push_back(std::make_shared<Peer>(std::move(name), std::move(command)));
  };
  const auto in_python = [&](const char* library) {
    const char* python = std::getenv("SHEAF_BENCH_PYTHON");
    return Words{python ? python : "python3", SHEAF_BENCH_PEERS "/serve.py", library, threads};
  };
  const auto torch = std::filesystem::read_symlink("/proc/self/exe").replace_filename("bench_torch");
  add("libtorch", {environment(), {kKeptMemory}, {torch.string(), "torch", threads}});
  add("JAX", {environment(), {kKeptMemory}, in_python("jax")});
  add("MLX", {environment(), {kKeptMemory}, in_python("mlx")});
  add("Dr.Jit", {environment(), in_python("drjit")});  // it keeps its memory itself, and hangs with these settings
}

Peers::~Peers() = default;

std::vector<Side> Peers::sides(const std::string& request) {
  std::vector<Side> sides;
  for (const std::shared_ptr<Peer>& peer : peers_) {
    std::vector<double> values;
    if (peer->knows(request, values))
      sides.push_back({peer->name(), [peer](int count) { return peer->turn(count); }, std::move(values)});
  }
  return sides;
}

std::string Peers::versions() const {
  std::string text;
  for (const std::shared_ptr<Peer>& peer : peers_) text += (text.empty() ? "" : ", ") + peer->version();
  return text;
}

}  // namespace bench
