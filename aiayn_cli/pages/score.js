const list = document.getElementById("sentences"), all = [...list.children];
const order = document.getElementById("order"), find = document.getElementById("find");
const count = document.getElementById("count");
function value(article) {
  const worse = Number(article.dataset.worse), line = Number(article.dataset.line);
  switch (order.value) {
    case "worst": return worse;
    case "first": return -Number(article.dataset.difference || 0);
    case "second": return Number(article.dataset.difference || 0);
    default: return line;
  }
}
function show() {
  const wanted = find.value.toLowerCase();
  const shown = all.filter(article => !wanted || article.textContent.toLowerCase().includes(wanted));
  shown.sort((x, y) => value(x) - value(y) || x.dataset.line - y.dataset.line);
  list.replaceChildren(...shown);
  count.textContent = shown.length + " of " + all.length + " sentences";
}
order.addEventListener("change", show);
find.addEventListener("input", show);
show();
