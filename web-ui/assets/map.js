// One stop for the Tab key in the map of addresses; arrow keys go from cell to cell, Page Up and Page Down to other pages.
(() => {
  "use strict";
  const map = document.querySelector("ol.map");
  if (!map) return;
  const cells = () => [...map.querySelectorAll("a")];
  // Where the Tab key leads, also once the cells are drawn anew.
  let stop = null;
  const settle = (current) => {
    stop = current?.getAttribute("href") ?? null;
    for (const cell of cells()) cell.tabIndex = cell === current ? 0 : -1;
  };
  const columns = () => getComputedStyle(map).gridTemplateColumns.split(" ").length;
  // Cells that are no address of the pool are no links: the next one that is, in that direction.
  const from = (cell, step) => {
    const all = [...map.children];
    for (let at = all.indexOf(cell.parentElement) + step; at >= 0 && at < all.length; at += step) {
      const found = all[at].querySelector("a");
      if (found) return found;
    }
    return null;
  };
  const page = (rel) => document.querySelector(`nav[aria-label="Pages of the map"] a[rel=${rel}]`)?.click();
  map.addEventListener("keydown", (event) => {
    const cell = event.target.closest("a");
    if (!cell || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const all = cells();
    const to = {
      ArrowLeft: () => from(cell, -1),
      ArrowRight: () => from(cell, 1),
      ArrowUp: () => from(cell, -columns()),
      ArrowDown: () => from(cell, columns()),
      Home: () => all[0],
      End: () => all[all.length - 1],
      PageUp: () => page("prev"),
      PageDown: () => page("next"),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const next = to();
    if (!next) return;
    settle(next);
    next.focus();
  });
  // Of this part alone: other parts are drawn anew without it.
  map.addEventListener("fipd:fresh", () => settle(cells().find((cell) => cell.getAttribute("href") === stop) ?? cells()[0]));
  settle(cells()[0]);
  document.getElementById("map-keys").hidden = false;
})();
