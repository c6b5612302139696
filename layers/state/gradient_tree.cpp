#include "layers/state/gradient_tree.hpp"

#include <fmt/core.h>

namespace stowage::layers {

using execution::Bucket;
using execution::Range;

namespace {

constexpr const char* kTree = "tree";

}  // namespace

bool is_of_tree(const std::string& name) { return name.find("tree/") != std::string::npos; }

GradientTree::GradientTree(Program& program, const execution::PersistentLayout& layout,
                           const parallel::SumTree& tree)
    : program_(program), layout_(layout), tree_(tree) {
  for (const Bucket& bucket : layout.buckets()) {
    if (bucket.tensors.empty() ||
        layout.whole(bucket.tensors.front()).lifetime != execution::Lifetime::gradient)
      continue;
    for (const std::string& part : bucket.tensors) program_.add(layout.info(part));
    std::vector<Tensor>& kept = kept_[bucket.name];
    for (int node = 0; node < tree.most_kept(); ++node)
      kept.push_back(program_.scratch(fmt::format("{}/{}/{}", kTree, bucket.name, node),
                                      bucket.dtype, {bucket.elements}));
  }
}

void GradientTree::add(std::span<const Parameter> parameters, const parallel::Leaf& leaf) {
  if (tree_.most_kept() == 0 || parameters.empty()) return;
  std::map<std::string, std::vector<Range>> ranges;  // by bucket, neighbours as one
  for (const Parameter& parameter : parameters) {
    const std::string name = gradient_name(parameter.name);
    const std::int64_t first = layout_.first_element(name);
    std::vector<Range>& of = ranges[layout_.bucket_of(name).name];
    if (!of.empty() && of.back().end == first)
      of.back().end = first + parameter.elements();
    else
      of.push_back({first, first + parameter.elements()});
  }
  for (const auto& [bucket, some] : ranges)
    program_.append(parallel::add_leaf(
        program_, fmt::format("{}/{}/{}/{}", kTree, leaf.text(), parameters.front().name, bucket),
        program_.find(bucket), kept_.at(bucket), some, leaf, tree_));
}

}  // namespace stowage::layers
