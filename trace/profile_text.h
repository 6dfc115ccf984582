// A profile as text: a trace, folded stacks, a table.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sheaf/profile.h"

namespace sheaf {

struct ProfileData {
  std::vector<ProfileEvent> events;  // in the order of their beginning; of those that begin together the longest first
  std::int64_t left_out = 0;
};

std::string trace_text(const ProfileData& profile);
std::string folded_text(const ProfileData& profile);
std::string table_text(const ProfileData& profile);

}  // namespace sheaf
