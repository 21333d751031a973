// The features: small pictures to sort and search, and one of them in full.

const SORTS = {
  variance: { name: "variance explained", of: (one) => one.variance },
  presence: { name: "presence", of: (one) => one.presence },
  stability: { name: "stability between chains", of: (one) => one.stability },
  smoothness: { name: "smoothness", of: (one) => geometricMean(one.smoothness.map((width) => width[1])) },
  synchrony: { name: "synchrony between runs", of: (one) => one.synchrony?.correlation ?? null },
  id: { name: "id", of: (one) => -one.id },
};
const chosen = { sort: "variance", search: "", id: null };

function geometricMean(widths) {
  const known = widths.filter((width) => width !== null && isFinite(width));
  return known.length ? Math.exp(known.reduce((sum, width) => sum + Math.log(Math.max(width, 1e-9)), 0) / known.length) : null;
}

// The features in the order and under the search that were asked for.
function listed() {
  const of = SORTS[chosen.sort].of;
  const key = (one) => of(one) ?? -Infinity;
  const found = page.data.features.list.filter((one) => String(one.id).includes(chosen.search.trim()));
  return found.sort((a, b) => key(b) - key(a) || b.variance - a.variance);
}

function showFeatures() {
  const { features, standing, overview } = page.data;
  const section = byId("features");
  if (!features.list.length) {
    const why = standing.of === "state" ? "The chain has no feature at the moment." : overview.n_kept ? "No feature was there in at least half of the kept sweeps." : "No sweep was kept yet.";
    fill(section, heading("Features", why));
    return;
  }
  const known = Object.entries(SORTS).filter(([, sort]) => features.list.some((one) => of_known(sort.of(one))));
  if (!known.some(([name]) => name === chosen.sort)) chosen.sort = "variance";
  const sort = el("select", { id: "sort", onchange: () => { chosen.sort = sort.value; showGallery(); } }, known.map(([name, one]) => el("option", { value: name, selected: name === chosen.sort }, one.name)));
  const search = el("input", { type: "search", id: "search", inputmode: "numeric", size: 8, placeholder: "id", value: chosen.search, oninput: () => { chosen.search = search.value; showGallery(); },
    onkeydown: (event) => { if (event.key === "Enter") { const first = listed()[0]; if (first) choose(first.id, true); } } });
  const about = standing.of === "state" ? `What the chain stands at in sweep ${standing.sweep}, still in burn-in: not a result.` : "Posterior means. Choose one to see all of it; ← and → (or j and k) step, / searches.";
  const { every, grid, own_grid } = page.data;
  const coarse = every > 1 ? ` So that the page stays small, maps have ${grid.join("×")} sites of ${own_grid.join("×")}: each shows the largest value of ${every} along each axis.` : "";
  const grey = page.data.mask && !page.data.affine && page.data.grid.length > 1 ? " Grey: no data." : "";
  fill(section, heading("Features", about + grey + coarse),
    el("div", { class: "controls" }, labelled("sort by", sort), labelled("find", search), el("span", { id: "listed", role: "status" })),
    el("div", { id: "gallery", class: "gallery", role: "listbox", "aria-label": "features" }), el("div", { id: "feature", tabindex: -1 }), el("details", { id: "table" }, el("summary", {}, "All features as a table")));
  byId("table").addEventListener("toggle", showTable, { once: true });
  if (!features.list.some((one) => one.id === chosen.id)) chosen.id = listed()[0]?.id ?? null;
  showGallery();
  showFeature();
}

const of_known = (value) => value !== null && value !== undefined && isFinite(value);

// Pictures are drawn when they are scrolled to.
const onSight = new IntersectionObserver((entries) => {
  for (const entry of entries) if (entry.isIntersecting) { onSight.unobserve(entry.target); entry.target.draw(); }
}, { rootMargin: "300px" });

