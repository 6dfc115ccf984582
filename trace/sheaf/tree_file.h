// Trees of arrays in files: the parameters of a model, with all that an optimizer keeps of them. The format is
// safetensors, which other frameworks read and write.
//   save_tree("model.safetensors", model);   model = load_tree("model.safetensors", model);
#pragma once

#include "sheaf/tree.h"

namespace sheaf {
namespace detail {

void save_leaves(const std::string& path, std::span<const Array* const> leaves, const std::vector<std::string>& paths,
                 Loc loc);
std::vector<Array> load_leaves(const std::string& path, std::span<const Array* const> like,
                               const std::vector<std::string>& paths, Loc loc);

}  // namespace detail

/// Writes the elements of every array of the tree under its path, "out.W"; what is not an array is not written. The
/// file takes the place of what is there once it is whole; folders that are missing are made, for this user alone.
/// Throws RuntimeError where it cannot be written, TypeError for c128, which the format lacks, and TracedBoolError
/// while tracing.
template <class T>
void save_tree(const std::string& path, const T& tree, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(tree, flat);
  detail::save_leaves(path, flat.leaves.span(), detail::paths_of(tree), loc);
}

/// The tree with the arrays of the file, each of them of the dtype and shape that it has in `like` and lying as it does
/// there; of `like` no elements are read, so abstract arrays will do. All else is as in `like`. Throws RuntimeError for
/// a file that is none, is damaged, or does not hold the arrays of the tree and no others, TypeError where one of
/// `like` was never given a value.
template <class T>
T load_tree(const std::string& path, const T& like, Loc loc = Loc::current()) {
  detail::Flat flat;
  detail::walk(like, flat);
  return tree_with_leaves(like, detail::load_leaves(path, flat.leaves.span(), detail::paths_of(like), loc), loc);
}

}  // namespace sheaf
