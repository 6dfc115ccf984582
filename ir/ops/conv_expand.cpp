// A convolution as a dot product: the windows of lhs are a view, so that a kernel reads them where they lie, and dims
// go into the order in which the product gives the result without a copy.
#include <algorithm>

#include "ir/ops/conv.h"

namespace sheaf::ir::ops {

Slides slides_of(const Conv& a, Type lhs, Type rhs) {
  const auto entry = [](const DimList& list, std::size_t i, std::int64_t neutral) {
    return list.empty() ? neutral : list[i];
  };
  Slides slides;
  for (std::size_t i = 0; i < a.lhs_spatial.size(); ++i)
    slides.push_back({.dim = static_cast<int>(a.lhs_spatial[i]),
                      .extent = lhs.dims()[a.lhs_spatial[i]],
                      .size = rhs.dims()[a.rhs_spatial[i]],
                      .stride = entry(a.strides, i, 1),
                      .low = entry(a.low, i, 0),
                      .high = entry(a.high, i, 0),
                      .base_dilation = entry(a.lhs_dilation, i, 1),
                      .dilation = entry(a.rhs_dilation, i, 1)});
  return slides;
}

void set_slides(Conv& a, const Slides& slides) {
  const auto list = [&](std::int64_t Slide::* entry, std::int64_t neutral) {
    DimList values;
    for (const Slide& s : slides) values.push_back(s.*entry);
    return std::count(values.begin(), values.end(), neutral) == std::ssize(values) ? DimList() : values;
  };
  a.strides = list(&Slide::stride, 1);
  a.low = list(&Slide::low, 0);
  a.high = list(&Slide::high, 0);
  a.lhs_dilation = list(&Slide::base_dilation, 1);
  a.rhs_dilation = list(&Slide::dilation, 1);
}

Value split(Value x, std::int64_t d, std::int64_t parts) {
  Shape dims = x.dims();
  dims[d] /= parts;
  dims.insert(dims.begin() + d, parts);
  return reshape_to(x, dims);
}

namespace {

constexpr std::int64_t kFew = 8;  // outputs or features of each group: too few for a vector to run along

enum class Role { shared, group, batch, spatial, feature, tap, output };
struct Label {
  Role role;
  std::size_t index;
  bool operator==(const Label&) const = default;
};
using Labels = std::vector<Label>;

void put(Labels& labels, const DimList& dims, Role role) {
  for (std::size_t i = 0; i < dims.size(); ++i) labels[dims[i]] = {role, i};
}

std::int64_t position(const Labels& labels, Label wanted) {
  return std::find(labels.begin(), labels.end(), wanted) - labels.begin();
}

bool lists(const Labels& labels, Label wanted) { return position(labels, wanted) < std::ssize(labels); }

// One operand, or the result, with what each of its dims is.
struct Labelled {
  Value value;
  Labels labels;

