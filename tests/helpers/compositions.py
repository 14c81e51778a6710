"""Every registered method, and every composition that follows from the registry."""

from dataclasses import replace

import holdfast
from holdfast.recipes.compose import parse

# Settings under which a method does on the small toy stream all that it can do, and soon. A method
# that is not named here joins with its defaults.
SMALL = {
    "aetta": 'aetta(layers="norm1|norm2",views=2,reset_below=50,drop=1,window=2)',
    "asr": "asr(start=0.8)",
    "eata": "eata(redundancy=2)",
    "eta": "eta(redundancy=2)",
    "rdumb": "rdumb(redundancy=2,reset_every=5)",
    "cotta": "cotta(augment_below=0.8,views=3,restore=0.1)",
    "note": "note(capacity=12,every=20)",
    "petta": "petta(capacity=12)",
    "reservoir": "reservoir(models=3,buffer=6,quantile=0.5)",
    "rmt": "rmt(warmup_samples=32,lr=0.001)",
    "rotta": "rotta(capacity=12,every=20)",
    "sotta": "sotta(capacity=12,every=20,threshold=0.5)",
    "t3a": "t3a(keep=3)",
    "tsd": "tsd(keep=3)",
    "ttac": "ttac(threshold=0.5)",
    "adacontrast": "adacontrast(queue=40,warmup=20,neighbours=3)",
    "memo": "memo(views=2,lr=0.001)",
}

# Settings that make another method of one.
VARIANTS = [
    "bn(alpha=0.1)",
    "bn(prior=16)",
    "bn(statistics=running)",
    "debias(balance=auto)",
    "tent(optimizer=adam)+debias(balance=auto)",
    "eata(redundancy=2)+debias(balance=auto)",
    "sar+debias(balance=auto)",
    "rotta(capacity=12,every=20)+debias(balance=auto)",
]


# These are asked every law each time, as every method alone is: what the README recommends, and
# what the paper is about.
RECOMMENDED = [
    "tent+debias",
    "eata+debias",
    "sar+debias",
    "cotta+debias",
    "rmt+debias",
    "rotta+debias",
    "eata+debias+steady",
    "tent+consistency",
]


def _spec(*names: str) -> str:
    return "+".join(SMALL.get(name, name) for name in names)


def _go_together(*names: str) -> bool:
    try:
        holdfast.compose(_spec(*names))
    except ValueError:
        return False
    return True


def _with_all(*names: str) -> list[str]:
    """With every plug-in that goes with those before it."""
    for plugin in PLUGINS:
        if plugin not in names and _go_together(*names, plugin):
            names = (*names, plugin)
    return [_spec(*names)] if len(names) > 2 else []


def _all_pairs() -> list[str]:
    pairs = ((host, plugin) for host in HOSTS for plugin in PLUGINS)
    return [_spec(*pair) for pair in pairs if _go_together(*pair)]


HOSTS = [name for name, method in holdfast.methods().items() if method.standalone]
PLUGINS = [name for name, method in holdfast.methods().items() if method.plugin]
ALONE = [_spec(name) for name in holdfast.methods() if _go_together(name)]
PAIRS = _all_pairs()
LEARNER = next(p for p in PLUGINS if holdfast.methods()[p].learns and p not in HOSTS)
WHOLE = [spec for host in (*HOSTS, LEARNER) for spec in _with_all(host)]

AT_ONCE = ALONE + VARIANTS + [_spec(*spec.split("+")) for spec in RECOMMENDED]
COMPOSITIONS = list(dict.fromkeys(AT_ONCE + PAIRS + WHOLE))
ON_A_HOST = [
    spec for spec in COMPOSITIONS if holdfast.compose(spec).host.standalone and "+" in spec
]


def neutralised(spec: str) -> str:
    """The same with every plug-in at its neutral settings that has any."""
    host, *plugins = spec.split("+")
    return "+".join([host, *map(_neutral, plugins)])


def _neutral(plugin: str) -> str:
    name = plugin.split("(")[0]
    settings = holdfast.methods()[name].neutral
    if settings is None:
        return plugin
    (written,) = parse(plugin)
    return str(replace(written, **settings))


def without_neutral(spec: str) -> str:
    """The same without every plug-in that has neutral settings."""
    host, *plugins = spec.split("+")
    return "+".join([host, *(plugin for plugin in plugins if _neutral(plugin) == plugin)])


def has_neutral(spec: str) -> bool:
    """Whether some plug-in has settings under which it changes nothing."""
    return without_neutral(spec) != spec


def declares_neutral(plugin: type[holdfast.Method]) -> bool:
    """Whether it says under which settings it changes nothing, or that there are none such."""
    own = plugin.__mro__[: plugin.__mro__.index(holdfast.Method)]
    return any("neutral" in vars(kind) for kind in own)


def needs_a_batch(spec: str) -> bool:
    """Whether it normalises a batch by itself, so that one image alone is refused."""
    return holdfast.compose(spec).by_batch


def needs_batch_norm(spec: str) -> bool:
    """Whether it says of a net without batch norm that it has nothing to do there."""
    return "budgets" in holdfast.compose(spec).needs


def names_layers(spec: str) -> bool:
    """Whether it names layers of the toy net, which another net has not."""
    return any("layers" in method.given for method in holdfast.compose(spec).methods)


def trains_norms(spec: str) -> bool:
    return holdfast.compose(spec).host.selection().what == "norm"


def may_abstain(spec: str) -> bool:
    """Whether there are batches without a reliable image on which it takes no step."""
    method = holdfast.compose(spec)
    silent = not any(part.always_drives() for part in method.methods)
    return silent and not method.host.steps_without_gradient


def keeps_samples(spec: str) -> bool:
    """Whether it takes images or features in one by one, so that a window is no batch to it."""
    return holdfast.compose(spec).host.keeps_samples


def counts_batches(spec: str) -> bool:
    """Whether it resets after a number of batches, of which a lone image is one."""
    return hasattr(holdfast.compose(spec).host, "reset_every")


def in_episodes(spec: str) -> bool:
    """Whether it looks at each image by itself, so that a window has no use."""
    return holdfast.compose(spec).host.episode_steps() > 0


def routes(spec: str) -> bool:
    """Whether it keeps several states, of which another may be at hand after a batch."""
    return any(method.routes for method in holdfast.compose(spec).methods)


def needs_convolutions(spec: str) -> bool:
    """Whether it says of a net without convolutions that it has nothing to go by there."""
    return "styles" in holdfast.compose(spec).needs


def resets(spec: str) -> bool:
    """Whether a rule takes back what was learnt, now and then."""
    return any(method.resets for method in holdfast.compose(spec).methods)


def predicts_after(spec: str) -> bool:
    """Whether the logits that leave are made after the update, which stays."""
    host = holdfast.compose(spec).host
    return host.predicts_after() and not in_episodes(spec)


def learns_from_a_memory(spec: str) -> bool:
    """Whether the network that learns never sees a batch, but images that are kept."""
    return holdfast.compose(spec).host.keeps_images


def warms_up(spec: str) -> bool:
    return "warm-up" in holdfast.compose(spec).needs
