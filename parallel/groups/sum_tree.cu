// Device code of sums by a tree: one thread per element, bound by memory.

#include "execution/parallel_for.cuh"
#include "parallel/groups/tree_nodes.hpp"

STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::parallel::detail::AddLeaf<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::parallel::detail::AddLeaf<double>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::parallel::detail::AddNodes<float>);
STOWAGE_INSTANTIATE_PARALLEL_FOR(stowage::parallel::detail::AddNodes<double>);
