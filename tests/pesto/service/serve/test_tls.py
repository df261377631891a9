"""A service over TLS: its certificate and key, what is refused of them, and how they are read again."""

import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import httpx
import pytest
from live_service import live_service

from pesto.core.errors import FileError, UsageError
from pesto.service.serve import tokens
from pesto.service.serve.http import app, connections
from pesto.service.serve.serve_config import Certificate, ServeConfig

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl to make certificates with")
NAME = "/CN=localhost"


def openssl(*words):
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with two certificates of their own keys, a, b, and the first key once more, encrypted."""
    folder = tmp_path_factory.mktemp("tls")
    for one in ("a", "b"):
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        names = ["-subj", NAME, "-addext", "subjectAltName=IP:127.0.0.1"]
        files = ["-keyout", folder / f"{one}.key", "-out", folder / f"{one}.crt"]
        openssl("req", "-x509", *curve, *names, *files)
    openssl("pkey", "-in", folder / "a.key", "-aes256", "-passout", "pass:x", "-out", folder / "locked.key")
    return folder


def serial(url, trusted):
    """The serial number of the certificate that a service shows."""
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=trusted)
    with (
        socket.create_connection((host, int(port))) as link,
        context.wrap_socket(link, server_hostname=host) as secured,
    ):
        return secured.getpeercert()["serialNumber"]


def test_requests_over_tls(tmp_path, made, monkeypatch):
    config = {"tls_cert": str(made / "a.crt"), "tls_key": str(made / "a.key")}
    with live_service(tmp_path, **config) as live:
        trusted = ssl.create_default_context(cafile=made / "a.crt")
        with httpx.Client(base_url=live.url, verify=trusted, timeout=60) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.get("/v1/jobs").json()["jobs"] == []
        port = int(live.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                assert not plain.recv(65536).startswith(b"HTTP")
                raise ConnectionResetError
        monkeypatch.setattr(connections, "HEAD_S", 0.1)
        with socket.create_connection(("127.0.0.1", port)) as silent:  # no handshake comes
            silent.settimeout(60)
            try:
                while silent.recv(65536):
                    pass
            except ConnectionResetError:
                pass
        while live.gate.count:
            time.sleep(0.01)


def test_what_is_no_certificate_and_key_is_refused(tmp_path, made):
    a, b, locked = made / "a.crt", made / "b.key", made / "locked.key"
    (tmp_path / "text").write_text("no PEM")
    for chain, key, kind, words in (
        (a, b, UsageError, ("not that of the certificate", "b.key")),
        (a, locked, UsageError, ("is encrypted", "openssl pkey -in")),
        (a, tmp_path / "text", UsageError, ("PEM", "text")),
        (made / "a.key", made / "a.key", UsageError, ("certificate first",)),
        (a, tmp_path / "none", FileError, ("none", "no such file")),
        (tmp_path / "none", b, FileError, ("none", "no such file")),
        (tmp_path, b, FileError, ("name a file",)),
    ):
        with pytest.raises(kind) as refused:
            Certificate(chain, key)
        assert all(word in str(refused.value) for word in words), refused.value
    openssl("pkey", "-in", locked, "-passin", "pass:x", "-out", tmp_path / "server.key")
    assert Certificate(a, tmp_path / "server.key").context
    for one in ({"tls_cert": "a.crt"}, {"tls_key": "a.key"}):
        with pytest.raises(UsageError, match="tls_cert and tls_key"):
            ServeConfig(**one)


def test_sighup_reads_certificate_and_tokens_again(tmp_path, made, caplog):
    """What cannot be read stays as it was, and the service goes on."""
    for name in ("crt", "key"):
        shutil.copy(made / f"a.{name}", tmp_path / f"now.{name}")
    config = {"tls_cert": str(tmp_path / "now.crt"), "tls_key": str(tmp_path / "now.key")}
    with live_service(tmp_path / "data", **config) as live:
        first = serial(live.url, made / "a.crt")
        shutil.copy(made / "b.crt", tmp_path / "now.crt")  # and still the first key
        app._read_again(live.server, live.service)
        assert "the certificate stays as it was" in caplog.text
        assert serial(live.url, made / "a.crt") == first
        shutil.copy(made / "b.key", tmp_path / "now.key")
        ann = tokens.add(tmp_path / "data", "ann", tokens.Quota())
        app._read_again(live.server, live.service)
        assert serial(live.url, made / "b.crt") != first
        assert live.service.authenticator.find(ann) is not None


@pytest.mark.slow
def test_sighup_ends_nothing(tmp_path):
    """As a process, since signals are for the main thread."""
    words = ["-m", "pesto", "serve", "--data", str(tmp_path / "data"), "--port", "0"]
    server = subprocess.Popen([sys.executable, *words], stderr=subprocess.PIPE, text=True)
    try:
        url = server.stderr.readline().split(" at ")[1].split(",")[0]
        server.send_signal(signal.SIGHUP)
        assert httpx.get(f"{url}/healthz", timeout=60).status_code == 200
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate()
        assert server.returncode == 0
        assert "Traceback" not in said
    finally:
        server.kill()
        server.wait()
