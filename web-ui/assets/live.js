// Keeps the parts of a page marked data-live fresh. Pages are complete without it.
(() => {
  "use strict";
  const parts = () => document.querySelectorAll("[data-live][id]");
  if (!parts().length || !window.EventSource) return;
  let waiting = false;
  const refresh = async () => {
    waiting = false;
    if (document.hidden) return;
    const answer = await fetch(location.href, { credentials: "same-origin", headers: { "X-Fipd-Live": "1" } });
    if (!answer.ok || answer.redirected) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts()) {
      const other = fresh.getElementById(part.id);
      if (other && !part.contains(document.activeElement) && part.innerHTML !== other.innerHTML) {
        part.replaceChildren(...other.childNodes);
      }
    }
  };
  const events = new EventSource("/ui/events");
  events.addEventListener("revision", () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => refresh().catch(() => {}), 1000);
  });
})();
