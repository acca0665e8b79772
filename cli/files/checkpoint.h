// Weights and scales as published FP8 checkpoints have them. Layer cli.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/files/files.h"

namespace finegemm::cli {

/// Values, or e4m3 codes with the scales that their checkpoint has for them.
struct Weights {
    HostMatrix values;
    std::optional<HostMatrix> scales;  // f32: [N/128, K/128] for 128x128 blocks, or [N, K/128]
    std::string found{};               // in words, of a checkpoint: which scales, of which type, for what
};

/// "FOLDER:TENSOR" of a folder, or what name_of_matrix takes.
MatrixName name_of_weights(const std::string& text);

/// A matrix of a file, or of a checkpoint: "FOLDER:TENSOR" where FOLDER has model.safetensors, or its shards and their
/// index. ".weight" may be left out of a name. Beside e4m3 codes lie their scales, as weight_scale_inv, weight_scale or
/// scale, all of which multiply: f32, bf16, f16 or e8m0 (also as u8), one for the tensor, for each row, for each
/// 128x128 block, or for each row and 128 columns. A name may end with a part, "TENSOR[100:300]" or
/// "TENSOR[100:300,128:256]": its scales are then of rows if it begins inside of a block. Throws Error(Io) for scales
/// that are none of these, and for no part.
Weights read_weights(const MatrixName& name, std::optional<DType> as = {});

/// Scales from a file for a matrix of so many rows and columns, in any of these forms; as they are where the shape is
/// none of them.
HostMatrix read_scales(const MatrixName& name, int64_t rows, int64_t cols);

/// Scales of blocks as scales of rows; others as they are.
HostMatrix row_scales(const HostMatrix& scales, int64_t rows);

/// The shard of each tensor, from the text of an index. Throws Error(Io) for text that is no index, and for a shard
/// that is not a name in its folder.
std::string shard_of(const std::string& index_file, std::string_view text, const std::string& tensor);

}  // namespace finegemm::cli
