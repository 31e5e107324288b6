// Keeps the parts of a page marked data-live fresh. Pages are complete without it.
(() => {
  "use strict";
  const parts = () => document.querySelectorAll("[data-live][id]");
  if (!parts().length || !window.EventSource) return;
  let events = null;
  let waiting = false;
  const refresh = async () => {
    waiting = false;
    if (document.hidden) return;
    const answer = await fetch(location.href, { headers: { "X-Fipd-Live": "1" } });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (other && !part.contains(document.activeElement) && part.innerHTML !== other.innerHTML) {
        part.replaceChildren(...other.childNodes);
      }
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
      if (events) events.close();
      events = null;
    } else if (!events) {
      events = new EventSource("/ui/events");
      events.addEventListener("revision", soon);
    }
  };
  document.addEventListener("visibilitychange", () => {
    follow();
    if (!document.hidden) soon();
  });
  follow();
})();
