"""Resolves kustomizations as far as ours go, and refuses what it does not know.

Known: resources (files and directories), patches (a path, with a target by kind and name or the patch's own), images
(newName, newTag), namespace. A patch is merged as Kubernetes merges ours: maps by key, the lists in `KEYS` by their
entries' key, other lists of plain values as a whole. Everything else is an error: a manifest that this reader
misunderstands must not pass a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

Document = dict[str, Any]  # Any: YAML
KEYS: Final = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
}
_FIELDS: Final = {"apiVersion", "kind", "namespace", "resources", "patches", "images"}
_CLUSTER_WIDE: Final = {"Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"}


class NotUnderstood(Exception):
    """A kustomization or patch has what this reader does not know."""


def build(directory: Path) -> list[Document]:
    """The resources of a kustomization, resolved. Raises NotUnderstood."""
    told = yaml.safe_load((directory / "kustomization.yaml").read_text())
    if unknown := set(told) - _FIELDS:
        raise NotUnderstood(f"{directory}: {', '.join(sorted(unknown))}")
    found = [one for name in told["resources"] for one in _resources(directory / name)]
    for patch in told.get("patches", []):
        _apply(patch, directory, found)
    for image in told.get("images", []):
        _rename(image, found)
    for one in found if "namespace" in told else []:
        if one["kind"] in _CLUSTER_WIDE:
            raise NotUnderstood(f"{directory}: a namespace, and {one['kind']}, which has none")
        one["metadata"]["namespace"] = told["namespace"]
    _require_unique(found)
    return found


def _resources(path: Path) -> list[Document]:
    if path.is_dir():
        return build(path)
    return [one for one in yaml.safe_load_all(path.read_text()) if one is not None]


def _apply(patch: Document, directory: Path, found: list[Document]) -> None:
    if unknown := set(patch) - {"path", "target"}:
        raise NotUnderstood(f"{directory}: patches: {', '.join(sorted(unknown))}")
    change = yaml.safe_load((directory / patch["path"]).read_text())
    if not isinstance(change, dict) or "kind" not in change:
        raise NotUnderstood(f"{directory / patch['path']}: a patch of another kind than a strategic merge")
    target = patch.get("target", {"kind": change["kind"], "name": change["metadata"]["name"]})
    if set(target) != {"kind", "name"}:
        raise NotUnderstood(f"{directory}: a target by other than kind and name: {target}")
    meant = [one for one in found if (one["kind"], one["metadata"]["name"]) == (target["kind"], target["name"])]
    if len(meant) != 1:
        raise NotUnderstood(f"{directory / patch['path']}: meant for {target}, of which there are {len(meant)}")
    _merge(meant[0], change, str(directory / patch["path"]))


def _merge(into: Document, change: Document, where: str) -> None:
    for key, value in change.items():
        if key.startswith("$") or value is None:
            raise NotUnderstood(f"{where}: a directive, or a removal: {key}")
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value, where)
        elif isinstance(value, list) and isinstance(into.get(key), list) and any(isinstance(v, dict) for v in value):
            _merge_list(into[key], value, key, where)
        else:
            into[key] = deepcopy(value)


def _merge_list(into: list[Document], change: list[Document], key: str, where: str) -> None:
    if key not in KEYS:
        raise NotUnderstood(f"{where}: a list of maps that is merged by an unknown key: {key}")
    by = KEYS[key]
    new = []
    for value in change:
        old = next((one for one in into if one[by] == value[by]), None)
        if old is None:
            new.append(deepcopy(value))
        else:
            _merge(old, value, where)
    into[:0] = new  # in front, as kustomize puts them


def _rename(image: Document, found: list[Document]) -> None:
    if unknown := set(image) - {"name", "newName", "newTag"}:
        raise NotUnderstood(f"images: {', '.join(sorted(unknown))}")
    meant = [one for one in containers(found) if one["image"].partition(":")[0] == image["name"]]
    if not meant:
        raise NotUnderstood(f"images: nobody has the image {image['name']}")
    for one in meant:
        name, _, tag = one["image"].partition(":")
        tag = image.get("newTag", tag)
        one["image"] = image.get("newName", name) + (f":{tag}" if tag else "")


def containers(found: list[Document]) -> Iterator[Document]:
    """Every container of every pod, those that start first included."""
    for one in found:
        pod = one.get("spec", {}).get("template", {}).get("spec", {})
        yield from [*pod.get("initContainers", []), *pod.get("containers", [])]


def _require_unique(found: list[Document]) -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    if len(set(names)) != len(names):
        raise NotUnderstood(f"two resources of one kind and name: {names}")
