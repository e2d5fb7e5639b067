/** What stands around every page: navigation, the key, and what is wrong with the connection. */
import { PREFIX } from "./place";
import type { ComponentType, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { may } from "./api/rights";
import { isAsked, isTokenStored, setToken, token } from "./api/session";
import { Overview } from "./pages/overview/overview";
import { Dialog } from "./ui/dialog";
import { later } from "./ui/later";
import { isReachable } from "./ui/load";
import { Empty, Field } from "./ui/parts";
import { theme, zone, type Theme, type Zone } from "./ui/preferences";
import * as routes from "./routes";
import { route } from "./ui/router";

const Topics = later(() => import("./pages/topics/topics").then((one) => one.Topics));
const Topic = later(() => import("./pages/topic/topic").then((one) => one.Topic));
const Groups = later(() => import("./pages/groups/groups").then((one) => one.Groups));
const Group = later(() => import("./pages/groups/group").then((one) => one.Group));
const Subscriptions = later(() => import("./pages/subscriptions/subscriptions").then((one) => one.Subscriptions));
const Subscription = later(() => import("./pages/subscriptions/subscription").then((one) => one.Subscription));
const Service = later(() => import("./pages/service/service").then((one) => one.Service));

interface Page {
  /** The first part of the path. */
  part: string | undefined;
  link: string;
  name: string;
  view: ComponentType;
  /** One of them, where the path goes on. */
  one?: ComponentType;
  isForAdmins?: boolean;
}

/** The pages of the navigation; a page reads what follows its first part from `route`. */
const PAGES: Page[] = [
  { part: undefined, link: routes.overview.link([]), name: "Overview", view: Overview },
  { part: "topics", link: routes.topics.link([]), name: "Topics", view: Topics, one: Topic },
  { part: "groups", link: routes.groups.link([]), name: "Groups", view: Groups, one: Group },
  {
    part: "subscriptions",
    link: routes.subscriptions.link([]),
    name: "Subscriptions",
    view: Subscriptions,
    one: Subscription,
    isForAdmins: true,
  },
  {
    part: "service",
    link: routes.service.link([""]),
    name: "Service",
    view: Service,
    one: Service,
  },
];

export function Shell(): JSX.Element {
  const [first, second] = route.value.parts;
  const page = PAGES.find((one) => one.part === first);
  const View = (second === undefined ? page?.view : page?.one) ?? Nowhere;
  const title = [route.value.parts[1], page?.name, "tidelog"].filter(Boolean).join(" · ");
  useEffect(() => {
    document.title = title;
  }, [title]);
  return (
    <div class="shell">
      <a class="skip" href="#main">
        Skip to content
      </a>
      <div class="side">
        <a class="brand" href={routes.overview.link([])}>
          <img src={`${PREFIX}/console/favicon.svg`} width="20" height="20" alt="" />
          tidelog
        </a>
        <nav aria-label="Pages">
          {PAGES.filter((one) => !one.isForAdmins || may("admin")).map((one) => (
            <a key={one.name} href={one.link} aria-current={one === page ? "page" : undefined}>
              {one.name}
            </a>
          ))}
        </nav>
        <footer>
          <span class="quiet keys">
            <kbd>/</kbd> search · <kbd>g</kbd> <kbd>t</kbd> topics
          </span>
          <Looks />
          <a href={`${PREFIX}/docs`}>API reference</a>
          <KeyButton />
        </footer>
      </div>
      <div>
        {!isReachable.value && (
          <p class="lost" role="status">
            The service does not answer. What is shown may be old; the console tries again by itself.
          </p>
        )}
        <main id="main" tabIndex={-1}>
          <View key={route.value.parts.slice(0, 2).join("/")} />
        </main>
      </div>
    </div>
  );
}

/** How pages look, in this browser. */
function Looks(): JSX.Element {
  return (
    <span class="looks">
      <select
        aria-label="Theme"
        value={theme.value}
        onChange={(event) => (theme.value = event.currentTarget.value as Theme)}
      >
        <option value="system">system theme</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
      <select
        aria-label="Time zone"
        value={zone.value}
        onChange={(event) => (zone.value = event.currentTarget.value as Zone)}
      >
        <option value="local">local times</option>
        <option value="UTC">UTC</option>
      </select>
    </span>
  );
}

function Nowhere(): JSX.Element {
  return (
    <Empty title="There is no such page">
      <p>
        Go to the <a href={routes.overview.link([])}>overview</a> or the <a href={routes.topics.link([])}>topics</a>.
      </p>
    </Empty>
  );
}

function KeyButton(): JSX.Element {
  const [isOpen, open] = useState(false);
  const isShown = isOpen || isAsked.value;
  const close = (): void => {
    open(false);
    isAsked.value = false;
  };
  return (
    <>
      <button type="button" class="small" onClick={() => open(true)}>
        {token.value ? "API key in use" : "Use an API key"}
      </button>
      {isShown && <KeyDialog onClose={close} />}
    </>
  );
}

function KeyDialog({ onClose }: { onClose: () => void }): JSX.Element {
  const [text, write] = useState("");
  const [isKept, keep] = useState(isTokenStored.value);
  const wasRefused = isAsked.value && token.value !== "";
  const submit = (event: Event): void => {
    event.preventDefault();
    setToken(text.trim(), isKept);
    onClose();
  };
  return (
    <Dialog title="API key" onClose={onClose}>
      <form onSubmit={submit}>
        <p class="quiet">
          {wasRefused ? (
            <span class="bad">The service refused the key. </span>
          ) : (
            isAsked.value && "The service asks for credentials. "
          )}
          A key or a token (JWT) is sent with each request. Make a key with <code>tidelog keys create</code>.
        </p>
        <br />
        <Field label="Key or token">
          {(id) => (
            <input
              id={id}
              type="password"
              autocomplete="off"
              autofocus
              value={text}
              onInput={(event) => write(event.currentTarget.value)}
            />
          )}
        </Field>
        <label>
          <input type="checkbox" checked={isKept} onChange={(event) => keep(event.currentTarget.checked)} />
          Keep it until this tab is closed; otherwise a reload forgets it
        </label>
        <div class="actions">
          {token.value && (
            <button
              type="button"
              class="danger"
              onClick={() => {
                setToken("", false);
                onClose();
              }}
            >
              Forget the key
            </button>
          )}
          <button type="submit" class="primary" disabled={!text.trim()}>
            Use it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
