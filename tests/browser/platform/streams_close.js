// The end of streams, as the other end sees it.
"use strict";

async function isEnd(told, kind) {
  const event = await told("end");
  isEqual(event.kind, kind, "kind");
}

async function isReset(told, kind, code) {
  const event = await told("reset");
  isEqual(event.kind, kind, "kind");
  isEqual(event.code, code, "code");
}

function streamError(streamErrorCode) {
  return new WebTransportError({ message: "no more", streamErrorCode });
}

test("ends: the page closes a bidirectional stream of its own", async (keep) => {
  const { session, told } = await recorded(keep);
  (await session.createBidirectionalStream()).writable.close();
  await isEnd(told, "bidirectional");
});

test("ends: the page closes a bidirectional stream of the server's", async (keep) => {
  const { session, told } = await recorded(keep);
  (await next(session.incomingBidirectionalStreams)).writable.close();
  await isEnd(told, "bidirectional");
});

test("ends: the page closes a unidirectional stream", async (keep) => {
  const { session, told } = await recorded(keep);
  (await session.createUnidirectionalStream()).close();
  await isEnd(told, "unidirectional");
});

// A reset may overtake data that was sent before, so the server must see the stream first.
async function begin(told, writable) {
  const writer = writable.getWriter();
  await writer.write(new Uint8Array(100));
  await told("begin");
  return writer;
}

test("ends: the page aborts a bidirectional stream of its own", async (keep) => {
  const { session, told } = await recorded(keep);
  const writer = await begin(told, (await session.createBidirectionalStream()).writable);
  await writer.abort(streamError(139));
  await isReset(told, "bidirectional", 139);
});

test("ends: the page aborts a bidirectional stream of the server's", async (keep) => {
  const { session, told } = await recorded(keep);
  const writer = await begin(told, (await next(session.incomingBidirectionalStreams)).writable);
  await writer.abort(streamError(52));
  await isReset(told, "bidirectional", 52);
});

test("ends: the page aborts a unidirectional stream", async (keep) => {
  const { session, told } = await recorded(keep);
  const writer = await begin(told, await session.createUnidirectionalStream());
  await writer.abort(streamError(95));
  await isReset(told, "unidirectional", 95);
});

test("ends: the page aborts a unidirectional stream that it is closing", async (keep) => {
  const { session, told } = await recorded(keep);
  const writer = await begin(told, await session.createUnidirectionalStream());
  const error = streamError(134);
  await writer.write(new Uint8Array(64 * 1024));
  const closing = rejects(writer.close(), "close()");
  const closed = rejects(writer.closed, "closed");
  // If the close is already in progress, the abort ends like the close.
  await writer.abort(error).catch(() => {});
  isEqual(await closing, error, "close()");
  isEqual(await closed, error, "closed");
  await isReset(told, "unidirectional", 134);
});

test("ends: an abort without an error has the code 0", async (keep) => {
  const { session, told } = await recorded(keep);
  const writer = await begin(told, await session.createUnidirectionalStream());
  await writer.abort();
  await isReset(told, "unidirectional", 0);
});

test("ends: the page cancels a unidirectional stream of the server's", async (keep) => {
  const { session, told } = await recorded(keep);
  const reader = (await next(session.incomingUnidirectionalStreams)).getReader();
  await reader.read();
  await reader.cancel(streamError(77));
  const event = await told("stopped");
  isEqual(event.code, 77, "code");
});

test("ends: the server stops a stream", async (keep) => {
  const session = await connected(keep, "/stops?code=240");
  let error;
  do {
    // On a busy machine Chromium may find its own pipe closed before it has received the cause.
    const writer = (await session.createUnidirectionalStream()).getWriter();
    writer.write(new Uint8Array([64])).catch(() => {});
    error = await rejects(writer.closed, "closed");
  } while (error instanceof DOMException && error.name === "NetworkError");
  isStreamError(error, 240);
});

test("ends: the server resets a stream", async (keep) => {
  const session = await connected(keep, "/stops?code=127");
  const stream = await session.createBidirectionalStream();
  stream.writable.getWriter().write(new Uint8Array([64])).catch(() => {});
  isStreamError(await rejects(stream.readable.getReader().closed, "closed"), 127);
});

test("ends: a stream that the server has reset at once is empty or in error", async (keep) => {
  // The page sees the stream only if some data arrived before the reset.
  const session = await connected(keep, "/resets?code=0");
  const found = await Promise.race([next(session.incomingUnidirectionalStreams), pause(1000)]);
  if (found !== undefined) {
    isStreamError(await rejects(chunks(found), "read"), 0);
  }
});
