// Maps of features on grids of any number of axes: lines with bands, pictures, and pictures with sliders.

const KINDS = {
  mean: { name: "mean", table: SIGNED, about: "posterior mean, unit norm" },
  sd: { name: "standard deviation", table: UNSIGNED, about: "posterior standard deviation" },
  exceedance: { name: "exceedance", table: UNSIGNED, about: "probability of being large" },
  z: { name: "z", table: SIGNED, about: "in a row that uses it, in standard deviations of the noise" },
};

// Decoded maps of a feature on the grid; the last few are kept.
const decodedMaps = new Map();

function mapOf(feature, kind) {
  const map = feature.maps.find((one) => one.kind === kind);
  if (!map) return null;
  const key = map.blob;
  if (!decodedMaps.has(key)) {
    if (decodedMaps.size > 40) decodedMaps.delete(decodedMaps.keys().next().value);
    decodedMaps.set(key, onGrid(decoded(map.blob, map.scale, KINDS[kind].table)));
  }
  return decodedMaps.get(key);
}

// Where a feature is, along an axis: the place that holds most of its squares.
function fullest(values, grid, axis) {
  const inner = grid.slice(axis + 1).reduce((product, length) => product * length, 1);
  const sums = new Float64Array(grid[axis]);
  for (let site = 0; site < values.length; site++) {
    const x = values[site];
    if (x === x) sums[Math.floor(site / inner) % grid[axis]] += x * x;
  }
  return sums.indexOf(Math.max(...sums));
}

// Where a volume holds most squares within two voxels, nearer ones counting more: one loud voxel does not decide.
function centre(values, grid) {
  let sums = Float32Array.from(values, (x) => (x === x ? x * x : 0));
  for (let axis = 0; axis < 3; axis++) {
    const inner = grid.slice(axis + 1).reduce((product, length) => product * length, 1);
    const next = new Float32Array(sums.length);
    for (let site = 0; site < sums.length; site++) {
      const at = Math.floor(site / inner) % grid[axis];
      for (let by = Math.max(-2, -at); by <= Math.min(2, grid[axis] - 1 - at); by++) next[site] += (3 - Math.abs(by)) * sums[site + by * inner];
    }
    sums = next;
  }
  let best = 0;
  const isBetter = (site) => sums[site] > sums[best] || (sums[site] === sums[best] && Math.abs(values[site]) > Math.abs(values[best]));
  for (let site = 0; site < sums.length; site++) if (isBetter(site)) best = site;
  return [Math.floor(best / (grid[1] * grid[2])), Math.floor(best / grid[2]) % grid[1], best % grid[2]];
}

// The two axes of a picture and which way they run.
function viewOf(grid) {
  const axes = page.data.axes;
  const isTurned = (axis) => {
    const one = axes?.[axis];
    if (!one || one.first === null) return false;
    const name = one.name.toLowerCase();
    if (["lat", "latitude", "north", "northing"].includes(name)) return one.first < one.last;
    return ["lon", "longitude", "east", "easting"].includes(name) && one.first > one.last;
  };
  const down = grid.length - 2;
  return { down, across: down + 1, turnDown: isTurned(down), turnAcross: isTurned(down + 1) };
}

// Where a site lies along an axis: in its own numbers where they are known, else counted from 0.
function placeAt(axis, index) {
  const [one, n] = [page.data.axes?.[axis], page.data.grid[axis]];
  // Of sites that are shown as one, the first.
  if (!one || one.first === null) return index * page.data.every;
  return n > 1 ? one.first + (index * (one.last - one.first)) / (n - 1) : one.first;
}

// What a coordinate of an axis is called.
function placeName(axis, index) {
  const one = page.data.axes?.[axis];
  return one ? `${one.name} ${figure(placeAt(axis, index), 4)}` : String(index);
}

