"""The files in deploy/ fit the program and its server: commands, metrics, schemas, and what goes into the image."""

import asyncio
import json
import re
import shlex
import socket
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path

import kubernetes_validate
import promql_parser
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

import s3t
from s3t.cli.app import app_of
from s3t.store import secret
from s3t_server import app
from s3t_server.metrics import Metrics
from s3t_server.program import COMMANDS
from s3t_server.served import ServedRun
from s3t_server.settings import Settings
from s3t_server.tokens import Access
from testing.served import serving
from tests.serve.test_server import server

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs" / "operations.md"
USER = 10001
COMPOSE = ("compose.yaml", "compose.cuda.yaml")
OF_PROMETHEUS = {"up": {"job", "instance"}}
"""Metrics that Prometheus makes itself."""


def read(name):
    return yaml.safe_load((DEPLOY / name).read_text())


@cache
def instructions():
    """Of the Dockerfile: name and argument of each, of all stages in order."""
    text = re.sub(r"(?m)^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text()).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def last_of(name):
    return [argument for instruction, argument in instructions() if instruction == name][-1]


@cache
def kubernetes():
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def kind(name):
    return [document for document in kubernetes() if document["kind"] == name]


def pods():
    (deployment,), jobs = kind("Deployment"), kind("CronJob")
    found = [deployment["spec"]["template"], *(job["spec"]["jobTemplate"]["spec"]["template"] for job in jobs)]
    return {pod["metadata"]["labels"]["part"]: pod for pod in found}


def containers():
    return {name: pod["spec"]["containers"][0] for name, pod in pods().items()}


def commands():
    """Arguments of `s3t`, by the file that has them."""
    yield "Dockerfile", json.loads(last_of("CMD"))
    for name, service in read("compose.yaml")["services"].items():
        if service["image"].startswith("s3t:") and "command" in service:
            yield f"compose.yaml, {name}", service["command"]
    for name, container in containers().items():
        if name != "backup":
            yield f"kubernetes.yaml, {name}", container["args"]
    text = "\n".join(path.read_text() for path in [*DEPLOY.iterdir(), DOCS])
    written = r"(?m)(?:^ {4}|`|: )((?:docker compose run --rm [^`\n]*?tools|s3t) [a-z][a-z-]* [^`\n#]*)"
    for line in re.findall(written, text):
        yield f"the text {line}", shlex.split(line.rpartition("tools ")[2].removeprefix("s3t "))


@cache
def program():
    return get_command(app_of(COMMANDS))


def parsed(arguments):
    """Parse a command line as the program does, down to its options, and run nothing."""
    command, context = program(), None
    while hasattr(command, "resolve_command"):
        context = command.make_context(command.name, list(arguments), parent=context)
        _, command, arguments = command.resolve_command(context, [*context._protected_args, *context.args])
    return command.make_context(command.name, list(arguments), parent=context).params


def test_every_command_line_is_one_of_the_program_and_servers_leave_repairs_to_the_job():
    given = {where: (arguments[0], parsed(arguments)) for where, arguments in commands()}
    assert len(given) > 15
    assert json.loads(last_of("ENTRYPOINT")) == ["s3t"]
    served = [each for name, each in given.values() if name == "serve" and each["host"] != "127.0.0.1"]
    assert len(served) >= 4
    assert {(each["host"], each["port"]) for each in served} == {("0.0.0.0", 8080)}
    assert not parsed(containers()["server"]["args"])["repair"]
    assert parsed(containers()["repair"]["args"])["hours"] > 0


@pytest.fixture
def page(path):
    """Samples of a server that has answered and deleted: name and labels of each."""
    with serving(path, open_scopes=("predict", "delete", "operate")) as client:
        client.post("/v1/predict", json={"inputs": ["w1"]})
        client.post("/v1/deletions", json={"records": ["r0"]})
        client.get("/metrics")
        text = client.get("/metrics").text
    found = dict(OF_PROMETHEUS)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {"job", "instance"}).update(sample.labels)
    return found


def alerts():
    return [rule for group in read("alerts.yaml")["groups"] for rule in group["rules"]]


def expressions():
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    yield from ((panel["title"], target["expr"]) for panel in panels for target in panel["targets"])


def selectors(expression):
    """Metrics of an expression, each with the labels that it is selected by."""
    found = []

    def visit(node):
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        for name in ("expr", "lhs", "rhs", "vector_selector"):
            if (child := getattr(node, name, None)) is not None:
                visit(child)
        for child in getattr(node, "args", None) or ():
            visit(child)

    visit(promql_parser.parse(expression))
    return [(each.name, {matcher.name for matcher in each.matchers.matchers}) for each in found]


def test_every_alert_and_panel_is_by_metrics_and_labels_that_the_server_has(page):
    assert len({where for where, _ in expressions()}) > 20
    for where, expression in expressions():
        asked = selectors(expression)
        assert asked, where
        for name, labels in asked:
            assert name in page, f"{where}: {name}"
            assert labels <= page[name], f"{where}: {name}{labels}"
        known = set().union(*(page[name] for name, _ in asked))
        for labels in re.findall(r"\bby \(([^)]*)\)", expression):
            assert {label.strip() for label in labels.split(",")} <= known, where


