// The public forms of reports and limits, and the passes' own.
#pragma once

#include <string>

#include "passes/plan.h"
#include "sheaf/communication.h"

namespace sheaf {

CollectiveReport collectives_of(const passes::Plan& plan);
bool has_limits(const CommunicationLimits& limits);
/// As part of a key.
std::string limits_text(const CommunicationLimits& limits);
/// Throws ShardingError "jit step: ..." unless the plan is within the limits, TypeError where a rule names no
/// collective.
void check_within(const CommunicationLimits& limits, const passes::Plan& plan, const std::string& what, Loc loc);

}  // namespace sheaf
