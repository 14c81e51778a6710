"""What holdfast makes of a model: its parts, its input, and the methods that fit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from holdfast.engine.checks import check_images
from holdfast.engine.heads import find_head, layers_that_give_logits
from holdfast.engine.network import Network, fingerprint
from holdfast.engine.norms import batch_norms
from holdfast.engine.step import Step
from holdfast.explain import Finding
from holdfast.explain.fit import Fit, try_method
from holdfast.explain.inputs import check_inputs, describe
from holdfast.explain.normalisations import Labelled, find_wrappers, spread
from holdfast.models.normalization import Normalized
from holdfast.parts.select import norm_layers
from holdfast.recipes.compose import brief, compose
from holdfast.recipes.registry import methods
from holdfast.source.source import Source
from holdfast.util.cpu import untuned

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

# Statistics of the input are taken over so many images.
SAMPLE = 64

MARKS = {"good": "✓", "note": "!", "problem": "✗"}
STYLES = {"✓": "green", "!": "yellow", "✗": "red"}


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found: print it, or read its fields."""

    model: str
    head: str | None
    head_type: str | None
    feature_size: int | None
    classes: int | None
    norm_layers: Mapping[str, int]
    normalization: str | None
    device: str
    dtype: str
    memory_format: str
    batch_size: int
    findings: tuple[Finding, ...]
    methods: Mapping[str, Fit]

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong whatever the method."""
        return tuple(finding.text for finding in self.findings if finding.level == "problem")

    def __str__(self) -> str:
        return "\n\n".join(f"{title}\n{_aligned(rows)}" for title, rows in self._sections().items())

    def __rich__(self) -> Group:
        """The same in colour, for those who have rich."""
        from rich.console import Group
        from rich.text import Text

        from holdfast.util.terminal import columns

        parts: list[RenderableType] = []
        for title, rows in self._sections().items():
            table = columns()
            for *names, text in rows:
                table.add_row(*(Text(name, STYLES.get(name, "bold")) for name in names), Text(text))
            parts += [Text(f"\n{title}" if parts else title, "bold"), table]
        return Group(*parts)

    def _sections(self) -> dict[str, list[tuple[str, ...]]]:
        """Rows by their title."""
        head = (
            f"{self.head}, {self.head_type}: {self.feature_size} features, {self.classes} classes"
        )
        norms = ", ".join(f"{count} {kind}" for kind, count in self.norm_layers.items())
        return {
            self.model: [
                ("head", head if self.head else "not found"),
                ("norm layers", norms or "none"),
                ("normalisation", self.normalization or "no holdfast.normalized in the model"),
                ("runs as", f"{self.dtype} on {self.device}, {self.memory_format}"),
            ],
            "Model and images": [(MARKS[finding.level], finding.text) for finding in self.findings],
            f"Methods, at a batch size of {self.batch_size}": [
                (MARKS[fit.level], name, "; ".join(fit.remarks) or "fits")
                for name, fit in self.methods.items()
            ],
        }


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines, with columns two spaces apart."""
    widths = [max(map(len, column)) + 2 for column in zip(*rows, strict=True)]
    lines = (
        "".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows
    )
    return "\n".join(map(str.rstrip, lines))


