import { expect, test } from "vitest";
import type { Schemas } from "../src/api/client";
import { documentOf, draftOf } from "../src/pages/ingest/draft";
import { deliveriesOf } from "../src/pages/ingest/recent";
import { Message, type Wire } from "../src/pages/messages/message";
import { curlOf, signedHeaders, type HmacForm } from "../src/pages/ingest/signing";

const standard = {
  body: '{"test": 2432232314}',
  id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
  time: 1614265330,
};

test("a signature is what the sender's documentation says", async () => {
  const github = await signedHeaders("github", "It's a Secret to Everybody", {
    ...standard,
    body: "Hello, World!",
  });
  expect(github["x-hub-signature-256"]).toBe("sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17");
  const webhook = await signedHeaders("standard-webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", standard);
  expect(webhook["webhook-signature"]).toBe("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
  const slack = await signedHeaders("slack", "8f742231b10e8888abcd99yyyzzz85a5", {
    id: "",
    time: 1531420618,
    body: "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
  });
  expect(slack["x-slack-signature"]).toBe("v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503");
});

test("any HMAC has its header, hash, encoding and prefix", async () => {
  const form: HmacForm = {
    header: "x-signature",
    algorithm: "sha512",
    encoding: "base64",
    prefix: "v=",
  };
  const headers = await signedHeaders(
    "hmac",
    "key",
    { ...standard, body: "The quick brown fox jumps over the lazy dog" },
    form,
  );
  expect(headers["x-signature"]).toBe(
    "v=tCrwkFe6weLUFwjkipAuCbX/fxKrQopP6GZTxz3SSPuC+UilSfe3kaW0GRXuTR7Dk1NX5OIxclDQNyr6Lr7rOg==",
  );
});

test("a secret that cannot be one is refused with a sentence", async () => {
  await expect(signedHeaders("standard-webhooks", "whsec_***", standard)).rejects.toThrow("base64");
  await expect(signedHeaders("standard-webhooks", "whpk_AAAA", standard)).rejects.toThrow("public key");
  await expect(signedHeaders("discord", "0".repeat(64), standard)).rejects.toThrow("public key");
  await expect(signedHeaders("token-header", "x", standard)).rejects.toThrow("no header");
  await expect(signedHeaders("github", "", standard)).rejects.toThrow("Type the secret");
  await expect(signedHeaders("hmac", "x", standard)).rejects.toThrow("no header");
});

test("the curl quotes what a shell would take apart", () => {
  expect(curlOf("http://localhost/ingest", { a: "b" }, "it's")).toBe(
    "curl http://localhost/ingest \\\n  -H 'a: b' \\\n  --data-binary 'it'\\''s'",
  );
});

const PROFILE = {
  split: "none",
  key: { pointer: "/repository/full_name" },
  headers: ["x-github-event"],
  delivery_id: { header: "x-id" },
  window_ms: 1000,
  window_deliveries: 10,
  signature: { scheme: "github", tolerance_ms: 300000, secrets_count: 2 },
} as unknown as Schemas["IngestProfile"];

test("a profile survives the form, and its secrets stay where they are", () => {
  const sent = documentOf(draftOf(PROFILE), PROFILE);
  expect(sent).toEqual({ ...PROFILE, signature: { scheme: "github", tolerance_ms: 300000 } });
  expect(
    documentOf({ ...draftOf(undefined), scheme: "hmac", header: "x-sig", secrets: " one \n\n two" }, undefined),
  ).toEqual({
    split: "none",
    headers: [],
    signature: {
      scheme: "hmac",
      header: "x-sig",
      algorithm: "sha256",
      encoding: "hex",
      secrets: ["one", "two"],
    },
  });
});

test("a handshake, an id of two headers and the header of a secret survive the form", () => {
  const profile = {
    ...PROFILE,
    delivery_id: { headers: ["x-a", "x-b"] },
    handshake: "hub",
    signature: {
      scheme: "token-header",
      header: "x-own",
      tolerance_ms: 300000,
      secrets_count: 1,
    },
  } as unknown as Schemas["IngestProfile"];
  const sent = documentOf(draftOf(profile), profile);
  expect(sent).toEqual({
    ...profile,
    signature: { scheme: "token-header", header: "x-own", tolerance_ms: 300000 },
  });
});

test("a secret in a header, and Zoom's signature", async () => {
  const form: HmacForm = { header: "x-own", algorithm: "sha256", encoding: "hex", prefix: "" };
  expect(await signedHeaders("token-header", "mine", standard, form)).toEqual({
    "x-own": "mine",
  });
  expect((await signedHeaders("gitlab", "mine", standard))["x-gitlab-token"]).toBe("mine");
  const zoom = await signedHeaders("zoom", "8f742231b10e8888abcd99yyyzzz85a5", {
    ...standard,
    time: 1,
  });
  expect(zoom["x-zm-signature"]).toMatch(/^v0=[0-9a-f]{64}$/);
});

test("deliveries are known by their headers", () => {
  const record = { offset: 2n ** 60n, timestamp: 5, timestamp_type: "create", key: btoa("k"), value: btoa("abc") };
  const own = [
    { key: "content-type", value: btoa("text/plain") },
    { key: "tidelog-delivery-id", value: btoa("d1") },
  ];
  const messages = [[], own].map((headers) => new Message(1, { ...record, headers } as unknown as Wire));
  expect(deliveriesOf(messages)).toEqual([
    {
      partition: 1,
      offset: 2n ** 60n,
      time: 5,
      key: "k",
      type: "text/plain",
      id: "d1",
      size: 3,
    },
  ]);
});
