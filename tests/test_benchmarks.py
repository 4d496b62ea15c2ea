"""The benchmarks' own arithmetic, their report, and two of their parts run small."""

from __future__ import annotations

import random
import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest

from benchmarks import __main__ as command
from benchmarks import imports, svg
from benchmarks.contended import judged
from benchmarks.contestants import named
from benchmarks.contestants.bare import ETCD
from benchmarks.contestants.ours import label
from benchmarks.cycles import block_of
from benchmarks.findings import Findings, Section, at_most, unmeasured
from benchmarks.measure import Plan, Results, Samples, Spread, interleave
from benchmarks.report import FROM_HERE, TO_HERE, as_markdown, in_short, put_between_marks
from tests.servers import Cluster

_SVG = "{http://www.w3.org/2000/svg}"


def rounds(*medians: float) -> list[Samples]:
    """Rounds of three cycles each, with that median and one that took far too long."""
    return [Samples([median / 2, median, 99.0], median / 10) for median in medians]


def test_ratio_is_the_median_of_the_rounds_ratios() -> None:
    """A round is compared with the same round: a slow machine slows both sides of it."""
    results = Results({"ours": rounds(1.0, 20.0, 3.0), "theirs": rounds(2.0, 40.0, 3.0)})
    assert results.ratio("ours", "theirs") == Spread(0.5, 0.5, 0.75)
    assert results.ratio("theirs", "theirs") == Spread(1.0, 1.0, 1.0)
    assert results.cpu_each("theirs") == 0.3


def test_floor_beyond_its_bound_is_marked_as_missed() -> None:
    """The floors table says of each figure whether it is met, and of an unmeasured one neither."""
    met = at_most("light", 1.15, Spread(1.15, 1.0, 1.3))
    missed = at_most("heavy", 30, 30.1)
    unknown = unmeasured("unknown", 1.6, "there is no Go toolchain")
    report = as_markdown(Findings(floors=[met, missed, unknown]), ["seed 1"])
    assert [floor.missed for floor in (met, missed, unknown)] == [False, True, False]
    assert "| light | ≤ 1.15 | 1.15 (1.00–1.30) | met |" in report
    assert "| heavy | ≤ 30 | 30.1 | **MISSED** |" in report
    assert "| unknown | ≤ 1.6 | not measured: there is no Go toolchain | – |" in report


def test_report_names_who_was_absent_once_for_each_reason() -> None:
    """Those who could not take part stand in the report, with how to get them."""
    found = Findings([Section("Cycle", ["| a |"])], absent={"Go Mutex": "no Go", "Go Election": "no Go"})
    report = as_markdown(found, [])
    assert "- Go Election, Go Mutex: no Go\n" in report
    assert report.index("## Cycle") < report.index("## Absent")


@pytest.mark.parametrize("log_y", [False, True])
def test_lines_are_a_well_formed_svg(log_y: bool) -> None:
    """Every series is drawn within the page, and its name is text, whatever is in it."""
    series = {"lock <&>": [(10.0, 5.0), (1000.0, 5.5)], "one point": [(10.0, 3.0)]}
    root = ElementTree.fromstring(svg.lines(svg.Lines("Work", "waiters", "requests", series, log_y=log_y)))
    drawn = [element.attrib["points"] for element in root.iter(f"{_SVG}polyline")]
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert len(drawn) == len(series)
    for x, y in (point.split(",") for points in drawn for point in points.split()):
        assert 0 <= float(x) <= width
        assert 0 <= float(y) <= height
    assert "lock <&>" in [element.text for element in root.iter(f"{_SVG}text")]


def test_bars_are_as_long_as_their_values() -> None:
    """A bar of twice the value is twice as long."""
    root = ElementTree.fromstring(svg.bars("Cycle", {"tenure lock": 1.0, "peer": 2.0}, unit="×", mark=1.0))
    short, long = (float(element.attrib["width"]) for element in root.iter(f"{_SVG}rect"))
    assert long == pytest.approx(2 * short)


def test_hand_over_is_from_release_to_the_next_one_who_waited() -> None:
    """Who came after the release took a free lock: that is no hand-over. What ends too late does not count."""
    first = [(0.0, 1.0, 2.0, 7), (5.0, 5.1, 5.2, 9)]
    second = [(0.5, 2.25, 3.0, 8), (5.15, 99.0, 99.5, 10)]
    found = judged([first, second], seats=1, until=10.0, seconds=10.0)
    assert found.hand_overs == [0.25]
    assert found.in_order is True
    assert found.evenness == pytest.approx(9 / 10)  # two turns and one


def test_turns_out_of_token_order_are_told() -> None:
    """First come, first served, by the store's own order."""
    found = judged([[(0.0, 1.0, 2.0, 8)], [(0.0, 3.0, 4.0, 7)]], seats=1, until=10.0, seconds=10.0)
    assert found.in_order is False


