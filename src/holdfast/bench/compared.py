"""What follows from what a run's options decide: which runs are compared, what a fingerprint holds,
and what a reader sees of how it was run."""

from __future__ import annotations

from holdfast.bench.options import OPTIONS

# Of a run's flat options: what has to be the same for runs to be compared, the stream aside, which
# is compared as it is resolved;
DECIDES_IMAGES = tuple(
    flag for flag, opt in OPTIONS.items() if opt.decides == "images" and opt.told_by != "stream"
)
# what sets no runs of a comparison apart, or does so by what it is resolved to;
NOT_COMPARED = {"method", "tags"} | {
    flag
    for flag, opt in OPTIONS.items()
    if opt.decides in ("repetition", "nothing") or opt.told_by == "stream"
}
# what a reader of a report sees of how it was run, by title;
FACTS = {
    opt.title: flag
    for flag, opt in OPTIONS.items()
    if opt.decides not in ("repetition", "nothing") and opt.told_by not in ("stream", "model")
}
# what no fingerprint holds, or holds as what it is told by.
NOT_IN_FINGERPRINT = {"tags"} | {
    flag for flag, opt in OPTIONS.items() if opt.decides == "nothing" or opt.told_by
}
