// The constructor's arguments and errors.
"use strict";

const BAD_URLS = {
  "null": null,
  "nothing": "",
  "without a scheme": "no-scheme",
  "of http": "http://localhost/",
  "of quic-transport": "quic-transport://localhost/",
  "without a host": "https:///",
  "with a fragment": "https://localhost/#failing",
  "with a port that is too high": "https://localhost:999999/",
};

for (const [what, url] of Object.entries(BAD_URLS)) {
  test(`constructor: a URL ${what} is a SyntaxError`, async () => {
    throws("SyntaxError", () => new WebTransport(url), String(url));
  });
}

const BAD_PROTOCOLS = {
  "an empty one": [""],
  "one beyond ASCII": ["\u8AA4"],
  "the same twice": ["test", "test"],
  "one of 513 characters": ["a".repeat(513)],
};

for (const [what, protocols] of Object.entries(BAD_PROTOCOLS)) {
  test(`constructor: protocols with ${what} are a SyntaxError`, async (keep) => {
    throws("SyntaxError", () => {
      const session = connect(keep, "/echo", { protocols });
      session.ready.catch(() => {});
    }, what);
  });
}

const OPTIONS = [
  { requireUnreliable: true },
  { congestionControl: "default" },
  { congestionControl: "throughput" },
  { congestionControl: "low-latency" },
  { protocols: ["test"] },
  { protocols: ["a", "b", "c"] },
  { requireUnreliable: true, congestionControl: "low-latency" },
];

for (const options of OPTIONS) {
  test(`constructor: takes ${JSON.stringify(options)}`, async (keep) => {
    await connected(keep, "/echo", options);
  });
}

test("constructor: a connection to port 0 fails", async () => {
  const session = new WebTransport("https://localhost:0/");
  await isSessionError(session.ready, session.closed);
});

test("constructor: a certificate with another hash is refused", async (keep) => {
  const value = new Uint8Array(32);
  const options = { serverCertificateHashes: [{ algorithm: "sha-256", value }] };
  const session = connect(keep, "/echo", options);
  await isSessionError(session.ready, session.closed);
});

test("constructor: one hash of several is enough", async (keep) => {
  const hashes = [new Uint8Array(32), Uint8Array.from(hash)];
  await connected(keep, "/echo", {
    serverCertificateHashes: hashes.map((value) => ({ algorithm: "sha-256", value })),
  });
});
