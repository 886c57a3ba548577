"""The application's surroundings: its task, its context, and awaitables that are coroutines."""

import asyncio
import json

import pytest

import uringcore
from examples.aioquic_peer import connect_peer
from tests.server.conftest import backends, starting
from tests.server.harness import ForkedServer, Server
from uringcore.http3._errors import RequestResetError

start = starting(ForkedServer)

DRIVER = "tests.server.asgi_driver:app"


@pytest.fixture(scope="module", params=[*backends(), "asyncio"])
def driver(request, certificate, tmp_path_factory):
    """One server for each of our loop's two backends, and one on stock asyncio."""
    folder = tmp_path_factory.mktemp("driver")
    if request.param == "asyncio":
        running = Server(folder, certificate, "--loop", "asyncio", app=DRIVER)
    else:
        running = Server(folder, certificate, backend=request.param, app=DRIVER)
    yield running
    running.kill()
    running.check_log()


@pytest.mark.parametrize("size", [0, 10, 700_000])
def test_receive_and_send_are_coroutines(driver, size):
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    assert driver.get("/tasks", "POST", content=body).content == body


def test_they_look_like_coroutines(driver):
    states = json.loads(driver.get("/looked-at").content)
    assert states == ["CORO_CREATED", "CORO_SUSPENDED", "CORO_CLOSED"]


def test_one_that_is_never_awaited_is_warned_of(driver):
    seen = json.loads(driver.get("/forgets").content)
    assert seen == [
        ["RuntimeWarning", f"coroutine 'Request.{name}' was never awaited"]
        for name in ("send", "receive", "receive")
    ]


def test_changes_to_a_scope_do_not_reach_the_next_request(driver):
    for _ in range(2):
        seen = json.loads(driver.get("/changes-its-scope").content)
        assert sorted(seen) == ["spec_version", "version"]


def test_an_application_has_a_task_that_shows_where_it_stands(driver):
    first, frame, second, later = json.loads(driver.get("/current").content)
    assert first == second
    # The last frame of a running task's stack is its coroutine's.
    assert frame == later
    assert len(frame) == 1


def test_failure_between_head_and_body_is_500(driver):
    response = driver.get("/fails-between")
    assert (response.status, response.content) == (500, b"Internal Server Error")
    assert b"x-a" not in dict(response.headers)
    assert "between the head and the body" in driver.log()


def test_failure_when_the_head_has_left_is_a_reset(driver):
    with pytest.raises(RequestResetError) as raised:
        driver.get("/fails-later")
    assert raised.value.error_code == 0x102  # H3_INTERNAL_ERROR


def test_a_head_leaves_before_its_body_is_made(driver):
    async def main():
        async with connect_peer(driver.url, cafile=driver.certificate) as peer:
            first = asyncio.ensure_future(peer.fetch("GET", "/head-first"))
            while not any(answer.status for answer in peer.answers.values()):
                await asyncio.sleep(0.01)
            await peer.fetch("GET", "/open-gate")
            return await first

    answer = asyncio.run(asyncio.wait_for(main(), 20))
    assert (answer.status, bytes(answer.body)) == (200, b"body")


def test_sends_after_a_disconnect_leave_the_loop_to_others(driver):
    async def main():
        async with driver.connect() as client:
            # The client reads the head and abandons the rest.
            async with client.stream("GET", "/sends-on") as response:
                assert response.status == 200
            for _ in range(3):
                assert (await client.get("/")).content == b"hello"
            return json.loads((await client.get("/stop-sending")).content)

    assert uringcore.run(asyncio.wait_for(main(), 20))["to nobody"] > 0


def test_a_head_whose_content_never_ends_leaves_the_loop_to_others(driver):
    async def main():
        async with driver.connect() as client:
            async with client.stream("HEAD", "/head-for-ever") as response:
                assert response.status == 200
            return (await client.get("/")).content

    assert uringcore.run(asyncio.wait_for(main(), 20)) == b"hello"


def test_a_wait_that_is_cancelled_leaves_nothing_behind(driver):
    assert int(driver.get("/asks-often").content) < 100


def test_applications_that_work_on_are_no_attack_of_their_client(driver):
    async def main():
        async with driver.connect() as client:
            for _ in range(200):
                assert (await client.get("/works-on")).content == b"answered"
            return json.loads((await client.get("/release-workers")).content)

    assert uringcore.run(asyncio.wait_for(main(), 40))["at work"] == 200


def test_an_applications_own_cancellation_is_500(driver):
    assert driver.get("/cancels-itself").status == 500
    assert "CancelledError" in driver.log()


def test_a_send_of_another_thread_ends(driver):
    """The send succeeds if the loop is awake, and is an error otherwise; the client does not wait forever."""
    try:
        assert driver.get("/other-thread").status in (200, 500)
    except RequestResetError as exc:
        assert exc.error_code == 0x102  # H3_INTERNAL_ERROR
        assert "Non-thread-safe operation" in driver.log()


def test_each_request_has_its_own_context(driver):
    for _ in range(3):
        assert json.loads(driver.get("/context").content) == ["nobody's", "mine"]


@pytest.mark.parametrize("path", ["/a-future", "/an-awaitable"])
def test_anything_that_can_be_awaited_will_do(driver, path):
    assert driver.get(path).content == path.removeprefix("/a-").removeprefix("/an-").encode()


@pytest.mark.parametrize("path", ["/not-awaitable", "/raises-at-once", "/exits"])
def test_an_application_that_fails_at_once_is_500(driver, path):
    response = driver.get(path)
    assert (response.status, response.content) == (500, b"Internal Server Error")
    assert "Exception in ASGI application" in driver.log()
    assert driver.get("/").status == 200


def test_invalid_messages_are_errors_of_the_application(driver):
    response = driver.get("/strange-messages")
    assert dict(response.headers)[b"x-lazy"] == b"yes"
    assert response.content.decode().split() == [
        "RuntimeError",
        "KeyError",
        "RuntimeError",
        "TypeError",
        "TypeError",
        "TypeError",
        "ValueError",
        "TypeError",
        "KeyError",
        "TypeError",
        "TypeError",
    ]
    assert json.loads(driver.get("/stop-sending").content)["after the end"] is True


def test_a_loops_task_factory_makes_the_tasks(start):
    server = start(app="tests.server.asgi_driver:with_factory")
    assert server.get("/task-class").content == b"ProgramsTask"
