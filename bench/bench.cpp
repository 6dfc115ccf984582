// The benchmark: one table, in which every row is measured in turns: Sheaf, the same by hand, libraries of this
// process, and libraries in processes of their own. `bench [PATTERN] [--quick] [--cpu] [--alone]` runs the rows whose
// name contains PATTERN; `bench --gpu` has rows of its own, on the first GPU. What two sides compute is compared before
// their times.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sheaf/sheaf.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <thread>

#include "measure.h"
#include "openblas.h"
#include "peers.h"
#include "tools/gpus.h"

namespace {

using namespace bench;

std::string duration(double seconds) {
  if (seconds == 0) return "";
  if (seconds < 1e-6) return fmt::format("{:.0f} ns", seconds * 1e9);
  if (seconds < 1e-3) return fmt::format("{:.2f} us", seconds * 1e6);
  return fmt::format("{:.2f} ms", seconds * 1e3);
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown CPU";
}

void print_machine(const Peers* peers) {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  fmt::print("{}, {} threads, load {:.2f} at the start\n", cpu_name(), std::getenv("SHEAF_NUM_THREADS"), load);
  fmt::print("OpenBLAS: {}\n", openblas() ? openblas()->core : "not installed");
  fmt::print("{}\n\n", peers ? peers->versions() : "alone");
}

// Those that have a column, in this order. What else Sheaf is compared with is told in the note.
using Columns = std::vector<std::string>;
const Columns kCpuColumns{"by hand", "OpenBLAS", "oneDNN", "libtorch", "JAX", "MLX", "Dr.Jit"};

std::string time_of(const Timing& t) { return t.is_wrong ? "WRONG" : duration(t.seconds); }

void print_row(const Row& row, const Columns& columns, const Options& options) try {
  const Result r = row.run(options);
  std::map<std::string, std::string> cells;
  std::vector<std::string> notes;
  const Timing* best = nullptr;
  for (const Timing& t : r.others) {
    if (std::ranges::find(columns, t.name) == columns.end()) {
      notes.push_back(fmt::format("{:.2f} of {}, {}", t.ratio, t.name, time_of(t)));
      continue;
    }
    cells[t.name] = time_of(t);
    if (!t.is_wrong && (!best || t.seconds < best->seconds)) best = &t;
  }
  if (!r.note.empty()) notes.insert(notes.begin(), r.note);
  if (cells.contains("by hand") && !row.by_hand.empty()) notes.push_back("by hand: " + row.by_hand);
  fmt::print("| {:<46} | {:>9} |", row.name, duration(r.ours));
  for (const std::string& column : columns) fmt::print(" {:>9} |", cells[column]);
  if (!columns.empty()) fmt::print(" {:<13} |", best ? fmt::format("{:.2f} {}", best->ratio, best->name) : "");
  fmt::print(" {} |\n", fmt::join(notes, "; "));
  std::fflush(stdout);
} catch (const std::exception& e) { fmt::print("| {:<46} | failed: {} |\n", row.name, e.what()); }

int usage() {
  fmt::print(stderr, "bench [PATTERN] [--quick] [--cpu] [--alone] [--gpu]: the rows whose name contains PATTERN\n");
  return 2;
}

void print_rows(const std::vector<Row>& rows, const Columns& columns, const std::string& pattern,
                const Options& options) {
  for (const Row& row : rows)
    if (row.name.find(pattern) != std::string::npos) print_row(row, columns, options);
}

void print_head(const Columns& columns) {
  fmt::print("| {:<46} | {:>9} |", "what", "Sheaf");
  for (const std::string& column : columns) fmt::print(" {:>9} |", column);
  if (!columns.empty()) fmt::print(" {:<13} |", "by the best");
  fmt::print(" note |\n|---|--:|");
  for (std::size_t i = 0; i < columns.size(); ++i) fmt::print("--:|");
  fmt::print("{}---|\n", columns.empty() ? "" : "---|");
}

/// Products are measured as kernels of Sheaf's own do them.
int run_gpu_rows(const std::string& pattern, const Options& options) {
  setenv("SHEAF_PLATFORM", "cuda", 1);
  setenv("SHEAF_CUBLASLT", "never", 1);
  const sheaf::GpuReport report = sheaf::report_gpus();
  fmt::print("{}\n", report.text);
  if (!report.is_usable) return 1;
  if (options.quick) fmt::print("quick: tiny arrays, few and short turns; whether it works, not how fast\n\n");
  print_head({});
  print_rows(gpu_rows(), {}, pattern, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  start_with_best_openblas(argv);
  setenv("SHEAF_CACHE_DIR", "off", 0);  // a compilation that is measured is one
  Options options;
  bool is_gpu = false, is_alone = false;
  std::string pattern;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ten-ops") == 0) return run_ten_ops(), 0;
    if (std::strcmp(argv[i], "--first-call") == 0) return run_first_call(argv + i + 1), 0;
    if (std::strcmp(argv[i], "--quick") == 0) options.quick = true;
    else if (std::strcmp(argv[i], "--cpu") == 0) options.cpu_time = true;
    else if (std::strcmp(argv[i], "--alone") == 0) is_alone = true;
    else if (std::strcmp(argv[i], "--gpu") == 0) is_gpu = true;
    else if (argv[i][0] == '-' || !pattern.empty()) return usage();
    else pattern = argv[i];
  }
  if (is_gpu) return run_gpu_rows(pattern, options);
  // Sheaf and the references use the same number of threads.
  setenv("SHEAF_NUM_THREADS", fmt::format("{}", std::max(std::thread::hardware_concurrency(), 1u)).c_str(), 0);

  std::optional<Peers> peers;
  if (!is_alone) peers.emplace(options);
  if (peers) options.peers = [&](const std::string& request) { return peers->sides(request); };
  print_machine(peers ? &*peers : nullptr);
  if (options.quick) fmt::print("quick: smaller loops, fewer and shorter turns; no figures to quote\n\n");
  if (options.cpu_time) fmt::print("cpu: processor time of all threads, those that wait included\n\n");
  print_head(kCpuColumns);
  for (const auto& rows : {loop_rows(), product_rows(), convolution_rows(), attention_rows(), step_rows(),
                           overhead_rows(), compile_rows(), device_rows()})
    print_rows(rows, kCpuColumns, pattern, options);
  return 0;
}
