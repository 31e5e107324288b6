// Times are written in UTC. Who asks for it sees them in the zone of their own clock; UTC stays in the title.
(() => {
  "use strict";
  const bar = document.getElementById("zone");
  if (!bar) return;
  const [name, button] = [bar.querySelector("span"), bar.querySelector("button")];
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  // A browser that keeps nothing asks again on the next page.
  const kept = (value) => {
    try {
      if (value === undefined) return localStorage.getItem("fipd-zone");
      localStorage.setItem("fipd-zone", value);
    } catch {}
    return value;
  };
  let local = kept() === "local" && zone !== "UTC";
  const two = "2-digit";
  const format = new Intl.DateTimeFormat("en-GB", {
    year: "numeric", month: two, day: two, hour: two, minute: two, second: two, hourCycle: "h23", timeZoneName: "short",
  });
  const here = (time) => {
    const part = Object.fromEntries(format.formatToParts(new Date(time)).map((one) => [one.type, one.value]));
    return `${part.year}-${part.month}-${part.day} ${part.hour}:${part.minute}:${part.second} ${part.timeZoneName}`;
  };
  const show = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      time.dataset.utc ??= time.textContent;
      time.textContent = local ? here(time.dateTime) : time.dataset.utc;
      if (local) time.title = time.dataset.utc;
      else time.removeAttribute("title");
    }
    name.textContent = local ? `the zone ${zone}` : "UTC";
    button.textContent = local ? "Show UTC" : `Show ${zone}`;
  };
  button.hidden = zone === "UTC" || zone === "Etc/UTC";
  button.addEventListener("click", () => {
    local = !local;
    kept(local ? "local" : "utc");
    show(document);
  });
  document.addEventListener("fipd:fresh", (event) => show(event.target));
  show(document);
})();