  /// The first dim of that role becomes [group, rest], or the group itself where nothing is left.
  void split_group(Role role, std::int64_t parts) {
    const std::int64_t d = position(labels, {role, 0});
    if (value.dims()[d] == parts) {
      labels[d] = {Role::group, 0};
      return;
    }
    value = split(value, d, parts);
    labels.insert(labels.begin() + d, {Role::group, 0});
  }
  /// Without the dim of that label, which has one element, if there is one.
  void drop(Label label) {
    const std::int64_t d = position(labels, label);
    if (d == std::ssize(labels)) return;
    Shape dims = value.dims();
    dims.erase(dims.begin() + d);
    value = reshape_to(value, dims);
    labels.erase(labels.begin() + d);
  }
  /// As if it had the dims `added` of `like` at `at`.
  void repeat(const Labels& added, std::size_t at, const Labelled& like) {
    Shape dims = value.dims();
    DimList old = dim_range(0, value.rank());
    for (std::size_t d = at; d < old.size(); ++d) old[d] += std::ssize(added);
    for (std::size_t i = 0; i < added.size(); ++i)
      dims.insert(dims.begin() + at + i, like.value.dims()[position(like.labels, added[i])]);
    value = broadcast_to(value, dims, old);
    labels.insert(labels.begin() + at, added.begin(), added.end());
  }
  void permute_to(const Labels& wanted) {
    DimList perm;
    for (const Label& l : wanted) perm.push_back(position(labels, l));
    value = permute(value, perm);
    labels = wanted;
  }
};

bool is_group(Label l) { return l.role == Role::group; }
bool is_paired(Label l) { return l.role == Role::shared || is_group(l); }
bool is_summed(Label l) { return l.role == Role::feature || l.role == Role::tap; }
bool is_spatial(Label l) { return l.role == Role::spatial; }
bool is_batch(Label l) { return l.role == Role::batch; }
bool is_place(Label l) { return is_batch(l) || is_spatial(l); }
bool is_output(Label l) { return l.role == Role::output; }

Labels filtered(const Labels& labels, bool (*which)(Label)) {
  Labels some;
  for (const Label& l : labels)
    if (which(l)) some.push_back(l);
  return some;
}

Labels without(Labels labels, const Labels& some) {
  std::erase_if(labels, [&](Label l) { return lists(some, l); });
  return labels;
}

Labels joined(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The gradient of a kernel sums over the batch of images as its features, which lie outermost; and its features, which
// lie innermost, are its batch.
bool has_features_outermost(const Conv& a) {
  return !a.lhs_feature.empty() && !a.lhs_batch.empty() && a.lhs_feature[0] < a.lhs_batch[0];
}

// Positions in the window, then features, whichever way they lie: the features are the longer run.
Labels summed_order(const Labels& lhs, const Conv& a) {
  Labels order;
  const auto add = [&](Role role, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      if (lists(lhs, {role, i})) order.push_back({role, i});
  };
  if (has_features_outermost(a)) add(Role::feature, a.lhs_feature.size());
  add(Role::tap, a.lhs_spatial.size());
  if (!has_features_outermost(a)) add(Role::feature, a.lhs_feature.size());
  return order;
}

// The dims of the result, its groups apart from their outputs, without dims of one element that groups leave.
Labels result_labels(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  Labels labels(e.out().rank());
  put(labels, a.out_shared, Role::shared);
  put(labels, a.out_batch, Role::batch);
  put(labels, a.out_spatial, Role::spatial);
  put(labels, a.out_feature, Role::output);
  const std::int64_t parts = a.groups * a.batch_groups;
  if (parts == 1) return labels;
  const auto output = labels.begin() + position(labels, {Role::output, 0});
  if (e.out().dims()[a.out_feature[0]] == parts) *output = {Role::group, 0};
  else labels.insert(output, {Role::group, 0});
  if (a.batch_groups > 1 && e.out().dims()[a.out_batch[0]] == 1)
    labels.erase(labels.begin() + position(labels, {Role::batch, 0}));
  return labels;
}

// The images, with the groups as a dim of their own.
Labelled images(const Eqn& e, Value lhs) {
  const Conv& a = e.attrs<Conv>();
  Labelled w{lhs, Labels(lhs.rank())};
  put(w.labels, a.lhs_shared, Role::shared);
  put(w.labels, a.lhs_batch, Role::batch);
  put(w.labels, a.lhs_feature, Role::feature);
  put(w.labels, a.lhs_spatial, Role::spatial);
  if (a.groups > 1) w.split_group(Role::feature, a.groups);
  if (a.batch_groups > 1) w.split_group(Role::batch, a.batch_groups);
  const std::int64_t parts = a.groups * a.batch_groups;
  if (parts == 1 || e.out().dims()[a.out_feature[0]] != parts) return w;
  const std::int64_t rest = a.groups > 1 ? e.in(1).dims()[a.rhs_feature[0]] : lhs.dims()[a.lhs_batch[0]] / parts;
  if (rest <= kFew) {
    // One output of a few features: innermost are the groups, along which vectors then run.
    const Labels groups = filtered(w.labels, is_group);
    w.permute_to(joined(without(w.labels, groups), groups));
  }
  return w;
}

// Negative padding as a slice, which is read in place where padding is a copy.
Value cropped(Value x, Slide& s) {
  const std::int64_t low = std::max<std::int64_t>(-s.low, 0), high = std::max<std::int64_t>(-s.high, 0);
  if (s.base_dilation != 1 || low + high > s.extent) return x;
  s.low += low;
  s.high += high;
  s.extent -= low + high;
  return slice_dim(x, s.dim, low, low + s.extent);
}

// Windows of lhs, with the groups as a dim of their own: parted first, because only what lies in memory can be.
Labelled windows(const Eqn& e, Value lhs) {
  Labelled w = images(e, lhs);
  Slides slides = slides_of(e.attrs<Conv>(), e.in(0).type(), e.in(1).type());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i].dim = static_cast<int>(position(w.labels, {Role::spatial, i}));
    w.value = cropped(w.value, slides[i]);
    w.labels.push_back({Role::tap, i});
  }
  Builder& b = lhs.builder();
  w.value = windows_of(pad_for(w.value, slides, b.constant(lhs.dtype(), 0)), slides);
  return w;
}

Labelled weights(const Eqn& e, Value rhs) {
  const Conv& a = e.attrs<Conv>();
  Labelled w{rhs, Labels(rhs.rank())};
  put(w.labels, a.rhs_shared, Role::shared);
  put(w.labels, a.rhs_feature, Role::feature);
  put(w.labels, a.rhs_spatial, Role::tap);
  put(w.labels, a.rhs_output, Role::output);
  if (const std::int64_t parts = a.groups * a.batch_groups; parts > 1) w.split_group(Role::output, parts);
  if (a.groups > 1 && rhs.dims()[a.rhs_feature[0]] == 1) w.drop({Role::feature, 0});
  return w;
}

// x . y over taps and features, as `a` says: [paired, the rest of x, the rest of y].
Labelled product(const Labelled& x, const Labelled& y, const Labels& paired, const Labels& summed, const Conv& a) {
  Dot dot_attrs{.dtype = a.dtype, .precision = a.precision};
  for (const Label& l : summed) {
    dot_attrs.lhs.push_back(position(x.labels, l));
    dot_attrs.rhs.push_back(position(y.labels, l));
  }
  for (const Label& l : paired) {
    dot_attrs.lhs_batch.push_back(position(x.labels, l));
    dot_attrs.rhs_batch.push_back(position(y.labels, l));
  }
  Labels labels = paired;
  for (const Labels* operand : {&x.labels, &y.labels})
    for (const Label& l : *operand)
      if (!lists(paired, l) && !lists(summed, l)) labels.push_back(l);
  return {x.value.builder().emit(dot, {x.value, y.value}, std::move(dot_attrs)), std::move(labels)};
}

bool is_pointwise(const Eqn& e) {
  const Slides slides = slides_of(e.attrs<Conv>(), e.in(0).type(), e.in(1).type());
  return std::all_of(slides.begin(), slides.end(), [](const Slide& s) { return s.is_identity(); });
}

// A kernel of its own for each channel, or for each image.
bool is_each_alone(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  const std::int64_t parts = a.groups * a.batch_groups;
  if (parts == 1 || e.out().dims()[a.out_feature[0]] != parts) return false;
  return e.in(0).dims()[a.groups > 1 ? a.lhs_feature[0] : a.lhs_batch[0]] == parts;
}

// As many outputs of each channel (or image) alone: of as many copies of it, each has one of its own.
std::int64_t copies_of(const Eqn& e) {
  const Conv& a = e.attrs<Conv>();
  const std::int64_t parts = a.groups * a.batch_groups;
  if (parts == 1 || e.in(0).dims()[a.groups > 1 ? a.lhs_feature[0] : a.lhs_batch[0]] != parts) return 1;
  const std::int64_t outputs = e.out().dims()[a.out_feature[0]] / parts;
  return outputs <= kFew ? std::max<std::int64_t>(outputs, 1) : 1;
}

Value with_copies(Builder& b, const Eqn& e, const Values& operands, std::int64_t copies) {
  Conv attrs = e.attrs<Conv>();
  (attrs.groups > 1 ? attrs.groups : attrs.batch_groups) *= copies;
  const std::int64_t d = attrs.groups > 1 ? attrs.lhs_feature[0] : attrs.lhs_batch[0];
  Shape dims = operands[0].dims(), repeated = dims;
  repeated.insert(repeated.begin() + d + 1, copies);
  dims[d] *= copies;
  DimList old = dim_range(0, operands[0].rank());
  for (std::size_t i = static_cast<std::size_t>(d) + 1; i < old.size(); ++i) ++old[i];
  const Value lhs = reshape_to(broadcast_to(operands[0], repeated, old), dims);
  return b.emit(conv, {lhs, operands[1]}, std::move(attrs));
}

// Windows of one element, where outputs do not lie innermost: the kernel times each image gives the result in its
// order.
Labelled pointwise(const Eqn& e, const Values& operands, const Labels& wanted) {
  Labelled x = images(e, operands[0]), y = weights(e, operands[1]);
  for (std::size_t i = 0; i < e.attrs<Conv>().rhs_spatial.size(); ++i) y.drop({Role::tap, i});
  const Labels paired = filtered(wanted, is_paired), outputs = filtered(wanted, is_output);
  const Labels before(wanted.begin(), wanted.begin() + position(wanted, outputs[0]));
  const Labels each = filtered(before, is_place), summed = filtered(x.labels, is_summed);
  const Labels rest = without(filtered(wanted, is_place), each);
  x.permute_to(joined(paired, joined(each, joined(summed, rest))));
  y.permute_to(joined(paired, joined(outputs, summed)));
  y.repeat(each, paired.size(), x);
  return product(y, x, joined(paired, each), summed, e.attrs<Conv>());
}

}  // namespace

