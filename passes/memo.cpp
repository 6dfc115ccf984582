// The thread's memo. Thread-local because transforms of one program run on one thread.
#include "passes/memo.h"

#include <memory>

namespace sheaf::passes {
namespace {

thread_local std::unique_ptr<Memo> memo;

}  // namespace

Memo& Memo::current() {
  SHEAF_CHECK(memo != nullptr);
  return *memo;
}

Memo::Scope::Scope() : outermost_(memo == nullptr) {
  if (outermost_) memo = std::make_unique<Memo>();
}

Memo::Scope::~Scope() {
  if (outermost_) memo.reset();
}

}  // namespace sheaf::passes
