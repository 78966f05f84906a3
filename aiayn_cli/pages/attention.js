"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const [sentence, kind, layer, heads, picture] = ["sentence", "kind", "layer", "heads", "picture"].map(byId);
const NS = "http://www.w3.org/2000/svg";
const ROW = [22, 27], CHARACTER = 8, PERCENT = 44, GAP = [70, 240], CELL = [9, 30];  // pixels; least and most
const FAINTEST = 0.02;  // a weight that is drawn
const LONGEST_PNG = 16384;  // pixels; browsers give up on larger ones without a word
const NOT_IN_XML = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g;  // one of these, and no PNG
const TITLES = {cross: ["output", "source"], encoder: ["source", "source"], decoder: ["chooses", "has read"]};
const FONT = {"font-family": "DejaVu Sans Mono, Menlo, Consolas, monospace", "font-size": 13};
const decoded = new Map();
let pointed = {row: null, column: null};  // the sub-words pointed at
let theme = {}, view = {};

function colour(head, count) { return `hsl(${Math.round(360 * head / count + 215) % 360} 70% ${theme.lightness})`; }

function readTheme() {  // as values, not variables, so that a saved picture has them too
  const style = getComputedStyle(document.documentElement);
  for (const name of ["surface", "text", "dim", "faint", "accent", "bad"]) theme[name] = style.getPropertyValue(`--${name}`);
  theme.lightness = matchMedia("(prefers-color-scheme: dark)").matches ? "68%" : "42%";
}

function weights(number, name) {
  const key = `${number} ${name}`;
  if (!decoded.has(key)) {
    decoded.set(key, Uint8Array.from(atob(data[number][name].weights), c => c.charCodeAt(0)));
  }
  return decoded.get(key);
}

function element(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text.replace(NOT_IN_XML, "\ufffd");
  return made;
}

function cells(token) {  // a character of an East Asian script, and an emoji, is as wide as two others
  const isWide = code => code >= 0x1100 && (code < 0x1e00 || code >= 0x2e80);
  return [...token].reduce((sum, character) => sum + (isWide(character.codePointAt(0)) ? 2 : 1), 0);
}

const longest = tokens => tokens.reduce((most, token) => Math.max(most, cells(token)), 7) * CHARACTER + 18;
const between = (least, value, most) => Math.max(least, Math.min(value, most));
const percent = value => `${(100 * value).toFixed(0)} %`;
const boxes = () => [...heads.querySelectorAll("input")];

function look() {  // what the controls say now
  const {from, to, layers, heads: count} = data[sentence.value][kind.value];
  const active = boxes().filter(box => box.checked).map(box => Number(box.value));
  view = {from, to, layers, count, active, layer: Number(layer.value), values: weights(sentence.value, kind.value)};
}

function weight(head, row, column) {
  const {from, to, count, values} = view;
  return values[((view.layer * count + head) * from.length + row) * to.length + column] / 255;
}

function mean(row, column) {
  let sum = 0;
  for (const head of view.active) sum += weight(head, row, column);
  return sum / Math.max(view.active.length, 1);
}

function mostVaried() {  // the head whose rows look at the most different columns: an alignment, rather than one spot
  const {from, to, count} = view;
  const variety = head => new Set(from.map((_, row) =>
    to.reduce((best, _, column) => weight(head, row, column) > weight(head, row, best) ? column : best, 0))).size;
  const found = [...Array(count).keys()].map(variety);
  return found.indexOf(Math.max(...found));
}

function choose(wanted) {  // heads
  for (const box of boxes()) box.checked = wanted.includes(Number(box.value));
  draw();
}

function stepHead(by) {
  const [first = by > 0 ? -1 : 0] = view.active;
  choose([(first + by + view.count) % view.count]);
}

function step(select, by) {
  const count = select.options.length;
  select.selectedIndex = select === layer ? between(0, select.selectedIndex + by, count - 1)
    : (select.selectedIndex + by + count) % count;
  select.dispatchEvent(new Event("change"));
}

function stepRow(by) {
  const count = view.from.length, row = pointed.row === null ? (by > 0 ? -1 : 0) : pointed.row;
  point((row + by + count) % count, null);
}

function choices() {  // layers and heads of the attention that is shown
  const before = layer.value;
  look();
  const {layers, count} = view;
  layer.replaceChildren(...[...Array(layers).keys()].map(i => new Option(`${i + 1} of ${layers}`, i)));
  layer.value = before !== "" && before < layers ? before : Math.max(layers - 2, 0);
  pointed = {row: null, column: null};
  if (boxes().length === count) return;
  heads.querySelectorAll("label").forEach(label => label.remove());
  for (let head = 0; head < count; head++) {
    const label = document.createElement("label"), box = document.createElement("input");
    const swatch = document.createElement("span");
    box.type = "checkbox"; box.value = head; label.className = "chip"; swatch.className = "swatch";
    label.append(box, swatch, String(head + 1));
    label.addEventListener("dblclick", () => choose([head]));
    heads.append(label);
  }
  look();
  boxes()[mostVaried()].checked = true;
}

