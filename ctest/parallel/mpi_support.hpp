#pragma once

#include <gtest/gtest.h>

#include "parallel/job/mpi.hpp"

namespace stowage::parallel {

/// A test on the ranks that were started.
class MpiTest : public testing::Test {
 protected:
  MpiTest() : environment(no_arguments, no_names), world(Communicator::world()) {}

 private:
  int no_arguments = 0;
  char** no_names = nullptr;

 protected:
  Environment environment;
  Communicator world;
};

}  // namespace stowage::parallel
