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

#include "inputs.h"
#include "team.h"

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

// A side with the turns it has taken: in every round, or where a repetition takes long, in as many as fit its time.
struct Player {
  Player(Turn take, const Options& options) : turn(std::move(take)) {
    single = turn(1);  // compiles, and faults its memory in
    if (single < kLong) single = turn(1);
    if (single < kNoticed) single = turn(1);
    if (single >= kLong) seconds.push_back(single);  // its only turn
    if (!(single < kLong)) return;
    count = std::clamp(static_cast<int>(options.turn_seconds() / std::max(single, 1e-7)), 1, 100000);
    rounds = std::clamp(static_cast<int>(kSeconds / std::max(single, 1e-7)), 1, options.rounds());
  }

  void play(int round) {
    if (round >= rounds) return;
    if (single < kNoticed) turn(1);
    seconds.push_back(turn(count));
    if (std::isnan(seconds.back())) seconds.clear(), rounds = 0;
  }

  static constexpr double kLong = 2, kSeconds = 4;
  static constexpr double kNoticed = 0.1;  // more than that outlasts what others left in the caches
  Turn turn;
  double single = 0;
  int count = 1, rounds = 0;
  std::vector<double> seconds;  // empty: it could not
};

// OpenBLAS's threads spin for 2^26 cycles after a call, and nobody should be measured beside them.
void rest() {
  static const bool has_threads = Team::global().size() > 1;
  if (has_threads) std::this_thread::sleep_for(std::chrono::milliseconds(25));
}

// Neighbours; one turn of many where the other has only one.
std::vector<double> ratios(const std::vector<double>& ours, const std::vector<double>& theirs) {
  std::vector<double> out;
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i)
    out.push_back(ours[std::min(i, ours.size() - 1)] / theirs[std::min(i, theirs.size() - 1)]);
  return out;
}

// bf16 and other orders of summing are no error; another formula is.
bool agree(const std::vector<double>& ours, const std::vector<double>& theirs) {
  if (ours.empty() || theirs.empty()) return true;
  if (ours.size() != theirs.size()) return false;
  double scale = 0, worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    if (const double d = std::fabs(ours[i] - theirs[i]); !(d <= worst)) worst = d;  // NaN too
    scale = std::max(scale, std::fabs(ours[i]));
  }
  return worst <= 1e-2 * scale;
}

}  // namespace

Turn turns_of(const Work& work, const Options& options) {
  return [work, options](int count) {
    const double start = now(options);
    for (int i = 0; i < count; ++i) work();
    return (now(options) - start) / count;
  };
}

Side side(std::string name, const Work& work, const Options& options) {
  return {std::move(name), turns_of(work, options)};
}

Result compare(const Turn& ours, std::vector<Side> others, const Options& options, const Question& question) {
  if (options.peers && !question.request.empty())
    for (Side& peer : options.peers(question.request)) others.push_back(std::move(peer));
  std::vector<Player> players{Player(ours, options)};
  for (const Side& other : others) players.emplace_back(other.turn, options);
  for (int round = 0; round < options.rounds(); ++round)
    for (Player& player : players) {
      rest();
      player.play(round);
    }
  Result result{.ours = median(players[0].seconds)};
  for (std::size_t i = 0; i < others.size(); ++i)
    if (!players[i + 1].seconds.empty())
      result.others.push_back({.name = others[i].name,
                               .seconds = median(players[i + 1].seconds),
                               .ratio = median(ratios(players[0].seconds, players[i + 1].seconds)),
                               .is_wrong = !agree(question.values, others[i].values)});
  return result;
}

Result compare(const Work& ours, std::vector<Side> others, const Options& options, const Question& question) {
  return compare(turns_of(ours, options), std::move(others), options, question);
}

Result compare(const Work& ours, const Options& options, const Question& question) {
  return compare(ours, std::vector<Side>{}, options, question);
}

Result compare(const Work& ours, const Work& by_hand, const Options& options, const Question& question) {
  return compare(ours, {side("by hand", by_hand, options)}, options, question);
}

double seconds_of(const Work& work, const Options& options) { return compare(work, options).ours; }

Result per(double count, Result result) {
  result.ours /= count;
  for (Timing& other : result.others) other.seconds /= count;
  return result;
}

std::vector<double> values_of(const std::function<sheaf::Array()>& call) {
  std::vector<double> values = call().to_vector<double>();
  if (values.size() == 1) {
    for (int i = 0; i < 2; ++i) values.push_back(call().item<double>());
    return values;
  }
  std::vector<double> some;
  for (std::size_t i = 0; i < 16; ++i) some.push_back(values[(values.size() - 1) * i / 15]);
  return some;
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

sheaf::Array wave_array(std::uint32_t seed, const sheaf::Shape& shape, float scale) {
  return sheaf::array(wave_of(seed, static_cast<std::size_t>(sheaf::num_elements(shape)), scale), shape);
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
