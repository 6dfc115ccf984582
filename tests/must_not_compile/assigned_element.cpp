// Arrays are values: an element of one is another Array, and assigning to that would change nothing.
// says: deleted (function|operator).*(discards qualifiers|no viable overloaded)
#include <sheaf/sheaf.h>

void clear_first(sheaf::Array& x) { x[0] = 0; }
void add_to_first(sheaf::Array& x) { x[0] += 1; }
