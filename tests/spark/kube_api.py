"""As much of Kubernetes as Spark asks for, on this machine: an API server that knows pods, and a kubelet for them.

    with KubeApi(folder, rules, image) as api:
        ...  # a session with the master `api.master` has processes of this machine as its executors

Every request must be allowed by the rules of a Role. A container is what `image` makes of it: the command that the
image begins with, in the environment that the pod has. What it is not: it schedules nothing, has no volumes, no
services and no names, and a pod that is deleted is killed without grace.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import threading
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

HOST = "127.0.0.1"
NAMESPACE = "default"
_PATH = re.compile(rf"/api/v1/namespaces/{NAMESPACE}/(?P<resource>\w+)(?:/(?P<name>[\w.-]+))?")
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update"}
_FIELDS = {"status.podIP": HOST, "metadata.namespace": NAMESPACE}

Json = dict[str, Any]


class KubeApi:
    """As a context: it answers inside, and all containers are gone afterwards."""

    def __init__(self, folder: Path, rules: Sequence[Mapping[str, Any]], image: Sequence[str]) -> None:
        self.asked: set[tuple[str, str]] = set()
        """Resources, each with the verb."""
        self.refused: set[tuple[str, str]] = set()
        """Of these, what no rule allows."""
        self._folder = folder
        self._image = image
        self._allowed = {
            (resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]
        }
        self._lock = threading.RLock()
        self._version = 0
        self._objects: dict[tuple[str, str], Json] = {}
        self._watchers: list[queue.Queue[Json | None]] = []
        self._containers: dict[str, subprocess.Popen[bytes]] = {}
        self._server = ThreadingHTTPServer((HOST, 0), type("Handler", (_Handler,), {"api": self}))
        self._server.daemon_threads = True

    @property
    def master(self) -> str:
        return f"k8s://http://{HOST}:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            for watcher in self._watchers:
                watcher.put(None)
            for name in list(self._containers):
                self._kill(name)
        self._server.shutdown()
        self._server.server_close()

    def allows(self, resource: str, verb: str) -> bool:
        self.asked.add((resource, verb))
        if (resource, verb) not in self._allowed:
            self.refused.add((resource, verb))
        return (resource, verb) in self._allowed

    def names(self, resource: str) -> list[str]:
        with self._lock:
            return sorted(name for kind, name in self._objects if kind == resource)

    # What is there

    def create(self, resource: str, given: Json, *, runs_already: bool = False) -> Json:
        """A pod begins to run at once."""
        with self._lock:
            name = given["metadata"]["name"]
            given["metadata"] |= {
                "uid": str(uuid.uuid4()),
                "namespace": NAMESPACE,
                "creationTimestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
            self._objects[resource, name] = given
            if resource == "pods":
                ready = [{"type": "Ready", "status": "True"}]
                given["status"] = {"phase": "Running", "podIP": HOST, "conditions": ready}
                if not runs_already:
                    self._start(name, given)
            self._changed("ADDED", resource, given)
            return given

    def get(self, resource: str, name: str) -> Json | None:
        with self._lock:
            return self._objects.get((resource, name))

    def patch(self, resource: str, name: str, change: Json) -> Json | None:
        """Of what describes it; Spark changes nothing else."""
        with self._lock:
            found = self._objects.get((resource, name))
            if found is not None:
                for key, values in change["metadata"].items():
                    if isinstance(values, dict):
                        found["metadata"].setdefault(key, {}).update(values)
                self._changed("MODIFIED", resource, found)
            return found

    def delete(self, resource: str, name: str) -> Json | None:
        with self._lock:
            found = self._objects.pop((resource, name), None)
            if found is not None:
                self._kill(name)
                self._changed("DELETED", resource, found)
            return found

    def selected(self, resource: str, labels: str, fields: str) -> Json:
        with self._lock:
            found = [
                one
                for (kind, _), one in self._objects.items()
                if kind == resource and _fits(one["metadata"].get("labels", {}), labels) and _has(one, fields)
            ]
            return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": list(found)}

    def watch(self, resource: str, labels: str, fields: str) -> Iterator[Json]:
        """What changes from now on."""
        watcher: queue.Queue[Json | None] = queue.Queue()
        with self._lock:
            self._watchers.append(watcher)
        while (event := watcher.get()) is not None:
            one, kind = event["object"], event["resource"]
            if kind == resource and _fits(one["metadata"].get("labels", {}), labels) and _has(one, fields):
                yield {"type": event["type"], "object": one}

    def _changed(self, how: str, resource: str, what: Json) -> None:
        self._version += 1
        what["metadata"]["resourceVersion"] = str(self._version)
        told = {"type": how, "resource": resource, "object": json.loads(json.dumps(what))}
        for watcher in self._watchers:
            watcher.put(told)

    # The kubelet

    def _start(self, name: str, pod: Json) -> None:
        container = pod["spec"]["containers"][0]
        own = {one["name"]: _value(one, name) for one in container.get("env", [])}
        local = self._folder / name
        local.mkdir()
        with (self._folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._image, *container.get("command", []), *container["args"]],
                env={**os.environ, **own, "SPARK_LOCAL_DIRS": str(local)},
                cwd=local,  # where executors put what they fetch
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._containers[name] = process
        threading.Thread(target=self._wait, args=(name, process), daemon=True).start()

    def _wait(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            pod = self._objects.get(("pods", name))
            if pod is None or self._containers.get(name) is not process:
                return
            ended = {
                "exitCode": code if code >= 0 else 128 - code,
                "reason": "Completed" if code == 0 else "Error",
            }
            container = {"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": ended}}
            phase = "Succeeded" if code == 0 else "Failed"
            pod["status"] = {"phase": phase, "podIP": HOST, "containerStatuses": [container]}
            self._changed("MODIFIED", "pods", pod)

    def _kill(self, name: str) -> None:
        process = self._containers.pop(name, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class _Handler(BaseHTTPRequestHandler):
    api: KubeApi
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        asked = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(asked.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = _PATH.fullmatch(asked.path)
        if self.headers.get("Upgrade"):  # a client that cannot have a web socket asks by plain HTTP
            self._send(503, _status(503, "no web sockets"))
        elif found is None:
            self._send(404, _status(404, f"nothing is known of {asked.path}"))
        else:
            self._answer_for(found["resource"], found["name"], query, body)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def _answer_for(self, resource: str, name: str | None, query: Mapping[str, str], body: bytes) -> None:
        watching = query.get("watch") in ("true", "1")
        verb = (
            _VERBS.get(self.command)
            or {
                ("GET", True): "get" if not watching else "watch",
                ("GET", False): "list" if not watching else "watch",
                ("DELETE", True): "delete",
                ("DELETE", False): "deletecollection",
            }[self.command, name is not None]
        )
        if not self.api.allows(resource, verb):
            self._send(403, _status(403, f"{verb} {resource} is not allowed"))
            return
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        if watching:
            self._stream(self.api.watch(resource, labels, fields))
        elif verb == "list":
            self._send(200, self.api.selected(resource, labels, fields))
        elif verb == "create":
            self._send(201, self.api.create(resource, json.loads(body)))
        elif verb == "deletecollection":
            chosen = self.api.selected(resource, labels, fields)
            for one in chosen["items"]:
                self.api.delete(resource, one["metadata"]["name"])
            self._send(200, chosen)
        else:
            assert name is not None
            done = {
                "get": lambda: self.api.get(resource, name),
                "patch": lambda: self.api.patch(resource, name, json.loads(body)),
                "delete": lambda: self.api.delete(resource, name),
            }[verb]()
            self._send(200, done) if done is not None else self._send(404, _status(404, f"no {resource} {name}"))

    def _send(self, status: int, answer: Json) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[Json]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has had enough
            for event in events:
                line = json.dumps(event).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


def _value(variable: Mapping[str, Any], pod: str) -> str:
    if "valueFrom" not in variable:
        return str(variable.get("value") or "")
    field = variable["valueFrom"]["fieldRef"]["fieldPath"]
    return pod if field == "metadata.name" else _FIELDS[field]


def _fits(labels: Mapping[str, str], selector: str) -> bool:
    """Of `a=b`, `a in (b, c)` and so on, with commas between."""
    for one in re.findall(r"[^,(]+(?:\([^)]*\))?", selector):
        key, among, values = one.strip().partition(" in ")
        if among:
            if labels.get(key) not in [value.strip() for value in values.strip("() ").split(",")]:
                return False
            continue
        key, equals, value = one.strip().partition("=")
        negated = key.endswith("!")
        if equals and (labels.get(key.rstrip("!")) == value.lstrip("=")) is negated:
            return False
    return True


def _has(one: Json, selector: str) -> bool:
    for wanted in filter(None, selector.split(",")):
        path, _, value = wanted.partition("=")
        found: Any = one
        for part in path.rstrip("!").split("."):
            found = found.get(part, {})
        if (found == value.lstrip("=")) is path.endswith("!"):
            return False
    return True


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}
