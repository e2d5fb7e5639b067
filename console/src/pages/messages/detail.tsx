/** One message in full. */
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { may } from "../../api/rights";
import { count } from "../../ui/format";
import { Copy, Time } from "../../ui/parts";
import { useRoom } from "../../ui/room";
import { BytesView } from "./bytes_view";
import { toMessage, topic as topicAddress } from "../../routes";
import { go } from "../../ui/router";
import { handOver } from "../produce/pasted";
import { curlOf } from "../../ui/curl";
import { draftOf } from "./export";
import { TransactionTag } from "./list";
import { bytesOf, shownText, type Message } from "./message";

interface Props {
  topic: string;
  message: Message;
  onClose: () => void;
  onReplay: () => void;
}

export function Detail({ topic, message, onClose, onReplay }: Props): JSX.Element {
  const { partition, offset } = message;
  const place = useRef<HTMLElement>(null);
  const room = useRoom(place);
  const read = `/v1/topics/${encodeURIComponent(topic)}/partitions/${partition}/records?offset=${offset}&max_records=1`;
  return (
    <aside ref={place} class="detail" aria-label="Message" style={{ "--room": `${room}px` }}>
      <header>
        <h2>
          Offset {count(offset)} <span class="quiet">in partition {partition}</span>
        </h2>
        <button type="button" class="plain" aria-label="Close" data-close onClick={onClose}>
          ✕
        </button>
      </header>
      <p class="quiet">
        <Time ms={message.timestamp} /> (<Time ms={message.timestamp} relative />) ·{" "}
        {message.isAppendTime ? "time of the append" : "time of the producer"} · leader epoch {message.leaderEpoch}{" "}
        {message.transaction && <TransactionTag of={message.transaction} />}
      </p>
      {message.hidden.length > 0 && (
        <p class="note">
          Hidden by the service’s settings: {message.hidden.join(", ")}. What is sent again or saved from here would
          lack it.
        </p>
      )}
      <div class="bar after-small">
        <Copy label="Copy link" text={`${location.origin}${toMessage(topic, partition, offset)}`} />
        <Copy label="Copy as curl" text={curlOf(read)} />
        {may("append") && message.hidden.length === 0 && (
          <>
            <button type="button" class="small" onClick={onReplay}>
              Replay to a topic
            </button>
            <button
              type="button"
              class="small"
              onClick={() => {
                handOver(draftOf(message));
                go(topicAddress.link([topic, "produce"]));
              }}
            >
              Edit and produce
            </button>
          </>
        )}
      </div>
      <BytesView key={`k${message.id}`} title="Key" base64={message.key64} absent="No key." />
      <BytesView
        key={`v${message.id}`}
        title="Value"
        base64={message.value64}
        absent="Tombstone: no value. Compaction removes the key."
        decoded={message.decoded}
        undecodable={message.undecodable}
      />
      <section class="bytes">
        <h3>Headers</h3>
        {message.headers.length === 0 && <p class="quiet">None.</p>}
        {message.headers.length > 0 && (
          <table>
            <tbody>
              {message.headers.map(({ key, value }, index) => (
                <tr key={index}>
                  <th scope="row">{key}</th>
                  <td class="mono wrap">{value === null ? <i class="quiet">null</i> : shownText(bytesOf(value))}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </section>
    </aside>
  );
}
