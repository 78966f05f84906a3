"use strict";
const PAGE = 50;  // sentences
const list = document.getElementById("sentences"), all = [...list.children];
const order = document.getElementById("order"), find = document.getElementById("find");
const buttons = [...document.querySelectorAll(".pager button")];
const numbers = article => ({
  line: Number(article.dataset.line), worse: Number(article.dataset.worse), difference: Number(article.dataset.difference || 0),
});
const RANKS = {  // lowest first
  differs: ({difference}) => -Math.abs(difference), worst: ({worse}) => worse, first: ({difference}) => -difference,
  second: ({difference}) => difference, line: ({line}) => line,
};
const entries = all.map(article => ({article, text: article.textContent.toLowerCase(), ...numbers(article)}));
let found = [], page = 0;

const exists = number => number >= 0 && number * PAGE < found.length;

function show() {
  const start = page * PAGE;
  const shown = found.slice(start, start + PAGE);
  list.replaceChildren(...shown.map(entry => entry.article));
  const where = shown.length ? `${(start + 1).toLocaleString("en")}–${(start + shown.length).toLocaleString("en")} of ` +
    found.length.toLocaleString("en") : "none";
  document.getElementById("count").textContent = `sentences ${where}`;
  for (const place of document.querySelectorAll(".where")) place.textContent = where;
  for (const button of buttons) button.disabled = !exists(page + Number(button.dataset.step));
}

function choose() {
  const wanted = find.value.trim().toLowerCase(), rank = RANKS[order.value];
  found = entries.filter(entry => entry.text.includes(wanted));
  found.sort((x, y) => rank(x) - rank(y) || x.line - y.line);
  page = 0;
  show();
}

function turn(by) {
  if (!exists(page + by)) return;
  page += by;
  show();
  document.querySelector(".sticky").scrollIntoView();
}

function move(by) {  // to the next sentence, which scrolls there
  const shown = [...list.children], at = shown.indexOf(document.activeElement);
  const next = shown[at < 0 ? 0 : Math.min(Math.max(at + by, 0), shown.length - 1)];
  if (next) { next.tabIndex = -1; next.focus(); }
}

const KEYS = {
  ArrowLeft: () => turn(-1), ArrowRight: () => turn(1), j: () => move(1), k: () => move(-1), "/": () => find.focus(),
};
order.addEventListener("change", choose);
find.addEventListener("input", choose);
for (const button of buttons) button.addEventListener("click", () => turn(Number(button.dataset.step)));
document.addEventListener("keydown", event => {
  if (event.target === find && event.key === "Escape") find.blur();
  if (event.target.closest("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!Object.hasOwn(KEYS, event.key)) return;
  event.preventDefault();
  KEYS[event.key]();
});
choose();
