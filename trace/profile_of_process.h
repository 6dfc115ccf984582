// SHEAF_PROFILE=file.
#pragma once

namespace sheaf {

/// Begins the profile of this process, if it is to have one: before main, so that its end is written after all else.
bool profile_process();

}  // namespace sheaf
