#pragma once

#include <memory>
#include <string>
#include <vector>

#include "inputs/deck/deck.hpp"
#include "results/checkpoint.hpp"
#include "run/state/folder_weights.hpp"
#include "run/state/whole_tensors.hpp"

namespace stowage::run {

/// Weights that a run starts from at step 0, as checkpoint.resume names them: "hf:" and a Hugging
/// Face folder, or a checkpoint of weights alone. Moments, counts and the loader start anew.
class StartWeights {
 public:
  /// True if `found` names weights and no training state.
  static bool are_at(const std::string& found);
  /// The folder of "hf:FOLDER"; empty for all else.
  static std::string folder_of(const std::string& resume);

  /// @throws Error (exit 2) if they are of another model than the deck's; with
  /// checkpoint.allow_changes, only if their shapes differ
  StartWeights(const inputs::Deck& deck, const std::string& found);

  /// What checkpoint.allow_changes has let through, one sentence for each key.
  const std::vector<std::string>& changes() const { return changes_; }

  /// Copies them into the parameters, and the masters if there are any; on every rank.
  void load(const WholeTensors& tensors) const;

  /// Closes their files, so that a deleted one frees its disk space. Nothing can be loaded
  /// afterwards.
  void close() {
    folder_.reset();
    checkpoint_.reset();
  }

 private:
  std::string origin_;
  std::vector<std::string> changes_;
  std::unique_ptr<FolderWeights> folder_;  ///< one of these two, until closed
  std::unique_ptr<results::Checkpoint> checkpoint_;
};

}  // namespace stowage::run