// Draws the picture at some place of the leading axes into a canvas, a pixel a site.
function drawPicture(canvas, values, grid, leading, shown) {
  const view = viewOf(grid);
  const [rows, columns] = [grid[view.down], grid[view.across]];
  let start = 0;
  for (let axis = 0; axis < view.down; axis++) start = start * grid[axis] + leading[axis];
  start *= rows * columns;
  canvas.width = columns;
  canvas.height = rows;
  const ctx = canvas.getContext("2d");
  const image = ctx.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = start + (view.turnDown ? rows - 1 - row : row) * columns + (view.turnAcross ? columns - 1 - column : column);
      const [red, green, blue] = colourOf(values[from], shown);
      image.data.set([red, green, blue, 255], 4 * (row * columns + column));
    }
  }
  ctx.putImageData(image, 0, 0);
}

// A line over a one-dimensional grid, with a band of two standard deviations where they are known.
function drawCurve(canvas, values, sds, [width, height] = [Math.min(560, Math.max(280, innerWidth - 30)), 220]) {
  const ratio = devicePixelRatio || 1;
  const small = width < 200;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  // A pixel a pixel: letters that are stretched are blurred.
  if (!small) canvas.style.width = `${width}px`;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.fillStyle = inkOf("--paper");
  ctx.fillRect(0, 0, width, height);
  const [left, bottom] = small ? [2, height - 2] : [58, height - 20];
  const reach = (at, sign) => values[at] + sign * 2 * (sds?.[at] || 0);
  const sites = [...values.keys()].filter((at) => isFinite(values[at]));
  let [low, high] = [0, 0];
  for (const at of sites) [low, high] = [Math.min(low, reach(at, -1)), Math.max(high, reach(at, 1))];
  if (low === high) high = low + 1;
  const x = (at) => left + ((at + 0.5) / values.length) * (width - left - 4);
  const y = (value) => 4 + ((high - value) / (high - low)) * (bottom - 8);
  if (sds) {
    ctx.fillStyle = inkOf("--band");
    ctx.beginPath();
    sites.forEach((at) => ctx.lineTo(x(at), y(reach(at, 1))));
    [...sites].reverse().forEach((at) => ctx.lineTo(x(at), y(reach(at, -1))));
    ctx.fill();
  }
  ctx.strokeStyle = inkOf("--line");
  ctx.beginPath();
  ctx.moveTo(left, y(0));
  ctx.lineTo(width - 4, y(0));
  ctx.stroke();
  ctx.strokeStyle = inkOf("--accent");
  ctx.lineWidth = 1.6;
  ctx.beginPath();
  let isDown = false;
  values.forEach((value, at) => {
    if (!isFinite(value)) { isDown = false; return; }
    if (isDown) ctx.lineTo(x(at), y(value));
    else ctx.moveTo(x(at), y(value));
    isDown = true;
  });
  ctx.stroke();
  if (small) return;
  ctx.fillStyle = inkOf("--quiet");
  ctx.font = "11px system-ui, sans-serif";
  ctx.textAlign = "right";
  ctx.fillText(figure(high), left - 4, 14);
  ctx.fillText(figure(low), left - 4, bottom - 2);
  ctx.textAlign = "left";
  ctx.fillText(placeName(0, 0), left, height - 5);
  ctx.textAlign = "right";
  ctx.fillText(placeName(0, values.length - 1), width - 4, height - 5);
}

// How a kind of map of a feature is shown.
function lookOf(values, kind) {
  const shown = look(values);
  if (kind === "exceedance") return { ...shown, limit: 1, largest: 1, oneSided: true };
  if (kind === "sd") shown.oneSided = true;
  return shown;
}

// A small picture of a feature, drawn when it is scrolled to.
function drawThumbnail(canvas, feature) {
  const { grid, affine } = page.data;
  const values = mapOf(feature, "mean");
  if (!values) return;
  if (affine) return drawBrainThumbnail(canvas, values, grid, feature);
  if (grid.length === 1) return drawCurve(canvas, values, null, [150, 90]);
  const leading = grid.slice(0, -2).map((_, axis) => fullest(values, grid, axis));
  drawPicture(canvas, values, grid, leading, look(values));
}