function showGallery() {
  const list = listed();
  fill(byId("listed"), `${list.length} of ${page.data.features.list.length}`);
  const cards = list.map((one) => {
    const canvas = el("canvas", { "aria-hidden": "true", class: page.data.grid.length === 1 ? "curve" : "" });
    const sorted = chosen.sort === "variance" || chosen.sort === "id" ? "" : `${SORTS[chosen.sort].name}: ${figure(SORTS[chosen.sort].of(one))}`;
    const card = el("button", { type: "button", role: "option", class: "card", "data-id": one.id, "aria-selected": String(one.id === chosen.id), "aria-label": `Feature ${one.id}: ${percent(one.variance)} of variance, present in ${percent(one.presence)} of kept sweeps`, onclick: () => choose(one.id, true) },
      canvas, el("span", { class: "caption" }, el("b", {}, String(one.id)), ` ${percent(one.variance, 2)}`), sorted ? el("span", { class: "caption" }, sorted.replace(/^.*: /, "")) : null);
    card.draw = () => drawThumbnail(canvas, one);
    return card;
  });
  fill(byId("gallery"), cards);
  cards.forEach((card) => onSight.observe(card));
}

function choose(id, scroll = false) {
  chosen.id = id;
  for (const card of byId("gallery").children) card.setAttribute("aria-selected", String(Number(card.dataset.id) === id));
  showFeature();
  byId("gallery").querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  if (scroll) byId("feature").scrollIntoView({ block: "nearest", behavior: "auto" });
}

function step(by) {
  const list = listed();
  if (!list.length) return;
  const at = list.findIndex((one) => one.id === chosen.id);
  choose(list[Math.min(list.length - 1, Math.max(0, at + by))].id);
}

function showFeature() {
  const { features, affine } = page.data;
  const one = features.list.find((other) => other.id === chosen.id);
  const host = byId("feature");
  if (!one) { fill(host); return; }
  const rank = features.list.indexOf(one) + 1;
  const courses = el("div", { class: "courses" });
  fill(host,
    el("div", { class: "featurehead" }, el("h3", {}, `Feature ${one.id}`), el("span", { class: "about" }, `${rank} of ${features.list.length} by variance`),
      el("span", { class: "steps" }, el("button", { type: "button", id: "before", onclick: () => step(-1) }, "← before"), el("button", { type: "button", id: "next", onclick: () => step(1) }, "next →"))),
    facts(one), affine ? slicer(one) : mapPanels(one),
    el("div", { class: "pair" }, el("div", { class: "grow" }, el("h4", {}, "Weights over the rows"), courses), el("div", {}, el("h4", {}, "Weights of the rows that use it"), weightBars(one), topRows(one))));
  showCourses(courses, one);
  tidyCharts();
}

function facts(one) {
  const widths = one.smoothness.map(([low, middle, high]) => (of_known(middle) ? (middle < 0.05 ? "0" : `${figure(middle)} (${figure(low)}–${figure(high)})`) : "–")).join(" × ");
  const isRough = one.smoothness.some((width) => of_known(width[1]) && width[1] < 0.05);
  const list = [["variance", percent(one.variance)], ["presence", `${percent(one.presence)} of kept sweeps`], ["rows that use it", figure(one.activations)],
    of_known(one.stability) ? ["stability", `${figure(one.stability)}, in ${one.chains} chain${one.chains === 1 ? "" : "s"}`] : null,
    ["smoothness (FWHM)", `${widths} ${sitesWord()}${isRough ? "; 0: neighbours along that axis are no more alike than others" : ""}`], one.synchrony ? ["synchrony", `r = ${figure(one.synchrony.correlation)} between runs (95% of shifts below ${figure(one.synchrony.null_95)}), q = ${figure(one.synchrony.q)}`] : null,
    of_known(one.kurtosis) ? ["kurtosis of weights", figure(one.kurtosis)] : null, ["its map", peakWords(one)]];
  return el("dl", { class: "facts" }, list.filter(Boolean).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function weightBars(one) {
  const { low, high, counts, n } = one.histogram;
  if (!n) return el("p", { class: "about" }, "No row uses it more likely than not.");
  return barChart({ counts, low, high, width: 300, height: 120, label: `Histogram of the weights of ${n} rows, ${figure(low)} to ${figure(high)}` });
}

function topRows(one) {
  if (!one.rows.length) return null;
  return el("table", { class: "toprows" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "used most by"), el("th", { scope: "col" }, "weight"))),
    el("tbody", {}, one.rows.map(([row, weight]) => el("tr", {}, el("th", { scope: "row" }, rowName(row)), el("td", {}, figure(weight))))));
}

