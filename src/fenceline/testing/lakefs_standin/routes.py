"""Requests of lakeFS's HTTP API to calls on the state."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from fenceline.testing.lakefs_standin.answers import (
    Answer,
    Request,
    as_json,
    commit_json,
    differences,
    listing,
    object_json,
    page,
    refs,
)
from fenceline.testing.lakefs_standin.state import Refusal, RepositoryState, check_repository_name
from fenceline.testing.lakefs_standin.trees import Stored, changes

META_HEADER = "x-lakefs-meta-"


class Routes:
    """Finds the method for a request. Each is named after its operation, as `calls` and faults name it."""

    def __init__(self, now: Callable[[], float], protection_delay: float, hooks: bool, user: str) -> None:
        self._now, self._delay, self._hooks, self._user = now, protection_delay, hooks, user
        self._repositories: dict[str, RepositoryState] = {}
        self._uploads = 0

    def find(self, method: str, path: str) -> tuple[str, Callable[[Request], Answer]]:
        for verb, pattern, operation in _TABLE:
            found = pattern.fullmatch(path)
            if verb == method and found:
                return operation, partial(self._call, getattr(self, operation), found.groupdict())
        raise Refusal(404, f"the stand-in has no {method} {path}")

    def _call(self, call: Callable[..., Answer], named: dict[str, str], request: Request) -> Answer:
        if "repository" not in named:
            return call(request, *named.values())
        return call(request, self._state(named.pop("repository")), *named.values())

    def _state(self, name: str) -> RepositoryState:
        if name not in self._repositories:
            raise Refusal(404, "repository not found")
        return self._repositories[name]

    # --- the server ---------------------------------------------------------------------------------------------

    def get_config(self, request: Request) -> Answer:
        return as_json(200, {"version_config": {"version": "stand-in"}})

    def get_user(self, request: Request) -> Answer:
        return as_json(200, {"user": {"id": self._user, "creation_date": 0}})

    def list_policies(self, request: Request, user: str) -> Answer:
        raise Refusal(501, "Not Implemented")

    # --- repositories -------------------------------------------------------------------------------------------

    def create_repository(self, request: Request) -> Answer:
        wanted = request.json
        name, namespace = wanted["name"], wanted["storage_namespace"]
        check_repository_name(name)
        if name in self._repositories:
            raise Refusal(409, "error creating repository: not unique")
        default = wanted.get("default_branch") or "main"
        self._repositories[name] = RepositoryState(name, namespace, default, self._now, self._delay, self._hooks)
        return as_json(201, self._repository(self._state(name)))

    def get_repository(self, request: Request, state: RepositoryState) -> Answer:
        return as_json(200, self._repository(state))

    def delete_repository(self, request: Request, state: RepositoryState) -> Answer:
        del self._repositories[state.name]
        return Answer(204)

    def _repository(self, state: RepositoryState) -> dict[str, Any]:
        return {
            "id": state.name,
            "creation_date": state.created,
            "default_branch": state.default,
            "storage_namespace": state.namespace,
        }

    def get_protection(self, request: Request, state: RepositoryState) -> Answer:
        return as_json(200, [{"pattern": pattern} for pattern in state.protection])

    def set_protection(self, request: Request, state: RepositoryState) -> Answer:
        state.protect(tuple(rule["pattern"] for rule in request.json))
        return Answer(204)

    # --- branches and tags --------------------------------------------------------------------------------------

    def list_branches(self, request: Request, state: RepositoryState) -> Answer:
        shown = request.flag("show_hidden")
        found = {name: branch.commit for name, branch in state.branches.items() if shown or not branch.hidden}
        return page(request, refs(request, found), "id")

    def create_branch(self, request: Request, state: RepositoryState) -> Answer:
        wanted = request.json
        commit = state.create_branch(wanted["name"], wanted["source"], bool(wanted.get("hidden")))
        return Answer(201, commit.encode(), {"Content-Type": "text/html"})

    def get_branch(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        return as_json(200, {"id": branch, "commit_id": state.branch(branch).commit})

    def delete_branch(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        state.delete_branch(branch)
        return Answer(204)

    def hard_reset(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        state.hard_reset(branch, request.query["ref"])
        return Answer(204)

    def list_tags(self, request: Request, state: RepositoryState) -> Answer:
        return page(request, refs(request, state.tags), "id")

    def create_tag(self, request: Request, state: RepositoryState) -> Answer:
        wanted = request.json
        return as_json(201, {"id": wanted["id"], "commit_id": state.create_tag(wanted["id"], wanted["ref"])})

    def get_tag(self, request: Request, state: RepositoryState, tag: str) -> Answer:
        if tag not in state.tags:
            raise Refusal(404, "tag not found")
        return as_json(200, {"id": tag, "commit_id": state.tags[tag]})

    def delete_tag(self, request: Request, state: RepositoryState, tag: str) -> Answer:
        state.delete_tag(tag)
        return Answer(204)

    # --- history ------------------------------------------------------------------------------------------------

    def get_commit(self, request: Request, state: RepositoryState, ref: str) -> Answer:
        return as_json(200, commit_json(state.commit(ref)))

    def log(self, request: Request, state: RepositoryState, ref: str) -> Answer:
        commits = state.log(ref, request.flag("first_parent"), request.query.get("stop_at"))
        after = request.query.get("after")
        if after:
            for commit in commits:
                if commit.id == after:
                    break
        return page(request, map(commit_json, commits), "id")

    def diff(self, request: Request, state: RepositoryState, left: str, right: str) -> Answer:
        return page(request, differences(request, changes(state.tree(left), state.tree(right))), "path")

    def uncommitted(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        return page(request, differences(request, state.uncommitted(branch)), "path")

    def commit(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        wanted = request.json
        metadata, empty = wanted.get("metadata") or {}, bool(wanted.get("allow_empty"))
        return as_json(201, commit_json(state.commit_branch(branch, wanted["message"], metadata, empty)))

    def merge(self, request: Request, state: RepositoryState, source: str, target: str) -> Answer:
        wanted = request.json
        commit = state.merge(
            source,
            target,
            wanted.get("message") or f"Merge '{source}' into '{target}'",
            wanted.get("metadata") or {},
            bool(wanted.get("squash_merge")),
            bool(wanted.get("allow_empty")),
            request.pause,
        )
        return as_json(200, {"reference": commit.id})

    # --- objects ------------------------------------------------------------------------------------------------

    def list_objects(self, request: Request, state: RepositoryState, ref: str) -> Answer:
        return page(request, listing(request, state.tree(ref)), "path")

    def stat(self, request: Request, state: RepositoryState, ref: str) -> Answer:
        path = request.query["path"]
        return as_json(200, object_json(path, _stored(state, ref, path)))

    def get(self, request: Request, state: RepositoryState, ref: str) -> Answer:
        stored = _stored(state, ref, request.query["path"])
        headers = {"Content-Type": stored.content_type, "ETag": f'"{stored.checksum}"'}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if wanted is None:
            return Answer(200, stored.data, headers)
        start, size = int(wanted[1]), len(stored.data)
        end = min(int(wanted[2] or size), size - 1)
        if start >= size:
            raise Refusal(416, "Requested Range Not Satisfiable")
        return Answer(206, stored.data[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{size}"})

    def upload(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        self._uploads += 1
        stored = Stored(
            request.body,
            hashlib.md5(request.body, usedforsecurity=False).hexdigest(),
            int(self._now()),
            f"{state.namespace}/data/{self._uploads}",
            request.headers.get("content-type", "application/octet-stream"),
            {key[len(META_HEADER) :]: value for key, value in request.headers.items() if key.startswith(META_HEADER)},
        )
        state.stage(branch, request.query["path"], stored)
        return as_json(201, object_json(request.query["path"], stored))

    def delete_objects(self, request: Request, state: RepositoryState, branch: str) -> Answer:
        errors = []
        for path in request.json["paths"]:
            try:
                state.stage(branch, path, None)
            except Refusal as refusal:
                errors.append({"status_code": refusal.status, "message": refusal.message, "path": path})
        return as_json(200, {"errors": errors})


def _stored(state: RepositoryState, ref: str, path: str) -> Stored:
    tree = state.tree(ref)
    if path not in tree:
        raise Refusal(404, "not found")
    return tree[path]


_REPOSITORY = "/repositories/{repository}"
_TABLE = [
    (verb, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", path)), operation)
    for verb, path, operation in (
        ("GET", "/config", "get_config"),
        ("GET", "/user", "get_user"),
        ("GET", "/auth/users/{user}/policies", "list_policies"),
        ("POST", "/repositories", "create_repository"),
        ("GET", _REPOSITORY, "get_repository"),
        ("DELETE", _REPOSITORY, "delete_repository"),
        ("GET", f"{_REPOSITORY}/settings/branch_protection", "get_protection"),
        ("PUT", f"{_REPOSITORY}/settings/branch_protection", "set_protection"),
        ("GET", f"{_REPOSITORY}/branches", "list_branches"),
        ("POST", f"{_REPOSITORY}/branches", "create_branch"),
        ("GET", f"{_REPOSITORY}/branches/{{branch}}", "get_branch"),
        ("DELETE", f"{_REPOSITORY}/branches/{{branch}}", "delete_branch"),
        ("PUT", f"{_REPOSITORY}/branches/{{branch}}/hard_reset", "hard_reset"),
        ("GET", f"{_REPOSITORY}/branches/{{branch}}/diff", "uncommitted"),
        ("POST", f"{_REPOSITORY}/branches/{{branch}}/commits", "commit"),
        ("POST", f"{_REPOSITORY}/branches/{{branch}}/objects", "upload"),
        ("POST", f"{_REPOSITORY}/branches/{{branch}}/objects/delete", "delete_objects"),
        ("GET", f"{_REPOSITORY}/tags", "list_tags"),
        ("POST", f"{_REPOSITORY}/tags", "create_tag"),
        ("GET", f"{_REPOSITORY}/tags/{{tag}}", "get_tag"),
        ("DELETE", f"{_REPOSITORY}/tags/{{tag}}", "delete_tag"),
        ("GET", f"{_REPOSITORY}/commits/{{ref}}", "get_commit"),
        ("GET", f"{_REPOSITORY}/refs/{{ref}}/commits", "log"),
        ("GET", f"{_REPOSITORY}/refs/{{left}}/diff/{{right}}", "diff"),
        ("POST", f"{_REPOSITORY}/refs/{{source}}/merge/{{target}}", "merge"),
        ("GET", f"{_REPOSITORY}/refs/{{ref}}/objects/ls", "list_objects"),
        ("GET", f"{_REPOSITORY}/refs/{{ref}}/objects/stat", "stat"),
        ("GET", f"{_REPOSITORY}/refs/{{ref}}/objects", "get"),
    )
]
