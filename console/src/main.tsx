import { render } from "preact";
import { startBackend } from "./api/backend";
import { startRights } from "./api/rights";
import "./style/base.css";
import "./style/shell.css";
import "./style/parts.css";
import "./style/pages.css";
import "./style/log.css";
import "./style/groups.css";
import "./style/service.css";
import "./style/ingest.css";
import { Shell } from "./shell";
import { fetchTheRest } from "./ui/later";
import { listenToKeys } from "./ui/keyboard";
import { followLinks } from "./ui/router";
import { startTheme } from "./ui/preferences";
import { showHidden } from "./ui/visible";

const root = document.getElementById("app");
if (root) {
  showHidden();
  listenToKeys();
  followLinks(root);
  startTheme();
  startRights();
  startBackend();
  render(<Shell />, root);
  addEventListener("load", () => setTimeout(fetchTheRest, 1000));
}