// One plot a run, over seconds where they are known.
function showCourses(host, one) {
  const { runs, features, repetition_seconds: seconds, drop } = page.data;
  const weights = decoded(one.course.blob, one.course.scale, SIGNED);
  const active = one.course.activation ? bytes(one.course.activation) : null;
  let [low, high] = [0, 0];
  weights.forEach((w) => { if (isFinite(w)) [low, high] = [Math.min(low, w), Math.max(high, w)]; });
  const range = () => [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)];
  let first = 0;
  const [most, unit] = [24, seconds ? "s" : "row"];
  runs.slice(0, most).forEach((run) => {
    const rows = [];
    for (let row = Math.ceil(first / features.stride) * features.stride; row < first + run.n_rows; row += features.stride) rows.push(row);
    const x = rows.map((row) => (row - first + drop) * (seconds || 1));
    const series = [{ name: "weight", values: rows.map((row) => weights[row / features.stride]), points: rows.length < 80 }];
    if (active) series.push({ name: "P(active)", values: rows.map((row) => active[row / features.stride] / 255), scale: "second", colour: "rgba(213,94,0,.35)", width: 0.5, fill: "rgba(213,94,0,.13)" });
    const box = el("div", { class: "plot" });
    host.append(el("figure", {}, runs.length > 1 ? el("figcaption", {}, `${run.name}, by ${unit}`) : null, box));
    const plot = lineChart(box, { x, series, range, height: runs.length > 1 ? 96 : 200, second: Boolean(active), xLabel: runs.length > 1 ? "" : unit, xName: unit, label: `Weights of feature ${one.id} over ${run.name}` });
    plot.root.classList.toggle("nolegend", runs.length > 1 && host.children.length > 1);
    first += run.n_rows;
  });
  if (runs.length > most) host.append(el("p", { class: "about" }, `${runs.length - most} more runs are in weights_*.tsv.`));
  if (features.stride > 1) host.append(el("p", { class: "about" }, `The largest weight of every ${features.stride} rows.`));
}

function showTable() {
  const columns = [["id", (one) => String(one.id)], ["variance", (one) => percent(one.variance)], ["presence", (one) => figure(one.presence)], ["rows", (one) => figure(one.activations)], ["stability", (one) => figure(one.stability)], ["chains", (one) => String(one.chains)], ["ESS", (one) => figure(one.ess)], ["R-hat", (one) => figure(one.rhat)], [`FWHM (${sitesWord()})`, (one) => one.smoothness.map((width) => figure(width[1])).join(" × ")], ["synchrony", (one) => figure(one.synchrony?.correlation)], ["map", peakWords]];
  byId("table").append(el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, columns.map(([name]) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, page.data.features.list.map((one) => el("tr", {}, columns.map(([, of]) => el("td", {}, of(one)))))))));
}

function onKey(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest?.("input, select, textarea, summary")) return;
  const steps = { ArrowRight: 1, j: 1, ArrowLeft: -1, k: -1 };
  if (event.key === "/" && byId("search")) { event.preventDefault(); byId("search").focus(); } else if (steps[event.key] && page.data?.features?.list.length) { event.preventDefault(); step(steps[event.key]); }
}
