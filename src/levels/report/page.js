// Sorts a table by the column whose heading is pressed; pressed again, the other way round.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), table = heading.closest("table"), body = table.tBodies[0];
    const column = heading.cellIndex;
    const direction = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value;
    const number = (text) => (text === undefined || text === "" ? Infinity : Number(text));
    const rows = [...body.rows];
    const isText = rows.some((row) => Number.isNaN(number(value(row))));
    rows.sort((a, b) => direction * (isText ? value(a).localeCompare(value(b)) : number(value(a)) - number(value(b)) || 0));
    body.append(...rows);
  });
}
// Where a table is wider than the screen, a line above it says so.
for (const box of document.querySelectorAll(".scroll")) {
  const sign = box.previousElementSibling;
  const observer = new ResizeObserver(() => { sign.hidden = box.scrollWidth <= box.clientWidth; });
  for (const one of [box, box.firstElementChild]) observer.observe(one);
}
