// Elements, arrays and numbers: what everything else on the page is made with.
"use strict";

// What the page shows: its data, and where arrays come from when they are not part of the page.
const page = { data: null, arrays: null };

// An element with attributes and children. Strings become text, never markup.
function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const byId = (id) => document.getElementById(id);

// Puts children in the place of what an element holds.
function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// The bytes of an array by its name.
function bytes(name) {
  const text = page.arrays ? page.arrays[name] : byId("blob-" + name)?.textContent;
  if (!text) return new Uint8Array(0);
  const binary = atob(text);
  const result = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) result[at] = binary.charCodeAt(at);
  return result;
}

function floats(name) {
  const raw = bytes(name);
  return new Float32Array(raw.buffer, 0, raw.length >> 2);
}

// What codes stand for: sizes go with the square of a code's distance from 0, and code 0 is no number.
const SIGNED = Float32Array.from({ length: 256 }, (_, code) => {
  const part = (code - 128) / 127;
  return code === 0 ? NaN : part * Math.abs(part);
});
const UNSIGNED = Float32Array.from({ length: 256 }, (_, code) => (code === 0 ? NaN : ((code - 1) / 254) ** 2));

function decoded(name, scale, table) {
  return Float32Array.from(bytes(name), (code) => table[code] * scale);
}

// Values of the sites that take part, on the whole grid; NaN elsewhere.
function onGrid(inside) {
  const { grid, mask } = page.data;
  if (!mask) return inside;
  const n = grid.reduce((product, length) => product * length, 1);
  const bits = (page.maskBits ??= bytes(mask));
  const values = new Float32Array(n).fill(NaN);
  let at = 0;
  for (let site = 0; site < n; site++) if ((bits[site >> 3] >> (site & 7)) & 1) values[site] = inside[at++];
  return values;
}

// A number to a few digits.
function figure(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-3) return x.toExponential(digits - 1).replace("e+", "e");
  return String(Number(x.toPrecision(digits)));
}

const percent = (x, digits = 3) => (x === null ? "–" : figure(100 * x, digits) + "%");

// A button, or a control with its label.
function labelled(text, control) {
  return el("label", { class: "control" }, el("span", {}, text), control);
}

const isFinite = Number.isFinite;
