// The texts of attention's functions, and the pieces of the prelude that they share.
#pragma once

#include <span>
#include <string_view>

#include "codegen/cuda/prelude.h"

namespace sheaf::codegen {

namespace attention_text {
/// Within a walk: makes of the products s of rows and columns their scores, -inf where they do not meet.
extern const std::string_view kScores;
/// A walk over keys for a tile of queries; what becomes of its sums is one of the two that follow it.
extern const std::string_view kForward;
extern const std::string_view kForwardOut;
extern const std::string_view kPartOut;
/// One result of those of the parts of the keys.
extern const std::string_view kCombine;
/// Of a forward: the log of each row's sum.
extern const std::string_view kForwardLse;
/// What a backward needs beside its operands: ct in their dtype, and what is subtracted from scores.
extern const std::string_view kPrepare;
extern const std::string_view kHalves;
/// A walk over keys for the gradient of a tile of queries.
extern const std::string_view kBackwardQueries;
/// A walk over examples and heads for a tile of the gradient of a bias.
extern const std::string_view kBackwardBias;
/// A walk over queries, of all heads of the group, for the gradients of a tile of keys and values.
extern const std::string_view kBackwardKeys;
}  // namespace attention_text

std::span<const CudaPiece> cuda_attention_pieces();

}  // namespace sheaf::codegen
