// One GEMM of any grouping on one device. Layer cli.
#include "cli/session.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <finegemm/error.h>
#include <fmt/format.h>

#include "cli/random.h"
#include "plan/fields.h"
#include "workbench/accuracy.h"

namespace finegemm::cli {

Session::Session(Context& context, const Target& target, const GemmShape& shape, const ProductOptions& product,
                 uint64_t seed)
    : context_(context),
      target_(target),
      shape_(shape),
      epilogue_(product.epilogue_for(shape)),
      host_epilogue_(epilogue_) {
    plan::check_shape(shape);
    whole_rows_ = product.has_whole_rows(shape);
    if (shape.groups) {
        make_row_groups(product.form, seed);
    } else if (shape.k_groups) {
        layout_ = product.layout == "blocks" ? KLayout::Blocks : KLayout::Columns;
        make_k_groups(seed);
    } else if (shape.summed) {
        make_sum(seed);
    } else {
        Operand a{random_matrix(shape.m, shape.k, seed), {}}, b{random_matrix(shape.n, shape.k, seed + 1), {}};
        make_dense(a, b);
    }
    store_layouts();
    make_epilogue(seed);
}

Session::Session(Context& context, const Target& target, Operand a, Operand b, const GemmShape& fields,
                 const ProductOptions& product, uint64_t seed)
    : context_(context),
      target_(target),
      shape_(fields),
      epilogue_(product.epilogue_for(fields)),
      host_epilogue_(epilogue_) {
    plan::check_fields(fields);
    whole_rows_ = product.has_whole_rows(fields);
    make_dense(a, b);
    store_layouts();
    make_epilogue(seed);
    if (!scaled() || shape_.b_mx) return;
    if (!are(is_scaled, a.values.dtype)) given_a_ = std::move(a.values);
    if (!are(is_scaled, b.values.dtype)) given_b_ = std::move(b.values);
}

Session::Part Session::make(DType dtype, int64_t count, int64_t rows, int64_t cols) const {
    return {mirrored(target_, dtype, count * rows, cols), count};
}

void Session::make_dense(Operand& a, Operand& b) {
    const int64_t m = a.values.rows, n = b.values.rows, k = a.values.cols;
    if (b.values.cols != k)
        throw Error(Errc::InvalidArgument,
                    fmt::format("A is [{}, {}] and B is [{}, {}]: both need the same number of columns, K; "
                                "B is [N, K], transpose it if it is [K, N]",
                                m, k, n, b.values.cols));
    shape_.m = m, shape_.n = n, shape_.k = k;
    if (b.scales && !shape_.b_mx) shape_.row_b_scales |= b.scales->rows == n;
    d_ = make(type_of_d(), 1, m, plan::width_of_d(epilogue_, n));
    load(a, "--a", type(), false, a_, sfa_);
    load(b, "--b", type_of_b(), !scales_rows_of_b(), b_, sfb_);
}

/// A SwiGLU is quantised.
DType Session::type_of_d() const {
    return pairs_columns(plan::finish_of(shape_)) ? DType::E4M3 : plan::result_type(shape_);
}

/// Numbers of rows, where the epilogue has any.
void Session::make_indices(uint64_t seed) {
    const auto column = [](const Matrix& row) {
        return RowIndices{{row.data, DType::I32, row.cols, 1, 1, 1, row.device}};
    };
    plan::numbers_of_rows(
        [&](bool may_be_the_same, RowIndices& there, RowIndices& here) {
            if (!plan::is_given(there, {})) return;
            const auto numbers = may_be_the_same ? any_numbers(shape_.m, a_.host.rows, seed)
                                                 : different_numbers(shape_.m, d_.host.rows, seed);
            Mirrored& made = indices_.emplace_back(mirrored(target_, numbers));
            there = column(made.there), here = column(made.host.view());
        },
        epilogue_, host_epilogue_);
}

/// C has values as D has.
void Session::make_epilogue(uint64_t seed) {
    const HostMatrix random = random_matrix(1, kRandomPeriod, seed + 2), &d = d_.host;
    const auto add = [&](Part part, int64_t first) -> Part& {
        HostMatrix values = make_matrix(DType::F32, part.host.rows, part.host.cols);
        fill(values, random, first);
        round_to(part.host.view(), values.view());
        upload(target_, part.host, part.there);
        return added_.emplace_back(std::move(part));
    };
    const auto like_d = [&](const char*, ConstStack& there, ConstStack& here) {
        if (!plan::needs_c(epilogue_)) return;
        Part& part = add(make(d.dtype, d_.count, d.rows / d_.count, d.cols), 0);
        there = stack_of(part.there, part.count), here = stack_of(part.host.view(), part.count);
    };
    const auto row = [&](const char*, ConstMatrix& there, ConstMatrix& here) {
        if (there.rows == 0) return;
        Part& part = add(make(DType::F32, 1, 1, d.cols), 1);
        there = part.there, here = part.host.view();
    };
    const auto column = [&](const char*, RowNumbers& there, RowNumbers& here) {
        if (there.rows.matrix.rows == 0) return;
        Part& part = add(make(DType::F32, d_.count, shape_.m / d_.count, 1), 2);
        there = {stack_of(part.there, part.count)}, here = {stack_of(part.host.view(), part.count)};
    };
    plan::arguments_of<ConstStack>(like_d, epilogue_, host_epilogue_);
    plan::arguments_of<ConstMatrix>(row, epilogue_, host_epilogue_);
    plan::arguments_of<RowNumbers>(column, epilogue_, host_epilogue_);
    if (!pairs_columns(plan::finish_of(shape_))) return;
    plan::arguments_of<Stack>(
        [&](const char*, Stack& there, Stack& here) {
            Part& scales = scales_of_d_.emplace_back(make(DType::F32, d_.count, d.rows / d_.count, blocks_of(d.cols)));
            there = stack_of(scales.there, scales.count), here = stack_of(scales.host.view(), scales.count);
        },
        epilogue_, host_epilogue_);
}

void Session::load(Operand& x, const char* name, const ElementType& type, bool blocks, Part& q, Part& scales) {
    const bool ready = are(is_scaled, x.values.dtype);
    if (ready && type.scaled && x.values.dtype != type.dtype)
        throw Error(Errc::InvalidArgument, fmt::format("{} is {}, but the product is one of {}; set --dtype or "
                                                       "--dtype-of-b, or pass values, which are quantised here",
                                                       name, name_of(x.values.dtype), type.name));
    if (!scaled() && (x.scales || ready))
        throw Error(Errc::InvalidArgument,
                    fmt::format("{} {}, but a product of {} has no scales; leave --dtype out, or pass values", name,
                                ready ? "is " + name_of(x.values.dtype) : "has scales", type.name));
    if (x.scales && !ready)
        throw Error(
            Errc::InvalidArgument,
            fmt::format("{} is not {}, so it is quantised here and takes no scales; leave them out", name, type.name));
    const int64_t rows = x.values.rows, cols = x.values.cols, down = blocks ? blocks_of(rows) : rows;
    if (x.scales) check_scales(name, *x.scales, x.values, blocks);
    if (!scaled()) {
        q = make(type.dtype, 1, rows, cols);
        quantize(quantize_rows, x.values, x.values.view(), whole(q), {});
        return upload(target_, q.host, q.there);
    }
    const int64_t across = blocks ? blocks_of(cols) : columns_of_row_scales();
    HostMatrix& s = scales.host = x.scales ? std::move(*x.scales) : make_matrix(DType::F32, down, across);
    if (ready && !x.scales) std::fill_n(reinterpret_cast<float*>(s.bytes.data()), s.bytes.size() / sizeof(float), 1.0f);
    q.host = ready ? std::move(x.values) : make_matrix(type.dtype, rows, cols);
    q.there = allocate_on(target_, q.host);
    scales.there = allocate_on(target_, s);
    if (ready) {
        upload(target_, q.host, q.there);
        upload(target_, s, scales.there);
    } else {
        quantize(blocks ? quantize_blocks : quantize_rows, x.values, allocate_on(target_, x.values), whole(q),
                 whole(scales));
    }
}

/// On the target, and on a GPU's host too: what the GPU quantised is no reference for what it computes.
/// Without scales values are rounded on the host, and copied when all of an operand are.
void Session::quantize(Quantize* by, HostMatrix& x, const Matrix& there, const Both& q, const Both& scales) {
    if (!scaled()) {
        Matrix values = there;
        values.data = x.bytes.data();
        return round_to(q.host, values);
    }
    upload(target_, x, there);
    by(context_, there, q.there, scales.there, {.poll = target_.poll});
    if (!target_.gpu) return;
    Matrix here = there;
    here.data = x.bytes.data();
    here.device = {};
    by(context_, here, q.host, scales.host, {.poll = target_.poll});
}

void Session::make_row_groups(const std::string& form, uint64_t seed) {
    const int64_t n = shape_.n, k = shape_.k, groups = *shape_.groups;
    sizes_ = form == "whole" ? equal_sizes(shape_.m, groups) : ragged_sizes(shape_.m, groups, seed);
    if (shape_.alignment > 0) alignment_ = shape_.alignment;
    const RaggedRows rows = rows_in_form(form, sizes_, alignment_);
    form_ = rows.form;
    // Where numbers take rows, A has half as many; where they place rows, D has some more.
    const int64_t of_a = plan::takes_rows(epilogue_) ? (rows.rows + 1) / 2 : rows.rows,
                  of_d = plan::places_rows(epilogue_) ? rows.rows + 8 : rows.rows;
    a_ = make(type().dtype, rows.stacks, of_a, k);
    sfa_ = make_scales(rows.stacks, of_a, columns_of_row_scales());
    b_ = make(type_of_b().dtype, groups, n, k);
    sfb_ = scales_rows_of_b() ? make_scales(groups, n, columns_of_row_scales())
                              : make_scales(groups, blocks_of(n), blocks_of(k));
    d_ = make(type_of_d(), rows.stacks, of_d, plan::width_of_d(epilogue_, n));
    numbers_ = mirrored(target_, rows.numbers);
    if (shape_.expected_m == 0) shape_.expected_m = std::max<int64_t>(1, shape_.m / groups);
    shape_.m = rows.stacks * rows.rows;
    make_indices(seed);
    const bool aligned = form_ == GroupForm::Indices || form_ == GroupForm::PrefixSums;
    shape_.alignment = aligned ? alignment_ : 0;

    const HostMatrix random = random_matrix(1, kRandomPeriod, seed);
    HostMatrix x = make_matrix(DType::F32, a_.host.rows, k), w = make_matrix(DType::F32, n, k);
    const Matrix x_there = allocate_on(target_, x), w_there = allocate_on(target_, w);
    fill(x, random, 0);
    quantize(quantize_rows, x, x_there, whole(a_), whole(sfa_));
    for (int64_t g = 0; g < groups; ++g) {
        // Blocks of scales begin anew in each group. The copy waits for the product before it: one stream has both.
        fill(w, random, (g + 1) * (n * k + 1));
        const auto of_group = [&](const Matrix& all) { return part_of(all, groups, g); };
        quantize(scales_rows_of_b() ? quantize_rows : quantize_blocks, w, w_there, part(b_, of_group),
                 part(sfb_, of_group));
    }
    upload_rounded();
}

void Session::make_k_groups(uint64_t seed) {
    const int64_t m = shape_.m, n = shape_.n, k = shape_.k, groups = *shape_.k_groups;
    sizes_ = ragged_k(k, groups, seed);
    offsets_ = {0};
    for (const int64_t size : sizes_) offsets_.push_back(offsets_.back() + static_cast<int32_t>(size));
    a_ = make(type().dtype, 1, m, k);
    sfa_ = make_scales(1, m, k / kScaleBlock);
    b_ = make(type_of_b().dtype, 1, n, k);
    sfb_ = make_scales(1, n, k / kScaleBlock);
    d_ = make(plan::result_type(shape_), groups, m, n);
    numbers_ = mirrored(target_, offsets_);

    const HostMatrix random = random_matrix(1, kRandomPeriod, seed);
    quantize_k(random, 0, a_, sfa_);
    quantize_k(random, m * k + 1, b_, sfb_);
    upload_rounded();
}

void Session::make_sum(uint64_t seed) {
    const int64_t count = *shape_.summed, k = shape_.k / count;
    a_ = make(type().dtype, count, shape_.m, k);
    b_ = make(type_of_b().dtype, count, shape_.n, k);
    d_ = make(plan::result_type(shape_), 1, shape_.m, shape_.n);
    const HostMatrix random = random_matrix(1, kRandomPeriod, seed);
    int64_t first = 0;
    for (Part* x : {&a_, &b_}) {
        HostMatrix values = make_matrix(DType::F32, x->host.rows, k);
        fill(values, random, first);
        round_to(x->host.view(), values.view());
        first = shape_.m * shape_.k + 1;
    }
    upload_rounded();
}

void Session::upload_rounded() {
    if (scaled()) return;
    for (const Part* x : {&a_, &b_}) upload(target_, x->host, x->there);
}

/// Operands are made row-major; those that shall be MN-major are transposed then, scales that shall be MX replaced.
void Session::store_layouts() {
    if (shape_.a_mn_major) transpose(a_);
    if (shape_.b_mn_major) transpose(b_);
    if (shape_.a_mx) make_exponents(target_, sfa_);
    if (shape_.b_mx) make_exponents(target_, sfb_);
}

void Session::transpose(Part& x) {
    const int64_t rows = x.host.rows / x.count, cols = x.host.cols, pitch = (rows + 7) / 8 * 8;
    HostMatrix columns = make_matrix(x.host.dtype, x.count * cols, pitch);
    visit_codes(x.host.dtype, [&]<typename Type>(Type) {
        using Code = Type::Code;
        const auto* from = reinterpret_cast<const Code*>(x.host.bytes.data());
        auto* to = reinterpret_cast<Code*>(columns.bytes.data());
        for (int64_t i = 0; i < x.count; ++i)
            for (int64_t c = 0; c < cols; ++c)
                for (int64_t r = 0; r < rows; ++r) to[(i * cols + c) * pitch + r] = from[(i * rows + r) * cols + c];
    });
    x.host = std::move(columns);
    x.there = allocate_on(target_, x.host);
    x.mn_rows = rows;
    upload(target_, x.host, x.there);
}

/// A group after the other, as that is how they lie in blocks. The copy waits for the kernel before it.
void Session::quantize_k(const HostMatrix& random, int64_t first, Part& q, Part& scales) {
    HostMatrix x = make_matrix(DType::F32, q.host.rows, std::ranges::max(sizes_));
    Matrix there = allocate_on(target_, x);
    for (size_t g = 0; g < sizes_.size(); ++g) {
        const int64_t begin = offsets_[g];
        fill(x, random, first + q.host.rows * begin);
        there.cols = there.row_stride = sizes_[g];
        quantize(quantize_rows, x, there,
                 part(q, [&](const Matrix& all) { return k_part_of(all, layout_, begin, sizes_[g]); }),
                 part(scales, [&](const Matrix& all) {
                     return columns_of(all, begin / kScaleBlock, sizes_[g] / kScaleBlock);
                 }));
    }
}

Call Session::args(const GemmOptions& options, bool on_host) {
    const auto all = [&](Part& part) {
        Stack x = stack_of(on_host ? part.host.view() : part.there, part.count);
        if (part.mn_rows == 0) return x;
        Matrix& m = x.matrix;
        m.cols = std::exchange(m.rows, part.mn_rows);
        m.col_stride = std::exchange(m.row_stride, 1);
        return x;
    };
    const Stack a = all(a_), sfa = all(sfa_), b = all(b_), sfb = all(sfb_), d = all(d_);
    if (shape_.groups) {
        const Matrix numbers = on_host ? numbers_.host.view() : numbers_.there;
        return {GroupedGemmArgs{a,
                                sfa,
                                b,
                                sfb,
                                d,
                                {.form = form_,
                                 .data = static_cast<const int32_t*>(numbers.data),
                                 .size = numbers.cols,
                                 .alignment = alignment_,
                                 .expected_m = shape_.expected_m,
                                 .device = numbers.device}},
                options};
    }
    if (shape_.summed) return {SummedGemmArgs{a, b, d.matrix}, options};
    if (!shape_.k_groups) return {GemmArgs{a.matrix, sfa.matrix, b.matrix, sfb.matrix, d.matrix}, options};
    const bool host_offsets = on_host || layout_ == KLayout::Blocks;
    return {
        KGroupedGemmArgs{.a = a.matrix,
                         .sfa = sfa.matrix,
                         .b = b.matrix,
                         .sfb = sfb.matrix,
                         .d = d,
                         .offsets = host_offsets ? offsets_.data() : static_cast<const int32_t*>(numbers_.there.data),
                         .groups = d.count,
                         .offsets_device = host_offsets ? Device{} : numbers_.there.device,
                         .layout = layout_},
        options};
}

/// What the shape says of options, too.
GemmOptions Session::completed(GemmOptions options, bool on_host) {
    options.accumulate = shape_.accumulate;
    options.num_sms = shape_.num_sms;
    if (shape_.batch_invariant) options.batch_invariant = true;
    if (!options.poll) options.poll = target_.poll;
    options.epilogue = on_host ? host_epilogue_ : epilogue_;
    return options;
}

std::function<void()> Session::call(const GemmOptions& options) {
    return [this, all = completed(options, false)] { multiply(context_, args(all, false)); };
}

double Session::time(const GemmOptions& options, int repeats) {
    if (target_.gpu || !target_.poll) return median_time(target_, repeats, call(options));
    int done = 0;  // of one run more than the repeats
    GemmOptions shared = options;
    shared.poll = [&](double share) { target_.poll((done + share) / (repeats + 1)); };
    return median_time(target_, repeats, [&, run = call(shared)] {
        run();
        ++done;
    });
}

Call Session::fetch(const GemmOptions& options) {
    if (shape_.accumulate) {
        std::ranges::fill(d_.host.bytes, 0);
        upload(target_, d_.host, d_.there);
        call(options)();
    }
    download(target_, d_.host, d_.there);
    for (Part& scales : scales_of_d_) download(target_, scales.host, scales.there);
    wrong_operands_ = 0;
    for (const Part* operand : {&a_, &sfa_, &b_, &sfb_}) {
        if (!target_.gpu || operand->host.bytes.empty()) continue;
        HostMatrix there = operand->host;
        download(target_, there, operand->there);
        wrong_operands_ += differing_elements(there.view(), operand->host.view());
    }
    host_options_ = options;
    host_options_.epilogue = completed(options, true).epilogue;
    return args(host_options_, true);
}

std::optional<double> Session::error_of_quantization(int64_t max_rows) const {
    if ((!given_a_ && !given_b_) || !scales_of_d_.empty()) return {};
    const auto values = [](const std::optional<HostMatrix>& given, const Part& codes, const Part& scales) {
        return given ? Values{given->view(), {}} : Values{codes.host.view(), scales.host.view()};
    };
    const double error = error_of_values(d_.host.view(), plan::columns_of(epilogue_), values(given_a_, a_, sfa_),
                                         values(given_b_, b_, sfb_), max_rows);
    return std::isfinite(error) ? std::optional(error) : std::nullopt;  // there was nothing to compare with
}

}  // namespace finegemm::cli
