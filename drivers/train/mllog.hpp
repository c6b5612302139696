#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "drivers/train/loop.hpp"
#include "inputs/deck/deck.hpp"

namespace stowage::drivers {

/// The lines of MLPerf Training's log (":::MLLOG {...}", MLCommons' logging rules), for tools that
/// read those: sizes and rates, then init, run, losses and evaluations with their times. With an
/// empty run.mllog every call does nothing.
class MlLog {
 public:
  /// Opens run.mllog, and writes that the program begins.
  /// @param goes_on the run goes on from a checkpoint: its lines follow those that are there
  /// @throws Error (exit 2) if the file is there before a run, or cannot be written
  MlLog(const inputs::Deck& deck, bool goes_on);

  /// Set-up is done, the first step follows. @param parameters of the model
  void run_begins(std::int64_t parameters, int ranks);
  void step(const StepReport& report);
  /// @param samples sequences trained on before
  void evaluation(std::int64_t samples, double loss);
  /// @param valid the verdict of the run
  void run_ends(bool valid);

 private:
  enum class Event { point, begin, end };
  void write(Event event, const char* key, const nlohmann::ordered_json& value,
             const nlohmann::ordered_json& metadata);
  void write_deck(const char* key, const char* deck_key);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  const inputs::Deck& deck_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace stowage::drivers
