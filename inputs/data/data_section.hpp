#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "inputs/data/packing.hpp"
#include "inputs/data/token_source.hpp"
#include "inputs/deck/section.hpp"

namespace stowage::inputs {

/// [data]: where tokens come from and how they are cut.
struct DataConfig {
  SourceKind source = SourceKind::automatic;
  std::string path, validation_path;
  std::vector<std::string> mix, validation;  ///< NAME=PATH
  std::vector<double> mix_weights;
  MaskUse mask = MaskUse::automatic;
  Packing packing = Packing::documents;
  std::int64_t packing_window = 1 << 14;
  bool shuffle_documents = false;
  bool split_long = true;
  std::int64_t document_multiple = 1;
  double held_out_fraction = 0.05;
  std::int64_t max_documents = 0;
  std::int64_t document_token = -1;
  std::int64_t synthetic_tokens = 1 << 24;
  std::int64_t synthetic_document_length = 0;
  std::vector<std::int64_t> synthetic_lengths;
  std::vector<std::int64_t> graphed_documents;  ///< capacities for which graphs are captured
};

template <>
std::vector<Row<DataConfig>> rows<DataConfig>();

void check(const DataConfig& data, const Deck& deck);

/// A data file by its name: "NAME=PATH", an item of data.mix or data.validation.
struct NamedPath {
  std::string name, path;
};
NamedPath named_path(const std::string& item);

}  // namespace stowage::inputs
