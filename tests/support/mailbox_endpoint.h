#pragma once
// An endpoint through the memory of a node: for ranks of one machine that should not use it as memory, and for tests.
// Each rank has a mailbox from each other: a ring of bytes in which messages follow one another. A rank reads its
// mailboxes in every progress() and keeps what nobody has asked for yet, so a full mailbox never stops a tag for
// another.

#include <memory>

#include "transport/endpoint.h"
#include "transport/node_memory.h"

namespace tarantella::transport {

/// Collective over `memory`: maps the mailboxes. Does not wait for other ranks. Errors: kSystem.
Result<std::unique_ptr<Endpoint>> make_mailbox_endpoint(std::shared_ptr<NodeMemory> memory);

}  // namespace tarantella::transport