// Where the map of a feature is largest, in words.
function peakWords(feature) {
  const values = mapOf(feature, "mean");
  if (!values) return "";
  let best = -1;
  for (let site = 0; site < values.length; site++) if (best < 0 || Math.abs(values[site]) > Math.abs(values[best]) || Number.isNaN(values[best])) best = site;
  const { grid, affine } = page.data;
  const index = grid.map(() => 0);
  for (let axis = grid.length - 1, rest = best; axis >= 0; axis--) { index[axis] = rest % grid[axis]; rest = Math.floor(rest / grid[axis]); }
  const place = affine ? toWorld(index).map((x) => Math.round(x)).join(", ") + " mm" : index.map((at, axis) => placeName(axis, at)).join(", ");
  return `largest at ${place}`;
}

// All maps of a feature side by side, with sliders for axes that a picture does not show.
function mapPanels(feature) {
  const { grid } = page.data;
  const panels = el("div", { class: "maps" });
  const kinds = feature.maps.map((map) => map.kind);
  if (grid.length === 1) {
    const canvas = el("canvas", { role: "img", class: "curve", "aria-label": `Feature ${feature.id} along its axis; ${peakWords(feature)}` });
    drawCurve(canvas, mapOf(feature, "mean"), mapOf(feature, "sd"));
    const note = kinds.includes("sd") ? "mean, and a band of two posterior standard deviations" : "mean";
    return el("div", { class: "maps" }, el("figure", { class: "wide" }, canvas, el("figcaption", {}, note)));
  }
  const leading = grid.slice(0, -2).map((_, axis) => fullest(mapOf(feature, "mean"), grid, axis));
  const draw = [];
  for (const kind of kinds) {
    const values = mapOf(feature, kind);
    const shown = lookOf(values, kind);
    const canvas = el("canvas", { role: "img", class: "map", "data-kind": kind, "aria-label": `Feature ${feature.id}: ${KINDS[kind].about}; ${peakWords(feature)}` });
    const readout = el("output", {}, "");
    canvas.addEventListener("pointermove", (event) => readout.replaceChildren(readAt(canvas, event, values, grid, leading)));
    canvas.addEventListener("pointerleave", () => readout.replaceChildren(""));
    draw.push(() => drawPicture(canvas, values, grid, leading, shown));
    const about = kind === "exceedance" ? `probability of at least ${figure(page.data.features.exceed)} mean absolute values` : KINDS[kind].about;
    panels.append(el("figure", {}, canvas, colourBar(shown), el("figcaption", {}, el("b", {}, KINDS[kind].name), ` ${about} `, readout)));
  }
  const redraw = () => draw.forEach((one) => one());
  redraw();
  const sliders = leading.map((start, axis) => {
    const said = el("output", {}, placeName(axis, start));
    const name = page.data.axes?.[axis]?.name ?? `axis ${axis + 1}`;
    const input = el("input", { type: "range", min: 0, max: grid[axis] - 1, value: start, "aria-label": name, "data-axis": axis, oninput: () => {
      leading[axis] = Number(input.value);
      said.replaceChildren(placeName(axis, leading[axis]));
      redraw();
    } });
    return labelled(name, el("span", {}, input, said));
  });
  return sliders.length ? el("div", {}, el("div", { class: "controls" }, sliders), panels) : panels;
}

function readAt(canvas, event, values, grid, leading) {
  const view = viewOf(grid);
  const box = canvas.getBoundingClientRect();
  const clamp = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
  let row = clamp((event.clientY - box.top) / box.height, grid[view.down]);
  let column = clamp((event.clientX - box.left) / box.width, grid[view.across]);
  if (view.turnDown) row = grid[view.down] - 1 - row;
  if (view.turnAcross) column = grid[view.across] - 1 - column;
  let at = 0;
  leading.forEach((index, axis) => { at = at * grid[axis] + index; });
  at = (at * grid[view.down] + row) * grid[view.across] + column;
  return `${placeName(view.down, row)}, ${placeName(view.across, column)}: ${figure(values[at])}`;
}
