// The end of a session, and the events at either end.
"use strict";

async function isClosed(told, code, reason) {
  const event = await told("closed");
  isEqual(event.code, code, "code");
  isEqual(event.reason, reason, "reason");
}

test("close: the page closes", async (keep) => {
  const { session, told } = await recorded(keep);
  session.close();
  const info = await session.closed;
  isEqual(Object.hasOwn(info, "reason") && info.reason !== "", false, "a reason of its own");
  await isClosed(told, 0, "");
});

test("close: the page closes with a code and a reason", async (keep) => {
  const { session, told } = await recorded(keep);
  session.close({ closeCode: 99, reason: "reason X" });
  const info = await session.closed;
  isEqual(info.closeCode, 99, "closeCode");
  isEqual(info.reason, "reason X", "reason");
  await isClosed(told, 99, "reason X");
});

test("close: a long reason is cut to 1,024 bytes, between two characters", async (keep) => {
  const { session, told } = await recorded(keep);
  const reason = "あいうえお".repeat(1000);
  session.close({ closeCode: 11, reason });
  const info = await session.closed;
  isEqual(info.closeCode, 11, "closeCode");
  isEqual(info.reason, reason, "reason");
  await isClosed(told, 11, reason.slice(0, 341));
});

test("close: the server closes with a code and a reason", async (keep) => {
  const session = await connected(keep, "/close?code=32&reason=abc");
  const writer = (await session.createUnidirectionalStream()).getWriter();
  writer.write(new Uint8Array(1)).catch(() => {});
  writer.closed.catch(() => {});
  const info = await session.closed;
  isEqual(info.closeCode, 32, "closeCode");
  isEqual(info.reason, "abc", "reason");
});

test("close: streams end with the session, in the same error", async (keep) => {
  const { session } = await recorded(keep);
  const stream = await next(session.incomingBidirectionalStreams);
  const writer = stream.writable.getWriter();
  const reader = stream.readable.getReader();
  const ends = [rejects(writer.closed, "writer.closed"), rejects(reader.closed, "reader.closed")];
  session.close();
  for (const error of await Promise.all(ends)) {
    isTrue(error instanceof WebTransportError, "a WebTransportError");
    isEqual(error.source, "session", "source");
    isEqual(error.streamErrorCode, null, "streamErrorCode");
  }
});
