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
        for (const auto& [codes, scales] : {Operand{&Call::b, &Call::sfb}, Operand{&Call::a, &Call::sfa}}) {
            if (!is_mx((mx_.*scales).matrix)) continue;
            reencode(call_of(mx_.*codes, mx_.*scales, at, product.*codes, product.*scales, o));
            at += bytes_of(mx_.*codes);
            o.pdl = true;
        }
        return multiply(product);
    }

private:
    struct Operand {
        ConstStack Call::*codes;
        ConstStack Call::*scales;
    };
    static size_t bytes_of(const ConstStack& codes);
    /// That of one operand, which becomes `to` and `to_scales` in the memory `at`.
    static ReencodeCall call_of(const ConstStack& codes, const ConstStack& words, uint8_t* at, ConstStack& to,
                                ConstStack& to_scales, const ReencodeOptions& options);

    const Call& mx_;
    GemmOptions options_;  // of the product
};

}  // namespace finegemm
