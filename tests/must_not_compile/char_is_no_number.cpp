// A character is no number, although C++ would convert it to one.
// says: (no match for [^ ]*operator|invalid operands to binary expression)
#include <sheaf/sheaf.h>

sheaf::Array shifted(const sheaf::Array& x) { return x + 'a'; }
