// Complex arithmetic as real equations: the rules that the sheets name as `on_parts`, and the two that others are made
// of. They run after all transforms, so none of them is ever differentiated.
#pragma once

#include "ir/ops/rules.h"

namespace sheaf::ir::ops {

using PartsList = std::vector<Parts>;
using PartsSpan = std::span<const Parts>;

/// The op on the real parts, and on the imaginary ones: for ops that only move and add elements.
PartsList each_part(Builder& b, const Eqn& e, PartsSpan x);
/// (a + bi)(c + di), the product being the op with these attributes.
PartsList product_of_parts(Builder& b, const Eqn& e, PartsSpan x, std::shared_ptr<const void> attributes);

// Of the op each is named after.
PartsList constant_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList convert_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList div_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList abs_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList exp_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList log_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList sqrt_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList pow_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList eq_on_parts(Builder& b, const Eqn& e, PartsSpan x);
PartsList ne_on_parts(Builder& b, const Eqn& e, PartsSpan x);

}  // namespace sheaf::ir::ops
