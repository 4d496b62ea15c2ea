"""The dashboard as whoever is on call has it: in a real browser, at a real service, over real stores."""

from __future__ import annotations

import asyncio
import json
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import tenure
from tenure.service.api.dashboard import FILES
from tests.servers import Cluster, EtcdSpec, Provider, start
from tests.service.browser import Browser, Page, browsing
from tests.service.http.program import Service, Token, serving, write_tokens

pytestmark = pytest.mark.timeout(300)

TTL = 30
MANY = 10_000
ONCALL = Token("oncall-secret", "on-call", "*", "read,elect,operate")
LOOKER = Token("looker-secret", "looker", "billing", "read")
LIVE = "document.body.dataset.state === 'live'"
OLD = "document.body.dataset.state === 'old'"
DIALOG = "#release-dialog"
HOSTILE = (
    "<img src=x onerror=hacked=1>",
    "<script>hacked=1</script>",
    "'\"><svg/onload=hacked=1>",
    "javascript:hacked=1",
    "../../%2e%2e/admin?x=1#/audit",
    "%",
    "a/b c&d=e+f",
    "line\u202egnp.exe",
    "zero\u200bwidth",
    "${hacked=1}{{hacked=1}}",
    "__proto__",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Browser for all tests; each page has a profile of its own."""
    with browsing() as browser:
        yield browser


@pytest.fixture
def url(singles: dict[str, Cluster]) -> str:
    """A store where nobody was before."""
    return namespace(singles["etcd"])


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[Service]:
    """A service that asks for no token."""
    with serving(url, tmp_path) as service:
        yield service


@pytest.fixture
def client(url: str) -> Iterator[tenure.Client]:
    """Another program, that keeps a journal."""
    with tenure.connect(url, ttl=TTL, owner="worker-1", journal=True) as client:
        yield client


@pytest.fixture
def other(url: str) -> Iterator[tenure.Client]:
    """A second page of the browser."""
    with tenure.connect(url, ttl=TTL, owner="worker-2", journal=True) as client:
        yield client


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a usual size. It may neither throw nor break its own policy, and must keep to its own service."""
    with browser.page() as page:
        yield page
        behaved(page)


def namespace(cluster: Cluster) -> str:
    options = {"tick": 0.2} if cluster.kind == "zookeeper" else {}
    return cluster.url(f"ui-{uuid.uuid4().hex}", **options)


def behaved(page: Page) -> None:
    assert page.complaints == []
    assert page.evaluate("typeof hacked") == "undefined"
    origin = page.evaluate("location.origin")
    assert [asked for asked in page.requested if not asked.startswith((origin, "about:"))] == []


def view(page: Page, service: Service, where: str = "") -> None:
    """Open it, and wait until it is live."""
    page.open(f"{service.url}/ui/{where}")
    page.wait(LIVE)


@contextmanager
def waiting(client: tenure.Client, name: str) -> Iterator[None]:
    """Wait in that line inside the block; before the end its holder has to go."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(client.lock(name).acquire, timeout=60)
        yield
        future.result().release()


def line_of(name: str) -> str:
    return f"#/line/{quote(name, safe='')}"


def shows(page: Page, *expected: str) -> None:
    """Wait until exactly these names are listed, in this order."""
    listed = "[...document.querySelectorAll('tbody .name')].map((e) => e.innerText)"
    page.wait(f"JSON.stringify({listed}) === JSON.stringify({json.dumps(expected)})")


# Lists.


def test_lock_that_another_program_takes_shows_up_and_goes_without_a_reload(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """Changes in the store are shown as they happen, with holder, token and seats."""
    view(page, service)
    page.wait_text("No lock is in use.")
    hold = client.lock("ledger").acquire(timeout=30)
    shows(page, "ledger")
    assert "worker-1" in page.text("tbody")
    assert f"token {hold.token}" in page.text("tbody")
    seats = other.semaphore("api", limit=10).acquire(weight=3, timeout=30)
    shows(page, "api", "ledger")
    assert "semaphore 3/10" in page.text("tbody")
    hold.release()
    shows(page, "api")
    seats.release()
    page.wait_text("No lock is in use.")


@pytest.mark.parametrize("kind", ["etcd", "zookeeper"])
def test_contention_is_shown_and_can_be_sorted_and_chosen_by(
    page: Page, singles: dict[str, Cluster], tmp_path: Path, kind: str
) -> None:
    """The list shows how many wait, on both stores; a click on a column's name sorts, `waited for` hides the others."""
    store = namespace(singles[kind])
    with (
        tenure.connect(store, ttl=TTL, owner="worker-1") as client,
        tenure.connect(store, ttl=TTL, owner="worker-2") as other,
        serving(store, tmp_path) as service,
    ):
        holds = [client.lock(name).acquire(timeout=30) for name in ("a", "b", "c")]
        view(page, service)
        shows(page, "a", "b", "c")
        with waiting(other, "b"):
            page.wait("document.querySelector('tbody tr:nth-child(2) .badge')?.innerText === '1'")
            assert page.text(".summary") == "3 locks, 1 waited for"
            page.click("th:nth-child(5) button")
            shows(page, "b", "a", "c")
            page.click(".choices label:nth-of-type(2) span")
            shows(page, "b")
            holds[1].release()
        page.wait_text("None matches the filter.")
        for hold in holds:
            hold.release()


def test_filter_finds_by_name_and_by_holder_and_prefix_narrows_what_is_watched(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """`/` goes to the filter; Escape clears it. The prefix stands in the address, and is found there again."""
    for name in ("billing/close", "billing/open", "shipping/close"):
        client.lock(name).acquire(timeout=30)
    other.lock("shipping/open").acquire(timeout=30)
    view(page, service)
    shows(page, "billing/close", "billing/open", "shipping/close", "shipping/open")
    page.press("/")
    assert page.focused() == "input Filter"
    page.type("CLOSE")
    shows(page, "billing/close", "shipping/close")
    page.press("Escape")
    shows(page, "billing/close", "billing/open", "shipping/close", "shipping/open")
    page.press("/")
    page.type("worker-2")
    shows(page, "shipping/open")
    page.type(" and nobody else")
    page.wait_text("None matches the filter.")
    page.press("Escape")
    page.click("#prefix")
    page.type("billing/")
    shows(page, "billing/close", "billing/open")
    assert page.evaluate("location.hash") == "#/locks?prefix=billing%2F"
    assert page.text(".summary") == "2 locks, 0 waited for"
    page.call("Page.reload")
    page.wait(LIVE)
    shows(page, "billing/close", "billing/open")


def test_ten_thousand_locks_are_shown_by_pages_and_filtered_without_freezing(
    page: Page, service: Service, url: str
) -> None:
    """The document has a hundred rows, and a key is answered within a blink."""
    asyncio.run(looked_at_with_many(page, service, url))


async def looked_at_with_many(page: Page, service: Service, url: str) -> None:
    async with tenure.aio.connect(url, ttl=120, owner="worker-1") as client:
        for start_at in range(0, MANY, 100):
            names = [f"jobs/{number:05d}" for number in range(start_at, start_at + 100)]
            await asyncio.gather(*(client.lock(name).acquire(timeout=60) for name in names))
        await asyncio.to_thread(many_shown, page, service)
        one = client.lock("a-new-one")
        async with one:
            await asyncio.to_thread(page.wait, "document.querySelector('tbody .name')?.innerText === 'a-new-one'")


def many_shown(page: Page, service: Service) -> None:
    view(page, service)
    page.wait_text("10,000 locks")
    assert page.text(".pager span") == "1–100 of 10,000"
    assert len(page.texts("tbody tr")) == 100
    page.click(".pager button:last-child")
    page.wait("document.querySelector('tbody .name').innerText === 'jobs/00100'")
    page.press("/")
    page.type("9999")
    shows(page, "jobs/09999")
    page.press("Escape")
    page.wait_text("1–100 of 10,000")
    took = page.evaluate(
        "(() => { const filter = document.getElementById('filter'); const began = performance.now();"
        "filter.value = '1'; filter.dispatchEvent(new Event('input')); return performance.now() - began; })()"
    )
    assert took < 1000, took  # a twentieth of that on a quiet machine
    page.press("/")
    page.press("Escape")


# One line.


def test_line_shows_holder_waiters_and_its_past_and_follows_a_hand_over(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """The page shows holders and waiters, tokens and leases; after a release the next holds; the journal says so."""
    hold = client.lock("ledger").acquire(timeout=30)
    view(page, service, line_of("ledger"))
    page.wait_text("Nobody waits.")
    assert f"{TTL} s" in page.text("tbody")
    with waiting(other, "ledger"):
        page.wait_text("worker-2", "section:nth-of-type(3) tbody")
        hold.release()
        page.wait_text("worker-2", "section:nth-of-type(2) tbody")
        page.wait_text("Nobody waits.")
        page.wait_text(f"worker-1 (token {hold.token}) acquired it at", ".card:nth-of-type(4)")
        page.wait_text("released", "section:nth-of-type(5) tbody")
        page.wait_text("stands", "section:nth-of-type(5) tbody")
    page.wait_text("Nobody holds it.")


def test_name_that_nobody_uses_says_so(page: Page, service: Service) -> None:
    """A link to a lock that has gone is no error."""
    view(page, service, line_of("nothing"))
    page.wait_text("Nobody holds it.")
    assert "not in use" in page.text(".summary")
    assert "journal=True" in page.text("main")


def test_elections_show_their_leaders_and_follow_them(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """The page shows the leader, with the value, and whether that is certain; a change is seen without a reload."""
    view(page, service, "#/elections")
    page.wait_text("Nobody leads.")
    with client.election("scheduler", value="10.0.0.7:8080").campaign():
        shows(page, "scheduler")
        assert "10.0.0.7:8080" in page.text("tbody")
        page.click("tbody .name")
        page.wait_text("certain", ".card")
        assert "10.0.0.7:8080" in page.text(".card")
    page.wait_text("Nobody holds it.")
    with other.election("scheduler", value="10.0.0.8:8080").campaign():
        page.wait_text("10.0.0.8:8080", ".card")


# Forcing out.


def test_force_release_says_to_whom_wants_a_reason_and_stands_in_the_audit(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """The dialog names holder, token and who comes next; the record has reason and actor; the holder learns of it."""
    hold = client.lock("ledger").acquire(timeout=30)
    view(page, service, line_of("ledger"))
    with waiting(other, "ledger"):
        page.wait_text("worker-2", "section:nth-of-type(3) tbody")
        page.click("section:nth-of-type(2) button.danger")
        page.wait_text("Next in line: worker-2", DIALOG)
        assert page.text(f"{DIALOG} h2") == "Force worker-1 out of ledger?"
        assert f"The ticket of worker-1 (token {hold.token}) is removed from ledger." in page.text(DIALOG)
        page.click("#release-cancel")
        page.wait(f"!document.querySelector('{DIALOG}').open")
        assert hold.remaining() > 0

        page.click("section:nth-of-type(2) button.danger")
        page.click("#release-confirm")
        page.wait_text("Say why", "#release-error")
        assert page.focused().startswith("input Reason")
        page.type("stuck since noon")
        page.click("#release-actor")
        page.type("alice")
        page.click("#release-confirm")
        page.wait_text(f"worker-1 (token {hold.token}) was forced out of ledger.", "#toast")
        assert hold.lost.wait(30)
        page.wait_text("worker-2", "section:nth-of-type(2) tbody")
        page.wait_text("forced: stuck since noon by alice", ".card:nth-of-type(4)")
    page.wait_text("was forced out at", ".card:nth-of-type(4)")  # another hold has ended since
    page.click("nav a[href='#/audit']")
    shows(page, "ledger")
    for shown in ("worker-1", f"token {hold.token}", "holding", "alice", "stuck since noon"):
        assert shown in page.text("tbody")
    (record,) = client.operator().audit()
    assert (record.token, record.reason, record.actor) == (hold.token, "stuck since noon", "alice")


def test_force_release_of_a_waiter_touches_no_holder(
    page: Page, service: Service, client: tenure.Client, other: tenure.Client
) -> None:
    """The dialog says so, and it is so."""
    hold = client.lock("ledger").acquire(timeout=30)
    view(page, service, line_of("ledger"))
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(other.lock("ledger").acquire, timeout=60)
        page.click("section:nth-of-type(3) button.danger")
        page.wait_text("worker-2 waits, and loses its place;", DIALOG)
        assert "Nobody who holds is touched." in page.text(DIALOG)
        page.type("not needed")
        page.press("Enter")
        page.wait_text("was forced out of ledger", "#toast")
        page.wait_text("Nobody waits.")
        hold.check()
        hold.release()
        assert isinstance(waiter.exception(), tenure.LeaseLost)


def test_dialog_whose_ticket_leaves_meanwhile_can_force_nobody_out(
    page: Page, service: Service, client: tenure.Client
) -> None:
    """Text in the dialog is true for as long as it is open."""
    hold = client.lock("ledger").acquire(timeout=30)
    view(page, service, line_of("ledger"))
    page.click("td button.danger")
    page.wait_text("Force worker-1 out of ledger?", DIALOG)
    page.type("stuck")
    hold.release()
    page.wait_text("there is nobody to force out", DIALOG)
    assert page.evaluate("document.getElementById('release-confirm').disabled")
    page.press("Enter")
    page.press("Escape")
    page.wait(f"!document.querySelector('{DIALOG}').open")
    assert client.operator().audit() == ()


# Keys, eyes, ears.


def test_all_of_it_can_be_done_with_the_keyboard_alone(page: Page, service: Service, client: tenure.Client) -> None:
    """Skip link, rows, line, dialog that keeps the focus and gives it back, and the way home."""
    holds = [client.lock(name).acquire(timeout=30) for name in ("first", "second")]
    view(page, service)
    shows(page, "first", "second")
    page.press("Tab")
    assert page.focused() == "a Skip to the content"
    page.press("Enter")
    page.press("Tab")
    assert page.focused() == "input Filter"
    page.press("ArrowDown")
    assert page.focused() == "a first"
    page.press("ArrowDown")
    assert page.focused() == "a second"
    page.press("ArrowUp")
    page.press("ArrowUp")
    assert page.focused() == "input Filter"
    page.press("ArrowDown")
    page.press("ArrowDown")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter")
    page.wait_text("Nobody waits.")
    assert page.focused() == "h1 second"
    page.press("ArrowDown")
    page.wait("document.activeElement.matches('button.danger')")
    assert page.focused() == f"button Force out worker-1, token {holds[1].token}"
    page.press("Enter")
    page.wait_text("Force worker-1 out of second?", DIALOG)
    page.wait("!document.getElementById('release-confirm').disabled")
    for shift in (False, True):
        for _ in range(9):
            page.press("Tab", shift=shift)
            assert page.evaluate("(e => e === document.body || !!e.closest('dialog'))(document.activeElement)")
    page.press("Escape")
    page.wait(f"!document.querySelector('{DIALOG}').open")
    page.wait("document.activeElement.matches('button.danger')")
    page.press("Enter")
    page.wait_text("Force worker-1 out of second?", DIALOG)
    page.type("by hand")
    page.press("Enter")
    page.wait_text("was forced out of second", "#toast")
    page.press("Escape")
    shows(page, "first")


def test_focus_stays_on_its_row_while_rows_come_and_go(page: Page, service: Service, client: tenure.Client) -> None:
    """The focus stays at its row, whatever others do."""
    client.lock("m").acquire(timeout=30)
    view(page, service)
    shows(page, "m")
    page.press("ArrowDown")
    assert page.focused() == "a m"
    client.lock("a").acquire(timeout=30)
    client.lock("z").acquire(timeout=30)
    shows(page, "a", "m", "z")
    assert page.focused() == "a m"
    client.rwlock("b").read().acquire(timeout=30)
    shows(page, "a", "b", "m", "z")
    assert page.focused() == "a m"


def test_dark_and_light_follow_the_system_until_they_are_switched(page: Page, service: Service) -> None:
    """The choice is there again after a reload."""
    view(page, service)
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.prefer("dark")
    dark = page.evaluate(paper)
    assert dark != light
    page.click("#theme")
    assert (page.text("#theme"), page.evaluate(paper)) == ("Theme: light", light)
    page.call("Page.reload")
    page.wait(LIVE)
    assert (page.text("#theme"), page.evaluate(paper)) == ("Theme: light", light)
    page.prefer("light")
    page.click("#theme")
    assert (page.text("#theme"), page.evaluate(paper)) == ("Theme: dark", dark)
    page.click("#theme")
    assert (page.text("#theme"), page.evaluate(paper)) == ("Theme: system", light)


_CONTRAST = """
(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (color) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const paper = (e) => {
    const own = rgb(getComputedStyle(e).backgroundColor);
    return own[3] === 255 ? own : paper(e.parentElement);
  };
  const found = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility() || e.matches(":disabled")) continue;
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(paper(e))].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) found.push(`${e.outerHTML.slice(0, 120)}: ${contrast.toFixed(2)}`);
  }
  return found;
})()
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
def test_every_view_fits_is_readable_and_has_names_for_all_that_can_be_operated(
    browser: Browser, service: Service, client: tenure.Client, other: tenure.Client, width: int, dark: bool
) -> None:
    """Nothing is wider than the page, all text has a contrast of 4.5, each button, link and field has a name."""
    hold = client.lock("a-name-of-some-length/" + "segment-" * 20).acquire(timeout=30)
    client.operator().force_release(hold.resource, token=hold.token, reason="to have a record", actor="alice")
    client.lock("ledger").acquire(timeout=30)
    held = client.lock("contended").acquire(timeout=30)
    with (
        other.election("scheduler", value="10.0.0.7:8080").campaign(),
        browser.page(width=width, height=900, dark=dark) as page,
        waiting(other, "contended"),
    ):
        for where, text in (
            ("#/locks", "contended"),
            ("#/elections", "10.0.0.7"),
            ("#/audit", "to have a record"),
            (line_of("scheduler"), "Last holds"),
            (line_of("contended"), "worker-2"),
        ):
            view(page, service, where)
            page.wait_text(text)
            looks_right(page, width)
        page.click("td button.danger")
        page.wait_text("Next in line", DIALOG)
        looks_right(page, width)
        behaved(page)
        held.release()


def looks_right(page: Page, width: int) -> None:
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_CONTRAST) == []
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    operated = [
        node for node in nodes if node.get("role", {}).get("value") in ("button", "link", "textbox", "searchbox")
    ]
    assert operated
    assert [node for node in operated if not node.get("ignored") and not node["name"]["value"]] == []


# Strangers.


def test_hostile_names_and_owners_are_shown_and_never_run(page: Page, url: str, service: Service) -> None:
    """Markup is text, what can't be seen is made visible, and each row leads to that very line and to no other."""
    with tenure.connect(url, ttl=TTL, owner="<b onclick=hacked=1>me</b>\u202e") as client:
        tokens = {name: client.lock(name).acquire(timeout=30).token for name in HOSTILE}
        value = "<iframe src=javascript:hacked=1>"
        client.election("<i>election</i>", value=value).campaign().acquire(timeout=30)
        view(page, service)
        page.wait(f"document.querySelectorAll('tbody tr').length === {len(HOSTILE) + 1}")
        assert "line\\u{202e}gnp.exe" in page.texts("tbody .name")
        assert "zero\\u{200b}width" in page.texts("tbody .name")
        assert "<b onclick=hacked=1>me</b>\\u{202e}" in page.text("tbody")
        assert page.evaluate("document.querySelectorAll('main :is(img, script, svg, iframe, b, i)').length") == 0
        for name, token in tokens.items():
            page.evaluate(
                f"[...document.querySelectorAll('tbody tr')].find((row) => row.dataset.key === {json.dumps(name)})"
                ".querySelector('a').click()"
            )
            page.wait_text(str(token), "section:nth-of-type(2) td:nth-child(2)")
            page.press("Escape")
            page.wait(f"document.querySelectorAll('tbody tr').length === {len(HOSTILE) + 1}")
        page.open(f"{service.url}/ui/#/elections")
        page.wait_text(value)


# Tokens.


def test_service_that_wants_a_token_is_asked_with_one_and_the_tab_alone_keeps_it(
    page: Page, url: str, client: tenure.Client, tmp_path: Path
) -> None:
    """A wrong one is refused in words; a right one is kept in sessionStorage, nowhere else, and can be forgotten."""
    tokens = write_tokens(tmp_path / "tokens", ONCALL, LOOKER)
    client.lock("billing/ledger").acquire(timeout=30)
    with serving(url, tmp_path, "--tokens", str(tokens)) as service:
        page.open(f"{service.url}/ui/")
        page.wait("document.getElementById('token-dialog').open")
        for _ in range(3):
            page.press("Escape")
        page.wait("document.getElementById('token-dialog').open")
        assert page.focused() == "input Bearer token"
        page.type("wrong")
        page.press("Enter")
        page.wait_text("this token is not known", "#token-error")
        page.type(ONCALL.token)
        page.press("Enter")
        shows(page, "billing/ledger")
        page.wait(LIVE)
        grant = page.evaluate(
            "[JSON.stringify(sessionStorage), JSON.stringify(localStorage), document.cookie, location.href]"
        )
        assert [ONCALL.token in where for where in grant] == [True, False, False, False]
        assert not any(ONCALL.token in asked for asked in page.requested)
        page.call("Page.reload")
        page.wait(LIVE)
        page.click("#forget")
        page.wait("document.getElementById('token-dialog').open")
        assert page.evaluate("sessionStorage.length") == 0


def test_token_that_may_only_look_sees_its_tenants_names_and_is_told_what_it_may_not(
    page: Page, url: str, client: tenure.Client, tmp_path: Path
) -> None:
    """A refusal is shown where it matters, and nobody is forced out."""
    tokens = write_tokens(tmp_path / "tokens", LOOKER)
    hold = client.lock("billing/ledger").acquire(timeout=30)
    client.lock("shipping/ledger").acquire(timeout=30)
    with serving(url, tmp_path, "--tokens", str(tokens)) as service:
        page.open(f"{service.url}/ui/")
        page.wait("document.getElementById('token-dialog').open")
        page.type(LOOKER.token)
        page.press("Enter")
        shows(page, "ledger")
        page.click("tbody .name")
        page.click("td button.danger")
        page.wait_text("Force worker-1 out of ledger?", DIALOG)
        page.type("stuck")
        page.click("#release-confirm")
        page.wait_text("operate", "#release-error")
    hold.check()
    assert client.operator().audit() == ()


# Bad days.


def test_service_that_goes_away_makes_the_page_old_and_it_is_live_again_after(
    page: Page, url: str, client: tenure.Client, tmp_path: Path
) -> None:
    """A page without news says so, with the age of what it shows; then it catches up by itself."""
    port = free_port()
    client.lock("before").acquire(timeout=30)
    with serving(url, tmp_path, "--listen", str(port)) as service:
        view(page, service)
        shows(page, "before")
    page.wait(OLD)
    page.wait_text("What you see is old: it is from", "#alarm")
    assert page.text("#heard").startswith("Not live, last heard ")
    assert "s ago" in page.text("#heard")
    aged = page.texts("tbody .ticking")
    page.wait("Number(/heard (\\d+) s/.exec(document.getElementById('heard').innerText)[1]) >= 3")
    assert page.texts("tbody .ticking") == aged  # what is not known does not grow
    client.lock("meanwhile").acquire(timeout=30)
    with serving(url, tmp_path, "--listen", str(port)):
        page.click("#alarm button")
        page.wait(LIVE)
        shows(page, "before", "meanwhile")
        assert page.evaluate("document.getElementById('alarm').hidden")
    page.wait(OLD)


def test_store_that_goes_away_behind_a_living_service_makes_the_page_old(
    page: Page, provider: Provider, tmp_path: Path
) -> None:
    """The stream lives on, and says nothing: that is not taken for news that nothing has changed."""
    cluster = start(provider, EtcdSpec())
    store = cluster.url("ui")
    with tenure.connect(store, ttl=TTL, owner="worker-1") as client, serving(store, tmp_path) as service:
        client.election("scheduler", value="10.0.0.7:8080").campaign().acquire(timeout=30)
        view(page, service, line_of("scheduler"))
        page.wait("document.querySelector('.card .badge')?.innerText === 'certain'")
        cluster.members[0].pause()
        page.wait(OLD)
        page.wait("document.querySelector('.card .badge').innerText === 'not certain: do not act on it'")
        cluster.members[0].resume()
        page.wait(LIVE)
        page.wait("document.querySelector('.card .badge').innerText === 'certain'")


def test_service_that_can_not_be_asked_at_first_says_so_and_is_asked_again(page: Page, tmp_path: Path) -> None:
    """No store there at all: the page is there, and says that nothing is known yet."""
    with serving(f"etcd://127.0.0.1:{free_port()}/ui?timeout=1", tmp_path) as service:
        page.open(f"{service.url}/ui/")
        page.wait_text("Nothing is known yet")
        page.wait(f"!document.getElementById('alarm').hidden && !({LIVE})")


def test_page_of_which_a_part_does_not_come_says_so_and_loads_itself_again(
    page: Page, service: Service, client: tenure.Client
) -> None:
    """A page with a module missing is missing as a whole: it does not show `connecting` for ever."""
    client.lock("ledger").acquire(timeout=30)
    page.call("Network.setBlockedURLs", urls=["*/words.js"])
    page.open(f"{service.url}/ui/")
    page.wait_text("A part of this page did not come", "#heard")
    page.call("Network.setBlockedURLs", urls=[])
    shows(page, "ledger")


def test_answer_of_a_force_release_that_is_lost_is_found_again(
    page: Page, service: Service, client: tenure.Client
) -> None:
    """The request is repeated by itself; it is one record."""
    hold = client.lock("ledger").acquire(timeout=30)
    view(page, service, line_of("ledger"))
    page.click("td button.danger")
    page.wait("!document.getElementById('release-confirm').disabled")
    page.evaluate(
        "(() => { const real = window.fetch; let lost = 0; window.fetch = async (url, options) => {"
        "const answer = await real(url, options); if (options.method !== 'POST' || lost++) return answer;"
        "throw new TypeError('lost'); }; })()"
    )
    page.type("stuck")
    page.click("#release-confirm")
    page.wait_text(f"worker-1 (token {hold.token}) was forced out of ledger.", "#toast")
    assert len(client.operator().audit()) == 1


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# The files.


def test_files_are_served_as_they_are_asked_for_again_only_if_changed_and_nothing_else_is(service: Service) -> None:
    """ETags, types, a strict policy, no path to climb; no markup of ours has anything inline, or from elsewhere."""
    with httpx.Client(base_url=service.url) as http:
        assert http.get("/").headers["location"] == http.get("/ui").headers["location"] == "ui/"
        assert http.get("/ui/").content == FILES["index.html"].body
        for name, file in FILES.items():
            answer = http.get(f"/ui/{name}")
            assert (answer.status_code, answer.content) == (200, file.body)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            same = http.get(f"/ui/{name}", headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
            assert (same.status_code, same.content) == (304, b"")
            assert http.get(f"/ui/{name}", headers={"If-None-Match": '"other"'}).status_code == 200
            assert http.head(f"/ui/{name}").headers["content-length"] == str(len(file.body))
        for path in ("/ui/..%2fdashboard.py", "/ui/nothing", "/ui/a/b", "/ui//etc/passwd", "/ui/__init__.py"):
            assert http.get(path).status_code == 404, path
        assert http.post("/ui/").status_code == 405
    assert "/ui/{file}" not in json.dumps(httpx.get(f"{service.url}/openapi.json").json())
    text = b"".join(file.body for file in FILES.values()).decode()
    assert not any(shown in text for shown in ("innerHTML", "<style", " style=", "onclick=", "eval(", "https://"))
    page = FILES["index.html"].body.decode()
    assert page.count("<script") == page.count(' src="theme.js"') + page.count(' src="boot.js"') + page.count(
        ' src="main.js"'
    )
