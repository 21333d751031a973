// Colours that the colour-blind can tell apart: blue to red over white, violet to yellow, and what lies over an anatomy.

const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
// Where there are no data: darker than 0 is on either map, and grey as no value is.
const MISSING = [150, 150, 150];
const DIVERGING = ramp([[5, 48, 97], [33, 102, 172], [67, 147, 195], [146, 197, 222], [209, 229, 240], [255, 255, 255],
  [253, 219, 199], [244, 165, 130], [214, 96, 77], [178, 24, 43], [103, 0, 31]]);
const SEQUENTIAL = ramp([[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137],
  [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]]);
// Over grey: orange to yellow above 0, blue to light blue below.
const HOT = ramp([[176, 62, 0], [230, 120, 0], [255, 190, 30], [255, 250, 170]]);
const COLD = ramp([[0, 60, 160], [0, 114, 200], [60, 170, 240], [190, 235, 255]]);

// 255 colours between stops.
function ramp(stops) {
  return Array.from({ length: 255 }, (_, index) => {
    const place = (index / 254) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((from, channel) => Math.round(from + (place - low) * (stops[low + 1][channel] - from)));
  });
}

function pick(colours, fraction) {
  return colours[Math.round(254 * Math.min(1, Math.max(0, fraction)))];
}

// How values are shown: the limit that a few loud sites may exceed, and whether one sign is enough.
function look(values) {
  const sizes = Float32Array.from(values, Math.abs).filter((size) => size > 0).sort().reverse();
  const [largest, loud] = [sizes[0] ?? 0, Math.max(4, Math.floor(sizes.length / 500))];
  const limit = sizes.length >= 10 * loud ? Math.min(largest, 1.15 * sizes[loud]) : largest;
  let [positive, negative, hasMissing] = [0, 0, false];
  for (const x of values) {
    const square = Math.min(limit, Math.abs(x)) ** 2;
    if (x > 0) positive += square;
    else if (x < 0) negative += square;
    else if (Number.isNaN(x)) hasMissing = true;
  }
  return { limit: limit || 1, largest, oneSided: negative < 0.02 * positive, hasMissing };
}

function colourOf(value, shown) {
  if (Number.isNaN(value)) return MISSING;
  if (shown.oneSided) return pick(SEQUENTIAL, value / shown.limit);
  return pick(DIVERGING, 0.5 + value / (2 * shown.limit));
}

// A bar with its ends in numbers, and what grey is where there is some.
function colourBar(shown, unit = "") {
  const steps = (colours) => Array.from({ length: 21 }, (_, at) => `rgb(${pick(colours, at / 20).join()})`);
  const over = shown.oneSided ? steps(HOT) : [...steps(COLD).reverse(), ...steps(HOT)];
  const stops = shown.over ? over : steps(shown.oneSided ? SEQUENTIAL : DIVERGING);
  const more = shown.largest > 1.001 * shown.limit ? "≥ " : "";
  const low = shown.oneSided ? figure(shown.from ?? 0) : (more ? "≤ " : "") + figure(-shown.limit);
  const missing = shown.hasMissing && !shown.over ? [el("span", { class: "swatch", style: `background:rgb(${MISSING.join()})` }), el("span", {}, "no data")] : [];
  return el("div", { class: "bar", "aria-hidden": "true" },
    el("span", {}, low),
    el("span", { class: "ramp", style: `background:linear-gradient(to right,${stops.join()})` }),
    el("span", {}, more + figure(shown.limit) + unit), missing);
}
