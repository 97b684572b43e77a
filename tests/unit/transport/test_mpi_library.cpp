#include <gtest/gtest.h>

#include "transport/mpi/library.h"

namespace tarantella::transport {
namespace {

void expect_error(const std::string& transport, Code code, const std::string& part) {
  const auto loaded = load_mpi(transport);
  ASSERT_FALSE(loaded.ok()) << transport;
  EXPECT_EQ(loaded.status().code(), code) << transport;
  EXPECT_NE(loaded.status().message().find(part), std::string::npos) << loaded.status().message();
}

TEST(MpiLibrary, RefusesWhatNamesNone) {
  for (const char* each :
       {"", "mpi", "mpi-abi", "mpi-abi:", "openmpi:", "mpich:/lib/libmpi.so", ":/lib/libmpi.so"})
    expect_error(each, Code::kInvalidArgument, "must be mpi-abi:PATH or openmpi:PATH");
}

TEST(MpiLibrary, SaysWhatCannotBeLoaded) {
  expect_error("mpi-abi:/not/there/libmpi_abi.so.1", Code::kSystem, "/not/there/libmpi_abi.so.1");
  expect_error("openmpi:/etc/passwd", Code::kSystem, "cannot load the library of MPI");
  expect_error("openmpi:libm.so.6", Code::kSystem, "libm.so.6 is not a library of MPI");
}

}  // namespace
}  // namespace tarantella::transport
