// Scales of a tile's rows that are neighbours in memory, in pieces of sixteen bytes: which lane copies which.
// Layer gemm. A group of rows may begin at any row, so its first scale may lie anywhere between two multiples of
// sixteen bytes. In a stage the scales lie as far behind such a multiple as in memory: then all but a few rows are
// copied four at a time.
#pragma once

#include <finegemm/gemm/roles.h>

namespace finegemm {

/// Scales that one copy has at most.
inline constexpr uint32_t kScalePiece = 4;

/// Floats from a stage's first one to the scale of a tile's first row.
inline FG_HD uint32_t scale_shift(const float* first) {
    return static_cast<uint32_t>(reinterpret_cast<uint64_t>(first) / sizeof(float)) % kScalePiece;
}

/// `existing` of a tile's `Rows` rows have scales, whose first lies `shift` floats into a piece.
template <uint32_t Rows>
struct ScaleCopyPlan {
    static constexpr uint32_t kPieces = ceil_div(Rows, kScalePiece* kWarpSize);  // that a lane copies
    uint32_t existing, shift;

    /// The offset of a lane's i-th piece in a stage: that of its first row is `shift`.
    FG_HD static constexpr uint32_t offset(uint32_t i, uint32_t lane) { return kScalePiece * (i * kWarpSize + lane); }
    /// Scales of that piece. The first piece and what is past the last are not whole unless shift is 0.
    FG_HD constexpr uint32_t count(uint32_t offset) const {
        const bool whole = offset >= shift && offset < Rows;
        const uint32_t end = existing + shift;
        return whole && offset < end ? min(end - offset, kScalePiece) : 0;
    }
    /// Rows that are in no piece are copied one by one, by as many lanes: `existing` or more if this lane has none.
    FG_HD constexpr uint32_t single(uint32_t lane) const {
        if (shift == 0 || lane >= kScalePiece) return existing;
        return lane < kScalePiece - shift ? lane : Rows - kScalePiece + lane;
    }
};

}  // namespace finegemm
