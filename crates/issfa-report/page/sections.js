// The parts of the page around the features: summary, number of features, traces, noise, rows, settings, methods.

function heading(text, about) {
  return [el("h2", {}, text), about ? el("p", { class: "about" }, about) : null];
}

const sitesWord = () => (page.data.affine ? "mm" : "sites");

function showHeader() {
  const { name, overview, own_grid } = page.data;
  fill(byId("title"), name);
  fill(byId("subtitle"), `${overview.n_rows} rows × ${overview.n_sites} sites (${own_grid.join("×")}), ${overview.structure}; `,
    `${overview.chains} chain${overview.chains > 1 ? "s" : ""}, sweep ${overview.sweeps_done} of ${overview.sweeps_planned}; issfa ${overview.version}`);
}

function showHeadline() {
  const { overview, standing, features, noise } = page.data;
  const tile = (number, words) => el("div", { class: "tile" }, el("b", {}, number), el("span", {}, words));
  const tiles = [];
  if (standing.of === "state") {
    tiles.push(tile(String(features.list.length), `features at sweep ${standing.sweep}, in burn-in (${overview.burn_in} sweeps): what the chain stands at, not a result yet`));
  } else {
    tiles.push(tile(String(overview.n_persistent), "persistent features, in at least half of the kept sweeps" + (standing.of === "kept" ? " so far" : "")));
    if (overview.n_persistent > 0) tiles.push(tile(String(overview.n_carrying_95), "of them hold 95% of what all explain"));
    if (overview.n_agreeing !== null) tiles.push(tile(String(overview.n_agreeing), `of them agree between all ${overview.chains} chains`));
    if (overview.variance_explained !== null) tiles.push(tile(percent(overview.variance_explained), "of the data's sum of squares is not noise"));
  }
  tiles.push(tile(noise ? figure(noise.level) : "white", noise ? `level of the noise, in the data's units: ${noise.words}` : `noise: ${overview.noise}`));
  if (overview.minka_dimension !== null) tiles.push(tile(String(overview.minka_dimension), "principal components by Minka's evidence"));
  // A fit that is at work needs no advice to go on.
  const verdict = overview.verdict.filter((line) => live.state !== "running" || !line.startsWith("The run stands at"));
  const isGood = overview.verdict.length === 1 && overview.verdict[0].startsWith("Nothing looks wrong");
  fill(byId("headline"), el("div", { class: "tiles" }, tiles),
    el("div", { class: isGood ? "verdict good" : "verdict" }, el("h2", {}, "Verdict"), el("ul", {}, verdict.map((line) => el("li", {}, line)))),
    overview.preparation ? el("p", { class: "about" }, "Data: ", overview.preparation, ".") : null);
}

function showCount() {
  const counts = page.data.overview.n_features_posterior;
  const keys = Object.keys(counts).map(Number).sort((a, b) => a - b);
  const section = byId("count");
  section.hidden = keys.length === 0;
  if (!keys.length) return;
  const total = keys.reduce((sum, k) => sum + counts[k], 0);
  const width = Math.max(1, Math.ceil((keys[keys.length - 1] - keys[0] + 1) / 40));
  const bars = [];
  for (let k = keys[0]; k <= keys[keys.length - 1]; k += width) {
    let sum = 0;
    for (let at = k; at < k + width; at++) sum += counts[at] || 0;
    bars.push({ label: width > 1 ? `${k}–${k + width - 1}` : String(k), share: sum / total });
  }
  const best = keys.reduce((a, b) => (counts[b] > counts[a] ? b : a));
  const label = `Posterior of the number of features: ${keys[0]} to ${keys[keys.length - 1]}, most often ${best} (${percent(counts[best] / total)})`;
  fill(section, heading("Number of features", label + "; share of sweeps after burn-in. It counts all features of a sweep, persistent or not."),
    barChart({ counts: bars.map((bar) => bar.share), labels: bars.map((bar) => bar.label), width: Math.min(640, 40 + 40 * bars.length), height: 140, label, xLabel: "features" }));
}

// Values by chain and panel: {sweeps, chains: [[values of a panel]...]}.
function traceTables() {
  const { trace } = page.data;
  return Array.from({ length: trace.chains }, (_, at) => {
    const all = floats(`trace-${at + 1}`);
    const n = all.length / trace.panels.length;
    return { sweeps: Array.from({ length: n }, (_, row) => 1 + row * trace.stride), panels: trace.panels.map((_, panel) => all.subarray(panel * n, (panel + 1) * n)) };
  });
}

