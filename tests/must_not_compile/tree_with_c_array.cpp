// The fields of a tree are counted, and a C array counts as several; std::array does not.
// says: decomposes into
#include <sheaf/sheaf.h>

struct Layer {
  sheaf::Array w[2];
};

std::vector<sheaf::Array> leaves(const Layer& layer) { return sheaf::tree_leaves(layer); }
