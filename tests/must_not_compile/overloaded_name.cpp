// ::tanh of <cmath> and sheaf::tanh are both in sight, so the bare name does not say which.
// says: (unresolved overloaded|could not deduce|couldn't infer|ignored: couldn't)
#include <sheaf/sheaf.h>

#include <cmath>
using namespace sheaf;

Array each(const Array& x) { return vmap(tanh)(x); }
