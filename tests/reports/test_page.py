"""The HTML report: whole, self-contained, safe with odd names, and sorted by a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from reports.page import report_page
from reports.page_words import title_of
from utils.errors import UserError

ODD = '<script>alert("x")</script> & "quoted"'
VOID = {"meta", "img", "br", "link", "input", "hr"}
CHROMIUM = shutil.which("chromium")
INCREASES = {
    "task": ["normal", "depth", "reshading", "edges", "curvature"],
    "over IID, %": ["+9.5 [+1.0, +18.0]", "-3.0 [-4.0, -2.0]", "–", "+10.25 [+1.0, +20.0]", "+1e1 [+1.0, +20.0]"],
    "version": ["10abc", "9abc", "x", "", "2"],
}


class Page(HTMLParser):
    """What a page holds; fails where an element is closed that was not the last to be opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.sources: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.scripts = 0
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag not in VOID:
            self.open.append(tag)
        self.scripts += tag == "script"
        self.sources += [given[name] or "" for name in ("src", "srcset", "data", "action") if name in given]
        self.links += [given["href"] or ""] if "href" in given else []
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.tables[-1][-1][-1] += data


def shown(text: str, act: str, folder: Path, *arguments: str) -> str:
    """A page as a browser has it after a script has run in it."""
    page = folder / "page.html"
    page.write_text(text.replace("</body>", f"<script>{act}</script></body>"), encoding="utf-8")
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
        "--dump-dom",
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder with two tables, a figure of a table, and runs of two stages and three seeds."""
    folder = tmp_path / "results"
    (folder / "tables").mkdir(parents=True)
    pd.DataFrame(INCREASES).to_csv(folder / "tables/increases.csv", index=False)
    pd.DataFrame({"a <b>": [1, 2], "c": ["<i>&amp;", "–"]}).to_csv(folder / "tables/own.csv", index=False)
    Image.new("RGB", (40, 20), "red").save(folder / "tables/comparison.png")
    for seed in (0, 1, 2):
        run = folder / f"test_federated/fedavg/normal/iid/seed{seed}"
        (run / "figures").mkdir(parents=True)
        args = {"task": "normal", "alpha": 0.1, "rand_seed": seed, "data_path": ODD if seed else "data"}
        (run / "args.json").write_text(json.dumps(args))
        made_with = {"code_version": {"engine": 3, "method FedAvg": 1}, "source_hash": "c" * 64}
        (run / "environment.json").write_text(json.dumps(made_with | {"packages": {"torch": "2.0"}}))
        Image.new("RGB", (2400, 20 + seed), "blue").save(run / "figures/loss.png")
        if seed < 2:
            (run / "summary.json").write_text("{}")
    central = folder / "train_centralized/normal/seed0"
    central.mkdir(parents=True)
    (central / "args.json").write_text(json.dumps({"task": "normal", "rand_seed": 0}))
    return folder


def test_nothing_comes_from_elsewhere(results: Path) -> None:
    text = report_page(results)
    page = Page(text)
    assert page.sources and all(source.startswith("data:image/") for source in page.sources)
    inside = {f"#{name}" for name in page.ids}
    assert all(link in inside or (results / link).is_dir() for link in page.links)
    assert not re.search(r"https?://|@import|url\(", text)
    assert len(page.ids) == len(set(page.ids))


def test_every_table_is_there_cell_by_cell(results: Path) -> None:
    tables = Page(report_page(results)).tables
    for path in (results / "tables").glob("*.csv"):
        expected = pd.read_csv(path, dtype=str, keep_default_na=False)
        found = [[cell.strip() for cell in row] for row in next(t for t in tables if t[0] == list(expected))[1:]]
        assert found == expected.to_numpy().tolist()


def test_names_are_text_and_never_markup(results: Path) -> None:
    text = report_page(results)
    page = Page(text)
    assert page.scripts == 1 and "<script>alert" not in text
    assert any(ODD in cell for table in page.tables for row in table for cell in row)


def test_runs_with_what_they_differ_in(results: Path) -> None:
    federated = next(table for table in Page(report_page(results)).tables if table[0][0] == "run" and len(table) == 4)
    head, *rows = federated
    assert {"finished", "rand_seed", "data_path"} <= set(head) and "alpha" not in head  # all have the same alpha
    assert [row[head.index("rand_seed")] for row in rows] == ["0", "1", "2"]
    assert [row[head.index("finished")] == "not finished" for row in rows] == [False, False, True]


def test_figures_of_first_seeds_are_made_small(results: Path) -> None:
    text = report_page(results)
    sizes = re.findall(r'alt="([^"]*)" width="(\d+)" height="(\d+)"', text)
    comparison, _, loss = sizes  # between them is how partitions are made
    assert comparison == ("Class-based and embedding-based beside IID", "40", "20")
    assert loss[:2] == ("Loss", "1000") and len(re.findall("seed[0-9]/figures/loss.png</code>", text)) == 1
    assert "seed0/figures/loss.png</code>" in text


def test_the_comparison_comes_first_and_tables_are_folded(results: Path) -> None:
    text = report_page(results)
    assert text.index("tables/comparison.png") < text.index('id="figures-of-runs"') and 'id="figures"' not in text
    assert text.index("tables/comparison.png") < text.index("<table>")
    parts = re.findall(r'<details class="part" id="([^"]*)"( open)?>', text)
    assert {"table-increases", "table-own"} <= {name for name, _ in parts} and not any(opened for _, opened in parts)


def test_figures_of_the_best_learnt_task_lead(results: Path) -> None:
    for task, loss in (("normal", 0.9), ("depth", 0.4)):
        run = results / f"train_centralized/{task}/seed0"
        (run / "figures").mkdir(parents=True, exist_ok=True)
        (run / "args.json").write_text(json.dumps({"task": task, "rand_seed": 0}))
        (run / "summary.json").write_text(json.dumps({"test": {"loss": loss}, "trivial": {"loss": 1.0}}))
        Image.new("RGB", (40, 20), "green").save(run / "figures/predictions.png")
    for better, worse in (("depth", "normal"), ("normal", "depth")):
        text = report_page(results)
        first, second = (text.index(f'id="run-figures-train-centralized-{task}"') for task in (better, worse))
        assert first < second
        summary = {"test": {"loss": 0.1}, "trivial": {"loss": 1.0}}
        (results / "train_centralized/normal/seed0/summary.json").write_text(json.dumps(summary))


def test_a_task_without_anything_to_learn_is_no_share(results: Path) -> None:
    # The cross-entropy of the only class is exactly 0, the constant baseline's, too.
    run = results / "train_centralized/normal/seed0"
    (run / "summary.json").write_text(json.dumps({"test": {"loss": 0.0}, "trivial": {"loss": 0.0}}))
    assert 'id="runs-train-centralized"' in report_page(results)


def test_it_begins_with_the_answer_and_its_figure(results: Path) -> None:
    text = report_page(results)
    order = ['id="answer"', "tables/comparison.png", 'id="method"', 'id="settings"', 'id="tables"', 'id="words"']
    assert [text.index(mark) for mark in order] == sorted(text.index(mark) for mark in order)


def test_titles_are_words_and_headings_explain_their_terms(results: Path) -> None:
    (results / "tables/metrics_depth_euclidean.csv").write_text("learnt,constant baseline,mine\nyes,1,2\n")
    text = report_page(results)
    titles = re.findall(r"<summary><h3>([^<]*)</h3>", text)
    assert {"Increase over IID", "Every metric: Depth", "Own", "Federated runs: Surface normals"} <= set(titles)
    assert not any("_" in title for title in titles)
    told = dict(re.findall(r'<th scope="col"[^>]*?(?: title="([^"]*)")?>(learnt|constant baseline|mine)</th>', text))
    meanings = {name: meaning for meaning, name in told.items()}
    assert meanings["learnt"].startswith("learnt: whether the loss under IID is clearly below")
    assert (
        meanings["constant baseline"].startswith("mean-prediction baseline: predicts the mean")
        and meanings["mine"] == ""
    )


def test_titles_are_words() -> None:
    assert title_of("task_similarity_ami") == "Adjusted mutual information of the tasks' clusters"
    assert title_of("metrics_normal") == "Every metric: Surface normals"
    assert title_of("over_method_fedavg") == "Over a baseline: method fedavg"


def test_settings_in_which_runs_differ(results: Path) -> None:
    settings = dict(re.findall(r"<dt><code>([^<]*)</code></dt><dd>([^<]*)</dd>", report_page(results)))
    assert settings == {"rand_seed": "0, 1, 2"}  # data_path only says where files are


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
@pytest.mark.parametrize("width", [1300, 400])
def test_links_unfold_their_parts_without_an_error(results: Path, tmp_path: Path, width: int) -> None:
    heard = (
        "<script>const errors = []; console.error = (...words) => errors.push(words.join(' '));"
        "for (const name of ['error', 'securitypolicyviolation'])"
        "  addEventListener(name, event => errors.push(`${name} ${event.message ?? event.violatedDirective}`), true);"
        "</script><title>"
    )
    act = (
        "(async () => { for (const link of document.querySelectorAll('nav a')) {"
        "  link.click(); await new Promise(done => setTimeout(done, 20));"
        "  const there = document.querySelector(link.hash);"
        "  if (!there || there.tagName === 'DETAILS' && !there.open) errors.push(link.hash); }"
        "document.title = `checked: ${errors.join('; ')}`; })();"
    )
    text = report_page(results).replace("<title>", heard, 1)
    dom = shown(text, act, tmp_path, f"--window-size={width},900", "--virtual-time-budget=10000")
    assert "<title>checked: </title>" in dom


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
@pytest.mark.parametrize("width", [1280, 500])
def test_nothing_is_wider_than_the_window(results: Path, tmp_path: Path, width: int) -> None:
    act = (
        "for (const part of document.querySelectorAll('details')) part.open = true;"
        "document.title = `${innerWidth}: ${document.documentElement.scrollWidth <= innerWidth}`;"
    )
    assert f"<title>{width}: true</title>" in shown(report_page(results), act, tmp_path, f"--window-size={width},900")


def test_empty_and_broken_folders_are_named(results: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no run"):
        report_page(tmp_path / "nothing")
    (results / "tables/comparison.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"comparison\.png: not a readable picture"):
        report_page(results)


CLICKS = [  # in a row, and the order of the tasks after each
    ("version", ["curvature", "depth", "normal", "reshading", "edges"]),
    ("task", ["curvature", "depth", "edges", "normal", "reshading"]),
    # As numbers, by their first one: as text 10 would stand before 9.5; what is missing is last either way.
    ("over IID, %", ["depth", "normal", "curvature", "edges", "reshading"]),
    ("over IID, %", ["edges", "curvature", "normal", "depth", "reshading"]),
]


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program chromium")
def test_click_on_a_header_sorts_in_a_browser(results: Path, tmp_path: Path) -> None:
    act = (
        f"const clicks = {json.dumps([column for column, _ in CLICKS])}, found = [];"
        "const heads = [...document.querySelectorAll('th')];"
        "const table = heads.find(h => h.textContent === 'over IID, %').closest('table');"
        "const note = () => found.push([...table.querySelectorAll('tbody tr')].map(r => r.cells[0].textContent), "
        "  document.querySelectorAll('[aria-sort]').length);"
        "note();"
        "for (const name of clicks) { [...table.querySelectorAll('th')].find(h => h.textContent === name).click();"
        "  note(); }"
        "document.title = JSON.stringify(found);"
    )
    dom = shown(report_page(results), act, tmp_path)
    found = json.loads(re.search("<title>(.*)</title>", dom)[1])
    assert found[:2] == [INCREASES["task"], 0]
    assert found[2::2] == [order for _, order in CLICKS] and found[3::2] == [1] * len(CLICKS)