function point(row, column) {
  if (pointed.row === row && pointed.column === column) return;
  pointed = {row, column};
  draw();
}

function token(text, attributes, row, column) {
  const isPointed = (row !== null && pointed.row === row) || (column !== null && pointed.column === column);
  const look = {class: "token", "font-weight": isPointed ? "bold" : "normal", fill: theme.text, ...FONT};
  const made = element("text", {...attributes, ...look}, text);
  made.addEventListener("pointerenter", () => point(row, column));
  made.addEventListener("click", () => point(row, column));
  return made;
}

function drawing(width, height, label, parts) {
  const svg = element("svg", {xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label});
  svg.append(element("rect", {width, height, fill: theme.surface}), ...parts);
  return svg;
}

function drawLines(room) {
  const {from, to, count, active} = view, parts = [];
  const left = longest(from) + PERCENT, reserved = left + longest(to) + PERCENT;
  const right = left + between(GAP[0], room - reserved, GAP[1]), width = right + reserved - left;
  const pitch = ROW[room < 480 || from.length > 30 ? 0 : 1], y = index => 30 + pitch * (index + 0.5);
  const height = 30 + pitch * Math.max(from.length, to.length) + 8;
  const lines = element("g", {"stroke-width": 2.5, "stroke-linecap": "round"});
  for (const head of active) {
    for (let row = 0; row < from.length; row++) {
      if (pointed.row !== null && pointed.row !== row) continue;
      for (let column = 0; column < to.length; column++) {
        if (pointed.column !== null && pointed.column !== column) continue;
        const value = weight(head, row, column);
        if (value < FAINTEST) continue;
        const line = element("line", {
          x1: left, y1: y(row), x2: right, y2: y(column), stroke: colour(head, count),
          "stroke-opacity": (value / Math.sqrt(active.length)).toFixed(3),
        });
        line.append(element("title", {}, `head ${head + 1}: ${from[row]} \u2192 ${to[column]} ${percent(value)}`));
        lines.append(line);
      }
    }
  }
  parts.push(lines);
  for (const [side, tokens, x, anchor, outwards] of [[0, from, left - 10, "end", -1], [1, to, right + 10, "start", 1]]) {
    parts.push(element("text", {x, y: 16, "text-anchor": anchor, ...FONT, fill: theme.dim}, TITLES[kind.value][side]));
    tokens.forEach((text, index) => {
      const place = {x, y: y(index) + 4.5, "text-anchor": anchor};
      parts.push(token(text, place, side ? null : index, side ? index : null));
      const [row, column] = side ? [pointed.row, index] : [index, pointed.column];
      if (row === null || column === null || mean(row, column) < 0.005) return;
      const reach = {...place, x: x + outwards * (cells(text) * CHARACTER + 8)};
      parts.push(element("text", {...reach, ...FONT, fill: theme.bad, class: "weight"}, percent(mean(row, column))));
    });
  }
  return drawing(width, height, "attention as lines", parts);
}

function drawHeat(room) {
  const {from, to, count, active} = view, parts = [];
  const left = longest(from), top = longest(to) + 6;
  const cell = Math.floor(between(CELL[0], (room - left - 8) / to.length, CELL[1]));
  const width = left + cell * to.length + 8, height = top + cell * from.length + 8;
  const fill = active.length === 1 ? colour(active[0], count) : theme.accent, size = {width: cell - 1, height: cell - 1};
  const font = {"font-size": Math.min(13, cell)};
  from.forEach((_, row) => to.forEach((_, column) => {
    const value = mean(row, column), at = {x: left + cell * column, y: top + cell * row, ...size, rx: Math.min(3, cell / 6)};
    if (value >= FAINTEST / 2) parts.push(element("rect", {...at, fill, "fill-opacity": Math.sqrt(value).toFixed(3)}));
  }));
  parts.unshift(element("rect", {x: left - 1, y: top - 1, width: cell * to.length + 1, height: cell * from.length + 1,
    fill: "none", stroke: theme.faint}));
  from.forEach((text, row) => {
    const made = token(text, {x: left - 8, y: top + cell * (row + 0.5) + 4, "text-anchor": "end"}, row, null);
    made.setAttribute("font-size", font["font-size"]);
    parts.push(made);
  });
  to.forEach((text, column) => {
    const x = left + cell * (column + 0.5) + 4;
    const made = token(text, {x, y: top - 8, transform: `rotate(-90 ${x} ${top - 8})`}, null, column);
    made.setAttribute("font-size", font["font-size"]);
    parts.push(made);
  });
  if (pointed.row !== null || pointed.column !== null) {
    const [row, rows] = pointed.row === null ? [0, from.length] : [pointed.row, 1];
    const [column, columns] = pointed.column === null ? [0, to.length] : [pointed.column, 1];
    parts.push(element("rect", {x: left + cell * column - 1, y: top + cell * row - 1, width: cell * columns + 1,
      height: cell * rows + 1, rx: 3, fill: "none", stroke: theme.bad, "stroke-width": 1.5, "pointer-events": "none"}));
  }
  const svg = drawing(width, height, "attention as a heat map", parts);
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - left) / cell), row = Math.floor((event.clientY - box.top - top) / cell);
    if (row >= 0 && row < from.length && column >= 0 && column < to.length) point(row, column);
  });
  return svg;
}

