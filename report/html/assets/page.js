"use strict";
// Draws the charts that the page's data describes. Everything it knows of a
// run is in that data; the tables of the page stand without it.
(() => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const byID = new Map(specs.map((s) => [s.id, s]));
  let plots = [];

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // figure writes a number as the tables do: three or four digits that count.
  function figure(v) {
    const a = Math.abs(v);
    if (a === 0) return "0";
    if (a < 0.0005 || a >= 1e9) return v.toExponential(2);
    const digits = Number.isInteger(v) ? 0 : a < 9.9995 ? 3 : a < 99.995 ? 2 : a < 999.95 ? 1 : 0;
    return v.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  // short writes a place on an axis.
  function short(v) {
    const a = Math.abs(v);
    if (a >= 1e9) return Number((v / 1e9).toPrecision(4)) + "G";
    if (a >= 1e6) return Number((v / 1e6).toPrecision(4)) + "M";
    if (a >= 1e4) return Number((v / 1e3).toPrecision(4)) + "k";
    return String(Number(v.toPrecision(6)));
  }

  function percentile(x) {
    const p = 100 * (1 - Math.pow(10, -x));
    return "p" + Number(p.toFixed(Math.max(0, Math.ceil(x) - 1)));
  }

  // text writes a value of an axis of any kind.
  function text(axis, v) {
    if (v == null) return "–";
    if (axis.kind === "percentile") return percentile(v);
    return figure(axis.kind === "log" ? Math.pow(10, v) : v) + (axis.unit ? " " + axis.unit : "");
  }

  // linearTicks are round values between two, about n of them.
  function linearTicks(min, max, n) {
    const rough = (max - min) / n, power = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const out = [];
    for (let k = Math.ceil(min / step - 1e-9); k * step <= max + step * 1e-9; k++) out.push(k * step);
    return out;
  }

  // ticks are the places of an axis that carry a label.
  function ticks(axis, min, max, n) {
    if (axis.kind === "percentile") {
      const all = [0, Math.log10(2)];
      for (let x = 1; x <= max + 1e-9; x++) all.push(x);
      return all.filter((x) => x >= min && x <= max + 1e-9);
    }
    if (axis.kind !== "log") return linearTicks(min, max, n);
    const low = Math.pow(10, min), high = Math.pow(10, max);
    if (high / low < 12) return linearTicks(low, high, n).filter((v) => v > 0).map(Math.log10);
    const out = [], steps = high / low < 300 ? [1, 2, 5] : [1];
    for (let e = Math.floor(min); e <= max; e++) {
      for (const s of steps) {
        const x = e + Math.log10(s);
        if (x >= min && x <= max) out.push(x);
      }
    }
    return out;
  }

  // rows joins the series into columns for uPlot: x, then a y for each series.
  // Points of different series share a row if they share x; several points of
  // one series at one x each have a row of their own.
  function rows(series) {
    const at = new Map();
    series.forEach((s, k) => s.x.forEach((x, i) => {
      const here = at.get(x) || [];
      at.set(x, here);
      let row = here.find((r) => r[k] === undefined);
      if (!row) here.push(row = new Array(series.length));
      row[k] = s.y[i];
    }));
    const xs = [...at.keys()].sort((a, b) => a - b), data = [[], ...series.map(() => [])];
    for (const x of xs) {
      for (const row of at.get(x)) {
        data[0].push(x);
        series.forEach((_, k) => data[k + 1].push(row[k]));
      }
    }
    return data;
  }

  function draw(place) {
    const spec = byID.get(place.dataset.chart);
    const data = rows(spec.series);
    let shown = 0, top = 0;
    for (const ys of data.slice(1)) {
      for (const y of ys) {
        if (y != null) { shown++; top = Math.max(top, y); }
      }
    }
    for (const s of spec.series) top = Math.max(top, ...(s.high || []));
    place.dataset.points = shown;
    const ink = color("--soft"), grid = color("--grid"), fade = (c) => c + "30";
    const xs = data[0];
    let low = spec.x.min ?? xs[0], high = spec.x.max ?? xs[xs.length - 1] * (spec.x.kind === "linear" ? 1.04 : 1);
    if (!(high > low)) { low -= 0.5; high = low + 1; }

    const axis = (a, size, space) => ({
      stroke: ink, size, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif",
      label: a.label, labelSize: 16, labelGap: 2, gap: 4,
      grid: { stroke: grid, width: 1 }, ticks: { show: false },
      splits: (u, side, min, max) => ticks(a, min, max, Math.max(2, Math.floor((side === 1 ? u.height : u.width) / space))),
      values: (u, splits) => splits.map((v) => a.kind === "percentile" ? percentile(v) : short(a.kind === "log" ? Math.pow(10, v) : v)),
    });

    const series = [{ label: spec.x.label === "time (s)" ? "at" : spec.x.label, value: (u, v) => text(spec.x, v) }];
    spec.series.forEach((s) => {
      const c = color("--c" + (s.color % 6));
      const one = { label: s.name, stroke: c, width: 1.6, spanGaps: true, points: { show: false }, value: (u, v) => text(spec.y, v) };
      switch (s.style) {
        case "bars":
          Object.assign(one, { fill: fade(c), width: 1, paths: uPlot.paths.bars({ size: [1, Infinity], gap: 1 }) });
          break;
        case "steps":
          one.paths = uPlot.paths.stepped({ align: 1 });
          break;
        case "dashed":
          one.dash = [6, 4];
          break;
        case "dots":
          Object.assign(one, { paths: () => null, width: 0, points: { show: true, size: 4, width: 0, stroke: fade(c), fill: c + "90" } });
          break;
        case "marks":
          Object.assign(one, { paths: () => null, width: 0, points: { show: true, size: 8, width: 0, stroke: c, fill: c } });
          break;
        case "dashed-rings":
          one.dash = [6, 4];
          // falls through
        case "rings":
          one.points = { show: true, size: 8, width: 2, stroke: c, fill: color("--page") };
          break;
        default:
          if (s.x.length === 1) one.points = { show: true, size: 6, fill: c };
      }
      series.push(one);
    });

    // under draws what lies under the series: bands, and lines across.
    const under = (u) => {
      const { left, top, width, height } = u.bbox;
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(left, top, width, height);
      u.ctx.clip();
      u.ctx.fillStyle = color("--window");
      if (spec.band) {
        const [from, to] = spec.band.map((v) => u.valToPos(v, "x", true));
        u.ctx.fillRect(from, top, to - from, height);
      }
      if (spec.shade) {
        const [low, high] = spec.shade.map((v) => u.valToPos(v, "y", true));
        u.ctx.fillRect(left, high, width, low - high);
      }
      u.ctx.strokeStyle = color("--c0");
      u.ctx.lineWidth = 1.6 * devicePixelRatio;
      u.ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
      for (const v of spec.levels || []) {
        const y = u.valToPos(v, "y", true);
        u.ctx.beginPath();
        u.ctx.moveTo(left, y);
        u.ctx.lineTo(left + width, y);
        u.ctx.stroke();
      }
      u.ctx.restore();
    };
    // beside draws what stands beside points: how far repeats lie apart, labels.
    const beside = (u) => {
      u.ctx.save();
      const shownSeries = spec.series.filter((t, k) => u.series[k + 1].show);
      u.ctx.lineWidth = 1.6 * devicePixelRatio;
      shownSeries.forEach((t) => (t.low || []).forEach((low, i) => {
        const x = u.valToPos(t.x[i], "x", true);
        u.ctx.strokeStyle = color("--c" + (t.color % 6));
        u.ctx.beginPath();
        u.ctx.moveTo(x, u.valToPos(low, "y", true));
        u.ctx.lineTo(x, u.valToPos(t.high[i], "y", true));
        u.ctx.stroke();
      }));
      u.ctx.strokeStyle = color("--page");
      u.ctx.lineWidth = 4 * devicePixelRatio;
      u.ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
      shownSeries.forEach((t, k) => (t.labels || []).forEach((l, i) => {
        u.ctx.fillStyle = spec.series.length > 1 ? color("--c" + (t.color % 6)) : ink;
        const x = u.valToPos(t.x[i], "x", true), right = x > u.bbox.left + u.bbox.width * 0.8;
        u.ctx.textAlign = right ? "right" : "left";
        const place = [l, x + (right ? -9 : 9) * devicePixelRatio, u.valToPos(t.y[i], "y", true) + (k % 2 ? 16 : -8) * devicePixelRatio];
        u.ctx.strokeText(...place);
        u.ctx.fillText(...place);
      }));
      u.ctx.restore();
    };

    const u = new uPlot({
      width: place.clientWidth || 600, height: spec.sync ? 190 : 230, padding: [10, 12, 0, 0],
      scales: {
        x: { time: false, range: [low, high] },
        y: { range: [spec.y.min ?? 0, spec.y.max ?? (top > 0 ? top * 1.06 : 1)] },
      },
      axes: [axis(spec.x, 20, 75), axis(spec.y, 44, 36)],
      series,
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 }, sync: spec.sync ? { key: spec.sync } : undefined },
      legend: { live: true, markers: { width: 0, fill: (u, i) => i > 0 ? color("--c" + (spec.series[i - 1].color % 6)) : null } },
      hooks: { drawAxes: [under], draw: [beside] },
    }, data, place);
    u.root.querySelector("canvas").setAttribute("aria-hidden", "true");
    plots.push({ u, place });
  }

  function drawAll() {
    plots.forEach(({ u }) => u.destroy());
    plots = [];
    document.querySelectorAll(".plot").forEach(draw);
  }

  // The arrow keys move the cursor; the legend, which is then read out, has the
  // values.
  document.addEventListener("keydown", (e) => {
    const found = plots.find(({ place }) => place === document.activeElement);
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[e.key];
    if (!found || !step) return;
    e.preventDefault();
    const { u, place } = found, last = u.data[0].length - 1;
    const i = Math.min(Math.max((u.cursor.idx ?? (step > 0 ? -1 : last + 1)) + step, 0), last);
    u.setCursor({ left: u.valToPos(u.data[0][i], "x"), top: u.bbox.height / devicePixelRatio / 2 });
    place.querySelector(".u-legend").setAttribute("aria-live", "polite");
  });

  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  matchMedia("print").addEventListener("change", drawAll);
  new ResizeObserver(() => plots.forEach(({ u, place }) => {
    if (place.clientWidth && place.clientWidth !== u.width) u.setSize({ width: place.clientWidth, height: u.height });
  })).observe(document.querySelector("main"));
})();
