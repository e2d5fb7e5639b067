/** The filter's grammar by example; an example can be taken over. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "../../ui/dialog";

const EXAMPLES: [string, string][] = [
  ["AA17", "the text anywhere in key or value"],
  ['key = "AA17"', "exactly this key; ~ means contains"],
  [
    "value.dest = MIA and value.delay_minutes >= 30",
    "members of a JSON value; integers of any size are compared exactly",
  ],
  ["value.items[0].sku ~ chair", "an item of an array; [*] is any of them"],
  ['value["a.b"] = 1 or value/a/b = 1', "a member with a dot in its name; a JSON Pointer"],
  ["exists value.urgent and value.note != null", "a member that is there; what is absent equals null"],
  ['key =~ "^AA[0-9]+$"', "a regular expression; starts_with is how a text begins"],
  ["header.trace = 4bf92f3577b34da6", "a header"],
  ["time > -1h", "the last hour; also 2026-11-23, 2026-11-23T14:05 or milliseconds"],
  ["partition = 3 and offset >= 9007199254740993", "where it is"],
  ["value = null", "tombstones; key = null: no key"],
  ["not (key ~ test or size > 100000)", "not, and, or, brackets"],
];

export function FilterHelp({ onChoose }: { onChoose: (text: string) => void }): JSX.Element {
  const [isOpen, open] = useState(false);
  return (
    <>
      <button type="button" class="plain" onClick={() => open(true)} aria-label="Help on filters">
        ?
      </button>
      {isOpen && (
        <Dialog title="Filters" onClose={() => open(false)}>
          <p>
            A comparison is a field, one of <code>= != &lt; &lt;= &gt; &gt;= ~ !~ =~ starts_with</code> and a value.
            What the service can compare it compares, and sends the rest of the log to nobody.
          </p>
          <table class="after">
            <tbody>
              {EXAMPLES.map(([text, meaning]) => (
                <tr key={text}>
                  <td>
                    <button
                      type="button"
                      class="plain mono"
                      onClick={() => {
                        onChoose(text);
                        open(false);
                      }}
                    >
                      {text}
                    </button>
                  </td>
                  <td>{meaning}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Dialog>
      )}
    </>
  );
}
