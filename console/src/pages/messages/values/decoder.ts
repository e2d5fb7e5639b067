/** How the values of a topic become JSON, by its schema; a script of its own, because few topics have one. */
import type { Schemas } from "../../../api/client";
import { avroReader } from "./avro";
import { protobufReader } from "./protobuf";
import { ValueError } from "./value_error";

const REGISTRY_BYTES = 5;

/** Return what writes a value as JSON text, and throws ValueError if it is not what the schema says. */
export function decoderOf(schema: Schemas["PutValueSchema"]): (value: Uint8Array) => string {
  const isProtobuf = schema.format === "protobuf";
  const read = isProtobuf
    ? protobufReader(schema.definition, schema.message_type ?? "")
    : avroReader(schema.definition);
  if (schema.framing !== "confluent") return read;
  return (value) => {
    if (value[0] !== 0 || value.length < REGISTRY_BYTES)
      throw new ValueError("it does not begin with a zero byte and the id of a schema");
    const rest = value.subarray(REGISTRY_BYTES);
    return read(isProtobuf ? withoutIndexes(rest) : rest);
  };
}

/** Pass over the path to the message within its file: a number of zigzag integers; 0 stands for the path [0]. */
function withoutIndexes(bytes: Uint8Array): Uint8Array {
  let at = 0;
  const next = (): number => {
    for (let found = 0, shift = 1; ; shift *= 128) {
      const byte = bytes[at];
      at += 1;
      if (byte === undefined || shift > 2 ** 28) throw new ValueError("it ends before the message begins");
      found += (byte & 0x7f) * shift;
      if (byte < 0x80) return found % 2 ? -(found + 1) / 2 : found / 2;
    }
  };
  for (let left = next(); left > 0; left -= 1) next();
  return bytes.subarray(at);
}
