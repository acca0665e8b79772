// A product with MX scales as that of the same numbers with scales for 128 of K. Layer engine.
#pragma once

#include "ops/gemm/call.h"
#include "ops/quantize/call.h"

namespace finegemm {

/// A call that has been checked, in that form. The operands that are re-encoded lie in memory of `bytes`.
class ReencodedCall {
public:
    explicit ReencodedCall(const Call& mx) : mx_(mx), options_(mx.options) {
        options_.pdl = true, options_.prefetch_weights = false;  // a launch before writes them
    }
    size_t bytes() const;
    /// Starts the launches in their order: `reencode` of operands, then `multiply`, which depends on them.
    template <typename Reencode, typename Multiply>
    decltype(auto) run(void* memory, const Reencode& reencode, const Multiply& multiply) const {
        Call product(mx_, options_);
        auto* at = static_cast<uint8_t*>(memory);
        ReencodeOptions o{.stream = mx_.options.stream, .pdl = mx_.options.pdl, .poll = mx_.options.poll};
        for (const Operand& x : kOperands) {
            if (!is_mx((mx_.*x.scales).matrix)) continue;
            reencode(call_of(x, at, product, o));
            at += bytes_of(x);
            o.pdl = true;
        }
        return multiply(product);
    }

private:
    using Member = ConstStack(Call::*);
    struct Operand {
        Member codes, scales;
    };
    static constexpr Operand kOperands[] = {{&Call::b, &Call::sfb}, {&Call::a, &Call::sfa}};

    size_t bytes_of(const Operand& x) const;
    /// Kernels for groups of rows read scales of B row by row fastest, others column by column.
    bool has_row_major_scales(const Operand& x) const { return mx_.of_rows() && x.codes == &Call::b; }
    /// That of one operand, which `product` then has, in the memory `at`.
    ReencodeCall call_of(const Operand& operand, uint8_t* at, Call& product, const ReencodeOptions& options) const;

    const Call& mx_;
    GemmOptions options_;  // of the product
};

}  // namespace finegemm