def test_cycles_of_a_lock_and_of_its_floor_are_compared(singles: dict[str, Cluster]) -> None:
    """A lock on a real etcd takes as long as the two requests it is made of, or longer."""
    endpoint = singles["etcd"].endpoints[0]
    lock = label("lock")
    with ExitStack() as stack:
        blocks = {name: block_of(named(name), endpoint, stack) for name in (ETCD, lock)}
        results = interleave(blocks, Plan(rounds=2, block_seconds=0.02), random.Random(1), lambda told: None)
    assert sorted(results.by_speed) == sorted((ETCD, lock))
    assert results.ratio(lock, ETCD).median > 0.1
    assert results.cpu_each(lock) > 0


def test_a_part_is_run_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs the parts that were asked for, writes the report, and exits with 0 where no floor is missed."""
    monkeypatch.setattr(imports, "MODULES", (imports.OURS, imports.AGAINST))
    report = tmp_path / "report.md"
    words = ["--only", "imports", "--quick", "--seed", "1", "--markdown", str(report), "--svg", str(tmp_path / "svg")]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    assert command.main() == 0
    text = report.read_text("utf-8")
    assert "| store clients that `import tenure` imports | ≤ 0 | 0 | met |" in text
    assert "| `import kazoo.client` | 1.00 (1.00–1.00) |" in text


def test_a_part_that_fails_is_told_and_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour of figures is not lost to the last of the parts; the exit code is 1."""

    def failing(_: object) -> Findings:
        raise RuntimeError("nobody had a turn")

    def fine(_: object) -> Findings:
        return Findings([Section("found", ["one line"])])

    monkeypatch.setitem(sys.modules, "benchmarks.imports", SimpleNamespace(run=failing))
    monkeypatch.setitem(sys.modules, "benchmarks.cycles", SimpleNamespace(run=fine))
    report = tmp_path / "report.md"
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "imports,cycles", "--markdown", str(report)])
    assert command.main() == 1
    told = report.read_text("utf-8")
    assert "failed: RuntimeError: nobody had a turn" in told
    assert "one line" in told


def test_a_report_goes_between_its_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One command renews the README's own report and the short one; what stands around the marks stays."""
    monkeypatch.setattr(imports, "MODULES", (imports.OURS, imports.AGAINST))
    pages = [tmp_path / "benchmarks" / "README.md", tmp_path / "README.md"]
    for page in pages:
        page.parent.mkdir(exist_ok=True)
        page.write_text(f"before\n{FROM_HERE}\nan old report\n{TO_HERE}\nafter\n", "utf-8")
    words = ["--only", "imports", "--quick", "--markdown", str(pages[0]), "--short", str(pages[1])]
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    assert command.main() == 0
    full, short = (page.read_text("utf-8") for page in pages)
    for text in (full, short):
        assert text.startswith(f"before\n{FROM_HERE}\n")
        assert text.endswith(f"\n{TO_HERE}\nafter\n")
        assert "an old report" not in text
    assert "\n#### Import\n" in full
    assert "#" not in short


def test_the_short_report_has_headlines_and_their_plots() -> None:
    """Of all floors those that count most, and plots as seen from where the report stands."""
    floors = [at_most("a headline", 1, 0.5, headline=True), at_most("a detail", 1, 0.5)]
    found = Findings([Section("Cycle", [])], floors, {"cycles-etcd.svg": "<svg/>", "takeover-etcd.svg": "<svg/>"})
    report = in_short(found, ["seed 1", "2 processors"], plots_from="benchmarks/plots")
    assert "| a headline | ≤ 1 | 0.5 | met |" in report
    assert "a detail" not in report
    assert "Measured on: seed 1; 2 processors." in report
    assert "![cycles-etcd](benchmarks/plots/cycles-etcd.svg)" in report
    assert "takeover" not in report


def test_a_page_without_its_second_mark_is_left_alone(tmp_path: Path) -> None:
    """Where the report would end nobody knows: nothing is written over."""
    page = tmp_path / "README.md"
    page.write_text(f"{FROM_HERE}\nwhat somebody wrote", "utf-8")
    with pytest.raises(ValueError, match="nothing was written"):
        put_between_marks(page, "a report")
    assert page.read_text("utf-8") == f"{FROM_HERE}\nwhat somebody wrote"


def test_a_page_without_marks_is_no_place_for_the_short_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Told before anything is started, not after an hour."""
    page = tmp_path / "README.md"
    page.write_text("no place", "utf-8")
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--short", str(page)])
    with pytest.raises(SystemExit):
        command.main()
    assert "has no marks between which to write" in capsys.readouterr().err


def test_a_part_that_does_not_exist_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped part ends the command before anything is started, and the sentence names those there are."""
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "cycle"])
    with pytest.raises(SystemExit):
        command.main()
    assert "no such part: cycle; there are imports, cycles" in capsys.readouterr().err
