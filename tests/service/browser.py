"""A real browser for the tests: headless Chromium, driven over its DevTools protocol.

Keys and clicks are the browser's own input events, at the place where an element is: what somebody could not reach is
not reached here either. Each page has a profile of its own, and notes what it logged, threw and asked for.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from websockets.sync.client import ClientConnection, connect

_ANSWER_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 40.0
_START_SECONDS: Final = 60.0
_MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
_FLAGS: Final = (
    "--headless=new",
    "--no-sandbox",  # it refuses to run as root otherwise, and shows nothing here but our own page
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-crash-reporter",
    "--disable-extensions",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)
_KEYS: Final = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowDown": 40, "ArrowUp": 38, " ": 32}
_SHIFT: Final = 8
_ANOTHER_PAGE: Final = "Inspected target navigated or closed"

_WAIT: Final = """
new Promise((resolve, reject) => {
  const holds = () => { try { return CONDITION; } catch { return false; } };  // what it looks at may not be there yet
  const look = () => { if (holds()) { end(); resolve(); } };
  const observer = new MutationObserver(look);
  const timer = setTimeout(() => { end(); reject(new Error("in vain")); }, MILLISECONDS);
  const slowly = setInterval(look, 100);  // for what is no change of the document
  const end = () => { observer.disconnect(); clearTimeout(timer); clearInterval(slowly); };
  observer.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
  look();
})
"""


class PageError(AssertionError):
    """The page did not do what was waited for, or threw."""


class Browser:
    """A running Chromium. Its pages share nothing with each other."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._last = 0
        self._pages: dict[str, Page] = {}

    def call(self, method: str, session: str | None = None, **given: Any) -> dict[str, Any]:
        """Send a command and return its answer; events until then are passed on to the pages."""
        self._last += 1
        number = self._last
        command = {"id": number, "method": method, "params": given}
        self._connection.send(json.dumps(command if session is None else command | {"sessionId": session}))
        give_up = time.monotonic() + _ANSWER_SECONDS
        while True:
            message = json.loads(self._connection.recv(timeout=max(0.0, give_up - time.monotonic())))
            if message.get("id") == number:
                break
            page = self._pages.get(message.get("sessionId", ""))
            if page is not None:
                page.heard(message)
        if "error" in message:
            raise PageError(f"{method}: {message['error']['message']}")
        result: dict[str, Any] = message["result"]
        return result

    @contextmanager
    def page(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Page]:
        """A page of its own profile."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.prefer("dark" if dark else "light")
        try:
            yield page
        finally:
            del self._pages[session]
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """A page of the browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        """Exceptions and logged errors of the page, but for requests that failed."""
        self.refused: list[str] = []
        """Requests of the page that failed."""
        self.requested: list[str] = []
        """The URLs that it asked for."""

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Send a command of the protocol to the page."""
        return self._browser.call(method, self._session, **given)

    def heard(self, message: dict[str, Any]) -> None:
        """Handle an event of the page."""
        method, params = message["method"], message["params"]
        if method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            heard = self.refused if params["entry"]["source"] == "network" else self.complaints
            heard.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        """Go there; what it shows comes later."""
        self.call("Page.navigate", url=url)

    def resize(self, width: int, height: int) -> None:
        """Make the window so large."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Set the colour scheme that the system prefers: light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def evaluate(self, expression: str) -> Any:
        """The value of an expression; of a promise, what becomes of it. Raises PageError."""
        done = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            details = done["exceptionDetails"]
            raise PageError(details.get("exception", {}).get("description", details["text"]))
        return done["result"].get("value")

    def wait(self, condition: str, seconds: float = _WAIT_SECONDS) -> None:
        """Return once the expression is true, over reloads. Raises PageError, with what the page shows."""
        give_up = time.monotonic() + seconds
        while True:
            left = max(0.1, give_up - time.monotonic())
            try:
                self.evaluate(_WAIT.replace("CONDITION", condition).replace("MILLISECONDS", str(left * 1000)))
                return
            except PageError as error:
                if _ANOTHER_PAGE in str(error) and time.monotonic() < give_up:
                    continue
                shown = self.evaluate("document.body?.innerText")
                facts = f"complaints: {self.complaints}\nrefused: {self.refused}\nshown:\n{shown}"
                raise PageError(f"waited for {condition}: {error}\n{facts}") from error

    def wait_text(self, text: str, selector: str = "body") -> None:
        """Return once it is shown there."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")

    def text(self, selector: str = "body") -> str:
        """Return the text shown in an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        """Return the texts shown in all elements of a selector."""
        return list(self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.innerText)"))

    def click(self, selector: str) -> None:
        """Click on its middle, once it is there and enabled. Raises PageError where something else is in the way."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{found} && !{found}.disabled")
        x, y = self.evaluate(
            f"(() => {{ const e = {found}; e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            "const at = [b.x + b.width / 2, b.y + b.height / 2]; const top = document.elementFromPoint(...at);"
            "if (!e.contains(top)) throw new Error(`${top?.outerHTML} is in the way`);"
            "return at; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Type into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and let go of one key."""
        code = _KEYS.get(key, ord(key.upper()[0]))
        text = {"Enter": "\r", "Tab": ""}.get(key, key if len(key) == 1 else "")
        given = {"key": key, "windowsVirtualKeyCode": code, "modifiers": _SHIFT if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **given)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    def focused(self) -> str:
        """Return the element with the focus: its tag and its name."""
        return str(
            self.evaluate(
                "(e => `${e.tagName.toLowerCase()} ${e.ariaLabel ?? e.labels?.[0]?.innerText ?? e.innerText}`.trim())"
                "(document.activeElement)"
            )
        )

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """A picture of what it shows."""
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def browsing() -> Iterator[Browser]:
    """A browser, which ends with the block."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        raise RuntimeError("the dashboard is tested in Chromium, and there is none: run tests/servers/install.sh")
    with tempfile.TemporaryDirectory(prefix="tenure-browser-", ignore_cleanup_errors=True) as profile:
        log = Path(profile, "log")
        with log.open("w") as writing:
            process = subprocess.Popen(
                [program, *_FLAGS, f"--user-data-dir={profile}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=writing,
                text=True,
                start_new_session=True,
            )
        try:
            with connect(
                _address(process, log), max_size=_MESSAGE_BYTES_MAX, compression=None, ping_interval=None
            ) as connection:
                yield Browser(connection)
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it and its helpers
            process.wait()


def _address(process: subprocess.Popen[str], log: Path) -> str:
    give_up = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up and process.poll() is None:
        found = re.search(r"DevTools listening on (ws://\S+)", log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"Chromium did not start:\n{log.read_text(errors='replace')[-2000:]}")
