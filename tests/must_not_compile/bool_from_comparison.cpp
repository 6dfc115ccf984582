// A comparison is elementwise: it becomes a bool only where one is asked for outright, as in `if`.
// says: (cannot convert|no viable conversion)
#include <sheaf/sheaf.h>

bool is_small(const sheaf::Array& x) { return x < 3; }
