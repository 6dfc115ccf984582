// The benchmark: one table of ratios, measured in one process. `bench [PATTERN] [--quick] [--cpu]` runs the rows whose
// name contains PATTERN; `bench --gpu` has rows of its own, on the first GPU. Where a reference computes the same
// thing, their results are compared before their times.
#include <fmt/format.h>
#include <sheaf/sheaf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "measure.h"
#include "openblas.h"
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

void print_machine() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  fmt::print("{}, {} threads, load {:.2f} at the start; OpenBLAS: {}\n\n", cpu_name(), std::getenv("SHEAF_NUM_THREADS"),
             load, openblas() ? openblas()->core : "not installed");
}

void print_row(const Row& row, const Options& options) {
  try {
    const Result r = row.run(options);
    fmt::print("| {:<46} | {:>9} | {:>9} | {:>5} | {:<26} | {} |\n", row.name, duration(r.ours), duration(r.reference),
               r.ratio == 0 ? "" : fmt::format("{:.2f}", r.ratio), row.reference, r.note);
  } catch (const std::exception& e) { fmt::print("| {:<46} | failed: {} |\n", row.name, e.what()); }
  std::fflush(stdout);
}

int usage() {
  fmt::print(stderr, "bench [PATTERN] [--quick] [--cpu] [--gpu]: the rows whose name contains PATTERN\n");
  return 2;
}

void print_rows(const std::vector<Row>& rows, const std::string& pattern, const Options& options) {
  for (const Row& row : rows)
    if (row.name.find(pattern) != std::string::npos) print_row(row, options);
}

void print_head() {
  fmt::print("| {:<46} | {:>9} | {:>9} | {:>5} | {:<26} | note |\n|---|--:|--:|--:|---|---|\n", "what", "Sheaf",
             "reference", "ratio", "reference is");
}

/// Products are measured as kernels of Sheaf's own do them.
int run_gpu_rows(const std::string& pattern, const Options& options) {
  setenv("SHEAF_PLATFORM", "cuda", 1);
  setenv("SHEAF_CUBLASLT", "never", 1);
  const sheaf::GpuReport report = sheaf::report_gpus();
  fmt::print("{}\n", report.text);
  if (!report.is_usable) return 1;
  if (options.quick) fmt::print("quick: tiny arrays, few and short turns; whether it works, not how fast\n\n");
  print_head();
  print_rows(gpu_rows(), pattern, options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  start_with_best_openblas(argv);
  setenv("SHEAF_CACHE_DIR", "off", 0);  // a compilation that is measured is one
  Options options;
  bool is_gpu = false;
  std::string pattern;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--ten-ops") == 0) return run_ten_ops(), 0;
    if (std::strcmp(argv[i], "--quick") == 0) options.quick = true;
    else if (std::strcmp(argv[i], "--cpu") == 0) options.cpu_time = true;
    else if (std::strcmp(argv[i], "--gpu") == 0) is_gpu = true;
    else if (argv[i][0] == '-' || !pattern.empty()) return usage();
    else pattern = argv[i];
  }
  if (is_gpu) return run_gpu_rows(pattern, options);
  // Sheaf and the references use the same number of threads.
  setenv("SHEAF_NUM_THREADS", fmt::format("{}", std::max(std::thread::hardware_concurrency(), 1u)).c_str(), 0);

  print_machine();
  if (options.quick) fmt::print("quick: smaller loops, fewer and shorter turns; no figures to quote\n\n");
  if (options.cpu_time) fmt::print("cpu: processor time of all threads, those that wait included\n\n");
  print_head();
  for (const auto& rows :
       {loop_rows(), product_rows(), convolution_rows(), attention_rows(), overhead_rows(), device_rows()})
    print_rows(rows, pattern, options);
  return 0;
}
