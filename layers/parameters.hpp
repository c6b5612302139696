#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "execution/dtype.hpp"

namespace stowage::layers {

/// How a parameter starts (design section 8).
enum class Init : unsigned char {
  normal,           ///< sum of twelve uniforms, std `std`
  residual_normal,  ///< the same, std / sqrt(2 * layers): weights that write the residual stream
  ones,
  zeros,
  uniform_half,  ///< U(-1/2, 1/2): conv weights of width 4
  a_log,         ///< log U(1, 16): Mamba-2's A
  dt_bias        ///< inverse softplus of log-uniform(1e-3, 1e-1): Mamba-2's step size
};

/// One trained tensor.
struct Parameter {
  std::string name;                 ///< "layers.3.mamba.in_proj.weight"
  std::vector<std::int64_t> shape;  ///< row-major; matrices are (outputs, inputs)
  Init init = Init::normal;
  bool decay = false;           ///< decoupled weight decay: matrices only
  std::string group = "dense";  ///< reduction group: "dense" or "expert"

  std::int64_t elements() const;
};

/// Names under which a parameter's other tensors live.
std::string gradient_name(const std::string& parameter);
std::string master_name(const std::string& parameter);
std::string first_moment_name(const std::string& parameter);
std::string second_moment_name(const std::string& parameter);

/// Types of a run: storage of weights and activations, and of all sums and states.
struct Precision {
  execution::Dtype storage = execution::Dtype::fp32;

  execution::Dtype accumulation() const { return execution::accumulation(storage); }
  /// bf16 weights have an fp32 master copy; wider ones are their own.
  bool has_master() const { return storage == execution::Dtype::bf16; }
};

/// Standard deviation of a parameter whose initial values are nearly normal; 0 for the others.
/// @param std of Init::normal  @param layers of the model, for the residual scaling
double normal_deviation(const Parameter& parameter, double std, int layers);

/// Initial values of a parameter: the same for any layout, rank count and backend. Those that are
/// nearly normal are kernels::fill_normal's.
/// @param seed of the run  @param std, layers as above
std::vector<float> initial_values(const Parameter& parameter, std::uint64_t seed, double std,
                                  int layers);

}  // namespace stowage::layers
