#include "drivers/common/measured_shape.hpp"

#include "drivers/common/options.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::drivers {

parallel::GridShape measured_shape(const std::string& path) {
  const inputs::Deck deck =
      inputs::Deck::parse_stored(results::read_config(path), path, {}, nullptr);
  const auto file = results::h5::File::open(path, results::kResultSchema);
  return grid_shape(deck, static_cast<int>(file.dataset("provenance/system/ranks").shape().at(0)));
}

}  // namespace stowage::drivers
