#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "errors.h"
#include "tarantella/tarantella.h"

namespace tarantella::python {

/// Zeros instead of a plan's tensors, until Context::finish_zero_contributions().
class ZeroContributions {
 public:
  ZeroContributions(tnt_plan plan, size_t tensors) : before_(tensors) {
    checked([&] { return tnt_zero_contributions_begin(plan, tensors, before_.data(), &zeros_); });
  }
  ~ZeroContributions() {
    const nanobind::gil_scoped_release unlocked;
    tnt_zero_contributions_release(zeros_);
  }
  ZeroContributions(const ZeroContributions&) = delete;
  ZeroContributions& operator=(const ZeroContributions&) = delete;

  const std::vector<uint64_t>& before() const { return before_; }
  std::vector<uint64_t> stop() {
    std::vector<uint64_t> steps(before_.size());
    checked([&] { return tnt_zero_contributions_stop(zeros_, steps.data()); });
    return steps;
  }
  tnt_code finish(const std::vector<uint64_t>& steps) const {
    return tnt_zero_contributions_finish(zeros_, steps.data());
  }
  size_t tensors() const { return before_.size(); }

 private:
  tnt_zero_contributions* zeros_ = nullptr;
  std::vector<uint64_t> before_;
};

}  // namespace tarantella::python
