// One phase as a function of CUDA C++. A team runs a unit: its threads go through every statement together, share out
// the iterations of vector loops, and meet at barriers.
#pragma once

#include <fmt/format.h>

#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "codegen/cuda/emit.h"
#include "codegen/cuda/team.h"

namespace sheaf::codegen {

class PhasePrinter {
 public:
  PhasePrinter(const kir::Kernel& kernel, const kir::Phase& phase, Team team, std::string entry,
               bool has_scratch_param);

  std::string print();
  /// What the body's loops hold, once, for the axes `at` that are in scope under these names; loads of `bound` are
  /// `value`, and stores to it assign that. Of a phase without locals, whose team is one thread.
  std::string print_element(std::span<const std::string> at, kir::BufferId bound, const std::string& value);
  /// The same for `width` neighbours along the last axis, a vector loop's, the first of them being where `at` says:
  /// `value`.v[j] is that of neighbour j.
  std::string print_elements(std::span<const std::string> at, int width, kir::BufferId bound, const std::string& value);

  /// What print_elements loads in runs at places that axes alone decide, and which may therefore be copied before;
  /// without what is the same all along the axis before the last, and in the first-level cache.
  struct Run {
    kir::ValueId value = -1;
    kir::Load load;
    int bytes = 0;  // of the run
  };
  std::vector<Run> runs(int width);
  /// Asks for copies of the runs that print_elements of the same arguments loads, to the addresses of `to`, whose names
  /// are `is_there` where there is anything; print_elements afterwards reads them there.
  std::string print_copies(std::span<const std::string> at, int width, std::span<const std::string> to);
  void read_copies(int width, std::span<const std::string> from);
  CudaLaunch launch() const { return {entry_, team_.blocks(), team_.block_threads(), shared_bytes_}; }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    body_.append(static_cast<std::size_t>(indent_) * 2, ' ');
    fmt::format_to(std::back_inserter(body_), format, std::forward<Args>(args)...);
    body_ += '\n';
  }
  void block(const kir::Block& b);
  void nested(const kir::Block& b);
  void open(const std::string& head);
  void close();

  // Indices.
  std::string_view index_type();
  bool all_narrow(kir::Index index) const;
  bool all_narrow(const kir::Block& block) const;
  std::string index(kir::Index i);
  std::string axis_name(kir::AxisId axis) const;
  std::string division(const kir::Atom& a, std::string_view op, std::string_view floored);
  std::string element(kir::BufferId buffer, kir::Index i);

  // Expressions.
  std::string expression(DType t, const kir::Scalar& s);
  std::string expression(DType t, const kir::Constant& c);
  std::string expression(DType t, const kir::Load& l);
  std::string expression(DType t, const kir::Get& g);
  std::string expression(DType t, const kir::IndexValue& i);
  std::string expression(DType t, const kir::InRange& r);
  std::string local(kir::LocalId l) const;

  // Statements.
  void statement(const kir::Let& s);
  void statement(const kir::Assign& s);
  void statement(const kir::Store& s);
  void update(const kir::Store& s, const std::string& guard);
  void statement(const kir::For& s);
  void statement(const kir::LaneReduce& s);
  void statement(const kir::If& s);
  void statement(const kir::Barrier&);
  void serial_loop(const kir::For& s);
  void vector_loop(const kir::For& s);
  void rounds(const kir::For& s);
  void wide_loop(const kir::For& s, int width);
  void neighbours(const kir::For& s);
  void wide_body(const kir::For& s, int width);
  void reduce_in_warp(const kir::LaneReduce& s);
  void reduce_in_block(const kir::LaneReduce& s);
  void reduce_by_shuffles(const kir::LaneReduce& s, std::string_view own);
  void combine(const kir::LaneReduce& s, std::string_view own, const std::vector<std::string>& right);
  void call(const ir::ScalarFn& fn, const std::vector<std::string>& args, const std::string& result);

  bool is_in_registers(kir::BufferId buffer) const;
  bool keeps_registers(const kir::Block& b) const;
  bool counts_registers(const kir::For& loop) const;
  bool has_lanes(const kir::Block& b) const;
  bool adds_rows(const kir::For& loop) const;
  std::string declarations();

  const kir::Kernel& kernel_;
  const kir::Phase& phase_;
  std::string entry_;
  bool has_scratch_param_;
  Team team_;
  std::string body_, lane_arrays_;
  std::string index_type_;
  int indent_ = 1, next_reduce_ = 0;
  kir::AxisId vector_axis_ = -1;  // of the open vector loop
  bool is_element_ = false;  // loops are not printed
  int element_width_ = 0;  // but a vector loop is, for so many neighbours
  absl::flat_hash_map<kir::ValueId, std::string> copies_;  // of runs, and where they lie
  kir::BufferId bound_ = -1;
  std::string bound_value_;
  bool is_group_ = false;  // indices are those of the first of a group of iterations
  std::int64_t shared_bytes_ = 0;
};

}  // namespace sheaf::codegen