function looks() {  // in words, also for those who do not see the picture
  const {from, to, active} = view, {row, column} = pointed;
  const where = `layer ${view.layer + 1}, ` +
    (active.length === 1 ? `head ${active[0] + 1}` : `mean of ${active.length} heads`);
  if (row === null && column === null) return where;
  if (row !== null && column !== null) return `${where}: ${from[row]} \u2192 ${to[column]} ${percent(mean(row, column))}`;
  const others = (row === null ? from : to).map((text, index) =>
    [text, row === null ? mean(index, column) : mean(row, index)]);
  const most = others.sort((a, b) => b[1] - a[1]).slice(0, 5).filter(([, value]) => value >= 0.005);
  return `${where}: ${row === null ? to[column] : from[row]} ${row === null ? "is seen by" : "looks at"} ` +
    most.map(([text, value]) => `${text} ${percent(value)}`).join(", ");
}

function figure(caption, draw) {
  const made = document.createElement("figure"), title = document.createElement("figcaption");
  title.textContent = caption;
  made.append(title);
  made.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") point(null, null); });
  return [made, draw];
}

const figures = [figure("lines", drawLines), figure("heat map", drawHeat)];

function draw() {
  look();
  readTheme();
  boxes().forEach((box, head) => { box.nextSibling.style.background = colour(head, view.count); });
  byId("source").textContent = data[sentence.value].source;
  byId("output").textContent = data[sentence.value].output;
  byId("looks").textContent = looks();
  byId("lower").disabled = layer.selectedIndex === 0;
  byId("higher").disabled = layer.selectedIndex === layer.options.length - 1;
  for (const [place, draw] of figures) {
    const svg = draw(place.clientWidth - 22);
    place.querySelector("svg")?.remove();
    place.append(svg);
  }
}

function savePng() {
  const parts = [...picture.querySelectorAll("svg")].map(svg => svg.cloneNode(true));
  const sizes = parts.map(svg => svg.viewBox.baseVal);
  const width = sizes.reduce((sum, size) => sum + size.width, 24), height = Math.max(...sizes.map(size => size.height));
  parts[1].setAttribute("x", sizes[0].width + 24);
  const whole = drawing(width, height, "", parts);
  const scale = Math.min(2, LONGEST_PNG / Math.max(width, height));
  const image = new Image(), canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  image.onerror = () => { byId("png").textContent = "no PNG: this browser cannot draw it"; };
  image.onload = () => {
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const link = document.createElement("a");
    link.download = `attention-${data[sentence.value].label.replace(/\W+/g, "-")}-${kind.value}-layer-` +
      `${Number(layer.value) + 1}.png`;
    link.href = canvas.toDataURL("image/png");
    document.body.append(link);
    link.click();
    link.remove();
    document.body.dataset.saved = link.download;
  };
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(whole));
}

const KEYS = {
  ArrowLeft: event => event.shiftKey ? step(layer, -1) : stepHead(-1),
  ArrowRight: event => event.shiftKey ? step(layer, 1) : stepHead(1),
  a: () => choose([...Array(view.count).keys()]), t: () => step(kind, 1),
  j: () => stepRow(1), k: () => stepRow(-1), n: () => step(sentence, 1), p: () => step(sentence, -1),
  Escape: () => point(null, null),
};

data.forEach((example, number) => sentence.append(new Option(`${example.label}: ${example.source}`, number)));
picture.append(...figures.map(([place]) => place));
for (const select of [sentence, kind]) select.addEventListener("change", () => { choices(); draw(); });
layer.addEventListener("change", draw);
heads.addEventListener("change", draw);
byId("all").addEventListener("click", KEYS.a);
byId("previous").addEventListener("click", () => stepHead(-1));
byId("next").addEventListener("click", () => stepHead(1));
byId("lower").addEventListener("click", () => step(layer, -1));
byId("higher").addEventListener("click", () => step(layer, 1));
byId("png").addEventListener("click", savePng);
document.addEventListener("keydown", event => {
  const isTyping = event.target.closest("select");
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key](event);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
new ResizeObserver(draw).observe(picture);
choices();
draw();