Values expand_conv(Builder& b, const Eqn& e, const Values& operands) {
  if (is_spread(e)) return {expand_spread(b, e, operands[0], operands[1])};
  const Conv& a = e.attrs<Conv>();
  if (const std::int64_t copies = copies_of(e); copies > 1) return {with_copies(b, e, operands, copies)};
  // What windows meet is read many times over, and widened once.
  const DType wide = accumulator(e.in(0).dtype());
  if (is_float(wide) && wide != e.in(0).dtype() && !is_pointwise(e) && !is_each_alone(e)) {
    Conv attrs = a;
    attrs.dtype = size_bytes(e.out().dtype()) > size_bytes(wide) ? e.out().dtype() : DType::token;
    attrs.precision = Precision::tf32;  // of which halves lose nothing
    const Value sum = b.emit(conv, {convert_to(operands[0], wide), convert_to(operands[1], wide)}, std::move(attrs));
    return {convert_to(sum, e.out().dtype())};
  }
  const Labels wanted = result_labels(e), paired = filtered(wanted, is_paired), outputs = filtered(wanted, is_output);
  Labels places = filtered(wanted, is_place);
  const bool outputs_last = outputs.empty() || places.empty() || wanted.back() == outputs.back();
  Labelled out;
  if (!outputs_last && is_pointwise(e)) {
    out = pointwise(e, operands, wanted);
  } else {
    // Dims of the batch innermost where they are features of the images: a run of rows, which the window is not.
    if (!outputs_last && has_features_outermost(a))
      places = joined(filtered(wanted, is_spatial), filtered(wanted, is_batch));
    Labelled x = windows(e, operands[0]), y = weights(e, operands[1]);
    const Labels summed = summed_order(x.labels, a);
    x.permute_to(joined(paired, joined(places, summed)));
    // Groups of one output each are innermost instead of it: what runs along outputs then runs along groups.
    const Labels groups = outputs.empty() ? filtered(paired, is_group) : Labels();
    y.permute_to(joined(without(paired, groups), joined(summed, joined(groups, outputs))));
    out = product(x, y, paired, summed, a);
  }
  out.permute_to(wanted);
  return {reshape_to(out.value, e.out().dims())};
}

}  // namespace sheaf::ir::ops
