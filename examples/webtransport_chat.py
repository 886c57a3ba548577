"""A chat room over WebTransport, with its page: open the printed address in Chromium.

    python examples/webtransport_chat.py

The certificate is made for this run and the page contains its hash, so a user need not trust it
first. The page comes over plain HTTP from this machine, which browsers treat as a secure context.
Each guest has one stream, with a line of JSON for each message in both directions; datagrams show
which guest is typing.
"""

import argparse
import asyncio
import contextlib
import json

import uringcore
from uringcore import webtransport
from uringcore.devcert import DevelopmentCertificate
from uringcore.quic import BidirectionalStream

LINE_MAX, BACKLOG_MAX = 4000, 100
BAD_MESSAGE, TOO_SLOW = 1, 2

PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title>
<style>
  body { font: 16px sans-serif; max-width: 40em; margin: 2em auto }
  #log { height: 20em; overflow: auto; border: 1px solid }
  #typing { color: gray; height: 1.5em }
  input { width: 100%; padding: .5em; box-sizing: border-box }
</style>
<h1>Chat</h1>
<div id="log"></div><div id="typing"></div><input id="text" placeholder="Say something" disabled>
<script type="module">
const [log, typing, text] = ["log", "typing", "text"].map((id) => document.getElementById(id));
const show = (line) => {
  const shown = document.createElement("p");
  shown.textContent = line;
  log.append(shown);
  shown.scrollIntoView();
};
const asked = new URLSearchParams(location.search).get("name");
const name = asked || "guest " + Math.floor(Math.random() * 1000);
const hash = Uint8Array.from(HASH);
const session = new WebTransport(`https://${location.hostname}:PORT/chat`,
  { serverCertificateHashes: [{ algorithm: "sha-256", value: hash }] });
session.closed
  .then((end) => show(`closed: ${end.closeCode} ${end.reason}`), (error) => show(`lost: ${error}`))
  .finally(() => { text.disabled = true; });
const bytes = (line) => new TextEncoder().encode(line);
async function hearTyping() {
  let timer;
  for await (const data of session.datagrams.readable) {
    typing.textContent = new TextDecoder().decode(data) + " is writing";
    clearTimeout(timer);
    timer = setTimeout(() => { typing.textContent = ""; }, 2000);
  }
}
try {
  await session.ready;
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();
  const datagrams = session.datagrams.writable.getWriter();
  const say = (what) => writer.write(bytes(JSON.stringify(what) + "\\n"));
  await say({ name });
  text.disabled = false;
  text.oninput = () => datagrams.write(bytes(name));
  text.onchange = () => { say({ text: text.value }); text.value = ""; };
  hearTyping().catch(() => {});
  let rest = "";
  for await (const piece of stream.readable.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + piece).split("\\n");
    rest = lines.pop();
    for (const line of lines.map(JSON.parse)) show(`${line.name}: ${line.text}`);
  }
} catch (error) { show(error); }
</script>"""


class Guest:
    """One guest, and its queued messages."""

    def __init__(self, session: webtransport.Session) -> None:
        self.session = session
        self.lines: asyncio.Queue[bytes] = asyncio.Queue(BACKLOG_MAX)

    def tell(self, name: str, text: str) -> None:
        try:
            self.lines.put_nowait(json.dumps({"name": name, "text": text}).encode() + b"\n")
        except asyncio.QueueFull:
            self.session.close(TOO_SLOW, "too many messages wait")

    async def write(self, stream: BidirectionalStream) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                await stream.send(await self.lines.get())


class Room:
    """All guests."""

    def __init__(self) -> None:
        self.guests: set[Guest] = set()

    async def enter(self, session: webtransport.Session) -> None:
        """Serves one guest until they leave."""
        guest, stream = Guest(session), await session.accept_stream()
        tasks = [asyncio.create_task(guest.write(stream)), asyncio.create_task(self.relay(guest))]
        try:
            name = str(json.loads(await stream.readuntil(limit=LINE_MAX))["name"])
            self.guests.add(guest)
            self.say("room", f"{name} is here")
            while line := await stream.readuntil(limit=LINE_MAX):
                self.say(name, str(json.loads(line)["text"]))
        except (ValueError, TypeError, KeyError, RecursionError, asyncio.LimitOverrunError):
            session.close(BAD_MESSAGE, "that was no message")
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            if guest in self.guests:
                self.guests.remove(guest)
                self.say("room", f"{name} has left")

    async def relay(self, guest: Guest) -> None:
        """Forwards a guest's datagrams to the others."""
        with contextlib.suppress(webtransport.WebTransportError):
            async for data in guest.session.datagrams():
                for other in self.guests - {guest}:
                    # A guest that is leaving, or whose datagrams are smaller, is skipped.
                    with contextlib.suppress(webtransport.WebTransportError, ValueError):
                        other.session.send_datagram(data)

    def say(self, name: str, text: str) -> None:
        for guest in self.guests:
            guest.tell(name, text)


async def serve_page(port: int, page: str) -> asyncio.Server:
    """Serves one page, at every path."""
    body = page.encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", port)


async def main(port: int, page_port: int) -> None:
    """Serves the room and its page until it is interrupted."""
    certificate = DevelopmentCertificate.make()
    identity = (certificate.certificate_pem, certificate.key_pem)
    room = Room()
    async with webtransport.serve(
        "127.0.0.1", port, certificate=identity, paths=["/chat"], handler=room.enter
    ) as server:
        hash_ = str(list(certificate.sha256))
        page = PAGE.replace("HASH", hash_).replace("PORT", str(server.address[1]))
        async with await serve_page(page_port, page) as pages:
            where = pages.sockets[0].getsockname()
            print(f"http://{where[0]}:{where[1]}/", flush=True)
            await pages.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A chat room over WebTransport.")
    parser.add_argument("--port", type=int, default=4433, help="UDP, for WebTransport")
    parser.add_argument("--page-port", type=int, default=8000, help="TCP, for the page")
    arguments = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        uringcore.run(main(arguments.port, arguments.page_port))
