// Where ranks run.
#include "parallel/topology.hpp"

#include <gtest/gtest.h>

#include "ctest/parallel/mpi_support.hpp"

namespace stowage::parallel {
namespace {

class topology : public MpiTest {};

TEST_F(topology, this_place_is_filled) {
  const RankPlace place = this_place();
  EXPECT_EQ(place.host, host_name());
  EXPECT_FALSE(place.cpu_model.empty());
  EXPECT_FALSE(place.topology.empty());
  EXPECT_FALSE(place.cpuset.empty());
  EXPECT_FALSE(place.numa_nodes.empty());
  EXPECT_GE(place.cpus, 1);
  EXPECT_GE(place.cores, 0);
  EXPECT_GT(place.memory_bytes, std::int64_t{1} << 20);
}

TEST_F(topology, places_are_gathered_in_rank_order) {
  const std::vector<RankPlace> places = gather_places(world);
  ASSERT_EQ(places.size(), world.rank() == 0 ? static_cast<std::size_t>(world.size()) : 0U);
  const RankPlace mine = this_place();
  for (std::size_t r = 0; r < places.size(); ++r) {
    EXPECT_EQ(places[r].rank, static_cast<std::int64_t>(r));
    EXPECT_EQ(places[r].local_rank, static_cast<std::int64_t>(r));  // tests run on one host
    EXPECT_EQ(places[r].host, mine.host);
    EXPECT_EQ(places[r].cpu_model, mine.cpu_model);
    EXPECT_EQ(places[r].topology, mine.topology);
    EXPECT_EQ(places[r].memory_bytes, mine.memory_bytes);
    EXPECT_GE(places[r].cpus, 1);
  }
}

}  // namespace
}  // namespace stowage::parallel
