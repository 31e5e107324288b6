// On narrow screens tables are drawn as blocks, which some browsers tell readers are no tables any more: roles say they are.
(() => {
  "use strict";
  const roles = { table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell" };
  const role = (part) => roles[part.localName] ?? (part.scope === "row" ? "rowheader" : "columnheader");
  const say = (root) => {
    for (const part of root.querySelectorAll("table.stack, .stack :is(thead, tbody, tr, th, td)")) part.setAttribute("role", role(part));
  };
  document.addEventListener("fipd:fresh", (event) => say(event.target));
  say(document);
})();
