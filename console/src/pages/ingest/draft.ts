/** The form of a profile, and the document that it makes. */
import type { Schemas } from "../../api/client";
import type { Scheme } from "./signing";

type Profile = Schemas["IngestProfile"];
type PutProfile = Schemas["PutIngestProfile"];
type Source = { pointer?: string | null; header?: string | null; headers?: string[] | null } | null | undefined;

/** Where a value is: `/a/pointer`, the name of a header, or several with commas. */
export interface Draft {
  split: Profile["split"];
  key: string;
  headers: string;
  deliveryId: string;
  scheme: Scheme | "";
  secrets: string;
  header: string;
  algorithm: "sha256" | "sha512";
  encoding: "hex" | "base64";
  prefix: string;
}

const EMPTY: Draft = {
  split: "none",
  key: "",
  headers: "",
  deliveryId: "",
  scheme: "",
  secrets: "",
  header: "",
  algorithm: "sha256",
  encoding: "hex",
  prefix: "",
};

const textOf = (source: Source): string => source?.pointer ?? source?.header ?? source?.headers?.join(", ") ?? "";
const words = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

function sourceOf(text: string): { pointer: string } | { header: string } | { headers: string[] } {
  if (text.startsWith("/")) return { pointer: text };
  const names = words(text);
  return names.length > 1 ? { headers: names } : { header: text };
}

export function draftOf(profile: Profile | undefined): Draft {
  if (!profile) return EMPTY;
  const { signature } = profile;
  return {
    ...EMPTY,
    split: profile.split,
    key: textOf(profile.key),
    headers: profile.headers.join(", "),
    deliveryId: textOf(profile.delivery_id),
    scheme: signature?.scheme ?? "",
    header: signature?.header ?? "",
    algorithm: signature?.algorithm ?? "sha256",
    encoding: signature?.encoding ?? "hex",
    prefix: signature?.prefix ?? "",
  };
}

/** The document to send. Without new secrets the service keeps those it has; what the form does not show stays. */
export function documentOf(draft: Draft, before: Profile | undefined): PutProfile {
  const document: Record<string, unknown> = { split: draft.split, headers: words(draft.headers) };
  if (before)
    Object.assign(document, {
      window_ms: before.window_ms,
      window_deliveries: before.window_deliveries,
    });
  if (before?.handshake) document.handshake = before.handshake;
  if (draft.key.trim()) document.key = sourceOf(draft.key.trim());
  if (draft.deliveryId.trim()) document.delivery_id = sourceOf(draft.deliveryId.trim());
  if (draft.scheme) {
    const signature: Record<string, unknown> = { scheme: draft.scheme };
    const secrets = draft.secrets
      .split(/\s*\n\s*/)
      .map((one) => one.trim())
      .filter(Boolean);
    if (secrets.length) signature.secrets = secrets;
    if (before?.signature?.scheme === draft.scheme) signature.tolerance_ms = before.signature.tolerance_ms;
    if (draft.scheme === "hmac") {
      Object.assign(signature, {
        header: draft.header.trim(),
        algorithm: draft.algorithm,
        encoding: draft.encoding,
      });
      if (draft.prefix) signature.prefix = draft.prefix;
    }
    if (draft.scheme === "token-header") signature.header = draft.header.trim();
    document.signature = signature;
  }
  return document as PutProfile;
}
