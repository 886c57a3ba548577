// The WebTransport operations of the tests in a page: each function is one case, and returns the
// values to compare.
"use strict";

let hash;

function trust(numbers) {
  hash = numbers;
}

function connect(url, options = {}) {
  const serverCertificateHashes = [{ algorithm: "sha-256", value: Uint8Array.from(hash) }];
  return new WebTransport(url, { serverCertificateHashes, ...options });
}

async function connected(url) {
  const session = connect(url);
  await session.ready;
  return session;
}

// Returns the first such event at the server.
async function told(token, event) {
  return await (await fetch(`/told?token=${token}&event=${event}`)).json();
}

function describe(error) {
  return { type: error.constructor.name, source: error.source, code: error.streamErrorCode ?? null };
}

async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    return describe(error);
  }
  return null;
}

async function readAll(readable) {
  const parts = [];
  const reader = readable.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      break;
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function writeAll(writable, bytes) {
  const writer = writable.getWriter();
  for (let start = 0; start < bytes.length; start += 65536) {
    await writer.ready;
    // The close reports a failure.
    writer.write(bytes.subarray(start, start + 65536)).catch(() => {});
  }
  await writer.close();
}

// Bytes that differ for each seed.
function pattern(seed, size) {
  const bytes = new Uint8Array(size);
  let state = seed + 1;
  for (let index = 0; index < size; index++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    bytes[index] = state >>> 24;
  }
  return bytes;
}

function equal(some, others) {
  return some.length === others.length && some.every((byte, index) => byte === others[index]);
}

async function next(incoming) {
  const reader = incoming.getReader();
  const { value } = await reader.read();
  reader.releaseLock();
  return value;
}

async function echo(session, text) {
  const stream = await session.createBidirectionalStream();
  const [, answer] = await Promise.all([
    writeAll(stream.writable, new TextEncoder().encode(text)),
    readAll(stream.readable),
  ]);
  return new TextDecoder().decode(answer);
}

async function helloOverASession(url) {
  const session = await connected(url);
  const answer = await echo(session, "hello");
  session.close();
  return answer;
}

async function wrongHash(url) {
  const value = Uint8Array.from(hash).map((byte) => byte ^ 1);
  const session = connect(url, { serverCertificateHashes: [{ algorithm: "sha-256", value }] });
  session.closed.catch(() => {});
  return await failure(session.ready);
}

// Returns the number of streams whose echo was correct.
async function manyStreams(url, count, size) {
  const session = await connected(url);
  const one = async (seed) => {
    const sent = pattern(seed, size);
    const stream = await session.createBidirectionalStream();
    const [, answer] = await Promise.all([writeAll(stream.writable, sent), readAll(stream.readable)]);
    return equal(sent, answer);
  };
  const same = await Promise.all(Array.from({ length: count }, (_, seed) => one(seed)));
  session.close();
  return same.filter(Boolean).length;
}

async function unidirectional(url, count, size) {
  const session = await connected(url);
  const sent = Array.from({ length: count }, (_, seed) => pattern(seed, size));
  await Promise.all(sent.map(async (bytes) => writeAll(await session.createUnidirectionalStream(), bytes)));
  const incoming = session.incomingUnidirectionalStreams.getReader();
  const answers = [];
  for (let index = 0; index < count; index++) {
    answers.push(readAll((await incoming.read()).value));
  }
  // The network decides their order.
  const received = await Promise.all(answers);
  session.close();
  return sent.filter((bytes) => received.some((answer) => equal(bytes, answer))).length;
}

// Datagrams may be lost: each is sent until its echo arrives.
async function datagrams(url, count) {
  const session = await connected(url);
  const missing = new Set(Array.from({ length: count }, (_, index) => `datagram ${index}`));
  const writer = session.datagrams.writable.getWriter();
  const reader = session.datagrams.readable.getReader();
  const read = async () => {
    while (missing.size > 0) {
      missing.delete(new TextDecoder().decode((await reader.read()).value));
    }
  };
  const write = async () => {
    while (missing.size > 0) {
      for (const text of [...missing]) {
        await writer.ready;
        await writer.write(new TextEncoder().encode(text));
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  await Promise.all([read(), write()]);
  const largest = session.datagrams.maxDatagramSize;
  session.close();
  return { largest, missing: missing.size };
}

async function closeByPage(url, token, closeCode, reason) {
  const session = await connected(`${url}?token=${token}`);
  // The session exists when its streams do.
  await next(session.incomingUnidirectionalStreams);
  session.close({ closeCode, reason });
  await session.closed;
  return await told(token, "closed");
}

async function closeByServer(url) {
  const session = await connected(url);
  const writer = (await session.createUnidirectionalStream()).getWriter();
  // The write ends with the session.
  writer.write(pattern(0, 1)).catch(() => {});
  writer.closed.catch(() => {});
  const { closeCode, reason } = await session.closed;
  return { closeCode, reason };
}

async function refusal(url) {
  const session = connect(url);
  const closed = failure(session.closed);
  return [await failure(session.ready), await closed];
}

async function resetByPage(url, token, code) {
  const session = await connected(`${url}?token=${token}`);
  const error = new WebTransportError({ message: "no more", streamErrorCode: code });
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();
  // A reset may overtake data that was sent before.
  await writer.write(pattern(0, 100));
  await told(token, "begin");
  await writer.abort(error);
  const event = await told(token, "reset");
  session.close();
  return event;
}

async function stopByPage(url, token, code) {
  const session = await connected(`${url}?token=${token}`);
  const reader = (await next(session.incomingUnidirectionalStreams)).getReader();
  await reader.read();
  await reader.cancel(new WebTransportError({ message: "no more", streamErrorCode: code }));
  const event = await told(token, "stopped");
  session.close();
  return event;
}

// Returns a stream with some data sent, and the errors of its two sides.
async function endsByServer(session) {
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();
  writer.write(pattern(0, 100)).catch(() => {});
  const reset = failure(stream.readable.getReader().closed);
  return { stopped: await failure(writer.closed), reset: await reset };
}

async function stopAndResetByServer(url) {
  const session = await connected(url);
  let ends = await endsByServer(session);
  // On a busy machine Chromium may find its own pipe closed before it has received the cause.
  while (ends.stopped.type === "DOMException") {
    ends = await endsByServer(session);
  }
  session.close();
  return ends;
}

// Keeps a session for later checks.
const kept = {};

async function keep(url) {
  kept.session = await connected(url);
  kept.session.closed.catch(() => {});
  kept.stream = await kept.session.createBidirectionalStream();
  const writer = kept.stream.writable.getWriter();
  const reader = kept.stream.readable.getReader();
  await writer.write(new TextEncoder().encode("before"));
  const { value } = await reader.read();
  kept.ends = Promise.all([failure(writer.closed), failure(reader.closed)]);
  return new TextDecoder().decode(value);
}

// Returns the error of the stream when the session ended.
async function waitOver() {
  await kept.session.closed.catch(() => {});
  return await kept.ends;
}

// The server may need a moment to restart.
async function comeBack(url) {
  for (;;) {
    try {
      return await echo(await connected(url), "after");
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
