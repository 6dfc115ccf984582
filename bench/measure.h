// How the benchmark measures: what is compared runs in turns in one process, and the figure is the median of the ratios
// of neighbouring turns. Clock and memory bandwidth drift by tens of percent within minutes on shared machines; ratios
// of neighbours hold still.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sheaf/array.h"

namespace bench {

using Work = std::function<void()>;
/// So many repetitions; the seconds of one, or NaN from a peer that could not.
using Turn = std::function<double(int count)>;

/// One of those that are compared: who it is, how it takes a turn, and what it computes (empty: nobody asks).
struct Side {
  std::string name;
  Turn turn;
  std::vector<double> values = {};
};

struct Options {
  bool quick = false;  // smaller, fewer, shorter: whether it works, not how fast it is
  bool cpu_time = false;  // of all threads, waiting ones too, instead of wall time: for one thread on a busy machine
  std::function<std::vector<Side>(const std::string& request)> peers = {};  // bench/peers.h
  int rounds() const { return quick ? 3 : 7; }
  double turn_seconds() const { return quick ? 0.005 : 0.04; }  // a turn repeats its work until it lasts this long
};

/// What another side takes, in seconds. ratio: ours by theirs, so below 1 Sheaf is faster.
struct Timing {
  std::string name;
  double seconds = 0;
  double ratio = 0;
  bool is_wrong = false;  // it computes something else
};

/// One line of the table. Times are medians, in seconds of one repetition.
struct Result {
  double ours = 0;
  std::string note = {};  // a rate, a goal, or why something is missing
  std::vector<Timing> others = {};
};

struct Row {
  std::string name;
  std::string by_hand;  // what that column is here, where it is no loop
  std::function<Result(const Options&)> run;
};
std::vector<Row> loop_rows();
std::vector<Row> product_rows();
std::vector<Row> convolution_rows();
std::vector<Row> attention_rows();
std::vector<Row> step_rows();
std::vector<Row> overhead_rows();
std::vector<Row> compile_rows();
std::vector<Row> device_rows();
std::vector<Row> gpu_rows();

/// What libraries in processes of their own are asked for, and what Sheaf computes there.
struct Question {
  std::string request;
  std::vector<double> values = {};
};
/// A result in a few numbers: sixteen of its elements; of a scalar, three results in a row, since the losses of
/// training steps fall.
std::vector<double> values_of(const std::function<sheaf::Array()>& call);

Turn turns_of(const Work& work, const Options& options);
Side side(std::string name, const Work& work, const Options& options);
/// Ours, the others, and the peers that know the request, in turns.
Result compare(const Turn& ours, std::vector<Side> others, const Options& options, const Question& question = {});
Result compare(const Work& ours, std::vector<Side> others, const Options& options, const Question& question = {});
/// The peers that know the request only.
Result compare(const Work& ours, const Options& options, const Question& question = {});
/// With the same by hand.
Result compare(const Work& ours, const Work& by_hand, const Options& options, const Question& question = {});
/// Median seconds of a repetition, beside nothing.
double seconds_of(const Work& work, const Options& options);
/// Of one of so many that a repetition does.
Result per(double count, Result result);

/// The bodies of `bench --ten-ops` and `bench --first-call PROGRAM..`, which rows run as processes of their own.
void run_ten_ops();
void run_first_call(char** program);

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
/// The numbers of bench/inputs.h, which all sides are given.
sheaf::Array wave_array(std::uint32_t seed, const sheaf::Shape& shape, float scale = 1);

/// Throws unless the two agree to `tolerance`, relative to the largest element: a wrong result has no speed.
void check_agreement(const sheaf::Array& ours, const Floats& reference, double tolerance);

}  // namespace bench
