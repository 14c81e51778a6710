"""A rehearsal's folder: its plan, what each method made of each stream, and what came of it.

plan.json         what it was made of, the first timing, and the rungs that follow from it
evaluations/      a file for each method on each stream of a rung, whole or not there
source.safetensors
rehearsal.json    the end of it; rehearsal.html shows it
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.rehearsal.judge import Evaluation
from holdfast.util.files import write_whole
from holdfast.util.words import first_line


@dataclass(frozen=True)
class Folder:
    path: Path

    @property
    def source(self) -> Path:
        return self.path / "source.safetensors"

    @property
    def page(self) -> Path:
        return self.path / "rehearsal.html"

    @property
    def end(self) -> Path:
        return self.path / "rehearsal.json"

    @property
    def finished(self) -> bool:
        return self.end.exists()

    def plan(self, made_of: Mapping[str, Any], *, resume: bool) -> dict[str, Any] | None:
        """The plan that is stored, if one is; an error if it is of another rehearsal, or of one
        that was stopped and is not to go on."""
        path = self.path / "plan.json"
        if not path.exists():
            return None
        stored = self._read(path)
        if not isinstance(stored, dict) or not isinstance(stored.get("made_of"), dict):
            raise self._damaged(path, "it has no plan")
        before = stored["made_of"]
        if changed := [name for name in made_of if before.get(name) != made_of[name]]:
            raise ValueError(
                f"{self.path} holds another rehearsal, which differs in {', '.join(changed)}: "
                "choose another folder, or delete that one."
            )
        if not (resume or self.finished):
            raise ValueError(
                f"{self.path} holds a rehearsal that was stopped: pass --resume (resume=True) to "
                "finish it, or choose another folder."
            )
        return stored

    def keep_plan(self, plan: Mapping[str, Any]) -> None:
        self._write(self.path / "plan.json", plan)

    def evaluation(self, rung: int, method: int, stream: int) -> Evaluation | None:
        path = self._place(rung, method, stream)
        if not path.exists():
            return None
        fields = self._read(path)
        try:
            right, images = tuple(map(int, fields["right"])), tuple(map(int, fields["images"]))
            if len(right) != len(images):
                raise ValueError("batches do not fit")
            return Evaluation(**{**fields, "right": right, "images": images})
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(path, first_line(error)) from None

    def keep(self, rung: int, method: int, stream: int, evaluation: Evaluation) -> None:
        self._write(self._place(rung, method, stream), asdict(evaluation))

    def keep_end(self, end: Mapping[str, Any]) -> None:
        self._write(self.end, end, indent=1)

    def _place(self, rung: int, method: int, stream: int) -> Path:
        return self.path / "evaluations" / f"rung{rung}-method{method}-stream{stream}.json"

    def _write(self, path: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
        write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(path, first_line(error)) from None

    def _damaged(self, path: Path, why: str) -> ValueError:
        return ValueError(
            f"{path} is damaged ({why}): delete it to have it made again, or choose another folder."
        )
