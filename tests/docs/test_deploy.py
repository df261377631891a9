"""What lies in deploy/ names options, routes, files and exit codes that there are."""

import re
import shlex
import subprocess
import tomllib
from configparser import ConfigParser
from pathlib import Path

import click
import msgspec
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pesto.cli.main import pesto
from pesto.core.distribution import VERSION
from pesto.core.errors import Exit
from pesto.service.serve import tokens
from pesto.service.serve.http.job_routes import QUIET_S
from pesto.service.serve.http.other_routes import health_routes
from pesto.service.serve.scheduler import PATIENCE_S
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.tokens import FILE

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
FOLDER = "/var/lib/pesto/service"


def manifests(name):
    """The objects of a Kubernetes file by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text())}


def pod(manifest):
    return manifest["spec"]["template"]["spec"]


def compose(name="compose.yaml"):
    return yaml.safe_load((DEPLOY / name).read_text())["services"]["pesto"]


def unit():
    """The settings of the systemd unit by section and name."""
    sections = ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    sections.optionxform = str
    sections.read(DEPLOY / "pesto-serve.service")
    return {(section, name): value for section in sections.sections() for name, value in sections[section].items()}


def gib(text):
    """GiB of 8g, 8Gi, 8G or 512Mi."""
    number, letter = re.fullmatch(r"(\d+)([gGmM])i?", text).groups()
    return int(number) / (1 if letter in "gG" else 1024)


def commands():
    """What `pesto` is called with: by each file, and as comments and docs/guides/service.md tell it."""
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
    found += [unit()["Service", "ExecStart"].split()[1:]]
    commented = ("kubernetes/service.yaml", "pesto-serve.service", "solve.sbatch")
    for path in (*DEPLOY.glob("compose*.yaml"), *map(DEPLOY.joinpath, commented)):
        for line in re.findall(r"^#.*$", path.read_text(), re.M):
            found += [words.split() for words in re.findall(r"pesto (serve token add .*)$", line)]
            found += [["solve", *words.split()] for words in re.findall(r"solve\.sbatch (--.*)$", line)]
    return found


def test_commands_are_understood():
    """Each is parsed by the verb that it names: an unknown option, or a value that it does not take, raises."""
    assert len(commands()) == 12
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


SERVER_GIB = 1.0
"""What a container must have beside its jobs: the server, and workers before their first job."""


def test_memory_adds_up():
    """Jobs, /tmp where that is memory, and the server have room together: a job fails, and not the server."""
    manifest = manifests("service.yaml")
    limit = gib(pod(manifest["Deployment"])["containers"][0]["resources"]["limits"]["memory"])
    own = (DEPLOY / "serve.toml").read_text()
    cases = [(manifest["ConfigMap"]["data"]["serve.toml"], limit), (own, gib(unit()["Service", "MemoryMax"]))]
    for name in ("compose.yaml", "compose.postgres.yaml"):
        service = compose(name)
        [scratch] = service["tmpfs"]
        cases.append((own, gib(service["mem_limit"]) - gib(re.search(r"size=(\w+)", scratch)[1])))
    for text, most in cases:
        config = msgspec.convert(tomllib.loads(text), ServeConfig)
        assert config.workers * config.job.rss_gib + SERVER_GIB <= most
    services = yaml.safe_load((DEPLOY / "compose.postgres.yaml").read_text())["services"]
    total = sum(gib(one["mem_limit"]) * one.get("deploy", {}).get("replicas", 1) for one in services.values())
    assert f" {total:.0f} GiB of memory together" in (DEPLOY / "compose.postgres.yaml").read_text()


def test_images_and_packages_are_pinned():
    """Every image has a tag of one release, the project's own that of its version; the lock is what is declared."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    texts = {path.name: path.read_text() for path in DEPLOY.rglob("*") if path.is_file()}
    images = [image for text in texts.values() for image in re.findall(r"^(?:FROM|\s+image:) (\S+)", text, re.M)]
    assert len(images) == 8
    for image in images:
        name, _, tag = image.partition(":")
        assert (tag == VERSION) if name == "pesto" else re.match(r"\d+\.\d+", tag), image
    assert "--require-hashes -r requirements.lock" in texts["Dockerfile"]
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", texts["requirements.lock"], re.M))
    assert texts["requirements.lock"].count("--hash=sha256:") >= len(locked)
    wanted, left = [], [*project["dependencies"], "pesto-placement[metis,scip,serve-postgres,tensorflow]"]
    while left:
        one = Requirement(left.pop())
        if one.name == "pesto-placement":
            left += [text for extra in one.extras for text in project["optional-dependencies"][extra]]
        else:
            wanted.append(one)
    assert len(wanted) > 15
    for one in wanted:
        assert one.specifier.contains(locked[canonicalize_name(one.name)]), one


