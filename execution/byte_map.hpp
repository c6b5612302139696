#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "execution/clocks.hpp"

namespace stowage::execution {

/// What an address range holds at a point of a plan's issue order, who wrote it, and who has read
/// it since: enough to tell any early reuse and any missing edge.
class ByteMap {
 public:
  struct Access {
    Clocks::Node node;
    int step = -1;  ///< index that the owner of the map gives a meaning
  };
  struct Range {
    std::size_t end = 0;
    std::int64_t content = 0;  ///< identity of what the bytes hold
    std::size_t origin = 0;    ///< where the buffer starts that the content is of
    Access writer;
    std::vector<Access> readers;  ///< the latest of each chain
  };

  /// The bytes [begin, end) hold `content` from now on; earlier readers are forgotten.
  /// @param origin where the content's buffer starts
  void write(std::size_t begin, std::size_t end, std::int64_t content, Access writer,
             std::size_t origin = 0) {
    split(begin);
    split(end);
    ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(end));
    if (begin < end) ranges_[begin] = {end, content, origin, writer, {}};
  }

  /// Notes a read of [begin, end).
  void read(std::size_t begin, std::size_t end, Access reader) {
    split(begin);
    split(end);
    for (auto it = ranges_.lower_bound(begin); it != ranges_.end() && it->first < end; ++it)
      note(it->second.readers, reader);
  }

  /// Calls `visit(begin, end, Range)` for the known parts of [begin, end), in order.
  template <class Visit>
  void inspect(std::size_t begin, std::size_t end, Visit&& visit) const {
    auto it = ranges_.upper_bound(begin);
    if (it != ranges_.begin() && std::prev(it)->second.end > begin) --it;
    for (; it != ranges_.end() && it->first < end; ++it)
      visit(std::max(begin, it->first), std::min(end, it->second.end), it->second);
  }

 private:
  static void note(std::vector<Access>& readers, Access reader) {
    for (Access& known : readers)
      if (known.node.chain == reader.node.chain) {
        known = reader;
        return;
      }
    readers.push_back(reader);
  }

  void split(std::size_t at) {
    auto it = ranges_.upper_bound(at);
    if (it == ranges_.begin()) return;
    --it;
    if (it->first == at || it->second.end <= at) return;
    ranges_[at] = it->second;
    it->second.end = at;
  }

  std::map<std::size_t, Range> ranges_;
};

}  // namespace stowage::execution