const tracesShown = { all: false };

function showTraces(tables) {
  const { trace, overview, burn_in } = page.data;
  const section = byId("traces");
  const toggle = el("input", { type: "checkbox", onchange: () => { tracesShown.all = toggle.checked; showTraces(tables); } });
  toggle.checked = tracesShown.all;
  const host = el("div", { class: "traces" });
  fill(section, heading("Traces", "One line a chain. The dashed line is the end of burn-in; scales are those of what comes after it. R-hat near 1 says that chains and their halves agree, ESS how many independent draws there are. Drag to zoom, double click to go back."),
    labelled("scale by burn-in too", toggle), host);
  const longest = tables.reduce((a, b) => (b.sweeps.length > a.sweeps.length ? b : a), { sweeps: [] });
  if (!longest.sweeps.length) { fill(host, el("p", {}, "No sweep is done yet.")); return; }
  trace.panels.forEach((panel, at) => {
    const known = overview.quantities.find((quantity) => quantity.name === panel.name);
    const r_hat = known && known.split_r_hat !== null ? `R-hat ${known.split_r_hat.toFixed(2)}` : "";
    const ess = known && known.effective_sample_size !== null ? `ESS ${figure(known.effective_sample_size)}` : "";
    const box = el("div", { class: "plot" });
    const isBad = known && (known.split_r_hat > 1.05 || known.effective_sample_size < 100);
    host.append(el("figure", {}, el("figcaption", {}, el("b", {}, panel.name), " ", el("span", { class: isBad ? "bad" : "" }, [r_hat, ess].filter(Boolean).join(", "))), box));
    const [low, high] = rangeAfter(tables, at, tracesShown.all ? 0 : burn_in);
    const log = panel.log && wantsLog(low, high);
    const pad = log ? 0 : 0.06 * (high - low || Math.abs(high) || 1);
    const range = log ? [low / 1.1, high * 1.1] : [low - pad, high + pad];
    const series = tables.map((table, chain) => ({ name: `chain ${chain + 1}`, values: longest.sweeps.map((_, row) => table.panels[at][row] ?? null) }));
    lineChart(box, { x: longest.sweeps, series, marks: burn_in < longest.sweeps[longest.sweeps.length - 1] ? [{ at: burn_in, label: "burn-in ends" }] : [], log, range: () => range, height: 140, xName: "sweep", label: `Trace of ${panel.name}. ${r_hat} ${ess}` });
  });
}

// The range of a panel over the sweeps after one; over all where there are none.
function rangeAfter(tables, panel, first) {
  let [low, high] = [Infinity, -Infinity];
  for (const table of tables) {
    table.panels[panel].forEach?.((value, row) => {
      if (table.sweeps[row] > first && isFinite(value)) [low, high] = [Math.min(low, value), Math.max(high, value)];
    });
  }
  if (low <= high) return [low, high];
  return first > 0 ? rangeAfter(tables, panel, 0) : [0, 1];
}

function showNoise() {
  const { noise, grid, affine } = page.data;
  const section = byId("noise");
  if (!noise) { fill(section, heading("Noise", `Taken to be ${page.data.overview.noise}.`)); return; }
  const map = onGrid(decoded(noise.blob, noise.scale, UNSIGNED));
  const shown = { ...look(map), oneSided: true };
  const canvas = el("canvas", { role: "img", class: grid.length === 1 ? "curve" : "map", "aria-label": `Standard deviation of the noise by site; ${noise.words}` });
  if (grid.length === 1) drawCurve(canvas, map, null, [330, 190]);
  else {
    if (affine) drawFromAbove(canvas, map, shown);
    else drawPicture(canvas, map, grid, grid.slice(0, -2).map((length) => Math.floor(length / 2)), shown);
  }
  const box = el("div", { class: "plot" });
  const levels = noise.run_levels.length > 1 ? el("details", {}, el("summary", {}, "Level of each run"), el("p", {}, noise.run_levels.map((level, at) => `${page.data.runs[at]?.name ?? at + 1}: ${figure(level)}`).join("; "))) : null;
  fill(section, heading("Noise", `Measured before sampling: ${noise.words}. Level ${figure(noise.level)} in the data's units.`),
    noise.doubts.map((doubt) => el("p", { class: "doubt" }, doubt)),
    el("div", { class: "pair" }, el("figure", {}, canvas, grid.length > 1 ? colourBar(shown) : null, el("figcaption", {}, "standard deviation by site" + (grid.length > 2 ? ", a slice" : ""))),
      el("figure", { class: "grow" }, box, el("figcaption", {}, "power of noise and of rows by mode, smooth to rough, in units of the site scales; white noise is at 1"))), levels);
  showSpectrum(box, noise);
}

