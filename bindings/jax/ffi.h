#pragma once
// The part of XLA's C interface for calls of foreign functions (FFI), version 0.1, that allreduce.cpp uses: declared
// here, since neither jaxlib nor XLA is needed to build. XLA keeps its structs stable: newer versions append to them,
// and take functions of older ones. The layouts are those of xla/ffi/api/c_api.h.

#include <cstddef>
#include <cstdint>

namespace tarantella::jax {

inline constexpr int kMajorVersion = 0;
inline constexpr int kMinorVersion = 1;

// XLA's own.
struct Error;
struct InternalApi;
struct ExecutionContext;

enum class ExtensionType : int { metadata = 1 };

struct Extension {
  size_t struct_size;
  ExtensionType type;
  Extension* next;
};

/// The first fields of every struct below.
struct Header {
  size_t struct_size;
  Extension* extension_start;
};

struct ApiVersion {
  Header header;
  int major_version;
  int minor_version;
};

struct Metadata {
  size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};

/// XLA asks a function for its version by a call with this extension.
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

enum class ErrorCode : int { internal = 13 };

struct ErrorCreateArgs {
  Header header;
  const char* message;  // copied
  ErrorCode code;
};

struct Api {
  Header header;
  ApiVersion api_version;
  InternalApi* internal_api;
  Error* (*error_create)(ErrorCreateArgs* args);
};

struct Buffer {
  Header header;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Scalar {
  int dtype;
  void* value;
};

inline constexpr int kScalar = 3;  // the type of an attribute

struct ByteSpan {
  const char* data;
  size_t size;
};

/// Arguments, or results: all of them are buffers.
struct Buffers {
  Header header;
  int64_t size;
  int* types;
  Buffer** buffers;
};

struct Attributes {
  Header header;
  int64_t size;
  int* types;
  ByteSpan** names;  // sorted
  void** values;
};

struct CallFrame {
  Header header;
  const Api* api;
  ExecutionContext* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

}  // namespace tarantella::jax
