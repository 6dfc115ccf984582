// The paths of axes reach any leaf, so that a list in a list would say nothing more.
// says: (no matching|could not convert).*std::vector<std::pair<.*LeafAxis
#include <sheaf/sheaf.h>

sheaf::Axis nested() { return sheaf::axes({{"[0]", sheaf::axes({{".W", 1}})}}); }
