"""What lies in deploy/ names options, routes, files and exit codes that there are."""

import re
import shlex
import tomllib
from pathlib import Path

import click
import msgspec
import pytest
import yaml

from pesto.cli.main import pesto
from pesto.errors import Exit
from pesto.serve.http.other_routes import health_routes
from pesto.serve.serve_config import ServeConfig
from pesto.serve.tokens import FILE

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDER = "/var/lib/pesto/service"


def manifests(name):
    """The objects of a Kubernetes file by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())}


def pod(manifest):
    return manifest["spec"]["template"]["spec"]


def compose(name="compose.yaml"):
    return yaml.safe_load((DEPLOY / name).read_text())["services"]["pesto"]


def commands():
    """What `pesto` is called with: by each file, and as comments and docs/service.md tell it."""
    told = re.search(r"^CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.M)
    found = [msgspec.json.decode(told[1]), compose()["command"], compose("compose.postgres.yaml")["command"]]
    found += [pod(manifests("service.yaml")["Deployment"])["containers"][0]["args"]]
    found += [pod(manifests("solve.yaml")["Job"])["containers"][0]["args"]]
    script = (DEPLOY / "solve.sbatch").read_text().replace("\\\n", "")
    found += [
        shlex.split(
            re.search(r"pesto (solve .*?) \|\|", script)[1].replace('"$@"', "").replace("$SLURM_CPUS_PER_TASK", "8")
        )
    ]
    for path in (*DEPLOY.glob("compose*.yaml"), DEPLOY / "kubernetes" / "service.yaml", DEPLOY / "solve.sbatch"):
        for line in re.findall(r"^#.*$", path.read_text(), re.M):
            found += [words.split() for words in re.findall(r"pesto (serve token add .*)$", line)]
            found += [["solve", *words.split()] for words in re.findall(r"solve\.sbatch (--.*)$", line)]
    return found


def test_commands_are_understood():
    """Each is parsed by the verb that it names: an unknown option, or a value that it does not take, raises."""
    assert len(commands()) == 10
    for verb, *words in commands():
        command, context, left = pesto.get_command(click.Context(pesto), verb), None, list(words)
        while isinstance(command, click.Group) and not left[0].startswith("-"):
            context = click.Context(command, parent=context)
            command = command.get_command(context, left.pop(0))
        command.make_context(verb, left, parent=context)


def test_the_job_knows_the_exit_codes():
    """Each code of a solve is retried or not; none that says the input is at fault is, and none is in two rules."""
    policy = manifests("solve.yaml")["Job"]["spec"]["podFailurePolicy"]["rules"]
    by_action = {rule["action"]: rule["onExitCodes"]["values"] for rule in policy if "onExitCodes" in rule}
    final = [Exit.BUG, Exit.USAGE, Exit.INPUT, Exit.INFEASIBLE, Exit.NOTHING, Exit.VERIFICATION, Exit.MISMATCH]
    killed = 128 + 9
    assert by_action == {"FailJob": final, "Count": [Exit.SOLVER, Exit.IO, killed, Exit.TERMINATED]}
    assert set(Exit) - {*final, *by_action["Count"]} == {Exit.OK, Exit.DIFFERENT, Exit.INTERRUPTED}
    assert f'"$code" -eq {Exit.TERMINATED} ' in (DEPLOY / "solve.sbatch").read_text()


@pytest.mark.parametrize(("file", "kind"), [("service.yaml", "Deployment"), ("solve.yaml", "Job")])
def test_pods_may_write_their_volumes_alone(file, kind):
    """Not root, root file system read-only, nothing gained; every mount is of a volume that the pod has."""
    spec = pod(manifests(file)[kind])
    assert spec["securityContext"]["runAsNonRoot"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108 - a path there


def test_probes_ask_routes_that_there_are():
    """Those of the Deployment and of the image, at the port that the service has by default."""
    routes = {route.path for route in health_routes().routes}
    container = pod(manifests("service.yaml")["Deployment"])["containers"][0]
    probes = [container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")]
    assert probes == ["/healthz", "/healthz", "/readyz"] and set(probes) <= routes
    port = ServeConfig().port
    assert container["ports"][0]["containerPort"] == port
    assert f"http://127.0.0.1:{port}/healthz" in (DEPLOY / "Dockerfile").read_text()
    assert compose()["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert compose("compose.postgres.yaml")["ports"] == [f"127.0.0.1:{port}-{port + 1}:{port}"]


def test_configurations_are_taken_and_leave_the_server_memory():
    """serve.toml of compose and of the ConfigMap: a job may have less than the container has."""
    manifest = manifests("service.yaml")
    limit = pod(manifest["Deployment"])["containers"][0]["resources"]["limits"]["memory"]
    for text, most in (
        ((DEPLOY / "serve.toml").read_text(), compose()["mem_limit"].removesuffix("g")),
        (manifest["ConfigMap"]["data"]["serve.toml"], limit.removesuffix("Gi")),
    ):
        assert msgspec.convert(tomllib.loads(text), ServeConfig).job.rss_gib < float(most)


def test_the_pod_waits_for_the_file_that_a_token_makes():
    [waiting] = pod(manifests("service.yaml")["Deployment"])["initContainers"]
    assert f"-e {FOLDER}/{FILE} ]" in waiting["command"][-1]
