// TarantellaGather: rows of this rank in, those of all ranks out, in rank order. Of each part the first `rows` rows are
// taken: none where what this rank has is a copy. `counts` are the numbers of rows of the ranks, for each part.
// TarantellaSumRows: rows of all ranks in, as TarantellaGather outputs them, and their sums over the ranks out. It is
// the gradient of TarantellaGather.
//
// The kernels are asynchronous, as that of TarantellaAllreduce. The ops are marked stateful, so that TensorFlow neither
// drops nor merges them; Python keeps them in the order of the trace, which is the same on all ranks.

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "c_api.h"
#include "tarantella/tarantella.h"

namespace tarantella::tensorflow {
namespace {

struct Attributes {
  uint64_t context = 0;
  int64_t ranks = 0;
  std::string what;
  bool sums = false;
};

/// The types and the shapes of the rows of tensors.
class Parts {
 public:
  /// Of the first rows, `most` of them at most, of tensors with an axis of rows, which must outlive it.
  Parts(const std::vector<TF_Tensor*>& tensors, int64_t most) {
    for (TF_Tensor* const tensor : tensors) {
      auto& shape = shapes_.emplace_back();
      for (int d = 1; d < api()->TF_NumDims(tensor); ++d) shape.push_back(api()->TF_Dim(tensor, d));
      names_.push_back("part " + std::to_string(names_.size()));
      data_.push_back(api()->TF_TensorData(tensor));
      rows_.push_back(static_cast<uint64_t>(std::min(most, api()->TF_Dim(tensor, 0))));
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      parts_.push_back({names_[i].c_str(), dtype_of(api()->TF_TensorType(tensors[i])), shapes_[i].data(),
                        shapes_[i].size()});
  }
  const tnt_tensor* parts() const { return parts_.data(); }
  const void* const* data() const { return data_.data(); }
  const uint64_t* rows() const { return rows_.data(); }

 private:
  std::vector<std::vector<int64_t>> shapes_;
  std::vector<std::string> names_;
  std::vector<const void*> data_;
  std::vector<uint64_t> rows_;
  std::vector<tnt_tensor> parts_;
};

/// One run of a kernel, from compute() until TensorFlow's done callback has run and the core has released the tensors.
class Run {
 public:
  Run(const Attributes& attributes, TF_OpKernelContext* context, Done done)
      : attributes_(attributes),
        context_(context),
        done_(std::move(done)),
        inputs_(std::in_place, context, status_) {
    for (size_t i = attributes.sums ? 1 : 3; i < inputs_->tensors().size(); ++i)
      parts_.push_back(inputs_->tensors()[i]);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// The run deletes itself when it has ended, which may be before this returns.
  void start();

 private:
  static int allocate(void* run, const uint64_t* rows, void** outputs);
  static void on_done(void* run, tnt_code code, const char* message, const void* result);
  static void on_released(void* run) { static_cast<Run*>(run)->let_go(); }
  tnt_code gather();
  tnt_code sum();
  int64_t number_in(size_t input) const {
    return *static_cast<const int64_t*>(api()->TF_TensorData(inputs_->tensors()[input]));
  }
  /// Whether TensorFlow has memory for `rows` rows like those of part `i`; then *data is its address.
  bool output_like(size_t i, int64_t rows, void** data);
  bool output(int index, int type, const std::vector<int64_t>& dims, void** data);
  void end();
  /// Deletes the run if nothing else uses it.
  void let_go() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  ~Run() { delete_outputs(); }
  void delete_outputs() {
    for (TF_Tensor* const output : std::exchange(outputs_, {})) api()->TF_DeleteTensor(output);
  }

  const Attributes& attributes_;
  TF_OpKernelContext* const context_;
  Done done_;
  TfStatus status_{*api()};
  std::optional<Inputs>
      inputs_;  ///< the number of the step; for a gather that of the rows and the share; the parts
  std::vector<TF_Tensor*> parts_;
  std::vector<TF_Tensor*> outputs_;  ///< what the context has, too
  std::atomic<int> users_{1};        ///< the run of the kernel; a sum that the core has not released
};

void Run::start() {
  for (const TF_Tensor* const part : parts_)
    if (status_.ok() && api()->TF_NumDims(part) == 0)
      status_.set(kInvalidArgument, "a value without an axis of rows cannot be gathered");
  if (!status_.ok()) return end();
  const tnt_code code = attributes_.sums ? sum() : gather();
  if (code == TNT_OK) return;
  if (status_.ok()) status_.set(code == TNT_INVALID_ARGUMENT ? kInvalidArgument : kAborted, tnt_last_error());
  end();
}

tnt_code Run::gather() {
  const Parts own(parts_, number_in(1));
  return tnt_allgather_rows(attributes_.context, attributes_.what.c_str(), own.parts(), own.data(),
                            own.rows(), parts_.size(), static_cast<uint32_t>(number_in(0)), allocate, on_done,
                            this);
}

tnt_code Run::sum() {
  std::vector<void*> outputs(parts_.size());
  for (size_t i = 0; i < parts_.size(); ++i)
    if (!output_like(i, api()->TF_Dim(parts_[i], 0), &outputs[i])) return TNT_OUT_OF_MEMORY;
  const Parts own(parts_, std::numeric_limits<int64_t>::max());
  users_.fetch_add(1, std::memory_order_relaxed);
  return tnt_sum_rows(attributes_.context, attributes_.what.c_str(), own.parts(), own.data(), outputs.data(),
                      own.rows(), parts_.size(), static_cast<uint32_t>(number_in(0)), on_done, on_released,
                      this);
}

int Run::allocate(void* user, const uint64_t* rows, void** outputs) {
  Run& run = *static_cast<Run*>(user);
  const size_t parts = run.parts_.size();
  const auto ranks = static_cast<size_t>(run.attributes_.ranks);
  void* told = nullptr;
  if (!run.output(0, kInt64, {static_cast<int64_t>(parts), run.attributes_.ranks}, &told)) return 0;
  auto* const counts = static_cast<int64_t*>(told);
  for (size_t i = 0; i < parts; ++i) {
    for (size_t rank = 0; rank < ranks; ++rank)
      counts[i * ranks + rank] = static_cast<int64_t>(rows[rank * parts + i]);
    const int64_t total = std::accumulate(counts + i * ranks, counts + (i + 1) * ranks, int64_t{0});
    if (!run.output_like(i, total, &outputs[i])) return 0;
  }
  return 1;
}

bool Run::output_like(size_t i, int64_t rows, void** data) {
  std::vector<int64_t> dims = {rows};
  for (int d = 1; d < api()->TF_NumDims(parts_[i]); ++d) dims.push_back(api()->TF_Dim(parts_[i], d));
  const int index = static_cast<int>(i) + (attributes_.sums ? 0 : 1);
  return output(index, api()->TF_TensorType(parts_[i]), dims, data);
}

bool Run::output(int index, int type, const std::vector<int64_t>& dims, void** data) {
  size_t bytes = api()->TF_DataTypeSize(type);
  for (const int64_t dim : dims) bytes *= static_cast<size_t>(dim);
  TF_Tensor* const made = api()->TF_AllocateOutput(context_, index, type, dims.data(),
                                                   static_cast<int>(dims.size()), bytes, status_.get());
  if (made == nullptr) return false;
  outputs_.push_back(made);
  *data = api()->TF_TensorData(made);
  return status_.ok();
}

void Run::on_done(void* user, tnt_code code, const char* message, const void*) {
  Run& run = *static_cast<Run*>(user);
  if (code != TNT_OK) run.status_.set(kAborted, message);
  run.end();
}

void Run::end() {
  if (status_
          .ok()) {  // TensorFlow may use the memory again; after an error other machines may still receive it
    inputs_.reset();
    delete_outputs();
  } else {
    api()->TF_OpKernelContext_Failure(context_, status_.get());
  }
  Done done = std::move(done_);
  let_go();
  call(done);
}

void compute(void* kernel, TF_OpKernelContext* context, TF_AsyncOpKernelDoneCallback* done) {
  (new Run(*static_cast<Attributes*>(kernel), context, moved_out(done)))->start();
}

template <bool kSums>
void* create(TF_OpKernelConstruction* construction) {
  TfStatus status(*api());
  auto attributes = std::make_unique<Attributes>();
  attributes->sums = kSums;
  int64_t context = 0;
  int32_t count = 0;
  int32_t length = 0;
  api()->TF_OpKernelConstruction_GetAttrInt64(construction, "context", &context, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrInt64(construction, "ranks", &attributes->ranks, status.get());
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrSize(construction, "what", &count, &length, status.get());
  attributes->what.resize(static_cast<size_t>(std::max(length, 0)));
  if (status.ok())
    api()->TF_OpKernelConstruction_GetAttrString(construction, "what", attributes->what.data(),
                                                 attributes->what.size(), status.get());
  attributes->context = static_cast<uint64_t>(context);
  if (status.ok()) return attributes.release();
  api()->TF_OpKernelConstruction_Failure(construction, status.get());
  return nullptr;
}

void destroy(void* kernel) { delete static_cast<Attributes*>(kernel); }

void shapes_of_parts(TF_ShapeInferenceContext* context, TF_Status* status) {
  pass_shapes(context, 1, api()->TF_ShapeInferenceContextNumInputs(context) - 1, status);
}

bool register_gather() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaGather");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list(type)");
  api()->TF_OpDefinitionBuilderAddAttr(op, "context: int");  // the core's number for it
  api()->TF_OpDefinitionBuilderAddAttr(op, "ranks: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "what: string");
  api()->TF_OpDefinitionBuilderAddAttr(op, "replicated: bool");  // for Python, which makes the gradient
  api()->TF_OpDefinitionBuilderAddInput(op, "step: int64");
  api()->TF_OpDefinitionBuilderAddInput(op, "rows: int64");
  api()->TF_OpDefinitionBuilderAddInput(op, "share: double");  // as `replicated`
  api()->TF_OpDefinitionBuilderAddInput(op, "parts: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "counts: int64");
  api()->TF_OpDefinitionBuilderAddOutput(op, "rows_of_all: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, unknown_shapes);
  api()->TF_OpDefinitionBuilderSetIsStateful(op, true);
  return register_op(
      op, "TarantellaGather",
      api()->TF_NewAsyncKernelBuilder("TarantellaGather", "CPU", create<false>, compute, destroy));
}

bool register_sum() {
  if (api() == nullptr) return false;
  TF_OpDefinitionBuilder* op = api()->TF_NewOpDefinitionBuilder("TarantellaSumRows");
  api()->TF_OpDefinitionBuilderAddAttr(op, "T: list({float, double, half, bfloat16})");
  api()->TF_OpDefinitionBuilderAddAttr(op, "context: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "ranks: int");
  api()->TF_OpDefinitionBuilderAddAttr(op, "what: string");
  api()->TF_OpDefinitionBuilderAddInput(op, "step: int64");
  api()->TF_OpDefinitionBuilderAddInput(op, "parts: T");
  api()->TF_OpDefinitionBuilderAddOutput(op, "sums: T");
  api()->TF_OpDefinitionBuilderSetShapeInferenceFunction(op, shapes_of_parts);
  api()->TF_OpDefinitionBuilderSetIsStateful(op, true);
  return register_op(
      op, "TarantellaSumRows",
      api()->TF_NewAsyncKernelBuilder("TarantellaSumRows", "CPU", create<true>, compute, destroy));
}

[[maybe_unused]] const bool registered = register_gather() && register_sum();

}  // namespace
}  // namespace tarantella::tensorflow
