"use strict";
// Sorts a table by the column whose head is clicked: by number where cells begin with one.
const number = (text) => {
  const found = text.match(/^[+-]?\d+(\.\d+)?(e[+-]\d+)?(?=$|[ %x])/);
  return found ? parseFloat(found[0]) : NaN;
};
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  // A column of numbers stands to the right; a single one among words does not.
  const counts = (cell) => !cell.querySelector("code") && cell.textContent.length < 24 &&
                           !Number.isNaN(number(cell.textContent));
  for (const head of table.tHead.querySelectorAll("th")) {
    const column = [...body.rows].map((row) => row.cells[head.cellIndex])
                                 .filter((cell) => cell?.textContent);
    if (2 * column.filter(counts).length > column.length)
      for (const cell of column.filter(counts)) cell.classList.add("number");
  }
  for (const head of table.tHead.querySelectorAll("th")) {
    head.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.querySelectorAll("th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[head.cellIndex]?.textContent ?? "";
      const order = (a, b) => {
        const x = number(key(a)), y = number(key(b));
        if (Number.isNaN(x) && Number.isNaN(y)) return key(a).localeCompare(key(b));
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
        return up ? x - y : y - x;
      };
      const rows = [...body.rows].sort(order);
      body.append(...rows);
    });
  }
}
