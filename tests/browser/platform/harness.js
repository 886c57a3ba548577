// The helper functions of the cases, and their runner: `run(name)` is the result of one case.
"use strict";

const CASE_MS = 20000;
const cases = new Map();

let hash;
let base;

function trust(numbers, url) {
  hash = numbers;
  base = url;
}

function names() {
  return [...cases.keys()];
}

function test(name, body) {
  if (cases.has(name)) {
    throw new Error(`two cases are called ${name}`);
  }
  cases.set(name, body);
}

async function run(name) {
  const opened = [];
  const time = new Promise((_, reject) => {
    setTimeout(() => reject(new Error("no end in sight")), CASE_MS);
  });
  try {
    await Promise.race([cases.get(name)((session) => { opened.push(session); return session; }), time]);
    return "";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  } finally {
    for (const session of opened) {
      session.closed.catch(() => {});
      session.close();
    }
  }
}

function isTrue(value, what) {
  if (value !== true) {
    throw new Error(`${what}: ${value}`);
  }
}

function isEqual(actual, expected, what) {
  if (!Object.is(actual, expected)) {
    throw new Error(`${what}: ${actual} instead of ${expected}`);
  }
}

function throws(name, body, what) {
  try {
    body();
  } catch (error) {
    isEqual(error.name, name, what);
    return;
  }
  throw new Error(`${what}: nothing was thrown`);
}

async function rejects(promise, what) {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  throw new Error(`${what}: it was not rejected`);
}

// An error of a whole session, which rejects several promises.
async function isSessionError(...promises) {
  const errors = await Promise.all(promises.map((promise) => rejects(promise, "promise")));
  for (const error of errors) {
    isEqual(error, errors[0], "the same error");
    isTrue(error instanceof WebTransportError, "a WebTransportError");
    isEqual(error.source, "session", "source");
    isEqual(error.streamErrorCode, null, "streamErrorCode");
  }
}

function isStreamError(error, code) {
  isTrue(error instanceof WebTransportError, "a WebTransportError");
  isEqual(error.source, "stream", "source");
  isEqual(error.streamErrorCode, code, "streamErrorCode");
}

function connect(keep, path, options = {}) {
  const serverCertificateHashes = [{ algorithm: "sha-256", value: Uint8Array.from(hash) }];
  return keep(new WebTransport(base + path, { serverCertificateHashes, ...options }));
}

async function connected(keep, path, options) {
  const session = connect(keep, path, options);
  await session.ready;
  return session;
}

// Opens a session whose server records its events, and returns a function that gets the first such
// event.
async function recorded(keep) {
  const token = crypto.randomUUID();
  const session = await connected(keep, `/record?token=${token}`);
  const told = async (event) => await (await fetch(`/told?token=${token}&event=${event}`)).json();
  return { session, told };
}

async function next(incoming) {
  const reader = incoming.getReader();
  const { value } = await reader.read();
  reader.releaseLock();
  return value;
}

async function chunks(readable) {
  const found = [];
  const reader = readable.getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) {
      reader.releaseLock();
      return found;
    }
    found.push(value);
  }
}

async function text(readable) {
  return await new Blob(await chunks(readable)).text();
}

async function write(writable, ...parts) {
  const writer = writable.getWriter();
  await Promise.all([...parts.map((part) => writer.write(part)), writer.close()]);
}

function encode(string) {
  return new TextEncoder().encode(string);
}

function pause(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

// Long enough for the callbacks of every settled promise.
async function microtasks() {
  for (let index = 0; index < 10; index++) {
    await Promise.resolve();
  }
}

// Fills a buffer from a BYOB reader.
async function fill(reader, buffer) {
  let offset = 0;
  while (offset < buffer.byteLength) {
    const view = new Uint8Array(buffer, offset, buffer.byteLength - offset);
    const { value, done } = await reader.read(view);
    buffer = value.buffer;
    if (done) {
      break;
    }
    offset += value.byteLength;
  }
  return new Uint8Array(buffer);
}
