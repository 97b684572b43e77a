#pragma once
// Values as one text, and back: each string after its size, a number as its digits.
//
// A struct is packed by a function template `fields(pack, value)` beside it, which calls pack(value.one, value.other).
// The same function packs a const value into a Packer and fills another from an Unpacker.

#include <bit>
#include <charconv>
#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tarantella::launch {

inline void put_number(std::string& bytes, size_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>((number >> shift) & 0xff);
}

inline size_t number_at(std::string_view bytes, size_t at) {
  size_t number = 0;
  for (size_t i = 0; i < 4; ++i) number |= size_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return number;
}

template <typename Value, typename Wanted>
concept Is = std::same_as<std::remove_const_t<Value>, Wanted>;

class Packer {
 public:
  template <typename... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  void require(bool) {}
  std::string take() { return std::move(bytes_); }

 private:
  void put(const std::string& string) {
    put_number(bytes_, string.size());
    bytes_ += string;
  }
  void put(double number) { put(std::bit_cast<int64_t>(number)); }
  template <typename Value>
  void put(const std::optional<Value>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename Value>
  void put(const std::vector<Value>& values) {
    put(values.size());
    for (const Value& value : values) put(value);
  }
  void put(const std::map<std::string, std::string>& map) {
    put(map.size());
    for (const auto& [name, value] : map) (*this)(name, value);
  }
  template <typename Value>
  void put(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      put(static_cast<int>(value));
    } else if constexpr (std::is_integral_v<Value>) {
      put(std::to_string(value));
    } else {
      fields(*this, value);
    }
  }

  std::string bytes_;
};

/// Reads what a Packer has written. After a mistake all values are empty or 0, and ok() is false.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  void require(bool holds) { ok_ = ok_ && holds; }
  /// Leaves out what follows.
  void skip_rest() { rest_ = {}; }
  /// Whether everything was read, and nothing was wrong.
  bool ok() const { return ok_ && rest_.empty(); }

 private:
  void get(std::string& string) {
    const size_t size = rest_.size() < 4 ? 0 : number_at(rest_, 0);
    require(rest_.size() >= 4 && size <= rest_.size() - 4);
    string = ok_ ? rest_.substr(4, size) : "";
    if (ok_) rest_.remove_prefix(4 + size);
  }
  void get(double& number) {
    int64_t bits = 0;
    get(bits);
    number = std::bit_cast<double>(bits);
  }
  template <typename Value>
  void get(std::optional<Value>& value) {
    bool has = false;
    get(has);
    value.reset();
    if (has && ok_) get(value.emplace());
  }
  template <typename Value>
  void get(std::vector<Value>& values) {
    for (size_t left = count(); left > 0 && ok_; --left) get(values.emplace_back());
  }
  void get(std::map<std::string, std::string>& map) {
    for (size_t left = count(); left > 0 && ok_; --left) {
      std::string name;
      get(name);
      get(map[name]);
    }
  }
  template <typename Value>
  void get(Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      int number = 0;
      get(number);
      value = number != 0;
    } else if constexpr (std::is_enum_v<Value>) {
      int number = 0;
      get(number);
      value = static_cast<Value>(number);
    } else if constexpr (std::is_integral_v<Value>) {
      std::string digits;
      get(digits);
      value = 0;
      const char* end = digits.data() + digits.size();
      const auto [last, error] = std::from_chars(digits.data(), end, value);
      require(error == std::errc() && last == end);
      if (!ok_) value = 0;
    } else {
      fields(*this, value);
    }
  }
  /// A number of values that may follow: each has four bytes at least.
  size_t count() {
    size_t count = 0;
    get(count);
    require(count <= rest_.size() / 4);
    return ok_ ? count : 0;
  }

  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace tarantella::launch
