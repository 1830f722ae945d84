from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.frontend.http_server import Server, Start, write_model

from marserve.frontend.api.app import RUNNER_OPTIONS, Services, build_apps
from marserve.frontend.auth import TokenAuth
from marserve.frontend.config import ServerConfig
from marserve.frontend.early_template import EarlyTemplates
from marserve.frontend.line_writer import LineWriter
from marserve.frontend.logs import AccessLog, WorkerLog
from marserve.frontend.metrics import Telemetry
from marserve.frontend.registration import Registration
from marserve.frontend.registry import Registry
from marserve.frontend.store import ModelStore
from marserve.frontend.workflows.registry import Workflows


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    async with AsyncExitStack() as stack:

        async def run(with_model: bool = False, **settings: Any) -> Server:
            settings = {"disable_token_authorization": True, "enable_model_api": True} | settings
            store = tmp_path / "store"
            write_model(store / "echo")
            config = ServerConfig(model_store=store, **settings)
            lines: list[str] = []
            logged = threading.Event()

            def log(text: str) -> None:
                lines.extend(text.splitlines())
                logged.set()

            writer = LineWriter(log, "log", 0.0)
            stack.callback(writer.close)
            telemetry, models = Telemetry(config), ModelStore(config)
            stack.callback(models.close)
            log_of_workers = WorkerLog()
            early = EarlyTemplates(config, models, log_of_workers)
            registry = Registry(config, models, telemetry, log_of_workers, early)
            stack.push_async_callback(registry.close)
            auth = TokenAuth(config, tmp_path)
            workflows = Workflows(registry, models, config.max_response_size)
            services = Services(config, registry, telemetry, auth, AccessLog(writer), workflows)
            ports: dict[str, int] = {}
            runners: dict[int, int] = {}
            for surface, app in build_apps(services).items():
                if id(app) not in runners:
                    runner = web.AppRunner(app, **RUNNER_OPTIONS)
                    await runner.setup()
                    stack.push_async_callback(runner.cleanup)
                    await web.TCPSite(runner, "127.0.0.1", 0).start()
                    runners[id(app)] = runner.addresses[0][1]
                ports[surface] = runners[id(app)]
            server = Server(services, ports, writer, lines, logged)
            stack.push_async_callback(server.session.close)
            if with_model:
                await registry.register(Registration("echo", initial_workers=1))
            return server

        yield run
