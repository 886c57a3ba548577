// Datagrams, of which some may be lost.
"use strict";

// Writes numbered datagrams until it is stopped; returns the ones sent.
async function writeUntil(writer, stopped, make) {
  const sent = [];
  while (!stopped.aborted) {
    await writer.ready;
    sent.push(sent.length);
    await writer.write(make(sent.length - 1));
    await pause(1);
  }
  return sent;
}

async function echoes(session, count) {
  const stop = new AbortController();
  const reader = session.datagrams.readable.getReader();
  const read = async () => {
    const received = [];
    while (received.length < count) {
      received.push(Number(new TextDecoder().decode((await reader.read()).value)));
    }
    stop.abort();
    return received;
  };
  const writer = session.datagrams.writable.getWriter();
  const make = (number) => encode(String(number));
  const [received, sent] = await Promise.all([read(), writeUntil(writer, stop.signal, make)]);
  isTrue(received.every((number) => sent.includes(number)), "what came was sent");
}

test("datagrams: they are echoed", async (keep) => {
  await echoes(await connected(keep, "/echo"), 5);
});

test("datagrams: they may be sent before the session is there", async (keep) => {
  const session = connect(keep, "/echo");
  await echoes(session, 5);
  await session.ready;
});

test("datagrams: they are read with a BYOB reader", async (keep) => {
  const session = await connected(keep, "/echo");
  const stop = new AbortController();
  const reader = session.datagrams.readable.getReader({ mode: "byob" });
  const read = async () => {
    const bytes = await fill(reader, new ArrayBuffer(5));
    stop.abort();
    return [...bytes];
  };
  const writer = session.datagrams.writable.getWriter();
  const make = (number) => Uint8Array.of(number % 256);
  const [received, sent] = await Promise.all([read(), writeUntil(writer, stop.signal, make)]);
  isEqual(new Set(received).size, 5, "different datagrams");
  isTrue(received.every((number) => sent.includes(number)), "what came was sent");
});

test("datagrams: a buffer that is too small is a RangeError", async (keep) => {
  const session = await connected(keep, "/echo");
  const stop = new AbortController();
  const reader = session.datagrams.readable.getReader({ mode: "byob" });
  const read = async () => {
    const error = await rejects(reader.read(new Uint8Array(1)), "read");
    stop.abort();
    return error;
  };
  const writer = session.datagrams.writable.getWriter();
  const [error] = await Promise.all([read(), writeUntil(writer, stop.signal, () => new Uint8Array(10))]);
  isEqual(error.name, "RangeError", "error");
});

// Sends it until a response arrives.
async function answerTo(session, datagram) {
  const writer = session.datagrams.writable.getWriter();
  const reader = session.datagrams.readable.getReader();
  const answer = reader.read();
  for (;;) {
    await writer.write(datagram);
    const found = await Promise.race([answer, pause(200)]);
    if (found !== undefined) {
      return found.value;
    }
  }
}

test("datagrams: the largest one arrives", async (keep) => {
  const session = await connected(keep, "/lengths");
  const largest = session.datagrams.maxDatagramSize;
  const answer = await answerTo(session, new Uint8Array(largest));
  isEqual(Number(new TextDecoder().decode(answer)), largest, "length");
});

test("datagrams: one that is larger is not sent", async (keep) => {
  const session = await connected(keep, "/lengths");
  const writer = session.datagrams.writable.getWriter();
  const answer = session.datagrams.readable.getReader().read();
  for (;;) {
    const largest = session.datagrams.maxDatagramSize;
    await writer.write(new Uint8Array(largest + 1));
    const found = await Promise.race([answer, pause(500)]);
    if (found === undefined) {
      return;
    }
    // Meanwhile path MTU discovery has allowed larger ones.
    isTrue(session.datagrams.maxDatagramSize > largest, "the limit has grown");
  }
});

test("datagrams: outgoingHighWaterMark regulates the writer", async (keep) => {
  const session = await connected(keep, "/echo");
  session.datagrams.outgoingHighWaterMark = 5;
  const writer = session.datagrams.writable.getWriter();
  const isReadyAfterAWrite = async (number) => {
    let ready = false;
    writer.write(encode(String(number)));
    writer.ready.then(() => { ready = true; });
    await microtasks();
    return ready;
  };
  for (let number = 0; number < 4; number++) {
    isTrue(await isReadyAfterAWrite(number), `ready after ${number}`);
  }
  isEqual(await isReadyAfterAWrite(4), false, "ready after the last");
  await writer.ready;
});

test("datagrams: no more than incomingHighWaterMark wait for the reader", async (keep) => {
  const session = await connected(keep, "/echo");
  session.datagrams.incomingHighWaterMark = 5;
  const writer = session.datagrams.writable.getWriter();
  for (let number = 0; number < 50; number++) {
    writer.write(encode(String(number)));
    await writer.ready;
  }
  await pause(500);
  const reader = session.datagrams.readable.getReader();
  let waiting = 0;
  for (;;) {
    let resolved = false;
    reader.read().then(() => { resolved = true; }, () => {});
    await microtasks();
    if (!resolved) {
      break;
    }
    waiting++;
  }
  isTrue(waiting <= 5, `${waiting} datagrams were waiting`);
});

test("datagrams: incomingMaxAge and outgoingMaxAge", async (keep) => {
  const { datagrams } = await connected(keep, "/echo");
  for (const name of ["incomingMaxAge", "outgoingMaxAge"]) {
    isEqual(datagrams[name], Infinity, name);
    datagrams[name] = 5;
    isEqual(datagrams[name], 5, name);
    for (const bad of [-1, NaN]) {
      throws("RangeError", () => { datagrams[name] = bad; }, `${name} = ${bad}`);
    }
    datagrams[name] = 0;
    isEqual(datagrams[name], Infinity, name);
  }
});

test("datagrams: incomingHighWaterMark and outgoingHighWaterMark", async (keep) => {
  const { datagrams } = await connected(keep, "/echo");
  for (const name of ["incomingHighWaterMark", "outgoingHighWaterMark"]) {
    isTrue(datagrams[name] >= 1, name);
    datagrams[name] = 5;
    isEqual(datagrams[name], 5, name);
    for (const bad of [-1, NaN]) {
      throws("RangeError", () => { datagrams[name] = bad; }, `${name} = ${bad}`);
    }
    for (const small of [0.5, 0]) {
      datagrams[name] = small;
      isEqual(datagrams[name], 1, `${name} = ${small}`);
    }
  }
});

test("datagrams: an empty one is echoed", async (keep) => {
  const session = await connected(keep, "/echo");
  isEqual((await answerTo(session, new Uint8Array(0))).byteLength, 0, "length");
});

test("datagrams: createWritable gives a writable stream", async (keep) => {
  const session = await connected(keep, "/echo");
  const writer = session.datagrams.createWritable().getWriter();
  const answer = session.datagrams.readable.getReader().read();
  let found;
  while (found === undefined) {
    await writer.write(encode("x"));
    found = await Promise.race([answer, pause(200)]);
  }
  isEqual(new TextDecoder().decode(found.value), "x", "the answer");
});

test("datagrams: what is no buffer is a TypeError", async (keep) => {
  const session = await connected(keep, "/echo");
  const error = await rejects(session.datagrams.writable.getWriter().write("foo"), "write");
  isEqual(error.name, "TypeError", "error");
});
