#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace stowage::inputs {

/// How documents lie in sequences of T tokens. In all but `none`, attention, convolution and scan
/// end where a document ends, and nothing is predicted across.
enum class Packing {
  documents,  ///< the stream is cut every T tokens; a document that a cut meets is split
  first_fit,  ///< whole documents, each into the first sequence of its window that has room
  best_fit,   ///< whole documents, the longest first, each where the least room is left
  none        ///< the stream is cut every T tokens and its boundaries are ignored
};

/// "documents", "first_fit", "best_fit" or "none": the words of data.packing. Throws a usage error
/// for another word.
Packing packing(std::string_view word);

/// The word of a packing.
std::string_view name(Packing packing);

/// True if sequences hold whole documents, and so may end in padding.
inline bool packs_whole(Packing packing) {
  return packing == Packing::first_fit || packing == Packing::best_fit;
}

/// What bounds a bin.
struct Bin {
  std::int64_t room = 0;   ///< sum of lengths that it takes
  std::int64_t items = 0;  ///< number of items that it takes; 0: any number
};

/// The bin of each item, numbered from 0 in order of opening; an empty item goes like any other.
/// Every item must be at most bin.room long.
///
/// best_fit is best-fit decreasing (Ding et al., "Fewer truncations improve language modeling",
/// arXiv 2404.10830, section 3): items by falling length, equal ones in their order, each into the
/// bin with the least room that holds it. first_fit takes items in their order, each into the
/// lowest bin that holds it. Both take O(n log n).
std::vector<std::int64_t> pack(std::span<const std::int64_t> lengths, Bin bin, Packing packing);

}  // namespace stowage::inputs
