/** Where the logs are: the pages show nothing that only a service with its own data directories has. */
import { signal } from "@preact/signals";
import { get } from "./client";
import { token } from "./session";

/** Whether a Kafka cluster stores the logs; undefined while that is not known. */
export const isKafka = signal<boolean | undefined>(undefined);

/** Ask where the logs are, now and whenever the key changes. */
export function startBackend(): void {
  token.subscribe(() => {
    get("/v1").then(
      (service) => (isKafka.value = service.backend === "kafka"),
      () => (isKafka.value ??= false),
    );
  });
}
