/** What is wrong, worst first; one quiet line when nothing is. */
import type { JSX } from "preact";
import type { Problem, Schemas } from "../../api/client";
import { bytes, count, counted, duration } from "../../ui/format";
import { log, service, topic, topics as topicsPage } from "../../routes";

interface Trouble {
  level: "bad" | "warn";
  text: string;
  link?: { href: string; text: string };
}

/** A disk with less than this share free is nearly full, as the alerts have it. */
const LOW_SHARE = 0.05;
/** Damaged places that are named one by one. */
const MOST_PLACES = 5;

interface Facts {
  ready: Schemas["Readiness"];
  /** Not known without the scope `metrics`. */
  totals: Schemas["ServiceTotals"] | undefined;
  /** Topics with partitions that take no appends. */
  offline: Schemas["TopicSummary"][] | undefined;
  /** Only administrators know them. */
  directories: Schemas["DataDirectory"][];
}

export function troublesOf({ ready, totals, offline, directories }: Facts): Trouble[] {
  const failed = directories.filter((one) => one.status === "offline").map((one) => one.path);
  const troubles: Trouble[] = [];
  if (ready.status === "offline")
    troubles.push({ level: "bad", text: `A data directory is offline. ${ready.detail ?? ""}` });
  if (ready.status === "draining") troubles.push({ level: "warn", text: "The service is stopping." });
  if (ready.status === "recovering" && ready.recovery) {
    const { opened_logs, total_logs } = ready.recovery;
    troubles.push({
      level: "warn",
      text: `Recovering: ${count(opened_logs)} of ${count(total_logs)} logs are open.`,
    });
  }
  const failedCount = Number(ready.offline_directories_count ?? 0);
  if (failedCount > 0 && ready.status === "ready") {
    const what = failedCount === 1 ? "A data directory takes" : `${count(failedCount)} data directories take`;
    const text = `${what} no more writes since a disk failed${failed.length ? `: ${failed.join(", ")}` : ""}. Appends to its logs answer 503. Look at the disk, then restart the service.`;
    troubles.push({
      level: "bad",
      text,
      link: { href: service.link(["directories"]), text: "Show the directories" },
    });
  }
  for (const one of ready.offline_logs ?? []) {
    const text = `${one.topic}, partition ${one.partition} could not be opened: ${one.problem} (${one.file}). Reads and appends answer 503.`;
    troubles.push({
      level: "bad",
      text,
      link: { href: topic.link([one.topic, ""]), text: "Show the topic" },
    });
  }
  const hidden = Number(ready.offline_logs_count ?? 0) - (ready.offline_logs?.length ?? 0);
  if (hidden > 0) troubles.push({ level: "bad", text: `${count(hidden)} more logs could not be opened.` });
  const damaged = ready.damage ?? [];
  for (const place of damaged.slice(0, MOST_PLACES)) {
    const text = `${place.topic}, partition ${place.partition} is damaged: ${place.problem}. What is there is not served; tidelog verify says what can be repaired.`;
    troubles.push({
      level: "bad",
      text,
      link: {
        href: log.link([place.topic], { partition: place.partition }),
        text: "Show the place",
      },
    });
  }
  const moreDamage = Number(ready.damaged_places_count ?? 0) - Math.min(damaged.length, MOST_PLACES);
  if (moreDamage > 0)
    troubles.push({
      level: "bad",
      text: `${count(moreDamage)} ${damaged.length ? "more places" : "places"} in logs are damaged.`,
    });
  const archive = ready.archive;
  if (archive && archive.phase !== "running") {
    const since =
      Number(archive.lag_ms) > 0
        ? ` What was committed in the last ${duration(Number(archive.lag_ms))} may not be in it.`
        : "";
    const what = {
      starting: "was not reached yet",
      failing: "cannot be written",
      fenced: "belongs to another writer now: nothing more is archived",
    }[archive.phase];
    troubles.push({
      level: archive.phase === "starting" ? "warn" : "bad",
      text: `The archive ${archive.url} ${what}. ${archive.problem ?? ""}${since}`,
    });
  }
  for (const { path, free_bytes, total_bytes } of directories) {
    if (free_bytes === null || total_bytes === null || Number(free_bytes) > LOW_SHARE * Number(total_bytes)) continue;
    const text = `The disk of ${path} is nearly full: ${bytes(free_bytes)} of ${bytes(total_bytes)} are free. When nothing is, appends are refused with 507; shorter retention, or another data directory, makes room.`;
    troubles.push({
      level: "bad",
      text,
      link: { href: topicsPage.link([], { sort: "size" }), text: "Show the largest topics" },
    });
  }
  for (const one of (offline ?? []).slice(0, MOST_PLACES)) {
    const text = `${one.topic}: ${counted(one.offline_partitions.length, "partition")} of ${one.partitions} take no appends.`;
    troubles.push({
      level: "bad",
      text,
      link: { href: topic.link([one.topic, "partitions"]), text: "Show the partitions" },
    });
  }
  if ((offline ?? []).length > MOST_PLACES)
    troubles.push({
      level: "bad",
      text: `${counted((offline ?? []).length - MOST_PLACES, "more topic")} have such partitions.`,
    });
  if (!totals) return troubles;
  const late = Number(totals.late_transaction_partitions ?? 0);
  if (late)
    troubles.push({
      level: "warn",
      text: `${counted(late, "partition")} with an overdue transaction: read_committed readers wait for it.`,
    });
  const uncleanable = Number(totals.uncleanable_partitions);
  if (uncleanable)
    troubles.push({
      level: "warn",
      text: `${counted(uncleanable, "partition")} not compacted until a restart.`,
    });
  const unflushed = Number(totals.unflushed_bytes ?? 0);
  if (unflushed > 64 * 2 ** 20)
    troubles.push({
      level: "warn",
      text: `${bytes(unflushed)} are not flushed yet: the disk is behind.`,
    });
  return troubles;
}

interface HealthProps extends Omit<Facts, "ready"> {
  ready: Schemas["Readiness"] | undefined;
  error: Problem | undefined;
  isForbidden: boolean;
}

export function Health({ ready, error, totals, offline, directories, isForbidden }: HealthProps): JSX.Element {
  if (error) return <Line level="bad" text={error.title} />;
  if (!ready) return <p class="health quiet">Asking the service …</p>;
  const troubles = troublesOf({ ready, totals, offline, directories });
  if (!troubles.length && isForbidden)
    return (
      <Line
        level="unknown"
        text="Ready. Late transactions and the disk's pace are not known without the scope metrics."
      />
    );
  if (!troubles.length && !(totals && offline)) return <Line level="unknown" text="Ready. Asking for the rest …" />;
  if (!troubles.length) return <Line level="good" text="Ready. Nothing needs attention." />;
  return (
    <ul class="troubles" role="alert">
      {troubles.map((one) => (
        <li class={one.level}>
          {one.text} {one.link && <a href={one.link.href}>{one.link.text}</a>}
        </li>
      ))}
    </ul>
  );
}

function Line({ level, text }: { level: "good" | "bad" | "unknown"; text: string }): JSX.Element {
  return (
    <p class="health" role="status">
      <span class={level}>
        <span class="dot" />
      </span>
      {text}
    </p>
  );
}
