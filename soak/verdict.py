"""How every soak ends: in one line with counts, and whether all was well."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """`counts` are what was done and measured, `failures` what was found wrong, one line each."""

    name: str
    counts: dict[str, object]
    failures: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures

    def __str__(self) -> str:
        summary = ", ".join(f"{name} {value}" for name, value in self.counts.items())
        outcome = "PASSED" if self.passed else f"FAILED ({len(self.failures)} found)"
        return f"{self.name}: {outcome}: {summary}"
