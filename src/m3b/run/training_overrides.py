"""Training overrides: what a user fixes of metric, machine and training, and its form on the command line of plan.py."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from m3b.errors import SettingError
from m3b.isolation import untrusted
from m3b.isolation.sandbox.environment import count_gpus
from m3b.training.plan_settings import CHOICES, NETWORK_SETTINGS, OBJECT_SETTINGS

DEVICES = ("auto", "cpu", "cuda")
MAX_PLAN_BYTES = 4 * 2**20
RANGES: Mapping[str, tuple[int, int]] = {
    "gpus": (1, 64),
    "epochs": (1, 1_000_000),
    "steps": (1, 100_000_000),
    "folds": (1, 20),
}
"""Smallest and largest value of each whole number."""
OPTION_OF_SETTING = {
    "minutes": "train_minutes",
    "device": "device",
    "max_steps": "steps",
    "max_epochs": "epochs",
    "folds": "folds",
    "network.name": "network",
    "network.pretrained": "pretrained",
}
"""Settings of plan.json that have an option of their own, which knows what else follows from them."""
NO_WEIGHTS = "none"
"""Value of `pretrained` for a network that starts at random."""
PRETRAINED_LINK = "pretrained"
"""Folder of a training project in which plan.py finds weights by their name in the registry."""
GIVEN_WEIGHTS_NAME = "own-weights"
"""Name in that folder of weights that the user gave as a folder."""
PLAN_KEYS_OF_MACHINE = (
    *("machine", "expected", "why_folds", "why_engine", "minutes", "precision", "threads", "workers", "cache"),
)
"""Keys of plan.json that follow from the machine and the minutes; a given plan does not fix them."""
TRAINING_FOLDER = Path(__file__).resolve().parents[1] / "training"


@dataclass(frozen=True)
class TemplateSettings:
    """The overrides that the training template of some tasks can serve.

    Args:
        networks: name of a network -> the settings of plan.json that choose it.
        counts_steps: whether a training can count steps or epochs instead of minutes.
        has_folds: whether several networks can be trained on folds of the patients.
        libraries: packages whose networks it takes by `LIBRARY:NAME`.
    """

    networks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    counts_steps: bool = True
    has_folds: bool = True
    libraries: tuple[str, ...] = ()

    def find_network(self, name: str) -> Mapping[str, Any] | None:
        """Return the settings that choose a network; None if the template has no such network."""
        library, separator, _ = name.partition(":")
        return {"network.name": name} if separator and library in self.libraries else self.networks.get(name)


def _by_name(*names: str) -> dict[str, dict[str, Any]]:
    return {name: {"network.name": name} for name in names}


_CLASSIFIERS = TemplateSettings(
    _by_name(
        "small_cnn",
        *(f"resnet{depth}" for depth in (10, 18, 34, 50, 101, 152, 200)),
        *(f"densenet{depth}" for depth in (121, 169, 201, 264)),
        *(f"efficientnet-b{size}" for size in range(8)),
    ),
    libraries=("timm", "torchvision"),
)
TEMPLATE_SETTINGS: Mapping[str, TemplateSettings] = {
    **dict.fromkeys(("diagnosis", "grading", "regression", "survival"), _CLASSIFIERS),
    "segmentation": TemplateSettings(
        {**_by_name("unet", "segresnet", "swinunetr"), "nnunet": {"engine": "nnunet"}},
    ),
    "detection": TemplateSettings({name: {"network.detector": name} for name in ("fcos", "retinanet", "retinanet3d")}),
    "report": TemplateSettings(counts_steps=False, has_folds=False),
}
"""Task -> what today's templates serve. Templates of other packages serve `device`, `gpus` and `settings` alone."""
_OTHER_TEMPLATES = TemplateSettings(counts_steps=False, has_folds=False)


