/** Which messages came as deliveries. */
import { bytesOf, shownText, type Message } from "../messages/message";

export interface Shown {
  partition: number;
  offset: bigint;
  time: number;
  key: string;
  type: string;
  id: string;
  size: number;
}

/** Messages with a `content-type` or a delivery id, which only deliveries have. */
export function deliveriesOf(messages: Message[]): Shown[] {
  return messages.flatMap((message) => {
    const headers = new Map(message.headers.map(({ key, value }) => [key, shownText(bytesOf(value ?? ""))]));
    const type = headers.get("content-type");
    const id = headers.get("tidelog-delivery-id");
    if (type === undefined && id === undefined) return [];
    const { partition, offset, size } = message;
    const time = Number(message.timestamp);
    return [{ partition, offset, time, key: message.keyText ?? "", type: type ?? "", id: id ?? "", size }];
  });
}
