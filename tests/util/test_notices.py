"""What is warned of at a command line."""

import warnings

from holdfast.engine import adapter
from holdfast.util.notices import plain_warnings


def test_the_packages_own_warnings_are_sentences_and_others_as_always():
    usual = warnings.formatwarning
    with plain_warnings():
        told = warnings.formatwarning
        assert told("Too few images.", UserWarning, adapter.__file__, 85) == (
            "holdfast: Too few images.\n"
        )
        elsewhere = "Of another package.", UserWarning, "/elsewhere/torch.py", 7
        assert told(*elsewhere) == usual(*elsewhere)
    assert warnings.formatwarning is usual
