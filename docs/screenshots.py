"""Take the pictures of the page in docs/screenshots, with a real server and a trained model.

    python docs/screenshots.py en-de [FOLDER_WITH_RUNS]

The heads that it shows are those of en-de, the model of the package.

It needs Chromium and the packages of the extra `dev`.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

FOLDER = Path(__file__).parent / "screenshots"
LARGEST = 200_000  # bytes of one picture
SECONDS = 120
TEXT = (
    "When we arrived in Paris, the museum had already closed. We went for a walk along the river "
    "instead, and the children fed the ducks with the bread they had saved from breakfast."
)
ANIMAL = "The animal didn't cross the street because it was too tired."


@dataclass(frozen=True)
class Shot:
    """One picture: where it is taken, and what is done before."""

    name: str
    address: str
    prepare: Callable[[Page], None]
    width: int = 1280
    height: int = 860
    scheme: str = "light"


def link(view: str, **parameters: object) -> str:
    """Return the address of a view."""
    return f"#{view}?{urlencode(parameters)}"


def wait_for_translation(page: Page) -> None:
    """Wait until all sentences have arrived."""
    page.wait_for_selector(".output:not(.waiting) .word")
    page.mouse.move(0, 0)


def hover_word(page: Page) -> None:
    """Show where one word came from."""
    wait_for_translation(page)
    page.locator(".word", has_text="Museum").hover()


def open_alternatives(page: Page) -> None:
    """Show the alternatives of the first sentence."""
    wait_for_translation(page)
    page.locator(".word.unsure").first.click()
    page.wait_for_selector(".alternatives li")


def wait_for_heads(page: Page) -> None:
    """Wait until all heads are drawn."""
    page.wait_for_selector(".cell")
    page.mouse.move(0, 0)


def show_it(page: Page) -> None:
    """Show what "it" looks at in the sentence of the paper's authors."""
    page.click("text=too tired")
    wait_for_heads(page)


def show_decoding(page: Page) -> None:
    """Scroll to the replay and the beam."""
    wait_for_heads(page)
    page.locator("#steps-title").evaluate("node => node.parentElement.scrollIntoView()")
    page.mouse.wheel(0, -12)
    page.wait_for_timeout(300)


def wait_for_content(page: Page) -> None:
    """Wait until a view has something to show."""
    page.wait_for_selector("main h2")
    page.wait_for_load_state("networkidle")


def wait_for_lesson(page: Page) -> None:
    """Wait until all steps are there and the chosen one is in view."""
    page.wait_for_selector("#step-next-token")
    page.wait_for_timeout(1000)
    page.mouse.move(0, 0)


def take_mask_away(page: Page) -> None:
    """Let the decoder look at tokens that are not written yet."""
    wait_for_lesson(page)
    page.uncheck("text=mask the future")


SHOTS = [
    Shot("translate", link("translate", text=TEXT), hover_word, height=560),
    Shot("alternatives", link("translate", text=TEXT), open_alternatives, height=760),
    Shot("inspect", "#inspect", show_it, height=1130),
    Shot(
        "inspect-dark",
        link("inspect", text=ANIMAL, kind="cross", layer=1, head=3, figure="heat"),
        wait_for_heads,
        height=1010,
        scheme="dark",
    ),
    Shot(
        "heads-off",
        link("inspect", text=ANIMAL, kind="cross", layer=1, head=2, without="cross.1.2"),
        wait_for_heads,
        height=960,
    ),
    Shot("decoding", link("inspect", text=ANIMAL, step=10), show_decoding, height=1130),
    Shot(
        "phone",
        link("translate", text=ANIMAL),
        wait_for_translation,
        width=390,
        height=720,
        scheme="dark",
    ),
    Shot(
        "learn",
        link("learn", text=ANIMAL, layer=6, head=3, step="softmax"),
        wait_for_lesson,
        height=980,
    ),
    Shot(
        "learn-mask",
        link("learn", text=ANIMAL, layer=1, head=1, step="mask"),
        take_mask_away,
        height=980,
        scheme="dark",
    ),
    Shot("runs", "#runs", wait_for_content, height=900),
]


@contextmanager
def served(bundle: Path, runs: Path) -> Iterator[str]:
    """Run `transduce serve`, and yield its address."""
    command = [sys.executable, "-m", "transduce", "serve", str(bundle), "--port", "0"]
    command += ["--runs", str(runs)]
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **streams) as server:
        assert server.stderr
        try:
            for line in server.stderr:
                found = re.search(r"http://\S+", line)
                if found:
                    yield f"{found[0]}/"
                    return
            raise SystemExit("the server did not start")
        finally:
            server.terminate()


def take(browser: Browser, base: str, shot: Shot) -> None:
    """Take one picture, with a palette of 256 colours so that it stays small."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme=shot.scheme,  # type: ignore[arg-type]
        device_scale_factor=2 if shot.width < 600 else 1.5,
    )
    context.set_default_timeout(SECONDS * 1000)
    page = context.new_page()
    page.goto(base + shot.address)
    shot.prepare(page)
    page.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()

    path = FOLDER / f"{shot.name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    size = path.stat().st_size
    assert size < LARGEST, f"{path} has {size:,} bytes; at most {LARGEST:,} are allowed"
    print(f"{path.name}: {size:,} bytes")


def main() -> None:
    """Take all pictures, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs"))
    parser.add_argument("--only", nargs="*", help="names of pictures")
    arguments = parser.parse_args()

    FOLDER.mkdir(exist_ok=True)
    with served(arguments.bundle, arguments.runs) as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for shot in SHOTS:
            if not arguments.only or shot.name in arguments.only:
                take(browser, base, shot)
        browser.close()


if __name__ == "__main__":
    main()
