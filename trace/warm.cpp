// Warming up from a manifest, a few programs at a time: their passes on threads of their own, then all kernels that
// are missing together, so that a GPU's compiler gets many at once, then each on its devices.
#include "sheaf/warm.h"

#include <absl/container/flat_hash_set.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <thread>

#include "runtime/counters.h"
#include "runtime/device.h"
#include "runtime/thread_pool.h"
#include "trace/manifest.h"

namespace sheaf {
namespace {

constexpr std::size_t kTogether = 32;  // programs

struct Job {
  ManifestEntry entry;
  std::vector<runtime::Device*> devices = {};  // that it runs on; none: none here can
  CompiledPtr known = {};  // from before
  std::optional<Lowered> lowered = {};
  std::string error = {};
};

std::string name_of(const ManifestEntry& entry) {
  const Loc at = entry.source.loc;
  return fmt::format("program {}, {}{}", entry.number, entry.source.what, at ? " at " + to_string(at) : "");
}

// Calls work(i) on so many threads; what it throws becomes the job's error.
template <class Work>
void on_threads(std::span<Job> jobs, int threads, Work work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = 0; (i = next++) < jobs.size();) {
      try {
        work(jobs[i]);
      } catch (const std::exception& e) { jobs[i].error = e.what(); }
    }
  };
  std::vector<std::jthread> others;
  for (int t = 1; t < std::min<int>(threads, static_cast<int>(jobs.size())); ++t) others.emplace_back(run);
  run();
}

// Those of the mesh, or the first of what it is compiled for.
std::vector<runtime::Device*> devices_for(const MeshProgram& p) {
  std::vector<runtime::Device*> devices;
  if (p.mesh) {
    for (const Device d : p.mesh.devices()) devices.push_back(&runtime::device(d.id));
  } else if (p.function->mesh() == ir::Mesh()) {
    for (runtime::Device* d : runtime::devices())
      if (devices.empty() && d->backend().target() == p.target) devices.push_back(d);
  }
  for (const runtime::Device* d : devices)
    if (d->backend().target() != p.target) return {};
  return devices;
}

void compile_kernels(std::span<Job> jobs) {
  std::vector<runtime::KernelPtr> kernels;
  for (const Job& job : jobs)
    if (job.lowered)
      for (runtime::KernelPtr& k : runtime::KernelCache::global().get(job.lowered->code.kernels))
        kernels.push_back(std::move(k));
  // An error is told again by the program whose kernel it is.
  (void)runtime::KernelCache::global().compile(kernels);
}

absl::Status compile_alone(const Job& job) {
  return runtime::KernelCache::global().compile(runtime::KernelCache::global().get(job.lowered->code.kernels));
}

void finish(Job& job, const WarmOptions& options) {
  const ProgramSource& source = job.entry.source;
  if (!job.known && (job.devices.empty() || options.only_compile)) return check(compile_alone(job), source.loc);
  const CompiledPtr compiled = job.known ? job.known : compile(*job.lowered, {.what = source.what, .loc = source.loc});
  if (const runtime::ExecutablePtr e = compiled->executable())
    for (runtime::Device* d : job.devices) check(e->warm(*d), source.loc);
}

class Warming {
 public:
  Warming(const WarmOptions& options) : options_(options) {  // NOLINT
    const int own = runtime::ThreadPool::global().threads();
    threads_ = options.threads > 0 ? options.threads : own;
  }

  WarmReport run(std::vector<Job> jobs) {
    const runtime::Counters& c = runtime::counters();
    const std::int64_t compiled = c.kernels_compiled, read = c.kernels_read;
    report_.programs = static_cast<int>(jobs.size());
    for (std::size_t from = 0; from < jobs.size(); from += kTogether)
      run_together(std::span(jobs).subspan(from, std::min(kTogether, jobs.size() - from)));
    report_.kernels_compiled = c.kernels_compiled - compiled;
    report_.kernels_read = c.kernels_read - read;
    report_.seconds = seconds();
    return report_;
  }
  const std::string& errors() const { return errors_; }

 private:
  void run_together(std::span<Job> jobs) {
    on_threads(jobs, threads_, [](Job& job) {
      const ProgramSource& source = job.entry.source;
      if (!job.known) job.lowered = lower(plan_program(source.program, source.donated));
    });
    compile_kernels(jobs);
    for (Job& job : jobs) {
      if (job.error.empty()) on_threads({&job, 1}, 1, [&](Job& j) { finish(j, options_); });
      if (!job.error.empty()) errors_ += fmt::format("\n  {}: {}", name_of(job.entry), job.error);
      report_.known += job.known != nullptr;
      report_.elsewhere += !options_.only_compile && job.devices.empty();
      job.lowered.reset();
      ++done_;
      if (options_.progress) options_.progress({done_, report_.programs, job.entry.source.what, seconds()});
    }
  }
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

  const WarmOptions& options_;
  int threads_ = 1;
  WarmReport report_;
  int done_ = 0;
  std::string errors_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

std::string to_string(const WarmProgress& p) {
  constexpr int kWidth = 20;
  const int full = p.of > 0 ? kWidth * p.done / p.of : kWidth;
  return fmt::format("[{}{}] {}/{} {}, {:.1f} s", std::string(full, '#'), std::string(kWidth - full, ' '), p.done, p.of,
                     p.program, p.seconds);
}

std::function<void(const WarmProgress&)> progress_bar() {
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  return [is_terminal](const WarmProgress& p) {
    const bool is_last = p.done == p.of;
    if (is_terminal) fmt::print(stderr, "\r\033[K{}{}", to_string(p), is_last ? "\n" : "");
    else if (is_last || p.done * 10 / p.of != (p.done - 1) * 10 / p.of) fmt::print(stderr, "{}\n", to_string(p));
  };
}

WarmReport warm(const std::string& manifest, const WarmOptions& options, Loc loc) {
  if (!options.target.empty() && !options.only_compile)
    throw RuntimeError(loc, "warm: .target is for .only_compile: what is loaded is for the devices there are");
  std::vector<Job> jobs;
  absl::flat_hash_set<std::string> keys;
  for (ManifestEntry& entry : read_manifest(manifest, loc)) {
    MeshProgram& program = entry.source.program;
    if (!options.target.empty()) {
      const absl::StatusOr<codegen::Target> target = codegen::parse_target(options.target);
      if (!target.ok()) throw RuntimeError(loc, fmt::format("warm: {}", std::string(target.status().message())));
      program.target = *target;
    }
    std::string key = program_key(program, entry.source.donated);
    if (keys.contains(key)) continue;
    Job job{.entry = std::move(entry), .known = options.only_compile ? nullptr : find_program(key)};
    if (!options.only_compile) job.devices = devices_for(job.entry.source.program);
    jobs.push_back(std::move(job));
    keys.insert(std::move(key));
  }
  Warming warming(options);
  const WarmReport report = warming.run(std::move(jobs));
  if (!warming.errors().empty())
    throw RuntimeError(loc, fmt::format("warm: {}: not all of it can be compiled{}", manifest, warming.errors()));
  return report;
}

}  // namespace sheaf