def test_every_container_has_resources():
    for file, kind in (("service.yaml", "Deployment"), ("solve.yaml", "Job")):
        spec = pod(manifests(file)[kind])
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            resources = container["resources"]
            assert set(resources["requests"]) == {"cpu", "memory"} and "memory" in resources["limits"]
            assert gib(resources["requests"]["memory"]) <= gib(resources["limits"]["memory"])


def test_policies_and_the_ingress_are_of_the_service():
    """They choose its pods, name its port, and let events and uploads through; one pod does not hold up a drain."""
    manifest = manifests("service.yaml")
    labels = manifest["Deployment"]["spec"]["template"]["metadata"]["labels"]
    network = manifest["NetworkPolicy"]["spec"]
    assert network["podSelector"]["matchLabels"] == labels and set(network["policyTypes"]) == {"Ingress", "Egress"}
    [port] = network["ingress"][0]["ports"]
    assert port["port"] == pod(manifest["Deployment"])["containers"][0]["ports"][0]["name"]
    budget = manifest["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] >= manifest["Deployment"]["spec"]["replicas"]
    ingress = manifests("ingress.yaml")["Ingress"]
    rule, settings = ingress["spec"]["rules"][0], ingress["metadata"]["annotations"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend["name"] == manifest["Service"]["metadata"]["name"]
    assert backend["port"]["name"] == manifest["Service"]["spec"]["ports"][0]["name"]
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"]]
    prefix = "nginx.ingress.kubernetes.io/"
    assert gib(settings[f"{prefix}proxy-body-size"]) >= ServeConfig().upload_gib
    assert settings[f"{prefix}proxy-buffering"] == "off"
    assert float(settings[f"{prefix}proxy-read-timeout"]) > QUIET_S


def test_the_unit_ends_and_restarts_the_server_rightly():
    """SIGTERM reaches the server alone, which has longer than it needs; a worker that is killed ends no service."""
    settings = {name: value for (section, name), value in unit().items() if section == "Service"}
    assert (settings["KillMode"], settings["OOMPolicy"], settings["Restart"]) == ("mixed", "continue", "on-failure")
    assert float(settings["TimeoutStopSec"]) > PATIENCE_S
    assert settings["RestartPreventExitStatus"].split() == [str(int(Exit.USAGE))]
    assert "MemoryDenyWriteExecute" not in settings, "what is compiled is executed"
    data = settings["ExecStart"].split()[settings["ExecStart"].split().index("--data") + 1]
    assert data.startswith(f"/var/lib/{settings['StateDirectory']}/")


def test_the_pod_waits_until_there_is_a_token(tmp_path):
    """Also where the last one was removed, with which no server would start that others can reach."""
    [waiting] = pod(manifests("service.yaml")["Deployment"])["initContainers"]
    condition = re.search(r"until (.*?); do", waiting["command"][-1])[1]
    assert f"{FOLDER}/{FILE}" in condition

    def there():
        return subprocess.run(["sh", "-c", condition.replace(FOLDER, str(tmp_path))], check=False).returncode == 0

    assert not there()
    tokens.add(tmp_path, "ann", tokens.Quota())
    assert there()
    tokens.remove(tmp_path, "ann")
    assert not there()


def test_the_unit_reads_certificate_and_tokens_again():
    assert unit()["Service", "ExecReload"] == "/bin/kill -HUP $MAINPID"
