#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace tarantella::runtime {

/// A folder that replaces "/".
class Root : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "tnt-root-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void put(const std::string& file, const std::string& content) {
    const std::filesystem::path full = path_ + file;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << content;
  }

  std::string path_;
};

}  // namespace tarantella::runtime
