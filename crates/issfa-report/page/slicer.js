// Volumes over the anatomy: three planes through one place, moved by dragging, wheel and keys.

// Axes of the page's volumes run to the right, to the front and up.
const PLANES = [
  { name: "axial", across: 0, up: 1, through: 2, ends: ["L", "R", "P", "A"] },
  { name: "sagittal", across: 1, up: 2, through: 0, ends: ["P", "A", "I", "S"] },
  { name: "coronal", across: 0, up: 2, through: 1, ends: ["L", "R", "I", "S"] },
];

const edgeOf = (axis) => Math.hypot(...page.data.affine.map((line) => line[axis]));
const toWorld = (index) => page.data.affine.map((line) => line[0] * index[0] + line[1] * index[1] + line[2] * index[2] + line[3]);

// The place that is nearest to millimetres, inside of the volume.
function toIndex(world) {
  const a = page.data.affine;
  const det = (m) => m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
  const square = a.map((line) => line.slice(0, 3));
  const right = world.map((x, line) => x - a[line][3]);
  const whole = det(square);
  return [0, 1, 2].map((axis) => {
    const part = det(square.map((line, at) => line.map((x, column) => (column === axis ? right[at] : x)))) / whole;
    return Math.min(page.data.grid[axis] - 1, Math.max(0, Math.round(part)));
  });
}

// The planes that show something: a single slice has one.
function planesOf(grid) {
  const planes = PLANES.filter((plane) => grid[plane.across] > 1 && grid[plane.up] > 1);
  return planes.length ? planes : [PLANES[0]];
}

const siteOf = (grid, [x, y, z]) => (x * grid[1] + y) * grid[2] + z;

// Paints a plane through a place, a few pixels a voxel: anatomy in grey, and the map where it is large.
function paintPlane(plane, place, values, shown, threshold, times) {
  const { grid, anatomy } = page.data;
  const ground = anatomy ? (page.ground ??= bytes(anatomy.blob)) : null;
  const finer = anatomy ? anatomy.grid[0] / grid[0] : 1;
  const step = Math.max(1, Math.round(finer * Math.max(1, times / finer)));
  const [width, height] = [grid[plane.across] * step, grid[plane.up] * step];
  const image = new ImageData(width, height);
  const index = [...place];
  const fine = [0, 0, 0];
  fine[plane.through] = Math.floor((place[plane.through] + 0.5) * finer);
  for (let row = 0; row < height; row++) {
    index[plane.up] = grid[plane.up] - 1 - Math.floor(row / step);
    fine[plane.up] = Math.floor(((height - 1 - row) * finer) / step);
    for (let column = 0; column < width; column++) {
      index[plane.across] = Math.floor(column / step);
      fine[plane.across] = Math.floor((column * finer) / step);
      const value = values[siteOf(grid, index)];
      let colour;
      if (value === value && Math.abs(value) >= threshold && value !== 0) colour = overlay(value, shown, threshold);
      else if (ground) { const grey = ground[siteOf(anatomy.grid, fine)]; colour = [grey, grey, grey]; } else colour = value === value ? [235, 235, 235] : MISSING;
      image.data.set([colour[0], colour[1], colour[2], 255], 4 * (row * width + column));
    }
  }
  return image;
}

function overlay(value, shown, threshold) {
  const share = (Math.abs(value) - threshold) / Math.max(1e-12, shown.limit - threshold);
  return pick(value > 0 ? HOT : COLD, 0.15 + 0.85 * share);
}

