// News: an input is what arrives from the leader of another node, and lies over what has arrived before.

#include "collective/across/news.h"

#include <algorithm>
#include <cstring>

#include "target.h"

using tarantella::collective::across::News;
using tarantella::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  News news;
  std::memset(&news.call_name, 'x', sizeof news.call_name);
  std::memset(&news.message, 'x', sizeof news.message);
  std::memcpy(reinterpret_cast<char*>(&news), data, std::min(size, sizeof news));
  news.end_texts();
  require(std::strlen(news.call_name.data()) < news.call_name.size(), "the name of a call ends");
  const tarantella::Status failure = news.failure();
  require(failure.ok() == (news.code == 0), "what is not ok is a failure");
  require(failure.message().size() < news.message.size(), "the message ends");
  require(failure.code() <= tarantella::Code::kSystem, "the code is one of ours");
  return 0;
}
