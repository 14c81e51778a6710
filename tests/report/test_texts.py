"""Tables for papers and for repositories, whatever names methods have."""

import re
import shutil
import subprocess

import pytest
from made import HOSTILE, make_run

from holdfast.report.page import Report
from holdfast.report.texts import latex, markdown
from holdfast.results.gather import gather
from holdfast.results.writers import escape_latex, escape_markdown


def test_markdown_has_the_numbers_and_marks(report):
    text = markdown(report)
    (row,) = (line for line in text.splitlines() if line.startswith("| eata+debias | **6"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    (group,) = (one for one in report.comparisons[0].groups if one.label == "eata+debias")
    assert cells[1] == f"**{group.mean('accuracy/fog'):.2f}**"
    mean, std = group.mean("mean_accuracy"), group.number("mean_accuracy").std
    assert cells[4] == f"**{mean:.2f} ± {std:.2f}**"
    first, *rest = report.sentences
    assert text.startswith(
        f"# {escape_markdown(first)}\n\n{escape_markdown(' '.join(rest))}\n\n## "
    )


def test_markdown_has_accuracy_by_visit_and_estimates_where_there_are_such(tmp_path):
    make_run(tmp_path / "once", "tent")
    told = {"visits": 2, "told": lambda number: {"estimated": 0.5}}
    make_run(tmp_path / "again", "tent", rows=told)
    once, again = (markdown(Report(gather(tmp_path / name))) for name in ("once", "again"))
    assert "by visit" in again and "visit 2" in again and "visit" not in once
    assert "How far estimated accuracy" in again and "How far estimated accuracy" not in once


def test_every_markdown_row_has_all_columns(report):
    for block in re.findall(r"(?:^\|.*\n)+", markdown(report), re.M):
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1


def test_markdown_shows_hostile_names_as_text(report):
    text = markdown(report)
    assert HOSTILE not in text and "<img" not in text.replace(r"\<img", "")
    assert r"\<script\>alert('run')\</script\>" in text


def test_latex_is_the_papers_shape(report):
    text = latex(report)
    first = text[: text.index(r"\end{table}")]
    assert first.count(r"\rotatebox[origin=c]{70}") == 5
    assert first.index(r"\toprule") < first.index(r"\midrule") < first.index(r"\bottomrule")
    rows = [line for line in first.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") for line in rows} == {5}
    (ours,) = (line for line in rows if line.startswith("eata+debias &"))
    assert r"\textbf{" in ours and r"$\pm$" in ours
    assert r"\underline{" in first


def test_latex_prints_every_character_as_it_is():
    assert escape_latex(r"50 % of a_b & {c} #1 $x$ ~^\ <d> 1 ± 2") == (
        r"50 \% of a\_b \& \{c\} \#1 \$x\$ \textasciitilde{}\textasciicircum{}"
        r"\textbackslash{} \textless{}d\textgreater{} 1 $\pm$ 2"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_can_be_set(report, tmp_path):
    (tmp_path / "tables.tex").write_text(latex(report))
    (tmp_path / "paper.tex").write_text(
        r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}"
        r"\usepackage{booktabs,graphicx}\begin{document}\input{tables}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
