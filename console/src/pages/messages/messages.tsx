/** The messages of a topic: where to start, a filter, a live tail, and one message in full. */
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Schemas } from "../../api/client";
import { token } from "../../api/session";
import { later } from "../../ui/later";
import { Failure } from "../../ui/parts";
import { detailPercent } from "../../ui/preferences";
import { Splitter } from "../../ui/splitter";
import { messages as address } from "../../routes";
import { columnsOf } from "./columns";
import { Detail } from "./detail";
import { FilterError, matcher, parsed } from "./filter";
import { Gaps } from "./gaps";
import { List } from "./list";
import { startOf } from "./look";
import type { Message } from "./message";
import { Nothing } from "./nothing";
import { Progress } from "./progress";
import { pushedOf } from "./pushed";
import { changedBy, useReading, type Reading } from "./reading";
import { Session, type Look } from "./session";
import { Toolbar } from "./toolbar";

const ColumnsPanel = later(() => import("./columns_panel").then((one) => one.ColumnsPanel));
const Download = later(() => import("./download").then((one) => one.Download));
const Replay = later(() => import("./replay").then((one) => one.Replay));

type Filter = Pick<Look, "filter" | "pushed">;

function compiled(text: string, reading: Reading): Filter | string {
  try {
    const test = parsed(text);
    return { filter: matcher(test), pushed: pushedOf(test, changedBy(reading)) };
  } catch (error) {
    if (error instanceof FilterError) return `${error.message} (at character ${error.position + 1})`;
    throw error;
  }
}

export function Messages({ topic }: { topic: Schemas["Topic"] }): JSX.Element {
  const reading = useReading(topic.topic);
  if (!reading.data) return <Failure problem={reading.error} onRetry={reading.again} />;
  return <Looking topic={topic} reading={reading.data} />;
}

function Looking({ topic, reading }: { topic: Schemas["Topic"]; reading: Reading }): JSX.Element {
  const asked = address.asked();
  const [turn, again] = useState(0);
  const [isDownloading, download] = useState(false);
  const [isChoosing, choosing] = useState(false);
  const [replayed, replay] = useState<Message[] | undefined>();
  const key = [
    topic.topic,
    asked.from,
    asked.at,
    asked.partition,
    asked.isolation,
    asked.filter,
    turn,
    token.value,
  ].join("\n");
  const filter = useMemo(() => compiled(asked.filter, reading), [asked.filter, reading]);
  const start = startOf(asked);
  const fault = typeof filter === "string" ? filter : typeof start === "string" && start !== "live" ? start : "";
  const session = useMemo(
    () =>
      fault
        ? undefined
        : new Session({
            topic: topic.topic,
            partition: asked.partition,
            start: start as Look["start"],
            isolation: asked.isolation,
            reading,
            ...(filter as Filter),
          }),
    [key, reading],
  );
  useEffect(() => () => session?.close(), [session]);
  const messages = session?.messages.value ?? [];
  const wanted = useMemo(() => columnsOf(asked.columns), [asked.columns]);
  const columns = typeof wanted === "string" ? [] : wanted;
  const open = messages.find((message) => message.id === asked.open);
  const choose = (message: Message | undefined): void => address.change({ open: message?.id ?? "" });
  return (
    <>
      <Toolbar
        topic={topic}
        asked={asked}
        fault={fault}
        pushed={typeof filter === "string" ? undefined : filter.pushed}
        session={session}
        onAgain={() => again(turn + 1)}
        onReplay={() => replay(messages)}
        onDownload={() => download(true)}
        isChoosing={isChoosing}
        onChoose={() => choosing(!isChoosing)}
      />
      {isChoosing && <ColumnsPanel topic={topic.topic} asked={asked} messages={messages} />}
      {session && <Progress session={session} isFiltered={asked.filter !== ""} />}
      {session && <Gaps topic={topic.topic} gaps={session.gaps.value} />}
      <Failure problem={session?.problem.value} onRetry={() => again(turn + 1)} />
      {session && messages.length === 0 && <Nothing session={session} topic={topic} isFiltered={asked.filter !== ""} />}
      {session && messages.length > 0 && (
        <div class={open ? "messages messages-open" : "messages"} style={{ "--detail": `${detailPercent.value}%` }}>
          <List
            messages={messages}
            columns={columns}
            partitions={topic.partitions}
            open={asked.open}
            onOpen={choose}
            onEnd={() => void (session.state.value === "paused" && session.more())}
          />
          {open && <Splitter label="Width of the message" />}
          {open && (
            <Detail
              topic={topic.topic}
              message={open}
              onClose={() => choose(undefined)}
              onReplay={() => replay([open])}
            />
          )}
        </div>
      )}
      {isDownloading && session && (
        <Download topic={topic.topic} session={session} columns={columns} onClose={() => download(false)} />
      )}
      {replayed && <Replay messages={replayed} source={topic.topic} onClose={() => replay(undefined)} />}
    </>
  );
}
