// From data to the page.

function showAll(isLive = false) {
  showHeader();
  showHeadline();
  showCount();
  if (!isLive) showTraces(traceTables());
  showNoise();
  showFeatures();
  showRows();
  showEvaluation();
  showSettings();
  showMethods();
  tidyCharts();
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

function begin() {
  const data = JSON.parse(byId("data").textContent);
  document.addEventListener("keydown", onKey);
  new ResizeObserver(() => requestAnimationFrame(tidyCharts)).observe(document.body);
  addEventListener("beforeprint", () => document.querySelectorAll(".card").forEach((card) => { onSight.unobserve(card); card.draw(); }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => page.data && showAll(Boolean(data.live)));
  if (data.live) { beginLive(data.name); return; }
  page.data = data;
  showAll();
}
