"""A pipeline by Spark's own backend for Kubernetes, with what `deploy/kubernetes` has: image, settings and rights.

    python kubernetes_story.py

The API server is `kube_api.py`, which is not the real one: what is shown is that executors come, die and go as on
a standalone cluster, that the entrypoint starts them, and that the rights are enough.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import yaml
from cluster_story import Story, check_kept, live
from kube_api import HOST, NAMESPACE, KubeApi

from elastream.engines.spark import allocation
from elastream.engines.spark.session_conf import conf_of

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
_POD = "the-driver"
_SHORT_S = 10.0


class KubernetesStory(Story):
    def _live(self) -> None:
        self._batches()
        runs = self._running.runs()
        self.seen["executors at first"] = len(self._executors.up())
        self.seen["grown"] = self._running.rescale(marked=9).detail  # 12 slots
        self.seen["executors after growing"] = len(self._executors.up())
        self._batches()
        self.seen["killed"], self.seen["replacements"] = self._kill_one()
        self._batches()
        allocation._MORE_TIMEOUT_S = _SHORT_S
        self.seen["shrunk"] = self._running.rescale(marked=5).detail  # 8 slots
        self._running.wait_until(lambda: len(self._processes()) == 2, lambda: f"two of {self._processes()}")
        self._batches()
        self.seen["executors after shrinking"] = len(self._executors.up())
        self.seen["runs changed"] = [name for name, run in self._running.runs().items() if runs[name] != run]


def documents(name: str) -> list[dict[str, object]]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def settings_of_driver() -> dict[str, str]:
    """What the deployment gives Spark, in a pod on this machine."""
    [deployment] = documents("driver.yaml")
    args = deployment["spec"]["template"]["spec"]["containers"][0]["args"]  # type: ignore[index]
    told = {"POD_IP": HOST, "POD_NAME": _POD, "POD_NAMESPACE": NAMESPACE}
    pairs = [re.sub(r"\$\((\w+)\)", lambda name: told[name[1]], arg) for arg in args]
    return conf_of([pair.removeprefix("--conf=") for pair in pairs if pair.startswith("--conf=")])


def main() -> None:
    began_s = time.monotonic()
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    rules = next(one for one in documents("rights.yaml") if one["kind"] == "Role")["rules"]
    image = ["sh", str(DEPLOY / "entrypoint.sh")]
    with tempfile.TemporaryDirectory() as scratch, KubeApi(Path(scratch) / "pods", rules, image) as api:  # type: ignore[arg-type]
        api.create("pods", {"metadata": {"name": _POD}, "spec": {"containers": []}}, runs_already=True)
        folder = Path(scratch) / "pipeline"
        folder.mkdir()
        soon = {"spark.kubernetes.executor.apiPollingInterval": "2s"}  # it looks every 30 s beside its watch
        seen = live(api.master, folder, KubernetesStory, **settings_of_driver(), **soon)
        print(json.dumps(seen, indent=1))
        print(f"asked of the API server: {', '.join(' '.join(one[::-1]) for one in sorted(api.asked))}")
        numbers = seen["numbers"]
        assert isinstance(numbers, int)
        check_kept(folder, numbers)
        left = api.names("pods")
    print(f"{numbers} numbers, each once; {time.monotonic() - began_s:.0f} s")
    assert not api.refused, f"the rights lack {api.refused}"
    assert (seen["executors at first"], seen["executors after growing"], seen["grown"]) == (1, 3, "")
    assert seen["executors after shrinking"] == 2
    assert seen["runs changed"] == []
    assert left == [_POD], f"pods of executors are left: {left}"


if __name__ == "__main__":
    main()