@dataclass(frozen=True)
class TrainingOverrides:
    """What a user fixes of a training; None is left to the agents and plan.py.

    Args:
        metric: the metric that the model is judged by, by any name of the task's table.
        device: `auto`, `cpu` or `cuda`.
        gpus: number of GPUs to train on.
        epochs: the training ends after so many. Without `train_minutes` it gets the minutes that they are expected to
            take.
        steps: the training makes exactly so many optimiser steps, however long they take; with a seed it is repeatable.
        folds: networks of a cross-validation; 1 trains one network.
        network: a network of the task's template, or an entry of the registry of pretrained networks.
        pretrained: where weights start from: an entry of the registry, a folder, or `none`.
        settings: other settings of plan.json by their dotted names, e.g. `{"augment.rotate": 5}`.
        plan: a whole plan.json, as `m3b plan -o` writes it: its values, or the file.
        from_request: names of the values that were read from the request.
        gpus_of_jobs: GPUs of a cluster job, if the training is one; then those of this machine do not matter.

    Raises:
        SettingError: a value cannot be meant; `code` says which rule.
    """

    metric: str | None = None
    device: str | None = None
    gpus: int | None = None
    epochs: int | None = None
    steps: int | None = None
    folds: int | None = None
    network: str | None = None
    pretrained: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | str | Path | None = None
    from_request: tuple[str, ...] = ()
    gpus_of_jobs: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not (type(value) is int and low <= value <= high):
                raise _error(
                    "out_of_range", f"--{name} must be a whole number from {low} to {high:,}; it is {value!r}."
                )
        for name in ("metric", "device", "network", "pretrained"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str | Path) and str(value).strip()):
                raise _error("not_text", f"--{name} must be a name; it is {value!r}.")
            if value is not None:
                object.__setattr__(self, name, str(value).strip())
        if self.device is not None and self.device not in DEVICES:
            raise _error("unknown_device", _describe_unknown_device(self.device))
        if self.epochs is not None and self.steps is not None:
            raise _error("epochs_and_steps", "--epochs and --steps both say how long to train; give one of them.")
        if self.device == "cpu" and self.gpus is not None:
            raise _error("gpus_on_cpu", "--gpus does not go with --device cpu.")
        object.__setattr__(self, "settings", _check_settings(self.settings))
        object.__setattr__(self, "plan", None if self.plan is None else _read_plan(self.plan))
        if self.plan is not None:
            _check_beside_plan(self)

    def __bool__(self) -> bool:
        return any(
            getattr(self, item.name) not in (None, {}, ()) for item in fields(self) if item.name != "gpus_of_jobs"
        )

    @property
    def task(self) -> str:
        """The task of the given plan; empty without one."""
        return str(self.plan["task"]) if isinstance(self.plan, Mapping) else ""

    def to_json(self) -> dict[str, Any]:
        """Return the values that are set, for run.json."""
        return {name: value for name, value in asdict(self).items() if value not in (None, {}, ())}

    @classmethod
    def from_json(cls, values: Mapping[str, Any] | None) -> TrainingOverrides:
        """Return the overrides that `to_json` wrote."""
        return cls(**{**(values or {}), "from_request": tuple((values or {}).get("from_request", ()))})

    def to_arguments(self) -> list[str]:
        """Return the values as arguments of `m3b run`, without those that its request holds and without a whole plan."""
        names = ("metric", "device", "gpus", "epochs", "steps", "folds", "network", "pretrained")
        arguments = [
            word
            for name in names
            if getattr(self, name) is not None and name not in self.from_request
            for word in (f"--{name}", str(getattr(self, name)))
        ]
        texts = [
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in self.settings.items()
        ]
        return [*arguments, *(word for text in texts for word in ("--set", text))]

    def describe(self) -> list[str]:
        """Return one phrase for each value that is set, for people; without paths of this machine."""
        phrases = []
        for name in ("metric", "network", "pretrained", "epochs", "steps", "folds", "device", "gpus"):
            value = getattr(self, name)
            if value is not None:
                value = Path(value).name if name == "pretrained" and Path(value).expanduser().is_dir() else value
                source = " (from the request)" if name in self.from_request else ""
                phrases.append(f"{name} {value}{source}")
        phrases += [f"{key}={json.dumps(value)}" for key, value in self.settings.items()]
        return [*phrases, "a whole plan.json"] if self.plan is not None else phrases


