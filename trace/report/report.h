// The report of a compiled program: one page of HTML.
#pragma once

#include <string>
#include <vector>

#include "sheaf/aot.h"
#include "trace/execute.h"

namespace sheaf {

struct ReportOf {
  std::string what;  // "jit step"
  Loc loc;           // of the jit
  const Planned& planned;
  runtime::ExecutablePtr executable;  // null where the reference interpreter runs it
  aot::Cost cost;
  aot::Memory memory;
  CollectiveReport collectives;
};

std::string report_html(const ReportOf& of);

}  // namespace sheaf