// A slice of a volume from above: through the middle, or where another map has most of its squares.
function drawFromAbove(canvas, map, shown, where = null) {
  const { grid } = page.data;
  const plane = planesOf(grid)[0];
  const place = grid.map((length) => Math.floor(length / 2));
  if (where) place[plane.through] = fullest(where, grid, plane.through);
  [canvas.width, canvas.height] = [grid[plane.across], grid[plane.up]];
  canvas.style.aspectRatio = `${grid[plane.across] * edgeOf(plane.across)} / ${grid[plane.up] * edgeOf(plane.up)}`;
  const image = new ImageData(canvas.width, canvas.height);
  for (let row = 0; row < canvas.height; row++) {
    for (let column = 0; column < canvas.width; column++) {
      place[plane.across] = column;
      place[plane.up] = canvas.height - 1 - row;
      image.data.set([...colourOf(map[siteOf(grid, place)], shown), 255], 4 * (row * canvas.width + column));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// Steps over the ranks of modes, by orders of magnitude along both axes.
function showSpectrum(box, noise) {
  const [x, own, rows] = [[], [], []];
  let first = 1;
  noise.last_rank.forEach((end, band) => {
    if (end < first) return;
    for (const rank of end > first ? [first, end] : [first]) { x.push(rank); own.push(noise.powers[band]); rows.push(noise.row_powers[band]); }
    first = end + 1;
  });
  const all = own.concat(rows).filter((value) => value > 0);
  const [low, high] = [Math.min(1, ...all), Math.max(1, ...all)];
  lineChart(box, { x, series: [{ name: "noise", values: own }, { name: "rows", values: rows }], marks: [{ at: 1, level: true, label: "white" }], log: true, logX: x.length > 2, range: () => [low / 1.3, high * 1.3], height: 220, xLabel: "rank of the mode", label: "Spectrum of the noise and of the rows" });
}

function showRows() {
  const { rows, grid, affine } = page.data;
  const section = byId("rows");
  section.hidden = !rows;
  if (!rows) return;
  if (rows.why_not) { fill(section, heading("Rows and what the features make of them", `Not shown: ${rows.why_not}.`)); return; }
  const later = [];
  const list = rows.list.map((one) => {
    const [observed, explained] = [one.observed, one.explained].map((name) => onGrid(decoded(name, one.scale, SIGNED)));
    if (grid.length === 1) {
      const box = el("div", { class: "plot" });
      later.push(() => lineChart(box, { x: Array.from(observed, (_, at) => placeAt(0, at)), xLabel: page.data.axes?.[0]?.name ?? "site", series: [{ name: "observed, centred", values: observed, points: observed.length < 80 }, { name: "persistent features", values: explained }], height: 170, label: `${rowName(one.row)}: observed, and what the features make of it` }));
      return el("div", { class: "row" }, el("h3", {}, rowName(one.row)), box);
    }
    const shown = look(observed);
    shown.oneSided &&= look(explained).oneSided;
    const rest = observed.map((x, at) => x - explained[at]);
    const picture = (values, words) => {
      const canvas = el("canvas", { role: "img", class: "map", "aria-label": `${rowName(one.row)}: ${words}` });
      if (affine) drawFromAbove(canvas, values, shown, explained);
      else drawPicture(canvas, values, grid, grid.slice(0, -2).map((_, axis) => fullest(explained, grid, axis)), shown);
      return el("figure", {}, canvas, el("figcaption", {}, words));
    };
    return el("div", { class: "row" }, el("h3", {}, rowName(one.row)), el("div", { class: "triple" }, picture(observed, "observed, centred"), picture(explained, "persistent features"), picture(rest, "what is left")), colourBar(shown));
  });
  fill(section, heading("Rows and what the features make of them", "The rows that features explain most of, in each quarter of the data; one colour scale for all of a row. Left over should be noise."), el("div", { class: "rowlist" }, list));
  later.forEach((draw) => draw());
}

// A row by its run and its place there; counted from 0, dropped rows too.
function rowName(row) {
  const { runs, drop } = page.data;
  let first = 0;
  for (const run of runs) {
    if (row < first + run.n_rows) return runs.length > 1 ? `${run.name}, row ${row - first + drop}` : `row ${row + drop}`;
    first += run.n_rows;
  }
  return `row ${row}`;
}

function showEvaluation() {
  const { evaluation } = page.data;
  const section = byId("evaluation");
  section.hidden = !evaluation;
  if (!evaluation) return;
  const rows = Object.entries(evaluation).filter(([, value]) => typeof value === "number");
  const own = evaluation.hidden_cell_error;
  const other = evaluation.pca_hidden_cell_error;
  const words = own && other ? `Hidden cells are predicted with a mean squared error of ${figure(own)}; principal components, as many as predict best, have ${figure(other)}: ${figure(other / own)} times as much.` : "What evaluate said of this run.";
  fill(section, heading("Comparison", words), el("table", {}, el("tbody", {}, rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " ")), el("td", {}, figure(value, 4)))))));
}

