// Calls of a function whose arguments have a length that varies: padded to the next bucket, run as that bucket's
// program, and cut back. Invariant: for each new length the function is traced at that length, and only if this shows
// the bucket's program to be the same one does it run in its place.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "passes/buckets.h"
#include "runtime/single_flight.h"
#include "sheaf/jit.h"
#include "trace/recompile.h"
#include "trace/runnable.h"
#include "trace/trace_call.h"

namespace sheaf {

class BucketedCalls {
 public:
  struct Options {
    Tracing how;
    std::vector<Buckets> buckets;
    std::vector<int> donate;
    FunctionSite site;
    std::int64_t function = 0;
    OptionTexts texts;
    std::shared_ptr<Recompilations> again;
    std::function<void()> count_trace;
  };
  /// Throws TypeError where the buckets make no sense.
  explicit BucketedCalls(Options options);
  ~BucketedCalls();

  const detail::Structure& call(const detail::FlatCall& call, detail::Leaves& out);
  std::vector<const Compiled*> programs() const;
  /// What such a call runs, and arrays like those that it runs on.
  std::shared_ptr<const Runnable> runnable(const detail::FlatCall& call, std::vector<Array>& likes);

 private:
  struct Base;     // a bucket's program as traced, with what is known to depend on lengths
  struct Program;  // compiled
  struct Entry;    // one signature
  using BasePtr = std::shared_ptr<Base>;
  using ProgramPtr = std::shared_ptr<const Program>;
  using EntryPtr = std::shared_ptr<const Entry>;
  using Lengths = std::vector<std::int64_t>;

  Lengths lengths_of(const detail::FlatCall& call, std::span<const LeafType> types) const;
  Lengths buckets_of(const Lengths& lengths, const detail::FlatCall& call) const;
  std::vector<LeafType> types_at(const detail::FlatCall& call, std::span<const LeafType> types,
                                 const Lengths& lengths) const;
  Traced traced(const detail::FlatCall& call, std::span<const LeafType> types);
  std::vector<std::int64_t> other_lengths(std::size_t s, std::int64_t size) const;
  ir::FunctionRef plain_at(const detail::FlatCall& call, std::span<const LeafType> types);
  EntryPtr find(const detail::FlatCall& call);
  EntryPtr make_entry(const detail::FlatCall& call, const std::vector<LeafType>& types);
  BasePtr make_base(const detail::FlatCall& call, std::span<const LeafType> types, const Lengths& sizes);
  ProgramPtr make_program(const detail::FlatCall& call, const Base& base, const passes::LengthMarks& marks) const;
  EntryPtr make_exact(const detail::FlatCall& call, const std::vector<LeafType>& types, Traced traced,
                      const passes::LengthError& why);
  std::vector<bool> donated(const detail::FlatCall& call, std::size_t params) const;
  [[noreturn]] void refuse(const passes::LengthError& error) const;

  Options options_;
  std::once_flag warned_;
  runtime::SingleFlightMap<std::string, BasePtr> bases_;
  runtime::SingleFlightMap<std::string, ProgramPtr> programs_;
  mutable runtime::SingleFlightMap<std::string, EntryPtr> entries_;
};

}  // namespace sheaf
