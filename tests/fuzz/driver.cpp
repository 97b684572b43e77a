// Mutates the files of a corpus and feeds them to a fuzz target, as libFuzzer does, but without looking at coverage.
// Usage: fuzz_TARGET CORPUS_FOLDER SECONDS [SEED]     or, to repeat a failure: fuzz_TARGET FILE

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "target.h"

namespace {

namespace fs = std::filesystem;

constexpr size_t kLongest = 4096;
constexpr char kTelling[] = "[](){},-=#:;x0123456789 \t\r\n\"'\\/.\xff";

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, uint64_t seed) : corpus_(std::move(corpus)), random_(seed) {}

  std::string next() {
    std::string input = any();
    for (size_t left = 1 + below(8); left > 0; --left) mutate(input);
    input.resize(std::min(input.size(), kLongest));
    return input;
  }

 private:
  size_t below(size_t limit) { return limit == 0 ? 0 : static_cast<size_t>(random_() % limit); }
  const std::string& any() { return corpus_[below(corpus_.size())]; }

  void mutate(std::string& input) {
    const size_t at = below(input.size() + 1), length = below(input.size() - at + 1);
    switch (below(6)) {
      case 0:
        input.insert(at, 1, kTelling[below(sizeof kTelling - 1)]);
        return;
      case 1:
        if (at < input.size()) input[at] = kTelling[below(sizeof kTelling - 1)];
        return;
      case 2:
        if (at < input.size()) input[at] = static_cast<char>(below(256));
        return;
      case 3:
        input.erase(at, length);
        return;
      case 4:
        input.insert(below(input.size() + 1), input.substr(at, length));
        return;
      default: {
        const std::string& other = any();
        input = input.substr(0, at) + other.substr(below(other.size() + 1));
      }
    }
  }

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

/// A file that holds the last input even after a crash. Null if it cannot be made.
char* last_input(const char* name) {
  const int fd = ::open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::ftruncate(fd, kLongest) != 0) return nullptr;
  void* memory = ::mmap(nullptr, kLongest, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

void feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) {
    feed(content(argv[1]));
    return 0;
  }
  if (argc < 3) return 2;
  std::vector<std::string> corpus;
  for (const auto& file : fs::directory_iterator(argv[1])) corpus.push_back(content(file.path()));
  std::sort(corpus.begin(), corpus.end());  // the order of a folder is not that of another machine
  if (corpus.empty()) return 2;
  for (const std::string& input : corpus) feed(input);
  const uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  const std::string name = fs::path(argv[0]).filename().string() + ".last";
  char* last = last_input(name.c_str());
  std::printf("seed %llu; the last input is in %s\n", static_cast<unsigned long long>(seed), name.c_str());
  std::fflush(stdout);
  Mutator mutator(std::move(corpus), seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[2]));
  size_t inputs = 0;
  for (; std::chrono::steady_clock::now() < end; ++inputs) {
    const std::string input = mutator.next();
    if (last != nullptr) {
      std::memset(last, 0, kLongest);
      std::memcpy(last, input.data(), input.size());
    }
    feed(input);
  }
  std::printf("%zu inputs\n", inputs);
  ::unlink(name.c_str());
  return 0;
}
