"""A service that answers on a port, in threads of the test's process; it can be ended and begun anew."""

import threading
import time
from contextlib import ExitStack, contextmanager

from fake_jobs import FakeJobs

from pesto.service.serve.http.app import Server
from pesto.service.serve.http.connections import gate_for
from pesto.service.serve.serve_config import ServeConfig
from pesto.service.serve.server import listening, opened


class LiveService:
    """`url` stays the same; `jobs` is the executor of the present run."""

    def __init__(self, folder, executor=FakeJobs, **config):
        self.folder, self._executor, self._config, self._port = folder, executor, config, 0
        self._stack = ExitStack()
        self.start()

    def start(self):
        self.jobs = self._executor()
        self.folder.mkdir(exist_ok=True)
        config = ServeConfig(**{"port": self._port} | self._config)
        bound = self._stack.enter_context(listening(config, self.folder))
        self._port = bound.getsockname()[1]
        self.url = f"{'https' if config.tls_cert else 'http'}://127.0.0.1:{self._port}"
        self.service = self._stack.enter_context(opened(self.folder, config, lambda: self.jobs))
        self.gate = gate_for(config, 1024)
        server = self.server = Server(self.service, self.gate, config.certificate())
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        self._stack.callback(self._hang_up, server, thread)

    def _hang_up(self, server, thread):
        server.should_exit = True
        thread.join()

    def end(self):
        """As SIGTERM ends it: streams are cut, what runs is queued again."""
        self.service.watchers.close()
        self._stack.close()


@contextmanager
def live_service(folder, executor=FakeJobs, **config):
    found = LiveService(folder, executor, **config)
    try:
        yield found
    finally:
        found.end()