def _error(code: str, message: str) -> SettingError:
    """Return the error of a value; the message names options as the command line does."""
    return SettingError(re.sub(r"--([a-z][\w-]*)", lambda match: match[1].replace("-", "_"), message), message, code)


def _suggest(name: str, known_names: Sequence[str]) -> str:
    matches = difflib.get_close_matches(name, known_names, 1, 0.75)
    return f" Did you mean {matches[0]}?" if matches else ""


def _describe_unknown_device(device: str) -> str:
    if re.fullmatch(r"cuda:\d+", device):
        return f"--device {device}: choose a GPU with CUDA_VISIBLE_DEVICES={device[5:]} and --device cuda."
    if device.startswith("cuda:"):
        return (
            f"--device {device} is a GPU of another machine: `m3b plan --device {device} -o plan.json` plans for it, and "
            "`m3b run --plan plan.json` trains there."
        )
    return f"--device is auto, cpu or cuda; it is {device!r}.{_suggest(device, DEVICES)}"


# --- settings of plan.json ------------------------------------------------------------------------------------------


def parse_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of KEY=VALUE texts: JSON if the value is JSON, else text.

    Raises:
        SettingError: a text has no `=`.
    """
    values: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise _error("no_key_value", f"--set {text}: write KEY=VALUE, such as --set lr=0.001.")
        try:
            values[key.strip()] = json.loads(value)
        except ValueError:
            values[key.strip()] = value.strip()
    return values


@cache
def list_setting_names() -> tuple[str, ...]:
    """Return the names of all settings of plan.json, without what stands behind a dot: those of the training code."""
    names: set[str] = set()
    for file in [
        *TRAINING_FOLDER.glob("*/plan.py"),
        *TRAINING_FOLDER.glob("*.py"),
        *TRAINING_FOLDER.glob("pretrained/*.py"),
    ]:
        text = file.read_text(encoding="utf-8")
        names.update(re.findall(r'^\s{4,16}"(\w+)": ', text, re.MULTILINE))
        for line in re.findall(
            r"^\s{4,16}\*\*\(?\{.*", text, re.MULTILINE
        ):  # settings of some plans: **({"name": value} if ...)
            names.update(re.findall(r'"(\w+)": ', line))
        names.update(re.findall(r'\bplan\["(\w+)"\]', text))
        names.update(re.findall(r'\bplan\.get\("(\w+)"', text))
    from m3b.training.search_space import SEARCH_SPACES

    names.update(dimension.key.partition(".")[0] for space in SEARCH_SPACES.values() for dimension in space)
    names.update((*SETTING_RANGES, *COUNT_SETTINGS))
    return tuple(sorted(names))


SETTING_RANGES: Mapping[str, tuple[float, float]] = {
    "lr": (1e-9, 10),
    "weight_decay": (0, 10),
    "label_smoothing": (0, 0.99),
    "validation_share": (0.01, 0.9),
    "ema": (0, 1),
    "dropout": (0, 0.99),
    "clip": (0, 1e6),
}
"""Settings that are numbers: the least and the most."""
COUNT_SETTINGS: Mapping[str, tuple[int, int]] = {
    "batch": (1, 65_536),
    "patience": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
    "epoch_patches": (1, 100_000_000),
    "workers": (0, 1024),
    "threads": (0, 1024),
}
"""Settings that are whole numbers: the least and the most."""
DERIVED_SETTINGS = (
    "task",
    "classes",
    "labels",
    "multi_label",
    "dims",
    "machine",
    "expected",
    "why_folds",
    "why_engine",
    "frames",
    "views",
    "channel_names",
    "covariates",
)
"""Settings that follow from the data or the machine."""
_TO_MANIFEST = "of the manifest (`m3b look FOLDER REQUEST -o manifest.json`, then --manifest)."
DERIVED_FROM = {
    "task": " The request names the task.",
    "classes": f" Name them in the request, or set `classes` {_TO_MANIFEST}",
    "frames": f" Set `images.frames` {_TO_MANIFEST}",
    "views": f" Set `images.case` and `images.several` {_TO_MANIFEST}",
    "channel_names": f" Set `images.channels` {_TO_MANIFEST}",
    "covariates": f" Set `covariates` {_TO_MANIFEST}",
}
"""Setting -> where it comes from and can be changed."""


CHOICE_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    **CHOICES,
    "precision": ("fp32", "bf16", "fp16"),
    "keep": ("last", "best"),
    "cache": ("auto", "map", "compressed", "direct"),
    "refit": (True, False),
    "self_training": (True, False),
}
"""Settings with a few values."""
OBJECTS = ("network", *OBJECT_SETTINGS)
"""Settings that are objects; a dot enters them."""
SHAPE_SETTINGS = ("size", "patch")
"""Settings that are lists of two or three sides in pixels or voxels."""
TASK_FOLDERS = {
    **dict.fromkeys(("diagnosis", "grading", "regression", "survival"), "diagnosis"),
    **{task: task for task in ("segmentation", "detection", "report")},
}
"""Task -> folder of its training code."""


_FILES_OF_ALL_TASKS = ("plan_settings.py", "plan_table.py", "search_space.py")


@cache
def _list_words(pattern: str) -> frozenset[str]:
    """Return the quoted words of the training code in the files of a pattern: it reads no setting that is not among them.

    Files that list the settings of all tasks are left out.
    """
    files = [file for file in TRAINING_FOLDER.glob(pattern) if file.name not in _FILES_OF_ALL_TASKS]
    texts = [file.read_text(encoding="utf-8") for file in files]
    return frozenset(word for text in texts for word in re.findall(r"[\"'](\w+)[\"']", text))


def _check_nested_name(key: str, value: Any) -> None:
    """Check the name behind a dot, as far as it can be known without a plan."""
    parent, _, name = key.partition(".")
    if parent in COUNT_SETTINGS or parent in SETTING_RANGES or parent in SHAPE_SETTINGS:
        raise _error(
            "unknown_setting",
            f"--set {key}={value}: {parent} is a value of its own, and has no parts: --set {parent}=...",
        )
    if parent not in OBJECTS:
        return
    texts = NETWORK_SETTINGS.values() if parent == "network" else [OBJECT_SETTINGS[parent]]
    known_names = [word for text in texts for word in text.split()]
    if name.partition(".")[0] not in {*known_names, *_list_words("**/*.py")}:
        hint = _suggest(name, known_names)
        raise _error("unknown_setting", f"--set {key}={value}: {parent} in plan.json has no setting {name!r}.{hint}")


@cache
def _find_parents() -> dict[str, str]:
    """Return name of a setting -> the object that it is a part of, for names that the training never reads from the plan itself."""
    texts = [file.read_text(encoding="utf-8") for file in TRAINING_FOLDER.glob("**/*.py")]
    own_names = {name for text in texts for name in re.findall(r'\bplan(?:\.get\(|\[)"(\w+)"', text)}
    parts = [(name, "network") for words in NETWORK_SETTINGS.values() for name in words.split()]
    parts += [(name, parent) for parent, words in reversed(OBJECT_SETTINGS.items()) for name in words.split()]
    return {name: parent for name, parent in parts if name not in {*own_names, *SETTING_RANGES, *COUNT_SETTINGS}}


def _check_setting_value(key: str, value: Any) -> None:
    """Check a value whose meaning is the same in all templates; plan.py checks the others."""
    if parent := _find_parents().get(key):
        raise _error("unknown_setting", f"--set {key}={value}: it is a part of {parent}: --set {parent}.{key}={value}.")
    if key in DERIVED_SETTINGS:
        source = DERIVED_FROM.get(key, "")
        raise _error("derived_setting", f"--set {key}={value}: {key} follows from the data and cannot be set.{source}")
    if "." in key:
        _check_nested_name(key, value)
    if key in CHOICE_SETTINGS and not any(type(value) is type(item) and value == item for item in CHOICE_SETTINGS[key]):
        values = " or ".join(item if isinstance(item, str) else json.dumps(item) for item in CHOICE_SETTINGS[key])
        raise _error("out_of_range", f"--set {key}={value}: {key} must be {values}.")
    if key in OBJECTS and not isinstance(value, Mapping):
        raise _error(
            "out_of_range",
            f"--set {key}={value}: {key} has parts; set one of them, such as --set {key}.{_first_part(key)}=...",
        )
    if key.startswith("augment.") and key != "augment.flip" and isinstance(value, str):
        raise _error("out_of_range", f"--set {key}={value}: {key} must be a number.")
    if key in SHAPE_SETTINGS and not _is_shape(value):
        raise _error(
            "out_of_range", f"--set {key}={value}: {key} must be a list of two or three sides, such as [128,128]."
        )
    low, high = COUNT_SETTINGS.get(key) or SETTING_RANGES.get(key) or (0, -1)
    if low > high:
        return
    number_types = (int,) if key in COUNT_SETTINGS else (int, float)
    if isinstance(value, bool) or not isinstance(value, number_types) or not low <= value <= high:
        kind = "a whole number" if key in COUNT_SETTINGS else "a number"
        raise _error("out_of_range", f"--set {key}={value}: {key} must be {kind} from {low:,} to {high:,}.")


def _first_part(key: str) -> str:
    return "name" if key == "network" else OBJECT_SETTINGS[key].split()[0]


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) in (2, 3)
        and all(type(side) is int and side > 0 for side in value)
    )


def _check_settings_of_task(settings: Mapping[str, Any], task: str) -> None:
    """Check that the training code of a task reads the settings."""
    folder = TASK_FOLDERS.get(task)
    if folder is None:
        return
    words = _list_words("*.py") | _list_words("pretrained/*.py") | _list_words(f"{folder}/**/*.py")
    for key, value in settings.items():
        if (name := key.partition(".")[0]) not in {*words, *COUNT_SETTINGS, *SETTING_RANGES}:
            raise _error("not_served", f"--set {key}={value}: a {task} model has no setting {name!r}.")


def _check_settings(settings: Any) -> Mapping[str, Any]:
    if not isinstance(settings, Mapping):
        raise _error("not_a_mapping", f"settings must be a mapping of names to values; it is {settings!r}.")
    for key, value in settings.items():
        if key in OPTION_OF_SETTING:
            option = "--" + OPTION_OF_SETTING[key].replace("_", "-")
            raise _error("has_an_option", f"--set {key}={value}: {key} has an option of its own, {option}.")
        name = str(key).split(".")[0]
        if name not in list_setting_names():
            hint = _suggest(name, list_setting_names())
            raise _error("unknown_setting", f"--set {key}={value}: plan.json has no setting {name!r}.{hint}")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise _error("not_json", f"--set {key}={value!r}: JSON cannot hold this value.") from error
        _check_setting_value(str(key), value)
    return dict(settings)


def _read_plan(plan: Any) -> Mapping[str, Any]:
    """Return the values of a plan that was given as a file or a mapping."""
    source = "The plan that was given" if isinstance(plan, Mapping) else f"--plan {plan}"
    values: Any = plan
    if not isinstance(plan, Mapping):
        file = Path(plan).expanduser()
        try:
            values = untrusted.read_json(file.parent, file.name, MAX_PLAN_BYTES)
        except OSError as error:
            raise _error("plan_unreadable", f"{source} cannot be read: {error.strerror or error}.") from error
        except ValueError as error:
            raise _error("plan_no_json", f"{source} holds no JSON: {error}.") from error
    if isinstance(values, Mapping) and isinstance(values.get("plan"), Mapping):  # as `m3b plan --json` prints it
        values = values["plan"]
    if not isinstance(values, Mapping) or not isinstance(values.get("task"), str) or "network" not in values:
        raise _error(
            "no_plan", f'{source} is no plan of a training. `m3b plan DIR "REQUEST" -o plan.json` writes one to edit.'
        )
    return dict(values)


def _check_beside_plan(overrides: TrainingOverrides) -> None:
    """Refuse overrides that a whole plan already holds."""
    names = [
        name
        for name in ("device", "gpus", "epochs", "steps", "folds", "network", "pretrained", "settings")
        if getattr(overrides, name) not in (None, {})
    ]
    if names:
        options = ", ".join("--set" if name == "settings" else f"--{name}" for name in names)
        raise _error("beside_plan", f"--plan is a whole plan; leave out {options}, or edit the file.")


# --- checks before a run --------------------------------------------------------------------------------------------


def find_task_settings(task: str) -> TemplateSettings:
    """Return what the template of a task serves."""
    return TEMPLATE_SETTINGS.get(task, _OTHER_TEMPLATES)


def check_overrides(overrides: TrainingOverrides, task: str = "") -> None:
    """Check that overrides can be served; before anything is started.

    Args:
        task: the task if it is known already; else what any task serves is accepted.

    Raises:
        SettingError: an override cannot be served; the message says what can.
    """
    _check_metric(overrides.metric, task)
    _check_machine(overrides)
    if overrides.plan is not None and task and overrides.task != task:
        raise _error("plan_of_other_task", f"--plan is a plan for {overrides.task}; the model is for {task}.")
    if overrides.network is not None:
        _check_network(overrides, task)
    if overrides.pretrained is not None:
        _check_start(overrides.pretrained, find_weights(overrides.pretrained), task)
    if not task:
        return
    _check_settings_of_task(overrides.settings, task)
    template = find_task_settings(task)
    for name, is_served, alternative in (
        ("epochs", template.counts_steps, "--train-minutes says how long it trains"),
        ("steps", template.counts_steps, "--train-minutes says how long it trains"),
        ("folds", template.has_folds, "it trains one network"),
    ):
        if getattr(overrides, name) is not None and not is_served:
            raise _error("not_served", f"--{name} cannot be set for a {task} model: {alternative}.")
    if overrides.network == "nnunet" and (overrides.epochs is not None or (overrides.folds or 1) > 1):
        raise _error("not_served", "--network nnunet plans its own epochs and trains one network; --steps limits it.")


def check_overrides_of_any(overrides: TrainingOverrides, tasks: Sequence[str]) -> None:
    """Check that at least one of the tasks can serve overrides; with no tasks, any.

    Raises:
        SettingError: none can; the message is that of the first task.
    """
    errors: list[SettingError] = []
    for task in tasks or [""]:
        try:
            check_overrides(overrides, task)
        except SettingError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def _check_metric(metric: str | None, task: str) -> None:
    if metric is None:
        return
    from m3b.metrics import canonical_metric
    from m3b.metrics.metric_tables import metric_names, metric_table

    try:
        canonical_metric(metric, task or None)
    except ValueError:
        known_names = list(metric_table(task).names) if task else sorted(set(metric_names().values()))
        subject = f"a {task} model" if task else "m3b"
        hint = _suggest(metric.lower(), known_names)
        message = f"--metric {metric}: {subject} has no such metric.{hint} Known: {', '.join(known_names)}."
        raise _error("unknown_metric", message) from None


def _check_machine(overrides: TrainingOverrides) -> None:
    if overrides.gpus_of_jobs is not None:  # the engine says whether a node has as many
        return
    available = count_gpus()
    if overrides.device == "cuda" and not available:
        raise _error("no_gpu", "--device cuda: this machine has no NVIDIA GPU (/dev/nvidia0).")
    if overrides.gpus is not None and overrides.gpus > available:
        raise _error("too_few_gpus", f"--gpus {overrides.gpus}: this machine has {available} NVIDIA GPUs.")


def _check_network(overrides: TrainingOverrides, task: str) -> None:
    """Check that a template has the network, or that the registry has it and its weights are here."""
    network = overrides.network or ""
    if "/" in network:
        if overrides.pretrained is not None:
            raise _error("two_networks", "--network and --pretrained both name weights; give one of them.")
        find_weights(network)
        return
    tasks = [task] if task else list(TEMPLATE_SETTINGS)
    known_names = list(dict.fromkeys(name for item in tasks for name in find_task_settings(item).networks))
    if not any(find_task_settings(item).find_network(network) for item in tasks):
        subject = f"a {task} model" if task else "a template"
        listing = f"choose {', '.join(known_names)}" if known_names else "it has one network only"
        raise _error(
            "unknown_network",
            f"--network {network}: {subject} has no such network.{_suggest(network, known_names)} {listing[:1].upper()}{listing[1:]},"
            " or an entry of `m3b models list`.",
        )
    if overrides.pretrained not in (None, NO_WEIGHTS):
        raise _error("two_networks", "--pretrained brings its own network; leave out --network.")


def _check_start(pretrained: str, folder: Path | None, task: str) -> None:
    """Check that a model of the task may start from a folder, if the folder is a model that m3b delivered."""
    from m3b.training.pretrained.delivered import check_task, read_delivered_plan
    from m3b.training.pretrained.weight_files import StartError

    if folder is None or not task:
        return
    try:
        if delivered := read_delivered_plan(folder):
            check_task(task, folder, delivered)
    except StartError as error:
        raise _error("start_of_other_task", f"--pretrained {pretrained}: {error}.") from None


def find_weights(pretrained: str) -> Path | None:
    """Return the folder of pretrained weights; None for `none`.

    Raises:
        SettingError: there is no such folder or entry, or the weights of the entry are not on this machine.
    """
    if pretrained == NO_WEIGHTS:
        return None
    folder = Path(pretrained).expanduser()
    if folder.is_dir():
        return folder.resolve()
    from m3b.models.pretrained.registry import find_stored_weights, list_pretrained

    known_names = [entry.name for entry in list_pretrained()]
    if pretrained not in known_names:
        raise _error(
            "unknown_weights",
            f"--pretrained {pretrained}: there is no such folder, and no entry of that name (`m3b models list`)."
            f"{_suggest(pretrained, known_names)}",
        )
    stored = find_stored_weights(pretrained)
    if stored is None:
        raise _error(
            "weights_not_here",
            f"--pretrained {pretrained}: its weights are not on this machine. Get them with `m3b models fetch {pretrained}`.",
        )
    return stored.folder


# --- on the command line of plan.py ---------------------------------------------------------------------------------


def find_pretrained_name(overrides: TrainingOverrides) -> str | None:
    """Return the value of `network.pretrained` for plan.py; None if the user named no weights."""
    weights_name = overrides.network if "/" in (overrides.network or "") else overrides.pretrained
    if weights_name is None or weights_name == NO_WEIGHTS:
        return weights_name
    return f"{PRETRAINED_LINK}/{GIVEN_WEIGHTS_NAME}" if Path(weights_name).expanduser().is_dir() else weights_name


def find_weight_folders(overrides: TrainingOverrides) -> dict[str, Path]:
    """Return name below `pretrained/` -> folder of the weights that a training may read: those that the user named, else all that were
    fetched, which the plan compares with scratch."""
    name = find_pretrained_name(overrides)
    if name is None:
        from m3b.models.pretrained.registry import find_stored_weights, list_pretrained

        stored = {entry.name: find_stored_weights(entry.name) for entry in list_pretrained()}
        return {name: weights.folder for name, weights in stored.items() if weights}
    folder = find_weights(overrides.pretrained or overrides.network or "")
    return {name.removeprefix(f"{PRETRAINED_LINK}/"): folder} if folder else {}


def to_settings(overrides: TrainingOverrides, task: str) -> dict[str, Any]:
    """Return the settings of plan.json by dotted name that the overrides fix."""
    values: dict[str, Any] = {}
    if overrides.steps is not None:
        values["max_steps"] = overrides.steps
    if overrides.epochs is not None:
        values |= {"max_epochs": overrides.epochs, "patience": 0}
    if overrides.folds is not None:
        values["folds"] = overrides.folds
    if overrides.network is not None and "/" not in overrides.network:
        values |= find_task_settings(task).find_network(overrides.network) or {}
    if (name := find_pretrained_name(overrides)) is not None:
        values["network.pretrained"] = name
    return {**values, **overrides.settings}


def to_plan_command(overrides: TrainingOverrides, task: str, minutes: float, seed: int = 0) -> str:
    """Return the command with which plan.py makes the plan that the overrides fix."""
    if overrides.plan is not None:
        return f"python plan.py --keep --set minutes={minutes:g}"
    words = ["python plan.py", f"--minutes {minutes:g}"]
    words += [f"--device {overrides.device}"] if overrides.device not in (None, "auto") else []
    words += [f"--gpus {overrides.gpus}"] if overrides.gpus is not None else []
    settings = {**({"seed": seed} if seed else {}), **to_settings(overrides, task)}
    words += [f"--set {' '.join(quote_setting(key, value) for key, value in settings.items())}"] if settings else []
    return " ".join(words)


def quote_setting(key: str, value: Any) -> str:
    """Return KEY=VALUE as a word of the command line of plan.py."""
    import shlex

    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    return shlex.quote(f"{key}={text}")


def find_plan_differences(overrides: TrainingOverrides, plan: Mapping[str, Any], task: str) -> list[str]:
    """Return in which settings a plan.json differs from what the user fixed; empty if in none."""
    if isinstance(overrides.plan, Mapping):
        return [
            f"{key} is {_shorten(plan.get(key))}, and the user's plan says {_shorten(value)}"
            for key, value in overrides.plan.items()
            if key not in PLAN_KEYS_OF_MACHINE and not _is_equal(plan.get(key), value)
        ]
    differences = []
    for key, value in to_settings(overrides, task).items():
        current = _look_up(plan, key)
        if key == "network.pretrained":
            is_kept = bool(current) == (value != NO_WEIGHTS)
        else:
            is_kept = _is_equal(current, value)
        if not is_kept:
            differences.append(f"{key} is {_shorten(current)}, and the user set {_shorten(value)}")
    if overrides.device == "cpu" and plan.get("device") != "cpu":
        differences.append(f"device is {_shorten(plan.get('device'))}, and the user set cpu")
    machine = plan.get("machine")
    gpus = machine.get("gpus") if isinstance(machine, Mapping) else None
    if overrides.gpus is not None and gpus != overrides.gpus:
        differences.append(f"it is planned for {gpus or 0} GPUs, and the user set {overrides.gpus}")
    return differences


def _look_up(plan: Any, key: str) -> Any:
    """Return the value of a dotted key; None if there is none."""
    for part in key.split("."):
        plan = plan.get(part) if isinstance(plan, Mapping) else None
    return plan


def _is_equal(value: Any, other_value: Any) -> bool:
    """Return whether two values of a plan are the same; 1 and 1.0 are, 1 and true are not."""
    numbers = [item for item in (value, other_value) if isinstance(item, int | float) and not isinstance(item, bool)]
    if len(numbers) == 2:
        try:
            return math.isclose(*numbers)
        except OverflowError:  # a whole number of hundreds of digits
            return False
    return json.dumps(value, sort_keys=True, default=str) == json.dumps(other_value, sort_keys=True, default=str)


def _shorten(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def merge_overrides(flags: TrainingOverrides, wishes: TrainingOverrides) -> TrainingOverrides:
    """Return the overrides of the user with those of the request for what they leave open."""
    adopted_values = {
        name: getattr(wishes, name)
        for name in ("metric", "device", "gpus", "epochs", "steps", "folds", "network", "pretrained")
        if getattr(wishes, name) is not None and getattr(flags, name) is None
    }
    if flags.plan is not None:
        adopted_values = {name: value for name, value in adopted_values.items() if name == "metric"}
    if flags.epochs is not None or flags.steps is not None:
        adopted_values = {name: value for name, value in adopted_values.items() if name not in ("epochs", "steps")}
    if flags.pretrained is not None or flags.network is not None:
        adopted_values = {
            name: value for name, value in adopted_values.items() if name not in ("network", "pretrained")
        }
    return replace(flags, **adopted_values, from_request=tuple(adopted_values)) if adopted_values else flags
