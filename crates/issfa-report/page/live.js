// A page over a run that goes on: rows of the trace and news come as events, features when there is a new checkpoint.

const live = { tables: new Map(), version: 0, shown: 0, isBusy: false, drawn: 0, state: null, wait: 700 };

function beginLive(name) {
  page.data = null;
  fill(byId("title"), name);
  say("Waiting for the run …", "waiting");
  const events = new EventSource("events");
  events.addEventListener("reset", () => live.tables.clear());
  events.addEventListener("trace", (event) => { addRows(JSON.parse(event.data)); showLiveTraces(); });
  events.addEventListener("status", (event) => showStatus(JSON.parse(event.data)));
  events.addEventListener("version", (event) => { live.version = Number(event.data); fetchData(); });
  events.onerror = () => say("issfa watch does not answer any more; what it said last is below.", "stopped");
}

function say(text, state) {
  const status = byId("status");
  status.hidden = false;
  status.dataset.state = state;
  fill(status, text);
}

function showStatus(status) {
  const chain = status.chains > 1 ? `chain ${status.chain} of ${status.chains}, ` : "";
  document.documentElement.dataset.sweep = status.sweep ?? "";
  const texts = {
    waiting: () => "Waiting for the run …",
    running: () => `Running: ${chain}sweep ${status.sweep} of ${status.planned}${status.sweep <= status.burn_in ? " (burn-in)" : ""}, by ${status.by}`,
    finishing: () => `All ${status.planned} sweeps are done; results are being written, by ${status.by}`,
    finished: () => `Finished: ${status.planned} sweeps`,
    stopped: () => `Stopped at ${chain}sweep ${status.sweep} of ${status.planned}, resume with ${status.resume}` + (of_known(status.checkpoint) && status.checkpoint < status.sweep ? ` (goes on from sweep ${status.checkpoint}, with the same numbers)` : ""),
  };
  const damage = (status.damage ?? []).map((line) => ` Damaged: ${line}.`).join("");
  say(texts[status.state]() + damage, status.state);
  const isOther = live.state !== status.state;
  live.state = status.state;
  if (isOther && page.data) showHeadline();
}

function addRows(rows) {
  for (const [chain, [sweep, ...values]] of rows) {
    if (!live.tables.has(chain)) live.tables.set(chain, { sweeps: [], panels: values.map(() => []) });
    const table = live.tables.get(chain);
    table.sweeps.push(sweep);
    values.forEach((value, panel) => table.panels[panel]?.push(value));
  }
}

// At most a few times a second.
function showLiveTraces() {
  if (!page.data || live.timer) return;
  live.timer = setTimeout(() => {
    live.timer = null;
    live.drawn = performance.now();
    showTraces([...live.tables.keys()].sort((a, b) => a - b).map((chain) => live.tables.get(chain)));
    tidyCharts();
    const last = Math.max(...[...live.tables.values()].map((table) => table.sweeps[table.sweeps.length - 1]));
    document.documentElement.dataset.drawnSweep = last;
  }, Math.max(0, 400 - (performance.now() - live.drawn)));
}

async function fetchData() {
  if (live.isBusy) return;
  live.isBusy = true;
  try {
    const answer = await fetch("data.json");
    const found = await answer.json();
    if (answer.ok) {
      page.data = found.data;
      page.arrays = found.arrays;
      page.maskBits = page.ground = undefined;
      decodedMaps.clear();
      live.shown = found.version;
      showAll(true);
      showLiveTraces();
      live.wait = 700;
    } else if (!page.data) fill(byId("headline"), el("p", { class: "doubt" }, found.problem));
  } catch { /* The events say so if nobody answers. */ }
  live.isBusy = false;
  // A run that is just being written may not be readable yet; one that is damaged never will be.
  if (live.shown < live.version) setTimeout(fetchData, live.wait);
  live.wait = Math.min(20000, 1.5 * live.wait);
}
