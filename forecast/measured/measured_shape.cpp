#include "forecast/measured/measured_shape.hpp"

#include "forecast/plan/options.hpp"
#include "results/h5.hpp"
#include "results/result_set.hpp"

namespace stowage::forecast {

parallel::GridShape measured_shape(const std::string& path) {
  const inputs::Deck deck = inputs::Deck::parse_stored(results::read_config(path), path);
  const std::size_t ranks =
      results::h5::read_file(path, results::kResultSchema, [](const results::h5::File& file) {
        return file.read_column("provenance/system/ranks", "host").size();
      });
  return grid_shape(deck, static_cast<int>(ranks));
}

}  // namespace stowage::forecast
