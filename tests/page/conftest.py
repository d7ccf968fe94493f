"""A browser for tests of the page, and watchers that fail a test for errors nobody asked about."""

import shutil
from types import SimpleNamespace

import pytest

from .fake_server import serving


@pytest.fixture(scope="session")
def chromium():
    """A started Chromium of the system."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if path is None:
        pytest.skip("Chromium is not installed; on Debian: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def server():
    with serving() as started:
        yield started


@pytest.fixture
def open_page(chromium, server):
    """A function that opens the page at an address; every page must end without errors."""
    opened = []

    def open_at(
        address="", *, base=server.address, width=1280, height=900, scheme="light", **options
    ):
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            permissions=["clipboard-read", "clipboard-write"] if base.startswith("http") else [],
            **options,
        )
        context.set_default_timeout(10_000)
        page = context.new_page()
        watch = SimpleNamespace(context=context, errors=[], requests=[])
        page.on(
            "console",
            lambda message: (
                watch.errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: watch.errors.append(str(error)))
        page.on("request", lambda request: watch.requests.append(request.url))
        page.watch = watch
        opened.append((page, base))
        page.goto(base + address)
        return page

    yield open_at
    for page, base in opened:
        outside = [
            url for url in page.watch.requests if not url.startswith((base, "data:", "blob:"))
        ]
        page.watch.context.close()
        assert page.watch.errors == []
        assert outside == []
