"""`holdfast report`: stored runs as one page, as pictures, and as tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Report:
    """Show runs on one page that opens from disk: a finding, tables, the paper's figures."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = (Path("runs"),)
    """Folders of runs, or folders that hold them, as --out of `run` names them."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report.html")
    """The page."""
    png: Path | None = None
    """A folder to write every chart into as a picture."""
    markdown: Path | None = None
    """A file to write the tables into."""
    latex: Path | None = None
    """A file to write the tables into, as a paper has them."""
    follow: bool = False
    """Write the page again as rows arrive, and serve it on this machine, until Ctrl-C."""
    port: int = 0
    """Where to serve it. Default: any that is free."""
    every: float = 5.0
    """Seconds between two looks at the runs."""

    def run(self) -> None:
        from functools import partial

        from holdfast.paper.comparable import published_rows
        from holdfast.report.follow import follow, write
        from holdfast.report.page import Report as Content
        from holdfast.report.page import page
        from holdfast.report.pictures import write_pictures
        from holdfast.report.texts import latex, markdown
        from holdfast.results.gather import gather

        made = partial(Content, published=published_rows)
        if self.every <= 0:
            raise ValueError(f"every is a number of seconds above 0, not {self.every:g}.")
        if self.follow:
            if self.png or self.markdown or self.latex:
                raise ValueError("--follow writes the page alone: leave out the other formats.")
            follow(self.runs, self.out, port=self.port, every=self.every, report=made)
            return
        gathered = gather(*self.runs)
        if not gathered.runs and not gathered.notes:
            where = ", ".join(map(str, self.runs))
            raise ValueError(f"There is no run in {where}: `holdfast run` makes some.")
        content = made(gathered)
        write(self.out, page(content))
        print(content.headline)
        if len(content.findings) > 1:
            for name, sentences in content.findings.items():
                print(f"{name}: {' '.join(sentences)}")
        for note in gathered.notes:
            print(f"Note: {note.path}: {note.text}")
        print(f"Page: {self.out}")
        for path, make in ((self.markdown, markdown), (self.latex, latex)):
            if path is not None:
                write(path, make(content))
                print(f"Tables: {path}")
        if self.png is not None:
            pictures = write_pictures(content, self.png)
            print(f"Pictures: {self.png}, {len(pictures)} of them")
