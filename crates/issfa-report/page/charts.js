// Lines (by uPlot, zoomed by dragging, back by a double click) and bars.

const inkOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const charts = new Set();

// Whether a scale by orders of magnitude says more.
function wantsLog(low, high) {
  return low > 0 && high / low > 30;
}

// Steps of what can only be whole: there is no rank, row or number of features between two.
const WHOLE = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3));
const isWhole = (values) => values.every((value) => value === null || (Number.isInteger(value) && Math.abs(value) < 1e9));

// A tick with as many digits as tell it from its neighbours.
function tickLabel(tick, step, log) {
  if (log || tick === 0 || !step) return figure(tick);
  const power = Math.floor(Math.log10(step) + 1e-9);
  // Steps of 2.5 have a digit more.
  const more = Math.abs(Math.round(step / 10 ** power) - step / 10 ** power) > 1e-6 ? 2 : 1;
  return figure(tick, Math.max(1, Math.min(9, Math.floor(Math.log10(Math.abs(tick)) + 1e-9) - power + more)));
}

// Ends of a scale that can be told apart, or that are powers of ten which charts are made for.
function withinReach([low, high], log) {
  if (log) {
    const [first, last] = [Math.min(Math.max(low, 1e-20), 1e19), Math.min(high, 1e20)];
    return [first, last > first ? last : 10 * first];
  }
  const more = Math.max(0, 1e-9 * Math.max(Math.abs(low), Math.abs(high)) - (high - low)) / 2;
  return [low - more, high + more];
}

// Ticks of a scale by orders of magnitude: 1, 2, ... 9 of each. (uPlot adds up steps, and never ends from some ends on: 0.0098.)
function logTicks(low, high) {
  const ticks = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) {
    for (let first = 1; first < 10; first++) ticks.push(Number(`${first}e${power}`));
  }
  return ticks.filter((tick) => low <= tick && tick <= high);
}

// Room for the longest label; panels beside each other are alike where labels are short.
const widthOfLabels = (_, labels) => Math.max(68, 18 + 7 * Math.max(0, ...(labels ?? []).map((text) => text.length)));

