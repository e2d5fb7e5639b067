/** What a look passed over because it could not be read, and where that is. */
import type { JSX } from "preact";
import { isKafka } from "../../api/backend";
import { log } from "../../routes";
import { count } from "../../ui/format";
import type { Gap } from "./reader";

const MOST = 5;

export function Gaps({ topic, gaps }: { topic: string; gaps: Gap[] }): JSX.Element | null {
  if (!gaps.length) return null;
  return (
    <ul class="troubles" role="alert" aria-label="Not read">
      {gaps.slice(0, MOST).map(({ partition, start, end, problem }) => (
        <li key={`${partition}/${start}`} class="bad">
          Passed over in partition {partition}: offsets {count(start)} to {count(end - 1n)}. {problem.title}.{" "}
          {problem.detail}{" "}
          {isKafka.value === false && (
            <a href={log.link([topic], { partition, offset: start })}>Show the place in the log</a>
          )}
        </li>
      ))}
      {gaps.length > MOST && <li class="bad">and {count(gaps.length - MOST)} more places</li>}
    </ul>
  );
}
