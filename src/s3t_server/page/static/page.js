// Brings the page's sections up to date as the run changes. Without it the page works by reloading.
"use strict";

const LOST_MILLISECONDS = 6000, AGAIN_MILLISECONDS = 500, REFUSED_MILLISECONDS = 2000;
const sections = () => [...document.querySelectorAll("main > [data-version]")];
const stale = new Set();
const asked = {}, shown = {}, queries = {}; // by section: the newest turn, the turn that is shown, what the visitor chose
let lost, leaving = false;

function show(state, words) {
  const line = document.getElementById("connection");
  if (line.dataset.state === state) return;
  line.dataset.state = state;
  line.querySelector(".words").textContent = words;
}

// The visit has ended. Reloading would send a form again.
function leave() {
  if (leaving) return;
  leaving = true;
  location.assign("./");
}

// A form to fill in stays as it is until it is left: a press of its button would miss a button that is replaced.
function isInUse(section) {
  const focused = document.activeElement;
  return section.contains(focused) && focused.closest("form")?.querySelector("input:not([type=hidden]), textarea") != null;
}

const typed = (section) => [...section.querySelectorAll("input[id], textarea[id]")];

async function refresh(name, query) {
  const before = document.getElementById(name);
  if (!before) return;
  if (query !== undefined) queries[name] = query;
  const turn = (asked[name] = (asked[name] ?? 0) + 1);
  const wanted = new URLSearchParams(queries[name] ?? before.dataset.query);
  wanted.set("seen", before.dataset.version);
  const answer = await fetch(`sections/${name}?${wanted}`, { cache: "no-store" });
  if (answer.status === 401 || answer.status === 403) return leave();
  const text = await answer.text();
  const old = document.getElementById(name); // another answer may have replaced it meanwhile
  if (!answer.ok || !old || turn < (shown[name] ?? 0)) return;
  if (query === undefined && isInUse(old)) return stale.add(name);
  stale.delete(name);
  if (turn === asked[name]) delete queries[name];
  shown[name] = turn;
  const fresh = new DOMParser().parseFromString(text, "text/html").body.firstElementChild;
  const focused = old.contains(document.activeElement) ? document.activeElement.id || fresh.id : "";
  const opened = [...old.querySelectorAll("details[open]")].map((each) => each.id);
  const kept = fresh.dataset.query === old.dataset.query ? typed(old) : [];
  old.replaceWith(fresh);
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  for (const field of typed(fresh)) field.value = kept.find((each) => each.id === field.id)?.value ?? field.value;
  if (focused) (document.getElementById(focused) ?? fresh.querySelector("a, button, summary") ?? fresh).focus();
}

// A stream ends every 20 seconds, and the next one begins from what is shown then: what could not be brought up to date
// is named again. Only a longer gap is a lost connection.
function connect() {
  if (leaving) return;
  const seen = sections().map((section) => `${section.id}-${section.dataset.version}`).join(".");
  const events = new EventSource(`changes?seen=${seen}`);
  events.onopen = () => {
    clearTimeout(lost);
    lost = undefined;
    show("live", "Live");
  };
  events.addEventListener("changed", (event) => {
    for (const name of JSON.parse(event.data)) refresh(name).catch(() => {});
  });
  events.onerror = () => {
    const refused = events.readyState === EventSource.CLOSED;
    events.close();
    lost ??= setTimeout(() => show("lost", "Connection lost, trying again"), LOST_MILLISECONDS);
    setTimeout(refused ? again : connect, refused ? REFUSED_MILLISECONDS : AGAIN_MILLISECONDS);
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
const token = location.hash.startsWith("#s3t_") ? location.hash.slice(1) : "";
if (token) history.replaceState(null, "", location.pathname);
const field = document.getElementById("token");
if (field && token) {
  field.value = token;
  field.form.requestSubmit();
}
if (sections().length) connect();
