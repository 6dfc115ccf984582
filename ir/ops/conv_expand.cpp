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

// One operand, or the result, with what each of its dims is.
struct Labelled {
  Value value;
  Labels labels;

  /// The first dim of that role becomes [group, rest].
  void split_group(Role role, std::int64_t parts) {
    const std::int64_t d = position(labels, {role, 0});
    value = split(value, d, parts);
    labels.insert(labels.begin() + d, {Role::group, 0});
  }
  void permute_to(const Labels& wanted) {
    DimList perm;
    for (const Label& l : wanted) perm.push_back(position(labels, l));
    value = permute(value, perm);
    labels = wanted;
  }
};

bool is_paired(Label l) { return l.role == Role::shared || l.role == Role::group; }
bool is_summed(Label l) { return l.role == Role::feature || l.role == Role::tap; }

// Taps and features in the order that lhs has them in, so that neighbours in memory are summed one after the other.
Labels summed_order(const Conv& a) {
  Labels order;
  const auto add = [&](Role role, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) order.push_back({role, i});
  };
  const bool features_last =
      !a.lhs_feature.empty() && !a.lhs_spatial.empty() && a.lhs_feature[0] > a.lhs_spatial.back();
  if (features_last) add(Role::tap, a.lhs_spatial.size());
  add(Role::feature, a.lhs_feature.size());
  if (!features_last) add(Role::tap, a.lhs_spatial.size());
  return order;
}

// The dims of the result, its groups apart from their outputs.
Labels result_labels(const Conv& a, int rank) {
  Labels labels(rank);
  put(labels, a.out_shared, Role::shared);
  put(labels, a.out_batch, Role::batch);
  put(labels, a.out_spatial, Role::spatial);
  put(labels, a.out_feature, Role::output);
  if (a.groups * a.batch_groups > 1)
    labels.insert(labels.begin() + position(labels, {Role::output, 0}), {Role::group, 0});
  return labels;
}

// Windows of lhs, with the groups as a dim of their own: parted first, because only what lies in memory can be.
Labelled windows(const Eqn& e, Value lhs) {
  const Conv& a = e.attrs<Conv>();
  Labelled w{lhs, Labels(lhs.rank())};
  put(w.labels, a.lhs_shared, Role::shared);
  put(w.labels, a.lhs_batch, Role::batch);
  put(w.labels, a.lhs_feature, Role::feature);
  put(w.labels, a.lhs_spatial, Role::spatial);
  if (a.groups > 1) w.split_group(Role::feature, a.groups);
  if (a.batch_groups > 1) w.split_group(Role::batch, a.batch_groups);
  Slides slides = slides_of(a, e.in(0).type(), e.in(1).type());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i].dim = static_cast<int>(position(w.labels, {Role::spatial, i}));
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
  return w;
}

Labels filtered(const Labels& labels, bool (*which)(Label)) {
  Labels some;
  for (const Label& l : labels)
    if (which(l)) some.push_back(l);
  return some;
}

Labels joined(Labels a, const Labels& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// x . y over taps and features: [paired, the rest of x, the rest of y].
Labelled product(const Labelled& x, const Labelled& y, const Labels& paired, const Labels& summed, DType dtype) {
  Dot dot_attrs{.dtype = dtype};
  for (const Label& l : summed) {
    dot_attrs.lhs.push_back(position(x.labels, l));
    dot_attrs.rhs.push_back(position(y.labels, l));
  }
  for (const Label& l : paired) {
    dot_attrs.lhs_batch.push_back(position(x.labels, l));
    dot_attrs.rhs_batch.push_back(position(y.labels, l));
  }
  const auto is_free = [](Label l) { return !is_paired(l) && !is_summed(l); };
  return {x.value.builder().emit(dot, {x.value, y.value}, std::move(dot_attrs)),
          joined(paired, joined(filtered(x.labels, is_free), filtered(y.labels, is_free)))};
}

}  // namespace

Values expand_conv(Builder&, const Eqn& e, const Values& operands) {
  const Conv& a = e.attrs<Conv>();
  const DType dtype = a.dtype;
  const Labels wanted = result_labels(a, e.out().rank()), summed = summed_order(a),
               paired = filtered(wanted, is_paired);
  const Labels places = filtered(wanted, [](Label l) { return l.role == Role::batch || l.role == Role::spatial; });
  const Labels outputs = filtered(wanted, [](Label l) { return l.role == Role::output; });
  Labelled x = windows(e, operands[0]), y = weights(e, operands[1]);
  // In the order of the result, whose first free dim says which operand comes first.
  x.permute_to(joined(paired, joined(places, summed)));
  y.permute_to(joined(paired, joined(summed, outputs)));
  const bool outputs_first =
      !outputs.empty() && !places.empty() && position(wanted, outputs[0]) < position(wanted, places[0]);
  Labelled out = outputs_first ? product(y, x, paired, summed, dtype) : product(x, y, paired, summed, dtype);
  out.permute_to(wanted);
  return {reshape_to(out.value, e.out().dims())};
}

}  // namespace sheaf::ir::ops
