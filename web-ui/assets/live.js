// Keeps the parts of a page marked data-live fresh. Pages are complete without it.
(() => {
  "use strict";
  const parts = () => document.querySelectorAll("[data-live][id]");
  const shown = new Map();
  for (const part of parts()) shown.set(part.id, part.innerHTML);
  // The banner alone does not make a page live: forms are left alone.
  if (!document.querySelector("[data-live][id]:not(#live-banner)") || !window.EventSource) return;
  const AGAIN = 30000;
  let events = null;
  let later = 0;
  let over = false;
  let waiting = false;
  // Who reads slowly holds the pages of this tab as they are. A browser that keeps nothing asks again on the next page.
  const pace = document.getElementById("pace");
  const [how, hold] = [pace.querySelector("span"), pace.querySelector("button")];
  const kept = (value) => {
    try {
      if (value === undefined) return sessionStorage.getItem("fipd-held");
      sessionStorage.setItem("fipd-held", value);
    } catch {}
    return value;
  };
  let held = kept() === "yes";
  const tell = () => {
    how.textContent = held ? "This page is held and may be out of date." : "This page follows changes.";
    hold.textContent = held ? "Follow changes" : "Pause";
    pace.hidden = false;
  };
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
    if (document.hidden || held) return;
    let answer;
    try {
      answer = await fetch(location.href, { headers: { "X-Fipd-Live": "1" } });
    } catch {
      say("away", !held);
      return;
    }
    if (held) return;
    over = answer.redirected;
    say("ended", over);
    say("gone", answer.status === 404);
    say("away", !answer.ok && answer.status !== 404);
    pace.hidden = over;
    if (over) leave();
    if (over || !answer.ok) return;
    if (!later) follow();
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
  const leave = () => {
    clearTimeout(later);
    later = 0;
    events?.close();
    events = null;
  };
  // The session may be over, or fipd is not there: the page says which. Where there is no place for another stream the
  // browser gives up for good: then the page looks again now and then, and asks for a place.
  const failed = () => {
    soon();
    if (events?.readyState !== EventSource.CLOSED) return;
    leave();
    later = setTimeout(() => {
      later = 0;
      follow();
    }, AGAIN);
  };
  // A hidden page gives its connection up: browsers have few of them for one host.
  const follow = () => {
    if (document.hidden || over || held) {
      leave();
    } else if (!events) {
      clearTimeout(later);
      later = 0;
      events = new EventSource("/ui/events");
      events.addEventListener("revision", soon);
      events.addEventListener("error", failed);
    }
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) soon();
  });
  hold.addEventListener("click", () => {
    held = !held;
    // Nothing goes on by itself then.
    if (held) say("away", false);
    kept(held ? "yes" : "no");
    tell();
    follow();
    soon();
  });
  tell();
  follow();
})();
