/** What each tab of a topic's page is given. */
import type { Schemas } from "../api/client";

export interface TabProps {
  topic: Schemas["Topic"];
  /** Load the topic again, after a change. */
  again: () => void;
}
