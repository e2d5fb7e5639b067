/** What is wrong, worst first; one quiet line when nothing is. */
import type { JSX } from "preact";
import type { Problem, Schemas } from "../../api/client";
import { total, type Metrics } from "../../api/metrics";
import { bytes, count, duration } from "../../ui/format";
import { log, service, topic } from "../../routes";

interface Trouble {
  level: "bad" | "warn";
  text: string;
  link?: { href: string; text: string };
}

/** Damaged places that are named one by one. */
const MOST_PLACES = 5;

export function troublesOf(ready: Schemas["Readiness"], metrics: Metrics | undefined): Trouble[] {
  const troubles: Trouble[] = [];
  if (ready.status === "offline") troubles.push({ level: "bad", text: `A data directory is offline. ${ready.detail ?? ""}` });
  if (ready.status === "draining") troubles.push({ level: "warn", text: "The service is stopping." });
  if (ready.status === "recovering" && ready.recovery) {
    const { opened_logs, total_logs } = ready.recovery;
    troubles.push({ level: "warn", text: `Recovering: ${count(opened_logs)} of ${count(total_logs)} logs are open.` });
  }
  const failed = (metrics?.get("tidelog_log_directory_offline") ?? []).filter((one) => one.value > 0).map((one) => one.labels["log_directory"]);
  const failedCount = Number(ready.offline_directories_count ?? 0);
  if (failedCount > 0 && ready.status === "ready") {
    const where = failed.length ? `: ${failed.join(", ")}` : "";
    const what = failedCount === 1 ? "A data directory takes" : `${count(failedCount)} data directories take`;
    const text = `${what} no more writes since a disk failed${where}. Appends to its logs answer 503. Look at the disk, then restart the service.`;
    troubles.push({ level: "bad", text, link: { href: service.link(["directories"]), text: "Show the directories" } });
  }
  for (const one of ready.offline_logs ?? []) {
    const text = `${one.topic}, partition ${one.partition} could not be opened: ${one.problem} (${one.file}). Reads and appends answer 503.`;
    troubles.push({ level: "bad", text, link: { href: topic.link([one.topic, ""]), text: "Show the topic" } });
  }
  const hidden = Number(ready.offline_logs_count ?? 0) - (ready.offline_logs?.length ?? 0);
  if (hidden > 0) troubles.push({ level: "bad", text: `${count(hidden)} more logs could not be opened.` });
  const damaged = ready.damage ?? [];
  for (const place of damaged.slice(0, MOST_PLACES)) {
    const text = `${place.topic}, partition ${place.partition} is damaged: ${place.problem}. What is there is not served; tidelog verify says what can be repaired.`;
    troubles.push({ level: "bad", text, link: { href: log.link([place.topic], { partition: place.partition }), text: "Show the place" } });
  }
  const moreDamage = Number(ready.damaged_places_count ?? 0) - Math.min(damaged.length, MOST_PLACES);
  if (moreDamage > 0) troubles.push({ level: "bad", text: `${count(moreDamage)} ${damaged.length ? "more places" : "places"} in logs are damaged.` });
  const archive = ready.archive;
  if (archive && archive.phase !== "running") {
    const since = Number(archive.lag_ms) > 0 ? ` What was committed in the last ${duration(Number(archive.lag_ms))} may not be in it.` : "";
    const what = { starting: "was not reached yet", failing: "cannot be written", fenced: "belongs to another writer now: nothing more is archived" }[archive.phase];
    troubles.push({ level: archive.phase === "starting" ? "warn" : "bad", text: `The archive ${archive.url} ${what}. ${archive.problem ?? ""}${since}` });
  }
  if (!metrics) return troubles;
  const late = total(metrics, "tidelog_partitions_with_late_transactions");
  if (late) troubles.push({ level: "warn", text: `${count(late)} partitions have an overdue transaction: read_committed readers wait for it.` });
  const uncleanable = total(metrics, "tidelog_cleaner_uncleanable_partitions_count");
  if (uncleanable) troubles.push({ level: "warn", text: `${count(uncleanable)} partitions are not compacted until a restart.` });
  const unflushed = total(metrics, "tidelog_unflushed_bytes");
  if (unflushed > 64 * 2 ** 20) troubles.push({ level: "warn", text: `${bytes(unflushed)} are not flushed yet: the disk is behind.` });
  return troubles;
}

export function Health(props: { ready: Schemas["Readiness"] | undefined; error: Problem | undefined; metrics: Metrics | undefined; isForbidden: boolean }): JSX.Element {
  const { ready, error, metrics, isForbidden } = props;
  if (error) return <Line level="bad" text={error.title} />;
  if (!ready) return <p class="health quiet">Asking the service …</p>;
  const troubles = troublesOf(ready, metrics);
  if (!troubles.length && isForbidden) return <Line level="unknown" text="Ready. Damage, late transactions and the disk's pace are not known without the scope metrics." />;
  if (!troubles.length && !metrics) return <Line level="unknown" text="Ready. Asking for damage and the disk's pace …" />;
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
