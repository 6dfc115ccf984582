// What a machine can do, in the few numbers that choices between layouts need: latency and bandwidth of its links,
// per operation and mesh axis where they differ, and the rates of one device. Invariant: a profile printed and read
// back is the same one.
#pragma once

#include <absl/status/statusor.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/lowering.h"
#include "ir/target.h"
#include "sheaf/dtype.h"

namespace sheaf::passes {

using CollectiveKind = ir::lowering::Collective::Kind;

/// "all_reduce", the name of the op.
std::string_view name(CollectiveKind kind);

/// A message of b bytes takes latency + b / bandwidth.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 1;  // bytes per second, sent by one device
  bool operator==(const Link&) const = default;
};

/// The link that collectives of this kind have along this axis; of any kind or along any axis where that is not said.
struct LinkRow {
  std::optional<CollectiveKind> kind = {};
  std::string axis = {};
  Link link = {};
  bool operator==(const LinkRow&) const = default;
};

struct Profile {
  std::string name = {};
  std::vector<LinkRow> links = {};
  double flops = 1;                                       // per second and device ...
  std::vector<std::pair<DType, double>> flops_of = {};  // ... where a dtype has its own rate
  double memory = 1;                                      // bytes per second read or written by one device
  double launch = 0;                                      // seconds until a kernel starts
  double capacity = 0;                                    // bytes of memory that a device has; 0: no limit
  bool operator==(const Profile&) const = default;

  /// The row that says most of this kind and axis: axis before kind.
  Link link(CollectiveKind kind, std::string_view axis) const;
  double flops_per_second(DType dtype) const;
};

/// "cpu", "nvlink", "pcie", "ib", and "flat", a made-up one for tests in which a byte takes a nanosecond and latencies
/// hardly count; null for any other name.
const Profile* built_in_profile(std::string_view name);

/// The text of profile files, which `parse_profile` reads:
///   sheaf profile 1
///   name = cpu
///   flops = 2e+10
///   flops@f64 = 1e+10
///   memory = 1e+10
///   launch = 1e-06
///   capacity = 8e+10
///   link = 2e-05 4e+09
///   all_gather@data = 1e-05 8e+09
std::string to_text(const Profile& profile);
/// InvalidArgument with the number of the line that is none of a profile.
absl::StatusOr<Profile> parse_profile(std::string_view text);

/// A built-in one by its name, else the one in the file of that name.
absl::StatusOr<Profile> load_profile(const std::string& name_or_file);

/// The one that SHEAF_MESH_PROFILE names, read at the first call; if it names none, or with a warning what is no
/// profile, "nvlink" for GPUs and "cpu" for a CPU.
const Profile& chosen_profile(const ir::Target& target);

}  // namespace sheaf::passes
