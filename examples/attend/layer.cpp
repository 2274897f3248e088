#include "attend/layer.hpp"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "attend/options.hpp"
#include "support/npy.hpp"

namespace attend {
namespace {

npy::Array<float> read_tensor(const std::filesystem::path& file) {
  npy::Array<float> array = npy::read<float>(file);
  if (array.shape.size() != 4) {
    throw npy::FileError(file, "has shape " + npy::to_string(array.shape) +
                                   "; four dimensions expected: batch, heads, tokens, channels");
  }
  return array;
}

void expect(bool fits, const std::filesystem::path& file, const npy::Array<float>& array,
            const std::string& wanted, const std::filesystem::path& other_file,
            const npy::Array<float>& other) {
  if (fits) return;
  throw npy::FileError(file, "shape " + npy::to_string(array.shape) + " does not fit " +
                                 npy::to_string(other.shape) + " of " + other_file.string() + ": " + wanted);
}

}  // namespace

Layer load(const Options& options) {
  Layer layer{};
  layer.q = read_tensor(options.q);
  layer.k = read_tensor(options.k);
  layer.v = read_tensor(options.v);
  const std::vector<Index>& q = layer.q.shape;
  const std::vector<Index>& k = layer.k.shape;
  const std::vector<Index>& v = layer.v.shape;
  const auto k_fits_q = [&](bool fits, const char* wanted) {
    expect(fits, options.k, layer.k, wanted, options.q, layer.q);
  };
  const auto v_fits_k = [&](bool fits, const char* wanted) {
    expect(fits, options.v, layer.v, wanted, options.k, layer.k);
  };
  for (const auto& [file, array] :
       {std::pair{&options.q, &layer.q}, {&options.k, &layer.k}, {&options.v, &layer.v}}) {
    if (array->values.empty())
      throw npy::FileError(*file, "has shape " + npy::to_string(array->shape) + ": it is empty");
  }
  k_fits_q(k[0] == q[0], "the batches differ");
  k_fits_q(q[1] % k[1] == 0, "the query heads are no multiple of the key heads");
  k_fits_q(k[3] == q[3], "the channels differ");
  k_fits_q(q[2] <= k[2],
           "there are more queries than keys, and the queries are the last of the keys' tokens");
  v_fits_k(v[0] == k[0], "the batches differ");
  v_fits_k(v[1] == k[1], "the heads differ");
  v_fits_k(v[2] == k[2], "the tokens differ");
  layer.batch = q[0];
  layer.heads = q[1];
  layer.kv_heads = k[1];
  layer.q_len = q[2];
  layer.kv_len = k[2];
  layer.channels = q[3];
  layer.value_channels = v[3];

  if (!options.reference.empty()) {
    layer.reference = read_tensor(options.reference);
    if (layer.reference->shape != layer.out_shape()) {
      throw npy::FileError(options.reference, "has shape " + npy::to_string(layer.reference->shape) +
                                                  "; the output has " + npy::to_string(layer.out_shape()));
    }
  }
  return layer;
}

}  // namespace attend
