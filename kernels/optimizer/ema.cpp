#include "kernels/optimizer/ema.hpp"

#include <numeric>

#include "kernels/cost.hpp"
#include "kernels/launch.hpp"
#include "kernels/optimizer/ema_launch.hpp"

namespace stowage::kernels {

using execution::Cost;
using execution::Dtype;

namespace {

std::int64_t sum_of(const std::vector<std::int64_t>& elements) {
  return std::reduce(elements.begin(), elements.end());
}

}  // namespace

template <class S>
int Ema::launch(const Operands<Pointers<S>>& o, void* stream) const {
  const optimizer::EmaInputs inputs{o.step_ok, static_cast<float>(1 - decay)};
  const auto with = [&]<class W>(W) {
    return optimizer::launch_ema<W>(ema_pointers<W, S>(*this, o), inputs, stream);
  };
  return has_master ? with(float()) : with(S());
}

// The weight read, the average read and written.
Cost Ema::cost() const {
  const Dtype sums = execution::accumulation(storage);
  const std::int64_t all = sum_of(elements);
  return {3.0 * static_cast<double>(all),
          bytes(all, has_master ? sums : storage) + 2 * bytes(all, sums)};
}

std::string ExchangeEma::fault() const {
  if (!has_master && storage != execution::accumulation(storage))
    return fmt::format("without masters an average cannot change places with parameters of {}",
                       execution::name(storage));
  return {};
}

template <class S>
int ExchangeEma::launch(const Operands<Pointers<S>>& o, void* stream) const {
  return optimizer::launch_exchange_ema<S>(exchange_pointers<S>(*this, o), stream);
}

// The average read and written, and so is what it changes places with; with a master, parameter
// written.
Cost ExchangeEma::cost() const {
  const std::int64_t all = sum_of(elements);
  const double sums = bytes(all, execution::accumulation(storage));
  return {0, 4 * sums + (has_master ? bytes(all, storage) : 0)};
}

STOWAGE_OPERATOR_RUN(Ema)
STOWAGE_OPERATOR_RUN(ExchangeEma)

}  // namespace stowage::kernels
