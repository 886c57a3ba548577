// Sequential round trips, each in milliseconds.
"use strict";

const LOST_MS = 1000;

async function streamEchoes(url, count, size) {
  const session = await connected(url);
  const stream = await session.createBidirectionalStream();
  const writer = stream.writable.getWriter();
  const reader = stream.readable.getReader();
  const message = pattern(0, size);
  const taken = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    writer.write(message);
    let received = 0;
    while (received < size) {
      received += (await reader.read()).value.length;
    }
    taken.push(performance.now() - start);
  }
  session.close();
  return taken;
}

// A lost datagram is sent again, and its time includes both attempts.
async function datagramEchoes(url, count, size) {
  const session = await connected(url);
  const writer = session.datagrams.writable.getWriter();
  const reader = session.datagrams.readable.getReader();
  const message = pattern(0, size);
  const taken = [];
  for (let index = 0; index < count; index++) {
    const start = performance.now();
    writer.write(message);
    const again = setInterval(() => writer.write(message), LOST_MS);
    await reader.read();
    clearInterval(again);
    taken.push(performance.now() - start);
  }
  session.close();
  return taken;
}
