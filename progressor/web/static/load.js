// The charts of the load: they zoom together, and a refresh leaves the zoom as it is. The table says it without them.

const MINUTE = 60;
const DAY = 86400;
// Steps of the two axes: seconds, and counts.
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720].map((minutes) => minutes * MINUTE);
const COUNTS = [...Array(15).keys()].flatMap((power) => [1, 2, 5].map((count) => count * 10 ** power));

const charts = new Map();
// The seconds that are shown, or null for all.
let zoom = null;
let offsets = [];

// The server knows the zone of the page: a time is shifted by what it says, and then read as UTC.
function shifted(time) {
  const [, offset] = offsets.findLast(([since]) => since <= time) ?? offsets[0];
  return time + offset;
}

function clock(time) {
  return new Date(shifted(time) * 1000).toISOString().slice(11, 16);
}

function day(time) {
  return new Date(shifted(time) * 1000).toISOString().slice(5, 10);
}

function ticks(chart, axis, from, to, step) {
  const ahead = shifted(from) - from;
  const first = Math.ceil((from + ahead) / step) * step - ahead;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, place) => first + place * step);
}

function colour(name) {
  return () => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function readThere(chart) {
  const place = chart.cursor.idx;
  const value = place === null || place === undefined ? null : chart.data[1][place];
  const text = value === null || value === undefined ? "" : `${clock(chart.data[0][place])}: ${value.toLocaleString("en")}`;
  chart.root.closest("figure").querySelector(".there").textContent = text;
}

function noteZoom(chart, scale) {
  const { min, max } = chart.scales.x;
  const times = chart.data[0];
  if (scale === "x") {
    zoom = min <= times[0] && max >= times.at(-1) ? null : { min, max };
  }
}

function made(element, data) {
  const axis = { stroke: colour("--aside"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const options = {
    ...size(element),
    legend: { show: false },
    cursor: { y: false, drag: { x: true, y: false }, sync: { key: "load", setSeries: false } },
    scales: { x: { time: false }, y: { range: (chart, least, most) => [0, Math.max(most, 1) * 1.05] } },
    series: [{}, { stroke: colour("--accent"), width: 1.5, points: { show: false } }],
    axes: [
      { ...axis, incrs: TIMES, space: 60, size: 30, splits: ticks, values: (_, times) => times.map((time) => (shifted(time) % DAY ? clock(time) : day(time))) },
      { ...axis, incrs: COUNTS, size: 64, values: (_, counts) => counts.map((count) => count.toLocaleString("en")) },
    ],
    hooks: { setCursor: [readThere], setScale: [noteZoom] },
  };
  return new uPlot(options, data, element);
}

function size(element) {
  return { width: element.clientWidth, height: 160 };
}

function draw() {
  for (const [element, chart] of charts) {
    if (!element.isConnected) {
      chart.destroy();
      charts.delete(element);
    }
  }
  const box = document.getElementById("charts");
  if (box === null) {
    return;
  }
  offsets = JSON.parse(box.dataset.offsets);
  const kept = zoom;
  for (const element of box.querySelectorAll(".chart")) {
    const values = JSON.parse(element.dataset.values);
    const data = [values.map((_, minute) => Number(box.dataset.first) + minute * MINUTE), values];
    if (charts.has(element)) {
      const chart = charts.get(element);
      chart.setData(data);
      show(chart, kept);
      readThere(chart);
    } else {
      charts.set(element, made(element, data));
      sizes.observe(element);
    }
  }
}

function show(chart, span) {
  const times = chart.data[0];
  chart.setScale("x", span ?? { min: times[0], max: times.at(-1) });
}

const moves = {
  closer: ({ min, max }) => ({ min: min + (max - min) / 4, max: max - (max - min) / 4 }),
  earlier: ({ min, max }) => ({ min: min - (max - min) / 2, max: min + (max - min) / 2 }),
  later: ({ min, max }) => ({ min: min + (max - min) / 2, max: max + (max - min) / 2 }),
  all: () => null,
};

// What is shown lies in what there is, and is five minutes at least.
function bounded(span, times) {
  const [first, last] = [times[0], times.at(-1)];
  const length = Math.min(Math.max(span.max - span.min, 5 * MINUTE), last - first);
  const min = Math.min(Math.max(span.min, first), last - length);
  return { min, max: min + length };
}

document.addEventListener("click", (event) => {
  const move = event.target.closest(".zoom button")?.value;
  if (move !== undefined) {
    const [{ data: [times], scales: { x } }] = charts.values();
    const span = moves[move](x);
    charts.forEach((chart) => show(chart, span && bounded(span, times)));
  }
});

const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => charts.get(target)?.setSize(size(target))));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.redraw()));
document.addEventListener("htmx:afterSwap", draw);
draw();
