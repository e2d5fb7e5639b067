/** Protobuf messages as JSON text, by the mapping that protobuf itself defines (ProtoJSON). */
import { createFileRegistry, fromBinary, toJsonString, type DescMessage, type FileRegistry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { whyOf } from "../../../ui/format";
import { bytesOf } from "../message";
import { ValueError } from "./value_error";

/** Return what writes messages of a type as JSON text; ValueError if the descriptors do not have it. */
export function protobufReader(descriptors: string, messageType: string): (value: Uint8Array) => string {
  const { registry, type } = typeOf(descriptors, messageType);
  return (value) => {
    try {
      return toJsonString(type, fromBinary(type, value, { readUnknownFields: false }), {
        registry,
        useProtoFieldName: true,
        alwaysEmitImplicit: true, // so that `state = NEW` can be searched: zero is not stored
      });
    } catch (error) {
      throw new ValueError(`it is no ${messageType}: ${whyOf(error)}`);
    }
  };
}

function typeOf(descriptors: string, messageType: string): { registry: FileRegistry; type: DescMessage } {
  let registry: FileRegistry;
  try {
    registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, bytesOf(descriptors)));
  } catch (error) {
    throw new ValueError(`the descriptors cannot be read: ${whyOf(error)}`);
  }
  const type = registry.getMessage(messageType);
  if (type) return { registry, type };
  const names = [...registry].filter((one) => one.kind === "message").map((one) => one.typeName);
  throw new ValueError(`the descriptors have no message ${messageType}; they have ${names.slice(0, 20).join(", ")}`);
}
