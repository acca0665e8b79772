// check_values of an indexer's scores on a (mock) GPU: numbers are copied to the host and named there. Layer tests.
#include "support/hopper.h"
#include "support/mqa.h"

namespace finegemm {
namespace {

using test::contains;
using test::error_of;

class CheckMqa : public test::HopperTest {
protected:
    /// Makes matrices ones of the GPU, whose memory is the host's.
    template <typename Call>
    static Call checked(Call call) {
        visit_numbers(call, [](ConstMatrix& x) { x.device.type = DeviceType::Cuda; });
        call.check_values = true;
        return call;
    }
    std::unique_ptr<Backend> hopper = backend();
};

TEST_F(CheckMqa, NamesTheFirstWindowThatReachesOutside) {
    test::Random random(1);
    test::MqaProblem p(random);
    while (p.queries.count < 3) p = test::MqaProblem(random);
    for (int64_t i = 0; i < p.queries.count; ++i) p.starts.at(0, i) = 0, p.ends.at(0, i) = 1;
    p.starts.at(0, 1) = static_cast<int32_t>(p.keys + 5), p.ends.at(0, 1) = 0;  // sees nothing
    p.ends.at(0, 2) = static_cast<int32_t>(p.keys + 1);
    const Error e = error_of([&] { hopper->run(checked(p.call())); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(e, fmt::format("ends: [2] is {}, must be at most", p.keys + 1))) << e.what();
}

TEST_F(CheckMqa, NamesTheFirstPageThatIsNone) {
    test::Random random(2);
    test::PagedMqaProblem p(random);
    while (p.requests < 2) p = test::PagedMqaProblem(random);
    p.d = test::Logits(p.queries.logits, p.queries.count, p.most_pages * p.page_size, 0);
    for (int64_t b = 0; b < p.requests; ++b) {
        for (int64_t t = 0; t < p.lengths.view().cols; ++t) p.lengths.at(b, t) = 1;
        p.block_table.at(b, 0) = 0;
        for (int64_t page = 1; page < p.most_pages; ++page) p.block_table.at(b, page) = -1;  // behind the keys
    }
    p.block_table.at(1, 0) = static_cast<int32_t>(p.pages);
    const Error e = error_of([&] { hopper->run(checked(p.call())); });
    EXPECT_EQ(e.code(), Errc::InvalidArgument);
    EXPECT_TRUE(contains(e, fmt::format("block_table: [1, 0] is {}, must be from 0 to", p.pages))) << e.what();
}

TEST_F(CheckMqa, IsRefusedWhileAStreamCaptures) {
    test::Random random(3);
    test::MqaProblem p(random);
    mock->capturing = true;
    const Error e = error_of([&] { hopper->run(checked(p.call())); });
    mock->capturing = false;
    EXPECT_TRUE(contains(e, "check_values: copies numbers to the host")) << e.what();
}

}  // namespace
}  // namespace finegemm