function showSettings() {
  const { settings, checksums, command, overview, eigenvalues } = page.data;
  const parts = Object.entries(overview.kernel_shares).sort((a, b) => b[1] - a[1]);
  const costs = el("details", {}, el("summary", {}, `Costs: ${figure(overview.seconds_per_sweep)} s a sweep`),
    el("table", {}, el("tbody", {}, parts.map(([name, share]) => el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " ")), el("td", {}, percent(share)), el("td", {}, overview.acceptance[name] === undefined || overview.acceptance[name] === null ? "" : `accepted ${figure(overview.acceptance[name])}`))))));
  const quantities = el("details", {}, el("summary", {}, "Posterior of the parameters"),
    el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["", "mean", "5%", "median", "95%", "ESS", "R-hat", "bulk ESS", "R-hat by ranks"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, overview.quantities.map((one) => el("tr", {}, el("th", { scope: "row" }, one.name), [one.mean, ...one.quantiles, one.effective_sample_size, one.split_r_hat, one.bulk_ess, one.rank_r_hat].map((value) => el("td", {}, figure(value, 4)))))))));
  const box = el("div", { class: "plot" });
  const spectrum = eigenvalues ? el("details", {}, el("summary", {}, "Eigenvalues of the data"), box) : null;
  spectrum?.addEventListener("toggle", () => {
    if (spectrum.open && !box.hasChildNodes()) {
      const n = page.data.features.list.length;
      lineChart(box, { x: eigenvalues.eigenvalues.map((_, at) => at + 1), series: [{ name: "eigenvalue", values: eigenvalues.eigenvalues }], log: true, marks: [{ at: n, label: "persistent features" }, ...(eigenvalues.best ? [{ at: eigenvalues.best, label: "Minka" }] : [])], xLabel: "principal component", height: 200 });
    }
  });
  fill(byId("settings"), heading("Settings, and how to make it again"),
    ...(command ? [el("p", {}, "The same bits come from"), el("pre", {}, command)] : []),
    el("details", {}, el("summary", {}, "Inputs and their checksums"), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ["file", "rows", "xxh3-128"].map((text) => el("th", { scope: "col" }, text)))),
      el("tbody", {}, checksums.map((one) => el("tr", {}, el("th", { scope: "row" }, one.path), el("td", {}, String(one.rows)), el("td", {}, el("code", {}, one.checksum)))))))),
    quantities, costs, spectrum,
    el("details", {}, el("summary", {}, "All settings (config.toml)"), el("pre", {}, settings)));
}

function showMethods() {
  const { methods, references } = page.data;
  const text = methods + "\n\n" + references.join("\n");
  const button = el("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); fill(button, "Copied"); } catch { getSelection().selectAllChildren(body); fill(button, "Selected: copy it with Ctrl-C"); }
  } }, "Copy");
  const body = el("div", {}, el("p", {}, methods), el("ul", { class: "references" }, references.map((one) => el("li", {}, one))));
  fill(byId("methods"), heading("Methods, to paste into a paper"), body, button);
}
