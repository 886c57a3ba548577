// Streams of either kind, opened by either end, read in each way.
"use strict";

async function echoOn(stream) {
  await write(stream.writable, encode("Hello World"));
  isEqual(await text(stream.readable), "Hello World", "the answer");
}

test("streams: a bidirectional stream of the page's", async (keep) => {
  const session = await connected(keep, "/echo");
  await echoOn(await session.createBidirectionalStream());
});

test("streams: a bidirectional stream of the page's, without waiting for the session", async (keep) => {
  const session = connect(keep, "/echo");
  await echoOn(await session.createBidirectionalStream());
});

test("streams: a bidirectional stream of the server's", async (keep) => {
  const session = await connected(keep, "/opens");
  await echoOn(await next(session.incomingBidirectionalStreams));
});

async function echoOneWay(session) {
  await write(await session.createUnidirectionalStream(), encode("Hello World"));
  const answer = await next(session.incomingUnidirectionalStreams);
  isEqual(await text(answer), "Hello World", "the answer");
}

test("streams: a unidirectional stream each way", async (keep) => {
  await echoOneWay(await connected(keep, "/echo"));
});

test("streams: a unidirectional stream each way, without waiting for the session", async (keep) => {
  await echoOneWay(connect(keep, "/echo"));
});

const BYTES = Uint8Array.from({ length: 256 }, (_, index) => index);

async function isReadInHalves(readable) {
  const reader = readable.getReader({ mode: "byob" });
  isTrue(reader instanceof ReadableStreamBYOBReader, "a BYOB reader");
  for (const half of [0, 128]) {
    const bytes = await fill(reader, new ArrayBuffer(128));
    isTrue(bytes.every((byte, index) => byte === half + index), `the bytes from ${half}`);
  }
  reader.releaseLock();
}

test("streams: a bidirectional stream is read with a BYOB reader", async (keep) => {
  const session = await connected(keep, "/opens");
  const stream = await next(session.incomingBidirectionalStreams);
  await write(stream.writable, BYTES);
  await isReadInHalves(stream.readable);
});

test("streams: a unidirectional stream is read with a BYOB reader", async (keep) => {
  const session = await connected(keep, "/echo");
  await write(await session.createUnidirectionalStream(), BYTES);
  await isReadInHalves(await next(session.incomingUnidirectionalStreams));
});

const LARGE = new Uint8Array(16384);

async function size(readable) {
  return (await chunks(readable)).reduce((sum, chunk) => sum + chunk.length, 0);
}

test("streams: large chunks on a bidirectional stream", async (keep) => {
  const session = await connected(keep, "/echo");
  const stream = await session.createBidirectionalStream();
  const [received] = await Promise.all([
    size(stream.readable),
    write(stream.writable, LARGE, LARGE, LARGE),
  ]);
  isEqual(received, 3 * LARGE.length, "the size");
});

test("streams: large chunks on a unidirectional stream", async (keep) => {
  const session = await connected(keep, "/echo");
  await write(await session.createUnidirectionalStream(), LARGE, LARGE, LARGE);
  const answer = await next(session.incomingUnidirectionalStreams);
  isEqual(await size(answer), 3 * LARGE.length, "the size");
});

test("streams: one that ends without data is read to its end", async (keep) => {
  const session = await connected(keep, "/echo");
  const stream = await session.createBidirectionalStream();
  await write(stream.writable);
  isEqual((await chunks(stream.readable)).length, 0, "chunks");
});

test("streams: an empty chunk may be written", async (keep) => {
  const session = await connected(keep, "/echo");
  const stream = await session.createBidirectionalStream();
  await write(stream.writable, new Uint8Array(0));
  isEqual(await size(stream.readable), 0, "the size");
});

test("streams: what is no buffer is a TypeError", async (keep) => {
  const session = await connected(keep, "/echo");
  const stream = await session.createBidirectionalStream();
  const error = await rejects(stream.writable.getWriter().write("foo"), "write");
  isEqual(error.name, "TypeError", "error");
});