def test_every_state_of_a_run_is_in_the_dashboard_or_in_an_alert(page):
    asked = {name for _, expression in expressions() for name, _ in selectors(expression)}
    counters = {name.removesuffix("_created") for name in page if name.endswith("_created")}
    unseen = {name for name in page if name.startswith("s3t_")} - asked
    unseen -= {f"{counter}{part}" for counter in counters for part in ("_created", "_sum", "_count", "_bucket")}
    assert unseen == {"s3t_records"}


def test_every_alert_is_explained():
    names = [rule["alert"] for rule in alerts()]
    assert len(names) == len(set(names))
    for rule in alerts():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["description"].endswith(".")
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        kept = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in labels.split(",")}
        assert told <= kept | ({"instance"} if "up{" in rule["expr"] else set()), rule["alert"]


def test_compose_files_follow_the_specification():
    files = [str(DEPLOY / name) for name in COMPOSE]
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", *files]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
@pytest.mark.parametrize("document", kubernetes(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_kubernetes_objects_follow_their_schemas(document):
    kubernetes_validate.validate(document, "1.34", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document | {"speck": {}}, "1.34", strict=True)


def test_two_replicas_share_run_memory_and_ledger():
    services = read("compose.yaml")["services"]
    first, second = services["s3t-a"], services["s3t-b"]
    assert first == second
    assert {"runs:/runs", "state:/state"} <= set(first["volumes"])
    assert first["environment"]["S3T_LEDGER"].startswith("postgresql+psycopg://")
    proxy = (DEPLOY / "Caddyfile").read_text()
    (upstreams,) = re.findall(r"reverse_proxy (.*) \{", proxy)
    assert upstreams.split() == ["s3t-a:8080", "s3t-b:8080"]
    (scraped,) = read("prometheus.yml")["scrape_configs"]
    assert scraped["static_configs"][0]["targets"] == upstreams.split()
    (deployment,) = kind("Deployment")
    assert deployment["spec"]["replicas"] == 2
    assert {claim["spec"]["accessModes"][0] for claim in kind("PersistentVolumeClaim")} == {"ReadWriteMany"}


def test_references_within_kubernetes_lead_somewhere():
    names = {(document["kind"], document["metadata"]["name"]) for document in kubernetes()}
    for pod in pods().values():
        (container,) = pod["spec"]["containers"]
        volumes = pod["spec"]["volumes"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in volumes}
        claims = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "emptyDir" not in volume}
        assert {("PersistentVolumeClaim", claim) for claim in claims} <= names
        sources = [(key, value["name"]) for source in container["envFrom"] for key, value in source.items()]
        assert sources == [("configMapRef", "s3t"), ("secretRef", "s3t")]
        assert pod["metadata"]["labels"]["app"] == "s3t"
    server = pods()["server"]["metadata"]["labels"]
    for document in (*kind("Service"), *kind("PodDisruptionBudget"), *kind("Deployment")):
        chosen = document["spec"]["selector"]
        assert (chosen.get("matchLabels", chosen)).items() <= server.items()


def test_probes_ask_routes_that_the_server_has(reader):
    server = containers()["server"]
    probes = {key: probe["httpGet"] for key, probe in server.items() if key.endswith("Probe")}
    routes = {key: probe["path"] for key, probe in probes.items()}
    assert routes == {"startupProbe": "/healthz", "readinessProbe": "/readyz", "livenessProbe": "/healthz"}
    assert {probe["port"] for probe in probes.values()} == {server["ports"][0]["name"]}
    (asked,) = re.findall(r"health_uri (\S+)", (DEPLOY / "Caddyfile").read_text())
    assert {reader.get(route).status_code for route in (*routes.values(), asked)} == {200}


def test_nothing_runs_as_root_or_may_become_it():
    assert last_of("USER") == f"{USER}:{USER}"
    services = read("compose.yaml")["services"]
    for name, found in services.items():
        assert found.get("user") == (None if name in ("postgres", "caddy") else f"{USER}:{USER}")
        assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
        assert found["security_opt"] == ["no-new-privileges:true"]
        assert found["logging"]["options"].keys() == {"max-size", "max-file"}
    for name, pod in pods().items():
        context = pod["spec"]["securityContext"]
        assert (context["runAsNonRoot"], context["runAsUser"]) == (True, USER)
        assert "fsGroup" not in context  # it opens `secret` to the group, and the run is refused then
        own = containers()[name]["securityContext"]
        assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
        assert own["capabilities"] == {"drop": ["ALL"]}


def test_the_image_is_made_of_sources_alone():
    """Whatever else lies in the project's folder, as a run with its secret, is not even sent to the builder."""
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert ignored[0] == "*"
    copies = [argument for name, argument in instructions() if name == "COPY" and "--from" not in argument]
    copied = {source for argument in copies for source in argument.split()[:-1]}
    sent = {line[1:] for line in ignored if line[0] == "!"}
    assert copied == sent == {"LICENSE", "README.md", "constraints.txt", "pyproject.toml", "src"}


def test_no_secret_is_in_a_file_and_images_are_pinned():
    compose, ignored = (DEPLOY / "compose.yaml").read_text(), (ROOT / ".gitignore").read_text().splitlines()
    images = [argument.split()[0] for name, argument in instructions() if name == "FROM"]
    assert len(images) == 2
    images += [service["image"] for service in read("compose.yaml")["services"].values()]
    for image in images:
        assert re.search(r":\d+\.\d+(\.\d+)?-[\w-]+$", image) or image == "s3t:cpu", image
    assert "secrets" not in [path.name for path in DEPLOY.iterdir()]
    assert {"deploy/secrets/", ".env"} <= {*ignored}
    assert re.findall(r"file: \./(\w+)/", compose) == ["secrets"] * 3
    for path in [*DEPLOY.iterdir(), ROOT / ".dockerignore"]:
        for variable in (secret.VARIABLE, "PGPASSWORD", "POSTGRES_PASSWORD"):
            given = re.findall(rf"(?m)^[ \t]*(?:ENV |ARG )?{variable}[ \t]*[:=][ \t]*(.*)$", path.read_text())
            assert [value for value in given if value and not value.startswith("${")] == [], path.name
    variables = re.findall(r"(?m)^(\w+)=", (DEPLOY / "env.example").read_text())
    assert set(re.findall(r"\$\{(\w+)", compose)) == set(variables)


def test_the_database_is_dumped_before_the_runs_are_copied():
    scripts = [read("compose.yaml")["services"]["backup"]["command"][0], containers()["backup"]["args"][0]]
    assert scripts[0].replace("$$", "$") == scripts[1]
    assert re.search(r"(?s)pg_dump .* cp -a /runs ", scripts[1].replace("\n", " "))
    mounts = {mount["name"]: mount.get("readOnly", False) for mount in containers()["backup"]["volumeMounts"]}
    assert mounts == {"runs": True, "backups": False}


def test_everything_may_be_asked_by_proxy_and_prometheus_alone():
    (policy,) = kind("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == {"app": "s3t"}
    assert {*policy["spec"]["policyTypes"]} == {"Ingress", "Egress"}
    (allowed,) = policy["spec"]["ingress"]
    assert allowed["ports"] == [{"protocol": "TCP", "port": containers()["server"]["ports"][0]["containerPort"]}]
    assert all("namespaceSelector" in source for source in allowed["from"])


def unit():
    """The settings of the unit of systemd, those that are given several times in a list."""
    found = {}
    for line in (DEPLOY / "s3t.service").read_text().splitlines():
        if "=" in line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_systemd_hears_of_a_server_that_lives_and_of_none_that_hangs(unchanged, monkeypatch, tmp_path):
    given = unit()
    assert parsed(shlex.split(given["ExecStart"][0])[1:])["host"] == "127.0.0.1"
    assert (given["Type"], given["NotifyAccess"]) == (["notify"], ["all"])
    assert float(given["WatchdogSec"][0]) > 4 * app.BEAT_SECONDS
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(20)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        monkeypatch.setattr(app, "BEAT_SECONDS", 0.05)
        hanging = threading.Event()
        monkeypatch.setattr(ServedRun, "hangs", property(lambda _served: hanging.is_set()))
        with serving(unchanged) as client:
            assert [systemd.recv(64) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            assert client.get("/healthz").status_code == 200
            hanging.set()
            assert client.get("/healthz").status_code == 503
            systemd.settimeout(0.5)
            with pytest.raises(TimeoutError):  # noqa: PT012
                for _ in range(100):
                    systemd.recv(64)


def test_a_computation_that_hangs_is_noticed(unchanged):
    go_on, computing = threading.Event(), threading.Event()
    served = ServedRun("run", unchanged, Settings(runs=(unchanged,), hang_seconds=0.01), Metrics())
    usual = served.batcher._hold
    served.batcher._hold = lambda *inputs: (computing.set(), go_on.wait(20), usual(*inputs))[-1]

    async def ask():
        asked = asyncio.ensure_future(served.batcher.answer(served.run.checked(["w1"]), caller=""))
        await asyncio.to_thread(computing.wait)
        await asyncio.sleep(0.05)
        assert served.hangs
        go_on.set()
        (await asked).release()

    try:
        asyncio.run(ask())
        assert not served.hangs
    finally:
        served.close()


@pytest.mark.integration
def test_the_command_and_the_health_check_of_the_containers_work(path):
    """As in the files, but for the folder of the run and the port."""
    arguments = read("compose.yaml")["services"]["s3t-a"]["command"]
    assert arguments[:2] == ["serve", "/runs/run"]
    check = json.loads(re.sub(r"^.* CMD ", "", last_of("HEALTHCHECK")))
    with s3t.Run.open(path) as run:
        Access(run).create("prometheus", scopes=["operate"])
    with server(path, *(argument for argument in arguments[2:])) as client:
        address = f"127.0.0.1:{client.base_url.port}"
        line = [part.replace("127.0.0.1:8080", address) for part in check]
        assert line != check
        subprocess.run([sys.executable, *line[1:]], check=True)
    assert subprocess.run([sys.executable, *line[1:]], capture_output=True).returncode != 0
