// Random matrices and ragged groups, the same on every machine for the same seed. Layer cli.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <finegemm/gemm.h>

#include "cli/files/files.h"

namespace finegemm::cli {

inline constexpr int64_t kScaleBlock = 128;  // elements of a row that share a scale; groups of K have whole blocks

/// The blocks of scales that `extent` elements take, the last one begun counted.
constexpr int64_t blocks_of(int64_t extent) { return (extent + kScaleBlock - 1) / kScaleBlock; }

/// random_matrix repeats its values after so many, a prime number: no two rows or blocks near one another are alike,
/// and large matrices are quick.
inline constexpr int64_t kRandomPeriod = 4'194'301;

/// Standard normal values, f32.
HostMatrix random_matrix(int64_t rows, int64_t cols, uint64_t seed);

/// A row of kRandomPeriod of them, in bf16.
HostMatrix random_bf16(uint64_t seed);

/// Takes `to` from a long row of random values, cyclically, beginning at one of them.
void fill(HostMatrix& to, const HostMatrix& random, int64_t first);

/// `m` rows, or other things, divided among groups at random. Some have none; of several groups at least one.
std::vector<int64_t> ragged_sizes(int64_t m, int64_t groups, uint64_t seed);
/// K divided among groups at random, in whole blocks.
std::vector<int64_t> ragged_k(int64_t k, int64_t groups, uint64_t seed);

/// `count` of `all` numbers from 0 on, in any order; some twice, some -1.
std::vector<int32_t> any_numbers(int64_t count, int64_t all, uint64_t seed);
/// None twice, none -1.
std::vector<int32_t> different_numbers(int64_t count, int64_t all, uint64_t seed);

/// Number of groups that are not empty.
int64_t busy_groups(const std::vector<int64_t>& sizes);

/// Forms of groups by the names that --form takes.
inline const std::map<std::string, GroupForm> kForms = {{"offsets", GroupForm::Offsets},
                                                        {"indices", GroupForm::Indices},
                                                        {"prefix-sums", GroupForm::PrefixSums},
                                                        {"masked", GroupForm::Masked},
                                                        {"whole", GroupForm::Whole}};

/// As many rows for each group. Throws Error(InvalidArgument) where there is a rest.
std::vector<int64_t> equal_sizes(int64_t m, int64_t groups);

/// Groups of these sizes in one form, with no more rows than it needs.
struct RaggedRows {
    GroupForm form = GroupForm::Offsets;
    int64_t rows = 0;    // of each matrix A, those of no group among them
    int64_t stacks = 1;  // matrices A
    std::vector<int32_t> numbers{};
};
inline constexpr int64_t kRowAlignment = 128;  // of groups in the forms that have one, unless another is asked for
/// `form`: a value of --form.
RaggedRows rows_in_form(const std::string& form, const std::vector<int64_t>& sizes, int64_t alignment = kRowAlignment);

}  // namespace finegemm::cli
