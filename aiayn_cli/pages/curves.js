"use strict";
// A cursor that all charts share, at the point nearest to the mouse, the finger or the last arrow key.
const NS = "http://www.w3.org/2000/svg";
const TOP = 42, BOTTOM = 32;  // room around the plot, as in chart.html
const charts = [...document.querySelectorAll(".charts svg")].map(svg => {
  const lines = [...svg.querySelectorAll("path[data-points]")].map(path => {
    const places = path.getAttribute("d").slice(1).split("L").map(place => place.split(" ").map(Number));
    const values = path.dataset.points.split(" ");
    const points = places.map(([left, top], i) => ({left, top, x: Number(values[2 * i]), value: values[2 * i + 1]}));
    return {points, name: path.dataset.name, number: path.getAttribute("class").slice("line-".length)};
  });
  const cursor = document.createElementNS(NS, "path"), dots = document.createElementNS(NS, "g");
  const tip = document.createElement("div");
  cursor.setAttribute("class", "cursor");
  tip.className = "tip"; tip.hidden = true; tip.setAttribute("role", "status");
  svg.append(cursor, dots);
  svg.parentElement.append(tip);
  svg.tabIndex = 0;
  const xs = [...new Set(lines.flatMap(line => line.points.map(point => point.x)))].sort((a, b) => a - b);
  return {svg, lines, cursor, dots, tip, xs};
});

const nearest = (items, distance) => items.reduce((best, item) => distance(item) < distance(best) ? item : best);

function put(tag, text, parent, name = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = name;
  parent.append(made);
}

function mark({svg, lines, cursor, dots, tip}, x, isPointed) {
  const found = lines.map(line => ({line, point: nearest(line.points, point => Math.abs(point.x - x))}));
  const first = nearest(found, each => Math.abs(each.point.x - x)).point, {width, height} = svg.viewBox.baseVal;
  cursor.setAttribute("d", `M${first.left} ${TOP}V${height - BOTTOM}`);
  dots.replaceChildren(...found.map(({line, point}) => {
    const dot = document.createElementNS(NS, "circle");
    for (const [key, value] of [["cx", point.left], ["cy", point.top], ["r", 3.5], ["class", `dot-${line.number}`]]) {
      dot.setAttribute(key, value);
    }
    return dot;
  }));
  tip.hidden = !isPointed;
  if (!isPointed) return;
  tip.replaceChildren();
  put("b", `${svg.dataset.x} ${first.x.toLocaleString("en")}`, tip);
  for (const {line, point} of found) {
    const row = document.createElement("div");
    put("span", "", row, `swatch swatch-${line.number}`);
    row.append(` ${line.name} ${point.value}` + (point.x === first.x ? "" : ` at ${point.x.toLocaleString("en")}`));
    tip.append(row);
  }
  const scale = svg.clientWidth / width, left = first.left * scale;
  const place = first.left > width / 2 ? left - 12 - tip.offsetWidth : left + 14;
  tip.style.left = `${Math.max(Math.min(place, svg.parentElement.clientWidth - tip.offsetWidth - 4), 4)}px`;
  tip.style.top = `${(TOP + 8) * scale}px`;
}

function show(chart, x) {
  chart.x = x;
  for (const each of charts) mark(each, x, each === chart);
}

function hide() {
  for (const {cursor, dots, tip} of charts) {
    cursor.removeAttribute("d");
    dots.replaceChildren();
    tip.hidden = true;
  }
}

for (const chart of charts) {
  const {svg, lines, xs} = chart, points = lines.flatMap(line => line.points);
  const follow = event => {
    const box = svg.getBoundingClientRect(), left = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    show(chart, nearest(points, point => Math.abs(point.left - left)).x);
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);  // a finger's tap
  svg.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") hide(); });
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", event => {
    const at = chart.x === undefined ? -1 : xs.indexOf(chart.x);
    const next = {ArrowLeft: Math.max(at - 1, 0), ArrowRight: Math.min(at + 1, xs.length - 1), Home: 0, End: xs.length - 1};
    if (event.key === "Escape") hide();
    if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(next, event.key)) return;
    event.preventDefault();
    show(chart, xs[next[event.key]]);
  });
}
