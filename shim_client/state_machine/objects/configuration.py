"""The ConfigMaps of the shim's own namespace: their settings are merged, and the queue configuration is sent to the core.

An embedded cluster has a file instead.

The core checks the queue configuration. If the configuration has errors, the previous one stays in force, and an
event on the ConfigMap or the file names the errors. A change of any other setting takes effect only after a restart.
An event says so when such a setting changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shim_client.cluster import KubeObject, ObjectRef
from shim_client.config import BadSettingError, Settings, settings_from, unclear_settings
from shim_client.messages import ConfigurationAnswer, ConfigurationReport
from shim_client.state_machine.state import State
from shim_client.translate.config_map import CONFIG_MAPS, merged, name_of
from shim_client.translate.fields import mapping

PROBLEMS_SHOWN = 5
"""Maximum number of problems of one answer that an event names."""
_UNCLEAR = "settings that are not clear"
"""The key in `State.bad` for invalid values of settings that defaults replace."""
_LOST = (
    "ConfigMap {name} holds no queues any more, so the queues that it held stay in force; "
    "write the queues that you want into it"
)


@dataclass(frozen=True, slots=True)
class QueuesChanged:
    """A queue configuration that comes from a file, and the reference under which events on that file are recorded."""

    text: str
    file: ObjectRef


def changed(state: State, news: QueuesChanged) -> None:
    """Send the queue configuration of a file to the core when it differs from the configuration sent before."""
    state.queues_file = news.file
    if news.text != state.queues_told:
        state.queues_told = news.text
        state.reports.append(ConfigurationReport(news.text, f"file {news.file.name}"))


def observe(state: State, item: KubeObject) -> None:
    """Record a ConfigMap that is new or has changed."""
    if state.settings.namespace and name_of(item) in CONFIG_MAPS:
        state.config_maps[name_of(item)] = item
        if "ConfigMap" in state.listed:
            refresh(state)


def forget(state: State, item: KubeObject) -> None:
    """Record that a ConfigMap was deleted, so that its settings have no effect any more."""
    remove(state, name_of(item))


def remove(state: State, name: str) -> None:
    """Drop a ConfigMap by name."""
    if state.config_maps.pop(name, None) is not None and "ConfigMap" in state.listed:
        refresh(state)


def refresh(state: State) -> None:
    """Send the queue configuration to the core if it differs from the configuration sent before.

    An empty configuration is not sent. No configuration is sent if the settings cannot be read, or if a changed
    ConfigMap is not to take effect at once.
    """
    settings = _settings(state)
    if settings is None or not state.settings.hot_refresh:
        return
    if replace(settings, queues="") != replace(state.settings, queues=""):
        _complain(state, "RestartNeeded", "settings other than the queues have changed")
    source = _queues_source(state, settings.policy_group)
    if _is_lost(state, source):
        _complain(state, "ConfigurationNotApplied", _LOST.format(name=state.queues_from))
        return
    state.queues_from = source
    if settings.queues and settings.queues != state.queues_told:
        state.queues_told = settings.queues
        state.reports.append(ConfigurationReport(settings.queues, _source(state)))


def _queues_source(state: State, group: str) -> str:
    """Return the name of the ConfigMap whose queue configuration takes precedence.

    Return "" when no ConfigMap has a queue configuration.
    """
    names = [
        name
        for name in CONFIG_MAPS
        if name in state.config_maps and _has_queues(state, name, group)
    ]
    return names[-1] if names else ""


def _is_lost(state: State, source: str) -> bool:
    """Return whether the ConfigMap that gave the queues in force no longer has queues.

    The queues of `yunikorn-defaults` must not come into force as an unintended replacement.
    """
    before = state.queues_from
    if not before or source == before:
        return False
    return not source or CONFIG_MAPS.index(source) < CONFIG_MAPS.index(before)


def answered(state: State, answer: ConfigurationAnswer) -> None:
    """Record the core's answer as an event on the ConfigMap or the file, unless it was recorded before."""
    if answer == state.configuration_said:
        return
    state.configuration_said = answer
    about = state.queues_file or reference(state)
    reason = "ConfigurationApplied" if answer.applied else "ConfigurationRefused"
    state.note(about, reason, text_of(answer), warning=not answer.applied or bool(answer.problems))


def text_of(answer: ConfigurationAnswer) -> str:
    """Return the core's answer in one line: whether the queues are in force, and the first problems."""
    lines = [*answer.problems[:PROBLEMS_SHOWN]]
    if len(answer.problems) > len(lines):
        lines.append(f"and {len(answer.problems) - len(lines)} more")
    return "; ".join(
        ("the queues are in force" if answer.applied else "nothing was changed", *lines)
    )


def _settings(state: State) -> Settings | None:
    flat, problems = merged(state.config_maps.values())
    for problem in problems:
        _complain(state, "ConfigurationNotReadable", problem)
    try:
        found = settings_from(flat)
    except BadSettingError as bad:
        _complain(state, "ConfigurationRefused", f"nothing was changed; {bad}")
        return None
    if not problems:
        state.bad.pop("ConfigMap", None)
    _warn(state, "; ".join(unclear_settings(flat)))
    kept = state.settings
    return replace(found, namespace=kept.namespace, qps=kept.qps, burst=kept.burst)


def _warn(state: State, unclear: str) -> None:
    """Record which values cannot be used.

    If the same values occur again, no further event is recorded. An empty text means that all values can be used.
    """
    known = state.bad.pop(_UNCLEAR, "")
    if unclear:
        state.bad[_UNCLEAR] = unclear
        if unclear != known:
            state.note(reference(state), "SettingNotClear", unclear, warning=True)


def _complain(state: State, reason: str, message: str) -> None:
    said = f"{reason}:{message}"
    if state.bad.get("ConfigMap") != said:
        state.bad["ConfigMap"] = said
        state.note(reference(state), reason, message, warning=True)


def _source(state: State) -> str:
    ref = reference(state)
    return f"ConfigMap {ref.namespace}/{ref.name}"


def reference(state: State) -> ObjectRef:
    """Return the reference of the ConfigMap whose queue configuration takes precedence."""
    names = [name for name in CONFIG_MAPS if name in state.config_maps]
    group = state.settings.policy_group
    having = [name for name in names if _has_queues(state, name, group)] or names or [*CONFIG_MAPS]
    name = having[-1]
    uid = mapping(state.config_maps.get(name, {}), "metadata").get("uid", "")
    return ObjectRef("ConfigMap", state.settings.namespace, name, str(uid))


def _has_queues(state: State, name: str, group: str) -> bool:
    flat, _ = merged([state.config_maps[name]])
    return bool(flat.get(f"{group}.yaml"))
