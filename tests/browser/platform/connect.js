// The start of a session: the statuses that open it, and the content of the request.
"use strict";

test("connect: a session is there with status 200", async (keep) => {
  await connected(keep, "/echo");
});

for (const status of [301, 401, 404]) {
  test(`connect: status ${status} is no session`, async (keep) => {
    const session = connect(keep, `/status?status=${status}`);
    await isSessionError(session.ready, session.closed);
  });
}

async function requestHeaders(keep) {
  const session = await connected(keep, "/headers");
  return JSON.parse(await text(await next(session.incomingUnidirectionalStreams)));
}

test("connect: the request's header fields", async (keep) => {
  const headers = await requestHeaders(keep);
  isEqual(headers[":scheme"], "https", ":scheme");
  isEqual(headers[":method"], "CONNECT", ":method");
  isEqual(headers[":authority"], new URL(base).host, ":authority");
  isEqual(headers[":path"], "/headers", ":path");
  isEqual(headers[":protocol"], "webtransport", ":protocol");
  isEqual(headers["origin"], location.origin, "origin");
});

test("connect: no cookie is sent, even if one was set", async (keep) => {
  await connected(keep, "/cookie");
  const headers = await requestHeaders(keep);
  isEqual(headers["cookie"], undefined, "cookie");
});
