// How the benchmark measures: what is compared runs in turns in one process, and the figure is the median of the ratios
// of neighbouring turns. Clock and memory bandwidth drift by tens of percent within minutes on shared machines; ratios
// of neighbours hold still.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sheaf/array.h"

namespace bench {

struct Options {
  bool quick = false;  // smaller, fewer, shorter: whether it works, not how fast it is
  bool cpu_time = false;  // of all threads, waiting ones too, instead of wall time: for one thread on a busy machine
  int rounds() const { return quick ? 3 : 9; }
  double turn_seconds() const { return quick ? 0.005 : 0.04; }  // a turn repeats its work until it lasts this long
};

/// One line of the table. Times are medians, in seconds; a row without a reference has only `ours`.
struct Result {
  double ours = 0;
  double reference = 0;
  double ratio = 0;  // ours / reference: below 1, Sheaf is faster
  std::string note = {};  // a rate, or why there is no reference
};

struct Row {
  std::string name;
  std::string reference;
  std::function<Result(const Options&)> run;
};
std::vector<Row> loop_rows();
std::vector<Row> product_rows();
std::vector<Row> convolution_rows();
std::vector<Row> attention_rows();
std::vector<Row> overhead_rows();
std::vector<Row> device_rows();
std::vector<Row> gpu_rows();

using Work = std::function<void()>;

/// The work alone: median seconds of one repetition.
double seconds_of(const Work& work, const Options& options);
/// Both in turns.
Result compare(const Work& ours, const Work& reference, const Options& options);

/// The body of `bench --ten-ops`, which a row runs as a process of its own.
void run_ten_ops();

/// Floats on huge pages that have been touched, as Sheaf's own are: a page fault costs more than most loops here.
class Floats {
 public:
  explicit Floats(std::size_t count);
  float* data() const { return data_.get(); }
  std::size_t size() const { return count_; }

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t count_;
};

Floats floats_of(const sheaf::Array& x);

/// Throws unless the two agree to `tolerance`, relative to the largest element: a wrong result has no speed.
void check_agreement(const sheaf::Array& ours, const Floats& reference, double tolerance);

}  // namespace bench
