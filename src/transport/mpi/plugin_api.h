#pragma once
// What a plugin offers to the core: the calls of MPI that an endpoint needs. Types and constants of MPI differ from one
// ABI to another, so plugin.cpp is compiled once for each ABI, and only what both sides know stands here. Nothing
// throws. After start() has returned, one thread at a time calls the functions.

#include <cstddef>
#include <cstdint>

extern "C" {

/// Grows with every change of this file. A plugin with another version is refused.
constexpr uint32_t kTntMpiVersion = 3;

/// A request, and a message that has been matched; both are pointers in every ABI of MPI.
using TntMpiRequest = void*;
using TntMpiMessage = void*;

/// A message that no receive has taken yet.
struct TntMpiArrival {
  bool found;
  int32_t from;
  int32_t tag;
  uint64_t length;
  TntMpiMessage message;
};

/// A request that has ended.
struct TntMpiEnd {
  int32_t index;    ///< of the request
  int32_t error;    ///< 0, or for describe()
  uint64_t length;  ///< of the message, if one was received
};

struct TntMpiJob {
  int32_t rank;
  int32_t size;
  bool alone;    ///< MPI knows no other process on this host, so none shares memory with this one
  bool at_end;   ///< MPI has been finalized: it cannot start again
  bool threads;  ///< more threads than one may call MPI, one at a time
};

/// Functions that return an int return 0 or an error of MPI, for describe().
struct TntMpi {
  uint32_t version;
  uint64_t longest;      ///< bytes of a message
  const void* resolved;  ///< an address in the library of MPI that this plugin has found
  /// Writes the text by which the library calls itself. Also before start().
  void (*library)(char* text, size_t capacity);
  /// Initializes MPI unless the program has, and makes a communicator. Blocks until all processes call it, without a
  /// limit. Most failures to initialize end the process, as MPI defines it.
  int (*start)(TntMpiJob* job);
  /// Starts to send a message.
  int (*isend)(const void* bytes, uint64_t length, int32_t to, int32_t tag, TntMpiRequest* request);
  /// As isend(), of a message that improbe() does not find: irecv_preposted() receives it.
  int (*isend_preposted)(const void* bytes, uint64_t length, int32_t to, int32_t tag, TntMpiRequest* request);
  /// Starts to receive the next such message of a process with a tag, of at most `length` bytes.
  int (*irecv_preposted)(void* bytes, uint64_t length, int32_t from, int32_t tag, TntMpiRequest* request);
  /// Takes the next message that has come, if any, from whomever. Moves bytes.
  int (*improbe)(TntMpiArrival* arrival);
  /// Starts to receive a message that improbe() has found, of at most `length` bytes.
  int (*imrecv)(void* bytes, uint64_t length, TntMpiMessage* message, TntMpiRequest* request);
  /// Tests `count` requests, and moves bytes. `ends` has room for `count`; `ended` is how many it got.
  int (*test)(int32_t count, TntMpiRequest* requests, TntMpiEnd* ends, int32_t* ended);
  /// Finalizes MPI if start() has initialized it.
  int (*finalize)();
  /// Whether isend() has failed with this error since nothing can leave for that process now: it may be called again.
  bool (*is_busy)(int error);
  /// Writes a text that ends with 0.
  void (*describe)(int error, char* text, size_t capacity);
};

/// The one symbol of a plugin: returns its table, which is never freed.
using TntMpiPlugin = const TntMpi* (*)();
}

constexpr const char* kTntMpiSymbol = "tarantella_mpi";