// Lines over one x: series are {name, values, colour, dash, fill, scale, points}; marks are {at, label}.
function lineChart(host, { x, series, marks = [], height = 150, log = false, range = null, xLabel = "", xName = xLabel || "x", yLabel = "", second = false, logX = false, label }) {
  const clean = (values) => Array.from(values, (value) => (isFinite(value) ? value : null));
  const data = [Array.from(x), ...series.map((one) => clean(one.values))];
  const ends = range || (log ? (_, low, high) => uPlot.rangeLog(low, high, 10, false) : null);
  const scale = ends ? { range: (...asked) => withinReach(ends(...asked), log) } : {};
  const steps = (values, log) => (log ? { splits: (_, axis, low, high) => logTicks(low, high) } : isWhole(values) ? { incrs: WHOLE } : {});
  const axis = { stroke: inkOf("--quiet"), grid: { stroke: inkOf("--line"), width: 1 }, ticks: { stroke: inkOf("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
  const options = {
    width: Math.max(200, host.clientWidth || 600), height,
    legend: { show: series.length > 1, live: true },
    cursor: { points: { size: 5 } },
    scales: { x: { time: false, distr: logX ? 3 : 1 }, y: { distr: log ? 3 : 1, ...scale }, ...(second ? { second: { range: [0, 1] } } : {}) },
    axes: [{ ...axis, label: xLabel || undefined, labelSize: 16, size: xLabel ? 30 : 26, labelFont: axis.font, space: 60, ...steps(data[0], logX) },
      { ...axis, size: widthOfLabels, space: height < 160 ? 18 : 30, ...steps(data.slice(1).flat(), log), label: yLabel || undefined, labelSize: 14, labelFont: axis.font, values: (_, ticks, axis, space, step) => ticks.map((tick) => (tick === null ? "" : tickLabel(tick, step, log))) }],
    series: [{ label: xName }, ...series.map((one, at) => ({
      label: one.name, stroke: one.colour || (at ? PALETTE[at % PALETTE.length] : inkOf("--accent")), width: one.width ?? 1.25, dash: one.dash, fill: one.fill, scale: one.scale || "y",
      points: { show: one.points ?? false, size: 4 }, value: (_, value) => figure(value), spanGaps: false,
    }))],
    hooks: { draw: [(plot) => drawMarks(plot, marks)] },
  };
  const plot = new uPlot(options, data, host);
  host.setAttribute("role", "img");
  host.setAttribute("aria-label", label || series.map((one) => one.name).join(", "));
  plot.host = host;
  charts.add(plot);
  return plot;
}

function drawMarks(plot, marks) {
  const { ctx } = plot;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = inkOf("--quiet");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  for (const mark of marks) {
    const place = Math.round(plot.valToPos(mark.at, mark.level ? "y" : "x", true));
    const { left, top, width, height } = plot.bbox;
    if (mark.level ? place < top || place > top + height : place < left || place > left + width) continue;
    ctx.beginPath();
    if (mark.level) { ctx.moveTo(left, place); ctx.lineTo(left + width, place); } else { ctx.moveTo(place, top); ctx.lineTo(place, top + height); }
    ctx.stroke();
    const nearEnd = !mark.level && place > left + 0.8 * width;
    ctx.textAlign = nearEnd ? "right" : "left";
    ctx.fillText(mark.label, (mark.level ? left : place) + (nearEnd ? -4 : 4) * devicePixelRatio, (mark.level ? place - 4 * devicePixelRatio : top + 10 * devicePixelRatio));
  }
  ctx.restore();
}

// Takes charts away that are not part of the page any more, and fits the others to its width.
function tidyCharts() {
  for (const plot of charts) {
    if (!plot.host.isConnected) { plot.destroy(); charts.delete(plot); } else if (plot.host.clientWidth > 0 && Math.abs(plot.host.clientWidth - plot.width) > 1) {
      plot.setSize({ width: plot.host.clientWidth, height: plot.height });
    }
  }
}

// Bars of counts between edges, or over labels; drawn at the resolution of the screen.
function barChart({ counts, labels, low, high, width = 320, height = 120, colour = inkOf("--accent"), label, xLabel = "" }) {
  // Drawn for the page's width: made smaller afterwards its labels could not be read.
  width = Math.min(width, Math.max(240, document.documentElement.clientWidth - 32));
  const canvas = el("canvas", { role: "img", "aria-label": label, class: "chart", style: `max-width:${width}px` });
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const ctx = canvas.getContext("2d");
  ctx.scale(ratio, ratio);
  ctx.font = "11px system-ui, sans-serif";
  const most = Math.max(1e-12, ...counts);
  const [left, bottom] = [Math.max(34, ctx.measureText(figure(most)).width + 6), height - (xLabel ? 32 : 18)];
  const slot = (width - left - 6) / counts.length;
  ctx.fillStyle = inkOf("--quiet");
  ctx.textAlign = "right";
  ctx.fillText(figure(most), left - 4, 14);
  ctx.fillText("0", left - 4, bottom);
  ctx.fillRect(left, bottom, width - left - 6, 1);
  ctx.textAlign = "center";
  if (xLabel) ctx.fillText(xLabel, (left + width) / 2, height - 4);
  const every = labels ? Math.max(1, Math.ceil((Math.max(...labels.map((text) => text.length)) * 7 + 6) / slot)) : 0;
  labels?.forEach((text, at) => at % every === 0 && ctx.fillText(text, left + (at + 0.5) * slot, bottom + 13));
  if (!labels) {
    ctx.textAlign = "left";
    ctx.fillText(figure(low), left, bottom + 13);
    ctx.textAlign = "right";
    ctx.fillText(figure(high), width - 6, bottom + 13);
    const zero = (-low / (high - low)) * (width - left - 6);
    if (zero > 50 && zero < width - left - 50) {
      ctx.textAlign = "center";
      ctx.fillText("0", left + zero, bottom + 13);
    }
  }
  ctx.fillStyle = colour;
  counts.forEach((count, at) => {
    const tall = (count / most) * (bottom - 6);
    if (count > 0) ctx.fillRect(left + at * slot + 0.5, bottom - Math.max(1, tall), Math.max(1, slot - 1), Math.max(1, tall));
  });
  return canvas;
}
