// Have the SDK of each sender judge requests: one JSON object a line on standard input.
import "@shopify/shopify-api/adapters/node";
import { createInterface } from "node:readline";
import { createRequire } from "node:module";
import { verify as github } from "@octokit/webhooks-methods";
import { verifyKey as discord } from "discord-interactions";
import { ApiVersion, shopifyApi } from "@shopify/shopify-api";
import { Webhook } from "svix";
import Stripe from "stripe";

const require = createRequire(import.meta.url);
const { EventWebhook } = require("@sendgrid/eventwebhook");
const { validateSignature } = require("@line/bot-sdk");
const { LinearWebhookClient } = require("@linear/sdk/webhooks");
const { verifySlackRequest } = require("@slack/bolt/dist/receivers/verify-request.js");
const shopify = (apiSecretKey) =>
  shopifyApi({
    apiSecretKey,
    apiKey: "key",
    apiVersion: Object.values(ApiVersion)[0],
    isEmbeddedApp: false,
    hostName: "shop.example",
    logger: { log: () => undefined },
  });

const SDKS = {
  github: ({ secret, body, head }) => github(secret, body, head["x-hub-signature-256"]),
  stripe: ({ secret, body, head }) => !!new Stripe("sk_test_1").webhooks.constructEvent(body, head["stripe-signature"], secret),
  slack: ({ secret, body, head }) => (verifySlackRequest({ signingSecret: secret, body, headers: head }), true),
  svix: ({ secret, body, head }) => !!new Webhook(secret).verify(body, head),
  discord: ({ secret, body, head }) => discord(body, head["x-signature-ed25519"], head["x-signature-timestamp"], secret),
  sendgrid: ({ secret, body, head }) => {
    const prefix = "x-twilio-email-event-webhook";
    const judge = new EventWebhook();
    return judge.verifySignature(judge.convertPublicKeyToECDSA(secret), body, head[`${prefix}-signature`], head[`${prefix}-timestamp`]);
  },
  shopify: async ({ secret, body, head }) => {
    const rawRequest = { method: "POST", url: "/", headers: head };
    return (await shopify(secret).webhooks.validate({ rawBody: body, rawRequest, rawResponse: {} })).valid;
  },
  line: ({ secret, body, head }) => validateSignature(body, secret, head["x-line-signature"]),
  linear: ({ secret, body, head }) => new LinearWebhookClient(secret).verify(Buffer.from(body), head["linear-signature"]),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  let told;
  try {
    told = (await SDKS[request.name](request)) ? "valid" : "not valid";
  } catch (error) {
    told = `not valid (${String(error.message).split("\n")[0]})`;
  }
  console.log(`${request.name}: ${told}`);
}
