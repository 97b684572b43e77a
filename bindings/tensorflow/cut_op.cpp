// TarantellaCut: where a rank's rows of a global batch begin and how many there are, with a checksum of the batch. The
// rows themselves are cut by TensorFlow's Slice, which copies nothing where it can.
//
// This is one op, because every op of a dataset's function costs up to 0.5 ms per iterator and some microseconds per
// batch.

#include <algorithm>
#include <string>
#include <vector>

#include "c_api.h"
#include "common/checksum.h"

namespace tarantella::tensorflow {
namespace {

constexpr int kBool = 10;                         // TF_DataType
constexpr int64_t kRowsLimit = int64_t{1} << 31;  // as in data/rows.py

struct Cut {
  int64_t rank = 0;
  int64_t size = 1;
  bool positions = false;
  bool several_sizes = false;
};

/// A rank's rows of `total`, as rows_of_rank() in data/rows.py has them.
struct Share {
  int64_t start;
  int64_t rows;
  int64_t taken;  ///< at least one: a rank without rows takes a copy of the first

  Share(const Cut& cut, int64_t total) {
    rows = (total + cut.size - 1 - cut.rank) / cut.size;
    start = rows == 0 ? 0 : total / cut.size * cut.rank + std::min(total % cut.size, cut.rank);
    taken = std::max<int64_t>(rows, 1);
  }
};

/// Allocates an output of int64 or bool, and has it written by `fill`.
template <typename T, typename Fill>
void put(TF_OpKernelContext* context, int output, int type, const std::vector<int64_t>& dims,
         TfStatus& status, Fill fill) {
  size_t count = 1;
  for (const int64_t dim : dims) count *= static_cast<size_t>(dim);
  TF_Tensor* tensor = api()->TF_AllocateOutput(
      context, output, type, dims.data(), static_cast<int>(dims.size()), count * sizeof(T), status.get());
  if (status.ok()) fill(static_cast<T*>(api()->TF_TensorData(tensor)));
  if (tensor != nullptr) api()->TF_DeleteTensor(tensor);
}

bool fits(const Cut& cut, const std::vector<int64_t>& totals) {
  const auto every = [&](auto condition) { return std::all_of(totals.begin(), totals.end(), condition); };
  if (!every([](int64_t total) { return total > 0; })) return false;
  return every([&](int64_t total) { return total == totals[0]; }) ||
         (cut.several_sizes && every([&](int64_t total) { return total % cut.size == 0; }));
}

std::string refusal(const Cut& cut) {
  std::string text = "every part of a global batch must have the same number of rows, at least one";
  if (cut.several_sizes) text += ", or each a multiple of the " + std::to_string(cut.size) + " ranks";
  return text + "; put values that all rows share into the model, not into the batch";
}

void cut(const Cut& cut, TF_OpKernelContext* context, TfStatus& status) {
  const Inputs inputs(context, status);  // the number of the batch, then its parts
  if (!status.ok()) return;
  const std::vector<TF_Tensor*> parts(inputs.tensors().begin() + 1, inputs.tensors().end());
  std::vector<int64_t> totals;
  for (const TF_Tensor* part : parts)
    totals.push_back(api()->TF_NumDims(part) == 0 ? 0 : api()->TF_Dim(part, 0));
  if (totals.empty() || !fits(cut, totals)) return status.set(kInvalidArgument, refusal(cut).c_str());

  const int count = static_cast<int>(parts.size());
  for (int i = 0; i < count && status.ok(); ++i) {
    const Share share(cut, totals[static_cast<size_t>(i)]);
    const int64_t dims = api()->TF_NumDims(parts[static_cast<size_t>(i)]);
    put<int64_t>(context, i, kInt64, {dims}, status, [&](int64_t* begin) {
      std::fill_n(begin, dims, 0);
      begin[0] = share.start;
    });
    if (!status.ok()) return;
    put<int64_t>(context, count + i, kInt64, {dims}, status, [&](int64_t* sizes) {
      std::fill_n(sizes, dims, -1);
      sizes[0] = share.taken;
    });
  }
  if (!status.ok()) return;

  const int64_t index = *static_cast<const int64_t*>(api()->TF_TensorData(inputs.tensors()[0]));
  const Share share(cut, totals[0]);
  put<bool>(context, 2 * count, kBool, {}, status, [&](bool* is_padding) { *is_padding = share.rows == 0; });
  if (!status.ok()) return;
  if (cut.positions) {
    return put<int64_t>(context, 2 * count + 1, kInt64, {share.taken}, status, [&](int64_t* positions) {
      for (int64_t row = 0; row < share.taken; ++row)
        positions[row] = share.rows == 0 ? -1 : index * kRowsLimit + share.start + row;
    });
  }
  Checksum checksum;
  for (const TF_Tensor* part : parts) {
    const size_t bytes = api()->TF_TensorByteSize(part);
    if (bytes != 0) checksum.add(static_cast<const std::byte*>(api()->TF_TensorData(part)), bytes);
  }
  put<int64_t>(context, 2 * count + 1, kInt64, {3}, status, [&](int64_t* metadata) {
    metadata[0] = share.rows;
    metadata[1] = totals[0];
    metadata[2] = static_cast<int64_t>((2 * static_cast<uint64_t>(index) + 1) * checksum.value());
  });
}

void compute(void* kernel, TF_OpKernelContext* context) {
  TfStatus status(*api());
  cut(*static_cast<const Cut*>(kernel), context, status);
  if (!status.ok()) api()->TF_OpKernelContext_Failure(context, status.get());
}

void* create(TF_OpKernelConstruction* construction) {
  TfStatus status(*api());
  Cut made;
  const auto number = [&](const char* name, int64_t& value) {
    if (status.ok()) api()->TF_OpKernelConstruction_GetAttrInt64(construction, name, &value, status.get());
  };
  const auto flag = [&](const char* name, bool& value) {
    unsigned char found = 0;
    if (status.ok()) api()->TF_OpKernelConstruction_GetAttrBool(construction, name, &found, status.get());
    value = found != 0;
  };
  number("rank", made.rank);
  number("size", made.size);
  flag("positions", made.positions);
  flag("several_sizes", made.several_sizes);
  if (status.ok()) return new Cut(made);
  api()->TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void destroy(void* kernel) { delete static_cast<Cut*>(kernel); }

bool register_cut() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaCut");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  api()->TF_OpDefinitionBuilderAddAttr(op, "N: int");  // of parts
  api()->TF_OpDefinitionBuilderAddAttr(op, "rank: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "size: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "positions: bool");
  api()->TF_OpDefinitionBuilderAddAttr(op, "several_sizes: bool");
  api()->TF_OpDefinitionBuilderAddInput(op, "index: int64");
  api()->TF_OpDefinitionBuilderAddInput(op, "parts: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "begins: N * int64");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sizes: N * int64");
  api()->TF_OpDefinitionBuilderAddOutput(op, "is_padding: bool");
  api()->TF_OpDefinitionBuilderAddOutput(op, "metadata: int64");  // with `positions`, these
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown_shapes);
  return register_op(op, "TarantellaCut",
                     api()->TF_NewKernelBuilder("TarantellaCut", "CPU", create, compute, destroy));
}

[[maybe_unused]] const bool registered = register_cut();

}  // namespace
}  // namespace tarantella::tensorflow
