/** Signatures of webhooks, computed in the page: the secret never leaves it. */
import type { Schemas } from "../../api/client";
import { quoted } from "../../ui/curl";

export type Scheme = Schemas["IngestSignature"]["scheme"];

/** What the scheme `hmac` needs to know. */
export interface HmacForm {
  header: string;
  algorithm: "sha256" | "sha512";
  encoding: "hex" | "base64";
  prefix: string;
}

export interface Delivery {
  body: string;
  id: string;
  /** Seconds since the epoch. */
  time: number;
}

const HASHES = { sha256: "SHA-256", sha512: "SHA-512" } as const;
const utf8 = (text: string): Uint8Array<ArrayBuffer> => new TextEncoder().encode(text);

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function base64(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes));
}

async function mac(
  key: Uint8Array<ArrayBuffer>,
  signed: string,
  algorithm: keyof typeof HASHES = "sha256",
): Promise<Uint8Array> {
  const imported = await crypto.subtle.importKey("raw", key, { name: "HMAC", hash: HASHES[algorithm] }, false, [
    "sign",
  ]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", imported, utf8(signed)));
}

function standardKey(secret: string): Uint8Array<ArrayBuffer> {
  if (secret.startsWith("whpk_"))
    throw new Error("whpk_… is a public key: only its owner, who has the private one, can sign.");
  try {
    return Uint8Array.from(atob(secret.replace(/^whsec_/, "")), (character) => character.charCodeAt(0));
  } catch {
    throw new Error("The secret must be whsec_ and base64.");
  }
}

/** The headers that the sender of a scheme adds to a delivery; throws an Error if the secret cannot be one of the scheme. */
export async function signedHeaders(
  scheme: Scheme,
  secret: string,
  { body, id, time }: Delivery,
  form?: HmacForm,
): Promise<Record<string, string>> {
  if (!secret) throw new Error("Type the secret that the sender has.");
  switch (scheme) {
    case "github":
      return {
        "x-github-event": "ping",
        "x-github-delivery": id,
        "x-hub-signature-256": `sha256=${hex(await mac(utf8(secret), body))}`,
      };
    case "stripe":
      return {
        "stripe-signature": `t=${time},v1=${hex(await mac(utf8(secret), `${time}.${body}`))}`,
      };
    case "gitlab":
      return {
        "x-gitlab-event": "Push Hook",
        "idempotency-key": id,
        "x-gitlab-token": secret,
      };
    case "token-header":
      if (!form?.header) throw new Error("The profile names no header for the secret.");
      return { [form.header]: secret };
    case "discord":
    case "sendgrid":
      throw new Error("The secret is a public key: only its owner, who has the private one, can sign.");
    case "zoom":
      return {
        "x-zm-request-timestamp": String(time),
        "x-zm-signature": `v0=${hex(await mac(utf8(secret), `v0:${time}:${body}`))}`,
      };
    case "slack":
      return {
        "x-slack-request-timestamp": String(time),
        "x-slack-signature": `v0=${hex(await mac(utf8(secret), `v0:${time}:${body}`))}`,
      };
    case "standard-webhooks":
      return {
        "webhook-id": id,
        "webhook-timestamp": String(time),
        "webhook-signature": `v1,${base64(await mac(standardKey(secret), `${id}.${time}.${body}`))}`,
      };
    case "hmac": {
      if (!form?.header) throw new Error("The profile names no header for the signature.");
      const digest = await mac(utf8(secret), body, form.algorithm);
      return {
        [form.header]: form.prefix + (form.encoding === "hex" ? hex(digest) : base64(digest)),
      };
    }
  }
}

/** The curl that sends the same delivery. */
export function curlOf(url: string, headers: Record<string, string>, body: string): string {
  const lines = Object.entries(headers).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)} \\`);
  return [`curl ${url} \\`, ...lines, `  --data-binary ${quoted(body)}`].join("\n");
}
