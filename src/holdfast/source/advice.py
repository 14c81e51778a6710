"""What a person is told of a source that lacks something, or that was made of little."""

from __future__ import annotations

import warnings

# Of fewer source images, what batches of them do by chance is not known well; and of fewer labelled
# ones, accuracy is not.
FEWEST_SOURCE, FEWEST_LABELLED = 1000, 64

CALIBRATED_BEFORE = (
    "The source was calibrated by an older holdfast, by another rule than this one's, so that "
    "health has no estimates: make it again, Source.from_loader(model, loader, "
    "drifted=holdfast.data.holdout.drifted(loader))."
)

CALIBRATED_FOR_OTHERS = (
    "The source was calibrated for methods whose answers are of another kind (by other statistics, "
    "or predicted otherwise), so that health has no estimates for this one: give what it can be "
    "calibrated with, Source.load(path, drifted=holdfast.data.holdout.drifted(loader)), or "
    "--validation on the command line."
)

NO_BUDGETS = (
    "Estimates of health also go by how far batches of source images lie from each other, which "
    "this source does not hold, nor a loader to make it from: give both, Source.load(path, loader, "
    "drifted=…), or leave drifted out. On the command line, name the images to --source in place "
    "of the file, or leave --validation out."
)

MADE_BEFORE = (
    "What is held of the source's budgets was made by an older holdfast, by another rule than this "
    "one's: give a source that can make them anew, Source.load(path, loader=…) or "
    "Source.from_loader(model, loader), also to holdfast.load(path, model, source=…)."
)


def warn_of_few(images: int, samples: int) -> None:
    """Where limits are made of so few source images that ordinary batches lie beyond them."""
    if images < min(FEWEST_SOURCE, samples):
        warnings.warn(
            f"Limits of drift are made of {images} source images: of fewer than about "
            f"{FEWEST_SOURCE:,}, ordinary batches are taken for drift. Give the source's loader "
            "more.",
            stacklevel=3,
        )


def warn_of_few_labelled(images: int) -> None:
    if images < FEWEST_LABELLED:
        warnings.warn(
            f"Estimates of health are calibrated on {images} clean images, and so are rough: give "
            f"{FEWEST_LABELLED} labelled images at least; 256 are enough.",
            stacklevel=3,
        )
