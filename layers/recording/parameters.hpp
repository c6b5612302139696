#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "execution/dtype.hpp"
#include "execution/global_index.hpp"
#include "execution/tensor.hpp"

namespace stowage::layers {

/// How a parameter starts (design section 8).
enum class Init : unsigned char {
  normal,           ///< sum of twelve uniforms, std `std`
  residual_normal,  ///< the same, std / sqrt(2 * layers): weights that write the residual stream
  ones,
  zeros,
  uniform_taps,  ///< U(-l, l), l = 1 / sqrt(W): weights (C, W) of a depthwise convolution
  a_log,         ///< log U(1, 16): Mamba-2's A
  dt_bias        ///< inverse softplus of log-uniform(1e-3, 1e-1): Mamba-2's step size
};

/// Of the weights of an RMSNorm, by which they scale, or by 1 + which.
inline Init norm_init(bool zero_centred) { return zero_centred ? Init::zeros : Init::ones; }

/// What a rank has of one dimension of a tensor: ranges of it, one behind the other.
struct Cut {
  int dimension = 0;
  std::vector<execution::Range> ranges;

  std::int64_t extent() const;           ///< elements in all ranges
  Cut of(execution::Range local) const;  ///< what some of those elements are
};

/// Neighbouring rows of a rank's part that `copies` ranks of the tensor group have alike, since
/// each computes what it needs of them itself: their gradients are summands.
struct Repeat {
  execution::Range rows = {0, 0};
  int copies = 1;
  int copy = 0;  ///< which of them this rank has
};

/// Neighbouring rows of a weight that multiply hidden rows to something of its own: fused with
/// others, but a matrix by itself.
struct Projection {
  std::int64_t rows = 0;
  std::int64_t head_rows = 0;  ///< of each head; 0: it has none
};

/// A contiguous range of a rank's part that is either wholly replicated on other ranks or wholly
/// private.
struct ShardRange {
  execution::Range elements;
  execution::GlobalIndex index;  ///< which element of the whole each of them is
};

/// One trained tensor. Its name and its initial values are those of the whole tensor, on any layout
/// of ranks; a rank has the part that the cuts leave it.
struct Parameter {
  std::string name;                 ///< "layers.3.mamba.in_proj.weight"
  std::vector<std::int64_t> shape;  ///< of the whole, row-major; matrices are (outputs, inputs)
  Init init = Init::normal;
  bool decay = false;           ///< decoupled weight decay: matrices only
  std::string group = "dense";  ///< reduction group: "dense" or "expert"
  std::vector<Cut> cuts = {};   ///< at most one a dimension; none: every rank has all of it
  Repeat repeat = {};
  /// Of a weight that is a matrix between hidden rows, or (experts, outputs, inputs) a stack of
  /// them: its outputs, in order. None of all else: vectors, the embedding, the head, routers.
  std::vector<Projection> projections = {};

  /// Of the part that a rank has.
  std::vector<std::int64_t> local_shape() const;
  std::int64_t local(std::size_t dimension) const { return local_shape()[dimension]; }
  std::int64_t elements() const;
  /// Elements of the whole.
  std::int64_t global_elements() const;
  execution::GlobalIndex index() const;
  /// Elements of the part that lie in repeated rows.
  execution::Range repeated() const;
  /// The part, cut where repeated rows begin and end.
  std::vector<ShardRange> shard_ranges() const;
};

/// Names under which a parameter's other tensors live, which have its shape: "<what>/<parameter>".
std::string gradient_name(const std::string& parameter);
std::string master_name(const std::string& parameter);
std::string state_name(std::string_view state, const std::string& parameter);
/// The parameter that one of them, or it itself, belongs to; of other tensors no parameter's name.
std::string parameter_of(const std::string& tensor);

/// Types of a run: storage of weights and activations, and of all sums and states.
struct Precision {
  execution::Dtype storage = execution::Dtype::fp32;

  execution::Dtype accumulation() const { return execution::accumulation(storage); }
  /// Weights that are narrower than sums have a master copy of the sums' type.
  bool has_master() const { return accumulation() != storage; }
};

/// Standard deviation of a parameter whose initial values are nearly normal; 0 for the others.
/// @param std of Init::normal  @param layers of the model, for the residual scaling
double normal_deviation(const Parameter& parameter, double std, int layers);

/// Initial values of elements [begin, end) of a rank's part of a parameter: element i of the whole
/// has one value for any layout, rank count and backend. Those that are nearly normal are
/// kernels::fill_normal's.
/// @param seed of the run  @param std, layers as above
std::vector<float> initial_values(const Parameter& parameter, execution::Range range,
                                  std::uint64_t seed, double std, int layers);

}  // namespace stowage::layers
