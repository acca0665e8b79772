// -inf where there are no logits, by warps that load: bulk stores, a few for each tile that they load, so that memory
// takes them while tensor cores work. Layer device.
#pragma once

#include <finegemm/device/mqa/shared.cuh>
#include <finegemm/device/ptx/convert.cuh>
#include <finegemm/device/ptx/tma.cuh>

namespace finegemm::device {

/// The bits of two -inf.
template <MqaConfig C>
__device__ void prepare_fill(const MqaParams& p, const MqaShared<C>& smem) {
    const uint32_t infinities = p.bf16 ? 0xff80ff80u : 0xff800000u;
    for (uint32_t at = threadIdx.x * 16; at < kMqaFillBytes; at += kMqaWarpgroups * 128 * 16)
        ptx::store_shared_words_x4(smem.fill() + at, {infinities, infinities, infinities, infinities});
    ptx::fence_proxy_async_shared();
}

/// Every so many pieces of rows, by one warp. Rows are cut, as there may be fewer of them than warps that fill.
template <MqaKeys Keys>
class MqaFill {
public:
    __device__ MqaFill(const MqaParams& p, SmemAddr infinities, uint32_t warp)
        : p_(p), infinities_(infinities), row_(p.rows), col_(0) {
        if (p.fill) row_ = 0, advance(blockIdx.x + gridDim.x * warp);
    }

    /// Fills what one store can of the piece that is next; false when all are filled.
    __device__ bool step() {
        if (row_ >= p_.rows) return false;
        const uint32_t piece = col_ / piece_cols(), piece_end = min(piece_cols() * (piece + 1), p_.width);
        const uint32_t item = row_ / p_.item_queries;
        const MqaWindow seen = p_.window<Keys>(item, row_ - item * p_.item_queries);
        if (col_ >= seen.begin) col_ = max(col_, seen.end);
        const uint32_t end = min(col_ < seen.begin ? seen.begin : p_.width, piece_end);
        if (col_ < end) {
            const uint32_t count = min(end - col_, kMqaFillBytes / p_.element_bytes());
            fill(count);
            col_ += count;
        }
        if (col_ >= piece_end) {
            col_ = piece * piece_cols();
            advance(gridDim.x * kMqaWarpgroups);
        }
        return true;
    }
    /// The rest. Shared memory is read until then.
    __device__ void finish() {
        while (step()) {}
        ptx::bulk_wait_read();
    }

private:
    __device__ uint32_t piece_cols() const { return kMqaFillPiece / p_.element_bytes(); }
    /// To the begin of the piece that is so many further.
    __device__ void advance(uint32_t pieces) {
        const uint32_t of_row = ceil_div(p_.width, piece_cols()), piece = col_ / piece_cols() + pieces;
        row_ += piece / of_row;
        col_ = piece % of_row * piece_cols();
    }
    /// Elements from this column on: sixteen aligned bytes at a time, and single ones before and behind them.
    __device__ void fill(uint32_t count) const {
        const uint32_t bytes_log2 = p_.bf16 ? 1 : 2, lane = threadIdx.x % kWarpSize;
        uint8_t* const to = p_.logits + row_ * p_.logits_stride + (static_cast<uint64_t>(col_) << bytes_log2);
        const uint32_t to_aligned = static_cast<uint32_t>(-reinterpret_cast<uint64_t>(to)) % 16 >> bytes_log2;
        const uint32_t head = min(to_aligned, count), body = (count - head) << bytes_log2 & ~15u;
        const uint32_t tail = count - head - (body >> bytes_log2);
        store(lane < head, to + (lane << bytes_log2));
        store(lane < tail, to + (head << bytes_log2) + body + (lane << bytes_log2));
        if (lane == 0 && body > 0) {
            ptx::bulk_store(to + (head << bytes_log2), infinities_, body);
            ptx::bulk_commit_group();
        }
    }
    __device__ void store(bool wanted, void* to) const {
        if (p_.bf16) ptx::store_global_half_if(wanted, to, 0xff80);
        else ptx::store_global_if(wanted, to, 0xff800000u);
    }

    const MqaParams& p_;
    SmemAddr infinities_;
    uint32_t row_, col_;
};

}  // namespace finegemm::device
