// What collectives and local work take on a machine of some profile, as far as layouts are chosen by it. Invariant:
// both are functions of sizes and the profile alone, so that every process of a program chooses alike.
#pragma once

#include "ir/cost.h"
#include "ir/sharding.h"
#include "passes/sharding/profile.h"

namespace sheaf::passes {

/// Of one device. `bytes` are those it sends.
struct CommCost {
  double bytes = 0;
  double seconds = 0;
  CommCost& operator+=(const CommCost& other) {
    bytes += other.bytes, seconds += other.seconds;
    return *this;
  }
};

/// A collective over the devices that differ in `axes`. `payload` is what one device holds of the larger of its
/// operand and result, in bytes: the result of an all_gather, the operand of all others. Axes of unlike links in turn,
/// the fastest innermost. Nothing over one device costs nothing.
CommCost cost_of(CollectiveKind kind, double payload, const ir::MeshAtoms& atoms, const ir::Atoms& axes,
                 const Profile& profile);

/// Of the larger of what a device has before and after, in bytes.
double payload_of(const ir::Eqn& e);

/// A kernel that does this work at the rate of the dtype: the roofline and the launch.
double seconds_of(const ir::Work& work, DType dtype, const Profile& profile);

}  // namespace sheaf::passes
