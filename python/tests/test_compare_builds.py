"""bench/compare_builds.py: what it reads and what it makes of times; the times themselves take a GPU."""

import pytest

from support import program

compare = program("bench/compare_builds.py")


def test_a_case_is_a_shape_and_kernels():
    assert compare.case_of("64,2112,7168") == ((64, 2112, 7168), ["chosen"])
    kernels = ["m64n32s8w1_x2", "chosen"]
    assert compare.case_of(" 64,2112,7168:m64n32s8w1_x2,chosen\n") == ((64, 2112, 7168), kernels)


@pytest.mark.parametrize("text", ["64,2112", "64x2112x7168", "64,2112,7168:", "64,2112,7168:a,,b", "build.so"])
def test_what_is_no_case_is_said(text):
    with pytest.raises(SystemExit, match=f"'{text}' is no case: give M,N,K"):
        compare.case_of(text)


def test_cases_come_from_words_and_lines_else_they_are_the_dense_table():
    some = compare.cases_of(["1,2,3"], ["4,5,6:x", "", "  "])
    assert some == [((1, 2, 3), ["chosen"]), ((4, 5, 6), ["x"])]
    table = compare.cases_of([], [])
    assert len(table) == 84 and table[0] == ((1, 2112, 7168), ["chosen"])


class Build:
    """Has some kernels. As of the library's own calls, that another one is missing shows when it runs."""

    def __init__(self, *kernels):
        self.kernels = (None, *kernels)

    def prepare(self, a, d, config):
        def call():
            if config not in self.kernels:
                raise RuntimeError(f"config: '{config}' is not the name of a kernel")
            d.append((a, config))

        return call


def test_a_kernel_that_a_build_does_not_have_is_said_and_left_out(capsys):
    d = []
    calls = compare.runnable({"a": Build("old"), "b": Build("old", "new")}, ["chosen", "old", "new"], ("operand", d))
    assert list(calls) == [("chosen", "a"), ("chosen", "b"), ("old", "a"), ("old", "b"), ("new", "b")]
    assert capsys.readouterr().out == "new is left out of a: config: 'new' is not the name of a kernel\n"
    d.clear()
    calls["new", "b"]()
    assert d == [("operand", "new")]


TIMES = {("x", "a"): 10.0, ("x", "b"): 12.5, ("x", "c"): 10.004, ("y", "b"): 9.0, ("z", "a"): 8.0, ("z", "b"): 5.0}


def test_a_line_has_each_kernels_times_and_what_they_are_of_the_first_builds():
    rows = compare.rows_of((1, 2, 3), TIMES)
    assert rows[0] == {"shape": (1, 2, 3), "kernel": "x", "us": {"a": 10.0, "b": 12.5, "c": 10.0}}
    line = "1,2,3; x a 10.00 b 12.50 (1.250) c 10.00 (1.000); y b 9.00; z a 8.00 b 5.00 (0.625)"
    assert compare.line_of((1, 2, 3), rows, "a") == line


def test_ratios_are_geometric_means_over_what_both_builds_have():
    rows = compare.rows_of((1, 2, 3), TIMES)
    assert compare.ratios_of(rows, ["a", "b", "c"]) == {
        "b": {"geomean": 0.8839, "least": 0.625, "most": 1.25, "rows": 2},  # the root of 1.25 * 0.625
        "c": {"geomean": 1.0, "least": 1.0, "most": 1.0, "rows": 1},
    }
    assert compare.ratios_of(rows[1:2], ["a", "b"]) == {}, "they have no row in common"
