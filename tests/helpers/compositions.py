"""Every registered method, and every composition that follows from the registry."""

import holdfast

# Settings under which a method does on the small toy stream all that it can do, and soon. A method
# that is not named here joins with its defaults.
SMALL = {
    "aetta": 'aetta(layers="norm1|norm2",views=2,reset_below=50,drop=1,window=2)',
    "asr": "asr(start=0.8)",
    "eata": "eata(redundancy=2)",
    "eta": "eta(redundancy=2)",
    "rdumb": "rdumb(redundancy=2,reset_every=5)",
    "cotta": "cotta(augment_below=0.8,views=3,restore=0.1)",
    "reservoir": "reservoir(models=3,buffer=6,quantile=0.5)",
    "rmt": "rmt(warmup_samples=28,lr=0.001)",
    "rotta": "rotta(capacity=12,every=20)",
    "t3a": "t3a(keep=3)",
    "tsd": "tsd(keep=3)",
    "ttac": "ttac(threshold=0.5)",
}


def _all() -> list[str]:
    found = holdfast.methods()
    plugins = [name for name, method in found.items() if method.plugin]
    hosts = [name for name, method in found.items() if method.learns and method.standalone]
    compositions = [(name,) for name, method in found.items() if not method.needs_host]
    compositions += [
        (host, plugin) for host in found for plugin in plugins if _go_together(host, plugin)
    ]
    compositions += [(host, *(p for p in plugins if _go_together(host, p))) for host in hosts]
    compositions += [tuple(name for name in plugins if not found[name].needs_host)]
    return ["+".join(SMALL.get(name, name) for name in names) for names in compositions]


def _go_together(host: str, plugin: str) -> bool:
    if host == plugin or not holdfast.methods()[host].standalone:
        return False
    host, plugin = (holdfast.methods()[name]().resolved() for name in (host, plugin))
    return plugin.objection(host) is None


COMPOSITIONS = _all()
ON_A_HOST = [
    spec for spec in COMPOSITIONS if holdfast.compose(spec).host.standalone and "+" in spec
]


def neutralised(spec: str) -> str:
    """The same with every plug-in at its neutral settings."""
    host, *plugins = spec.split("+")
    names = [plugin.split("(")[0] for plugin in plugins]
    return "+".join([host, *(f"{name}({_neutral(name)})" for name in names)])


def _neutral(plugin: str) -> str:
    settings = holdfast.methods()[plugin].neutral
    return ",".join(f"{name}={value}" for name, value in settings.items())


def has_neutral(spec: str) -> bool:
    """Whether every plug-in has settings under which it changes nothing."""
    return all(plugin.neutral is not None for plugin in holdfast.compose(spec).plugins)


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
    silent = not any(one.always_drives() for one in method.methods)
    return silent and not method.host.steps_without_gradient


def keeps_samples(spec: str) -> bool:
    """Whether it takes images or features in one by one, so that a window is no batch to it."""
    return holdfast.compose(spec).host.keeps_samples


def counts_batches(spec: str) -> bool:
    """Whether it resets after a number of batches, of which a lone image is one."""
    return hasattr(holdfast.compose(spec).host, "reset_every")


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
    """Whether the logits that leave are made after the update."""
    return getattr(holdfast.compose(spec).host, "predict", None) == "after"
