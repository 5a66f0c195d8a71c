// Brings the page's sections up to date as the run changes. Without it the page works by reloading.
"use strict";

const LOST_MILLISECONDS = 6000;
const sections = () => [...document.querySelectorAll("main > [data-version]")];
const stale = new Set();
let events, lost;

function show(state, words) {
  const line = document.getElementById("connection");
  if (line.dataset.state === state) return;
  line.dataset.state = state;
  line.querySelector(".words").textContent = words;
}

// A form that is being filled in stays as it is until it is left.
function isInUse(section) {
  const focused = document.activeElement;
  return section.contains(focused) && focused.matches("input, textarea, select");
}

async function refresh(name, query) {
  const old = document.getElementById(name);
  if (!old) return;
  if (query === undefined && isInUse(old)) {
    stale.add(name);
    return;
  }
  stale.delete(name);
  const asked = query ?? old.dataset.query ?? "";
  const answer = await fetch(`sections/${name}?${asked}`, { cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) return location.reload();
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").body.firstElementChild;
  const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
  const opened = [...old.querySelectorAll("details[open]")].map((each) => each.id);
  old.replaceWith(fresh);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  if (focused) (document.getElementById(focused) ?? fresh.querySelector("a, button, summary"))?.focus();
}

function connect() {
  const seen = sections().map((section) => `${section.id}-${section.dataset.version}`).join(".");
  events = new EventSource(`changes?seen=${seen}`);
  events.onopen = () => {
    clearTimeout(lost);
    lost = undefined;
    show("live", "Live");
  };
  events.addEventListener("changed", (event) => {
    for (const name of JSON.parse(event.data)) refresh(name).catch(() => {});
  });
  // A stream ends every 20 seconds, and the browser connects again: only a longer gap is a lost connection.
  events.onerror = () => {
    lost ??= setTimeout(() => show("lost", "Connection lost, trying again"), LOST_MILLISECONDS);
    if (events.readyState === EventSource.CLOSED) setTimeout(again, 2000);
  };
}

// The server has refused a stream, or is away: it says why when it is asked for a section.
async function again() {
  const first = sections()[0];
  try {
    if (first) await refresh(first.id);
  } catch {
    show("lost", "Connection lost, trying again");
  }
  events.close();
  connect();
}

document.addEventListener("focusout", () => setTimeout(() => [...stale].forEach((name) => refresh(name).catch(() => {}))));
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-query]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  refresh(link.closest("section").id, link.dataset.query).catch(() => link.removeAttribute("data-query"));
});
// A link with a token behind the # signs in; no server, proxy or log is told of that part of an address.
const field = document.getElementById("token");
if (field && location.hash.startsWith("#s3t_")) {
  field.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  field.form.requestSubmit();
}
if (sections().length) connect();
