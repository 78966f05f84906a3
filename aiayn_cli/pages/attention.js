"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);
const [sentence, kind, layer, heads, picture] = ["sentence", "kind", "layer", "heads", "picture"].map(byId);
const NS = "http://www.w3.org/2000/svg";
const ROW = 24, TOP = 30, GAP = 260, FAINTEST = 0.02;
const LONGEST_PNG = 16384;  // pixels; browsers give up on larger ones without a word
const NOT_IN_XML = /[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g;  // one of these, and no PNG
const decoded = new Map();
let pinned = null;  // the sub-word pointed at: {side: "from" or "to", index}

function colour(head, count) { return `hsl(${Math.round(360 * head / count + 210) % 360} 70% 42%)`; }

function bytes(number, name) {
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

function option(select, value, text) {
  const made = document.createElement("option");
  made.value = value;
  made.textContent = text;
  select.append(made);
}

function chosenHeads() {
  return [...heads.querySelectorAll("input")].filter(box => box.checked).map(box => Number(box.value));
}

function weight(shown, values, head, row, column) {
  const rows = shown.from.length, columns = shown.to.length;
  return values[((Number(layer.value) * shown.heads + head) * rows + row) * columns + column] / 255;
}

function choices() {  // layers and heads of the attention that is shown
  const shown = data[sentence.value][kind.value];
  const before = layer.value, boxes = heads.querySelectorAll("input").length;
  layer.replaceChildren();
  for (let i = 0; i < shown.layers; i++) option(layer, i, `${i + 1} of ${shown.layers}`);
  layer.value = before !== "" && before < shown.layers ? before : Math.max(shown.layers - 2, 0);
  if (boxes === shown.heads) return;
  heads.querySelectorAll("label").forEach(label => label.remove());
  for (let head = 0; head < shown.heads; head++) {
    const label = document.createElement("label"), box = document.createElement("input");
    const swatch = document.createElement("span");
    box.type = "checkbox"; box.value = head; box.checked = true;
    swatch.className = "swatch"; swatch.style.background = colour(head, shown.heads);
    label.append(box, swatch, String(head + 1));
    label.addEventListener("dblclick", () => { only(head); });
    heads.append(label);
  }
}

function only(head) {
  for (const box of heads.querySelectorAll("input")) box.checked = Number(box.value) === head;
  draw();
}

function draw() {
  const example = data[sentence.value], shown = example[kind.value], values = bytes(sentence.value, kind.value);
  const active = chosenHeads();
  byId("source").textContent = example.source;
  byId("output").textContent = example.output;
  const longest = tokens => tokens.reduce((most, token) => Math.max(most, cells(token)), 4) * 10 + 70;
  const left = longest(shown.from), right = left + GAP, width = right + longest(shown.to);
  const height = TOP + ROW * Math.max(shown.from.length, shown.to.length) + 10;
  const y = index => TOP + ROW * (index + 0.5);
  const svg = element("svg", {xmlns: NS, width, height, viewBox: `0 0 ${width} ${height}`, role: "img"});
  svg.append(element("rect", {width, height, fill: "#fff"}));
  const font = {"font-family": "monospace", "font-size": 15};  // attributes, since the page's policy allows no style=""
  const titles = {cross: ["output", "source"], encoder: ["source", "source"], decoder: ["chooses", "has read"]};
  svg.append(element("text", {x: left - 12, y: 18, "text-anchor": "end", ...font, fill: "#666"}, titles[kind.value][0]));
  svg.append(element("text", {x: right + 12, y: 18, ...font, fill: "#666"}, titles[kind.value][1]));
  const lines = element("g", {"stroke-width": 2.5});
  for (const head of active) {
    for (let row = 0; row < shown.from.length; row++) {
      if (pinned && pinned.side === "from" && pinned.index !== row) continue;
      for (let column = 0; column < shown.to.length; column++) {
        if (pinned && pinned.side === "to" && pinned.index !== column) continue;
        const value = weight(shown, values, head, row, column);
        if (value < FAINTEST) continue;
        const line = element("line", {
          x1: left, y1: y(row), x2: right, y2: y(column), stroke: colour(head, shown.heads),
          "stroke-opacity": (value / Math.sqrt(active.length)).toFixed(3),
        });
        const title = `head ${head + 1}: ${shown.from[row]} \u2192 ${shown.to[column]} ${(100 * value).toFixed(0)} %`;
        line.append(element("title", {}, title));
        lines.append(line);
      }
    }
  }
  svg.append(lines);
  const mean = (row, column) =>
    active.reduce((sum, head) => sum + weight(shown, values, head, row, column), 0) / Math.max(active.length, 1);
  const columns = [["from", shown.from, left - 12, "end"], ["to", shown.to, right + 12, "start"]];
  for (const [side, tokens, x, anchor] of columns) {
    tokens.forEach((token, index) => {
      const place = {x, y: y(index) + 5, "text-anchor": anchor, ...font};
      const marked = pinned && pinned.side === side && pinned.index === index;
      const look = {class: "token", "font-weight": marked ? "bold" : "normal"};
      const text = element("text", {...place, ...look}, token);
      text.addEventListener("mouseenter", () => { if (!marked) { pinned = {side, index}; draw(); } });
      svg.append(text);
      if (pinned && pinned.side !== side) {
        const value = side === "to" ? mean(pinned.index, index) : mean(index, pinned.index);
        if (value >= 0.005) {
          const reach = side === "to" ? x + cells(token) * 9 + 12 : x - cells(token) * 9 - 12;
          const percent = `${(100 * value).toFixed(0)} %`;
          svg.append(element("text", {...place, x: reach, fill: "#b00020", class: "weight"}, percent));
        }
      }
    });
  }
  svg.addEventListener("mouseleave", () => { if (pinned) { pinned = null; draw(); } });
  picture.replaceChildren(svg);
}

function savePng() {
  const svg = picture.querySelector("svg"), size = svg.viewBox.baseVal;
  const scale = Math.min(2, LONGEST_PNG / Math.max(size.width, size.height));
  const image = new Image(), canvas = document.createElement("canvas");
  canvas.width = Math.round(size.width * scale);
  canvas.height = Math.round(size.height * scale);
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
  image.src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(new XMLSerializer().serializeToString(svg));
}

data.forEach((example, number) => option(sentence, number, `${example.label}: ${example.source}`));
for (const select of [sentence, kind]) select.addEventListener("change", () => { pinned = null; choices(); draw(); });
layer.addEventListener("change", draw);
heads.addEventListener("change", draw);
for (const [name, checked] of [["all", true], ["none", false]]) {
  byId(name).addEventListener("click", () => {
    heads.querySelectorAll("input").forEach(box => { box.checked = checked; });
    draw();
  });
}
byId("png").addEventListener("click", savePng);
choices();
draw();