def doctor(
    model: nn.Module,
    images: Tensor | None = None,
    *,
    labels: Sequence[int] | Tensor | None = None,
    batch_size: int = 64,
    source: Source | None = None,
    head: str | None = None,
    method: str | Sequence[str] = (),
) -> Diagnosis:
    """Which parts a model has, whether its input is right, and which methods fit it.

    images: clean ones, like those of the training, as you would feed them. With them, it checks
        that they are normalised as in training, and tries the methods on a few.
    labels: of the images. With them, accuracy tells whether the normalisation is right, where the
        images alone cannot; some hundreds are needed for that.
    batch_size: of the stream to come.
    source: what is known of the source data, as for `adapt`.
    head: name of the layer that maps features to logits; default: the last `nn.Linear`.
    method: the methods to try, as spec strings; default: all that have a name.

    The model itself is never changed.

    >>> import holdfast
    >>> from holdfast.models import resnet20
    >>> diagnosis = holdfast.doctor(resnet20(10), method="tent")
    >>> diagnosis.head, diagnosis.classes, diagnosis.methods["tent"].fits
    ('fc', 10, True)
    """
    if not isinstance(model, nn.Module):
        raise ValueError(f"The model must be a torch.nn.Module, not {type(model).__name__}.")
    if not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size is a number of images, at least 1, not {batch_size!r}.")
    if source is not None and not isinstance(source, Source):
        raise ValueError(f"source is a holdfast.Source, not {type(source).__name__}.")
    if labels is not None and images is None:
        raise ValueError("labels=… are those of images: pass both.")
    chosen = [method] if isinstance(method, str) else list(method)
    for name in chosen:
        compose(name)  # what cannot be read is an error at once
    findings: list[Finding] = []

    def works(instead: str, action: Callable[..., object], *arguments: object) -> bool:
        """Whether an action succeeds; if not, its error is a finding, with what is done instead."""
        try:
            action(*arguments)
        except Exception as error:  # whatever the model itself may raise
            kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
            findings.append(Finding("problem", f"{kind}{error} {instead}".strip()))
            return False
        return True

    with torch.inference_mode(False), torch.no_grad():
        network = Network(model)
        if head is not None:
            if works("Here the last linear layer is taken.", find_head, network.model, head):
                network = Network(model, head=head)
            else:
                head = None
        if source is not None and not works("", source.check_model, fingerprint(model)):
            source = None
        sample = None if images is None else _sample(network, images)
        labelled = None if images is None or labels is None else Labelled.of(images, labels)
        runs = sample is None or works("", network, network.prepare(sample))
        hint = "" if sample is None or not runs else _suggest_head(network, sample)
        headed = works(hint, lambda: network.head)
        findings += _check_setup(network, source)
        if batch_norms(network.model):
            findings.append(_recommend(headed))
        if runs:
            findings += check_inputs(network, sample, labelled)
        if runs and sample is not None:
            step = Step(network, network.prepare(sample))
            findings += _check_outputs(step.logits)
            if headed:
                works(hint, lambda: step.features)
        wanted = (
            {brief(spec): spec for spec in chosen}
            if chosen
            else {name: method.example() for name, method in methods().items()}
        )
        fits = {
            name: try_method(
                compose(spec),
                model,
                head=head,
                source=source,
                images=sample,
                batch_size=batch_size,
                classes=network.head_rows if headed else None,
            )
            if runs
            else Fit(False, ("not tried: the model fails on these images",))
            for name, spec in wanted.items()
        }
    return Diagnosis(
        model=_describe(model),
        head=network.head_name,
        head_type=type(network.head).__name__ if headed else None,
        feature_size=network.feature_size if headed else None,
        classes=network.head_rows if headed else None,
        norm_layers=Counter(type(layer).__name__ for layer in norm_layers(network.model).values()),
        normalization=", then ".join(map(describe, find_wrappers(network.model))) or None,
        device=str(network.device),
        dtype=_name(network.dtype),
        memory_format=network.memory_format_name,
        batch_size=batch_size,
        findings=tuple(findings),
        methods=fits,
    )


def _describe(model: nn.Module) -> str:
    name = type(model).__name__
    return f"{name}({_describe(model.model)})" if isinstance(model, Normalized) else name


def _sample(network: Network, images: Tensor) -> Tensor:
    """Some of the images, spread over all of them."""
    images = check_images(images, None, convolutional=network.is_conv)
    sample = images.detach()[spread(len(images), SAMPLE)]
    return sample.to("cpu", torch.float32, copy=True)


def _suggest_head(network: Network, images: Tensor) -> str:
    """Which layer gives the logits, where it is not the one that was taken."""
    prepared = network.prepare(images)
    layers = layers_that_give_logits(network.model, prepared, network(prepared)[1])
    if network.head_name in layers:
        return ""
    if not layers:
        return "Here no layer's output is the logits: what needs features does not fit this model."
    name = next(iter(layers))
    return f"Here that is {name!r}, a {type(layers[name]).__name__}: pass head={name!r}."


def _check_outputs(logits: Tensor) -> Iterator[Finding]:
    if logits.shape[1] == 1:
        yield Finding(
            "problem",
            "The model gives one logit, whose softmax is 1 whatever the image: to holdfast that is "
            "one class, not two. Return two: torch.cat([torch.zeros_like(logit), logit], 1).",
        )
    elif not (float(logits.min()) < 0 or float(logits.max()) > 1):
        yield Finding(
            "note",
            "All outputs lie in [0, 1]: are they sigmoids or similarities? Methods take them for "
            "logits, whose softmax is then close to even: return logits instead.",
        )


def _recommend(headed: bool) -> Finding:
    """What to begin with on a network with batch norm."""
    method = "eata+debias+steady" if headed else "tent+steady"
    return Finding(
        "good",
        f"{method} is what to begin with: steady has batch norm follow a batch no further than it "
        "drifts, so that where nothing does the model answers as it was trained to.",
    )


def _check_setup(network: Network, source: Source | None) -> Iterator[Finding]:
    """The CPU, the weights, and whether the source's labels are those of the model."""
    missing = untuned() if network.device.type == "cpu" else []
    if missing:
        advice = "call holdfast.tune_cpu() before torch is imported"
        text = f"Slower than need be on this CPU: {' and '.join(missing)}: {advice}."
        yield Finding("note", text)
    kinds = {p.dtype for p in network.model.parameters() if p.is_floating_point()}
    half = sorted(_name(kind) for kind in kinds if kind.itemsize < 4)
    if half:
        yield Finding(
            "note",
            f"Weights are {' and '.join(half)}, in which steps of 1e-4 are lost to rounding: keep "
            'float32 weights, and pass precision="bfloat16" to adapt() for speed.',
        )
    if source is not None and source.accuracy is not None:
        mistake = source.find_label_mistake()
        if mistake is not None:
            yield Finding("problem", f"The source's labels: {mistake}")
        else:
            right = f"{source.accuracy:.1%} of the source's images for what they are"
            yield Finding("good", f"The model takes {right}.")


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
