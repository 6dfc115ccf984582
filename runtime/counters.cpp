// Never destroyed, because static arrays of the user may release memory after main.
#include "runtime/counters.h"

namespace sheaf::runtime {

Counters& counters() {
  static Counters* const counters = new Counters;
  return *counters;
}

}  // namespace sheaf::runtime