function drawBrainThumbnail(canvas, values, grid, feature) {
  const plane = planesOf(grid)[0];
  const place = centre(values, grid);
  const image = paintPlane(plane, place, values, look(values), feature.threshold, 1);
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.style.aspectRatio = `${grid[plane.across] * edgeOf(plane.across)} / ${grid[plane.up] * edgeOf(plane.up)}`;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

const usualThreshold = (feature, kind, shown) => ({ mean: feature.threshold, sd: 0, exceedance: 0.5, z: Math.min(3, 0.5 * shown.limit) })[kind];

// A slicer of a feature's maps.
function slicer(feature) {
  const { grid } = page.data;
  const planes = planesOf(grid);
  const state = { kind: "mean", place: centre(mapOf(feature, "mean"), grid) };
  const canvases = planes.map((plane) => el("canvas", { class: "plane", tabindex: 0, role: "img", "data-plane": plane.name }));
  const value = el("output", { class: "value" });
  const threshold = el("input", { type: "range", min: 0, step: "any", "aria-label": "threshold", class: "threshold" });
  const said = el("output", {});
  const bar = el("div", {});
  const millimetres = [0, 1, 2].map((axis) => el("input", { type: "number", step: "any", "aria-label": `${"xyz"[axis]} in mm`, onchange: () => {
    state.place = toIndex(millimetres.map((input) => Number(input.value)));
    draw();
  } }));
  const kinds = el("select", { "aria-label": "map", onchange: () => { state.kind = kinds.value; choose(); } }, feature.maps.map((map) => el("option", { value: map.kind }, KINDS[map.kind].name)));
  function choose() {
    state.values = mapOf(feature, state.kind);
    state.shown = { ...lookOf(state.values, state.kind), over: true };
    threshold.max = state.shown.limit;
    threshold.value = Math.min(state.shown.limit, usualThreshold(feature, state.kind, state.shown));
    draw();
  }
  function draw() {
    const least = Number(threshold.value);
    planes.forEach((plane, at) => drawPlane(canvases[at], plane, state, least, feature));
    const world = toWorld(state.place);
    millimetres.forEach((input, axis) => { input.value = Number(world[axis].toFixed(1)); });
    value.replaceChildren(`${KINDS[state.kind].name} there: ${figure(state.values[siteOf(grid, state.place)])}`);
    said.replaceChildren(figure(least));
    fill(bar, colourBar({ ...state.shown, from: least }));
  }
  threshold.addEventListener("input", draw);
  planes.forEach((plane, at) => steer(canvases[at], plane, state, draw));
  choose();
  const figures = planes.map((plane, at) => el("figure", { style: `flex:${grid[plane.across] * edgeOf(plane.across)} 1 0` }, canvases[at], el("figcaption", {}, plane.name)));
  return el("div", { class: "slicer" },
    el("div", { class: "controls" }, feature.maps.length > 1 ? labelled("map", kinds) : null, labelled("threshold", el("span", {}, threshold, said)),
      el("span", { class: "control" }, el("span", {}, "x, y, z in mm"), millimetres), value),
    el("div", { class: "planes" }, figures), bar,
    el("p", { class: "hint" }, "Drag or click to move, wheel or Page Up and Page Down to go through, arrows to step. ", page.data.anatomy ? `Ground: ${page.data.anatomy.name}. ` : "", "Right is right."));
}

function drawPlane(canvas, plane, state, threshold, feature) {
  const { grid } = page.data;
  const times = Math.max(1, Math.ceil(300 / Math.max(grid[plane.across], grid[plane.up])));
  const image = paintPlane(plane, state.place, state.values, state.shown, threshold, times);
  canvas.width = image.width;
  canvas.height = image.height;
  canvas.style.aspectRatio = `${grid[plane.across] * edgeOf(plane.across)} / ${grid[plane.up] * edgeOf(plane.up)}`;
  const ctx = canvas.getContext("2d");
  ctx.putImageData(image, 0, 0);
  const [x, y] = [((state.place[plane.across] + 0.5) / grid[plane.across]) * canvas.width, (1 - (state.place[plane.up] + 0.5) / grid[plane.up]) * canvas.height];
  ctx.strokeStyle = "rgba(120,255,160,.75)";
  ctx.lineWidth = Math.max(1, canvas.width / 300);
  // Broken at the place itself, so that it can be seen.
  const gap = canvas.width / 28;
  for (const [from, to] of [[[0, y], [x - gap, y]], [[x + gap, y], [canvas.width, y]], [[x, 0], [x, y - gap]], [[x, y + gap], [x, canvas.height]]]) {
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
  }
  drawEnds(ctx, plane.ends, canvas);
  const world = toWorld(state.place).map((one) => Math.round(one));
  canvas.setAttribute("aria-label", `Feature ${feature.id}, ${plane.name} plane through ${world.join(", ")} mm, values of at least ${figure(threshold)}`);
}

function drawEnds(ctx, [left, right, low, high], canvas) {
  const size = Math.max(11, Math.round(canvas.width / 24));
  ctx.font = `bold ${size}px system-ui, sans-serif`;
  ctx.textBaseline = "middle";
  const put = (text, x, y, align) => {
    ctx.textAlign = align;
    ctx.lineWidth = 3;
    ctx.strokeStyle = "rgba(0,0,0,.7)";
    ctx.strokeText(text, x, y);
    ctx.fillStyle = "#fff";
    ctx.fillText(text, x, y);
  };
  put(left, 3, canvas.height / 2, "left");
  put(right, canvas.width - 3, canvas.height / 2, "right");
  put(high, canvas.width / 2, size / 2 + 2, "center");
  put(low, canvas.width / 2, canvas.height - size / 2 - 2, "center");
}

// Pointer, wheel and keys.
function steer(canvas, plane, state, draw) {
  const { grid } = page.data;
  const move = (axis, by) => { state.place[axis] = Math.min(grid[axis] - 1, Math.max(0, state.place[axis] + by)); draw(); };
  const follow = (event) => {
    const box = canvas.getBoundingClientRect();
    const clamp = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
    state.place[plane.across] = clamp((event.clientX - box.left) / box.width, grid[plane.across]);
    state.place[plane.up] = clamp(1 - (event.clientY - box.top) / box.height, grid[plane.up]);
    draw();
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); follow(event); });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) follow(event); });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); move(plane.through, event.deltaY > 0 ? -1 : 1); }, { passive: false });
  const keys = { ArrowLeft: [plane.across, -1], ArrowRight: [plane.across, 1], ArrowUp: [plane.up, 1], ArrowDown: [plane.up, -1], PageUp: [plane.through, 1], PageDown: [plane.through, -1] };
  canvas.addEventListener("keydown", (event) => {
    if (!keys[event.key]) return;
    event.preventDefault();
    event.stopPropagation();
    move(...keys[event.key]);
  });
}
