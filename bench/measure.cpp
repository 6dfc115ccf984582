// Turns, medians, and the memory of the references. A turn begins with one repetition that is not measured, so that
// each side starts with its own data in the cache and its threads awake.
#include "measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>
#include <stdexcept>
#include <thread>

namespace bench {
namespace {

// Of the wall, or of the processors under this process.
double now(const Options& options) {
  timespec t{};
  clock_gettime(options.cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

int repetitions(const Work& work, const Options& options) {
  work();  // compiles, and faults its memory in
  work();
  const double start = now(options);
  work();
  return std::clamp(static_cast<int>(options.turn_seconds() / std::max(now(options) - start, 1e-7)), 1, 100000);
}

double turn(const Work& work, int count, const Options& options) {
  work();
  const double start = now(options);
  for (int i = 0; i < count; ++i) work();
  return (now(options) - start) / count;
}

// OpenBLAS's threads spin for 2^26 cycles after a call, and Sheaf should not be measured beside them.
void rest() { std::this_thread::sleep_for(std::chrono::milliseconds(25)); }

}  // namespace

double seconds_of(const Work& work, const Options& options) {
  const int count = repetitions(work, options);
  std::vector<double> turns;
  for (int i = 0; i < options.rounds(); ++i) turns.push_back(turn(work, count, options));
  return median(turns);
}

Result compare(const Work& ours, const Work& reference, const Options& options) {
  const int our_count = repetitions(ours, options);
  const int reference_count = repetitions(reference, options);
  std::vector<double> a, b, ratios;
  for (int i = 0; i < options.rounds(); ++i) {
    rest();
    a.push_back(turn(ours, our_count, options));
    b.push_back(turn(reference, reference_count, options));
    ratios.push_back(a.back() / b.back());
  }
  return {.ours = median(a), .reference = median(b), .ratio = median(ratios)};
}

Floats::Floats(std::size_t count) : count_(count) {
  constexpr std::size_t huge_page = 2 << 20;
  const std::size_t bytes = (count * sizeof(float) + huge_page - 1) / huge_page * huge_page;
  void* memory = std::aligned_alloc(huge_page, bytes);
  if (!memory) throw std::bad_alloc();
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::memset(memory, 0, bytes);
  data_.reset(static_cast<float*>(memory));
}

void Floats::Free::operator()(float* p) const { std::free(p); }

Floats floats_of(const sheaf::Array& x) {
  const std::vector<float> values = x.to_vector<float>();
  Floats out(values.size());
  std::copy(values.begin(), values.end(), out.data());
  return out;
}

void check_agreement(const sheaf::Array& ours, const Floats& reference, double tolerance) {
  const std::vector<float> values = ours.to_vector<float>();
  if (values.size() != reference.size()) throw std::runtime_error("the reference has another size");
  double scale = 0, worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(values[i]) - static_cast<double>(reference.data()[i]));
    if (!(difference <= worst)) worst = difference;  // NaN too
    scale = std::max(scale, std::fabs(static_cast<double>(reference.data()[i])));
  }
  if (!(worst <= tolerance * scale))
    throw std::runtime_error("WRONG: differs from the reference by " + std::to_string(worst / scale));
}

}  // namespace bench
