"""Every registered method, and every composition that follows from the registry."""

import holdfast

# Settings under which a method does on the small toy stream all that it can do, and soon. A method
# that is not named here joins with its defaults.
SMALL = {
    "eata": "eata(redundancy=2)",
    "eta": "eta(redundancy=2)",
    "rdumb": "rdumb(redundancy=2,reset_every=5)",
    "cotta": "cotta(augment_below=0.8,views=3,restore=0.1)",
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
    compositions = [(name,) for name in found]
    compositions += [(host, plugin) for host in hosts for plugin in plugins if host != plugin]
    compositions += [(host, *(p for p in plugins if p != host)) for host in hosts]
    compositions += [tuple(plugins)]
    return ["+".join(SMALL.get(name, name) for name in names) for names in compositions]


COMPOSITIONS = _all()
ON_A_HOST = [
    spec for spec in COMPOSITIONS if holdfast.compose(spec).host.standalone and "+" in spec
]


def without_weight(spec: str) -> str:
    """The same with every weight of every plug-in set to 0."""
    host, *plugins = spec.split("+")
    names = [plugin.split("(")[0] for plugin in plugins]
    return "+".join([host, *(f"{name}({_zeros(name)})" for name in names)])


def _zeros(plugin: str) -> str:
    weights = [
        one.name
        for one in holdfast.methods()[plugin].settings()
        if one.name.startswith(("lambda", "weight"))
    ]
    assert weights, f"{plugin} has no setting that is a weight"
    return ",".join(f"{name}=0" for name in weights)


def needs_a_batch(spec: str) -> bool:
    """Whether it normalises a batch by itself, so that one image alone is refused."""
    return holdfast.compose(spec).host.selection().statistics in ("batch", "running")


def trains_norms(spec: str) -> bool:
    return holdfast.compose(spec).host.selection().what == "norm"


def may_abstain(spec: str) -> bool:
    """Whether there are batches without a reliable image on which it takes no step."""
    method = holdfast.compose(spec)
    silent = not any(one.always_drives() for one in method.methods)
    return silent and not method.host.coasts


def gathers(spec: str) -> bool:
    """Whether it takes images or features in one by one, so that a window is no batch to it."""
    return holdfast.compose(spec).host.gathers


def counts_batches(spec: str) -> bool:
    """Whether it resets after a number of batches, of which a lone image is one."""
    return hasattr(holdfast.compose(spec).host, "reset_every")


def predicts_after(spec: str) -> bool:
    """Whether the logits that leave are made after the update."""
    return getattr(holdfast.compose(spec).host, "predict", None) == "after"
