#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "inputs/deck/deck.hpp"
#include "results/line_file.hpp"
#include "run/step/loop.hpp"

namespace stowage::run {

/// The lines of MLPerf Training's log (":::MLLOG {...}", MLCommons' logging rules), for tools that
/// read those: sizes and rates, then init, run, losses and evaluations with their times. With an
/// empty run.mllog every call does nothing.
class MlLog {
 public:
  /// The program begins.
  /// @param goes_on the run goes on from a checkpoint: its lines follow those of the run before;
  /// else an older log is kept aside
  /// @throws Error (exit 2) if run.mllog cannot be written, or is not free (output_path.hpp)
  MlLog(const inputs::Deck& deck, bool goes_on);

  /// Set-up is done, the first step follows: opens the log. @param parameters of the model
  void run_begins(std::int64_t parameters, int ranks);
  void step(const StepReport& report);
  /// @param samples sequences trained on before
  void evaluation(std::int64_t samples, double loss);
  /// @param valid the verdict of the run
  void run_ends(bool valid);

  const results::LineFile& file() const { return lines_; }

 private:
  enum class Event { point, begin, end };
  void write(Event event, const char* key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  void write_at(std::int64_t time_ms, Event event, const char* key,
                const nlohmann::ordered_json& value, const nlohmann::ordered_json& metadata);
  void write_deck(const char* key, std::string_view deck_key);

  const inputs::Deck& deck_;
  bool goes_on_;
  std::int64_t began_ms_;
  results::LineFile lines_;
};

}  // namespace stowage::run
