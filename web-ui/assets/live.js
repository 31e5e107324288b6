// Keeps the parts of a page marked data-live fresh. Pages are complete without it.
(() => {
  "use strict";
  const parts = () => document.querySelectorAll("[data-live][id]");
  const shown = new Map();
  for (const part of parts()) shown.set(part.id, part.innerHTML);
  if (!shown.size || !window.EventSource) return;
  let events = null;
  let waiting = false;
  const say = (id, on) => {
    const note = document.getElementById(id);
    if (note) note.hidden = !on;
  };
  const replace = (part, other) => {
    if (part.contains(document.activeElement) || shown.get(part.id) === other.innerHTML) return;
    shown.set(part.id, other.innerHTML);
    // What the reader opened stays open.
    for (const open of part.querySelectorAll("details[open][id]")) {
      other.querySelector(`#${open.id}`)?.setAttribute("open", "");
    }
    part.replaceChildren(...other.childNodes);
    part.dispatchEvent(new CustomEvent("fipd:fresh", { bubbles: true }));
  };
  const refresh = async () => {
    waiting = false;
    if (document.hidden) return;
    let answer;
    try {
      answer = await fetch(location.href, { headers: { "X-Fipd-Live": "1" } });
    } catch {
      say("away", true);
      return;
    }
    say("away", false);
    if (answer.redirected) {
      say("ended", true);
      events?.close();
      return;
    }
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (other) replace(part, other);
    }
  };
  const soon = () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => refresh().catch(() => {}), 500);
  };
  // A hidden page gives its connection up: browsers have few of them for one host.
  const follow = () => {
    if (document.hidden) {
      events?.close();
      events = null;
    } else if (!events) {
      events = new EventSource("/ui/events");
      events.addEventListener("revision", soon);
      // The session may be over, or fipd is not there: the page says which.
      events.addEventListener("error", soon);
    }
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) soon();
  });
  follow();
})();
