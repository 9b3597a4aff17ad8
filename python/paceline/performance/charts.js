"use strict";
(() => {
  const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2",
    "#7f7f7f", "#bcbd22", "#17becf"];
  const HEIGHT = 260;
  const charts = [];

  const shown = (value) => value == null ? "–" : String(Number(value.toPrecision(6)));

  // Where another curve alone has a row, uPlot expects undefined: lines go on.
  const column = (values) => values.map((value) => value === "" ? undefined : value);

  // Series and bands of uPlot, and its columns, of one chart.
  const read = (chart) => {
    const data = [chart.data[0]], bands = [];
    const limits = chart.limits || [null, null];
    const least = limits[0] ?? -Infinity, most = limits[1] ?? Infinity;
    const series = [{label: chart.x, value: (u, value) => shown(value)}];
    const add = (values, one) => {
      data.push(values);
      series.push({spanGaps: false, points: {show: chart.points}, ...one});
    };
    let next = 1;
    for (const curve of chart.curves) {
      const colour = COLOURS[curve.colour % COLOURS.length];
      const values = column(chart.data[next++]);
      const line = {stroke: colour, width: chart.points ? 0 : 1.5};
      const low = curve.band ? column(chart.data[next++]) : null;
      const high = curve.band ? column(chart.data[next++]) : null;
      const smooth = curve.smooth ? column(chart.data[next++]) : null;
      if (chart.points) {
        line.paths = () => null;
        line.points = {show: true, size: 4, fill: colour};
      } else if (smooth) {
        line.stroke = colour + "66";
        line.width = 1;
      } else if (values.filter((value) => value != null).length === 1) {
        line.points = {show: true};
      }
      const text = (u, value, k, row) => {
        if (row == null || low === null || low[row] == null) return shown(value);
        const half = (high[row] - low[row]) / 2, centre = (high[row] + low[row]) / 2;
        return Math.abs(centre - value) < 1e-6 * half ? `${shown(value)} ± ${shown(half)}`
          : `${shown(value)} (${shown(low[row])} to ${shown(high[row])})`;
      };
      add(values, {label: curve.name, value: text, ...line});
      if (low) {
        const edge = (limits) => values.map(
          (value, row) => value == null ? value : limits[row] == null ? null
            : Math.min(most, Math.max(least, limits[row])));
        const hidden = {stroke: "transparent", width: 0, class: "edge", points: {show: false}};
        add(edge(high), hidden);
        add(edge(low), hidden);
        bands.push({series: [series.length - 2, series.length - 1], fill: colour + "33"});
      }
      if (smooth) {
        add(smooth, {label: `${curve.name}, running mean`, stroke: colour, width: 2,
          value: (u, value) => shown(value)});
      }
    }
    return {data, series, bands};
  };

  const draw = (one) => {
    const {chart, box} = one;
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--ink").trim();
    const grid = {stroke: style.getPropertyValue("--grid").trim(), width: 1};
    const font = "12px " + getComputedStyle(box).fontFamily;
    const axis = (label) => (
      {label, stroke: ink, grid, ticks: grid, font, labelFont: font, labelSize: 20});
    const numbers = (u, values) => values.map(
      (value) => value == null ? "" : Math.abs(value) >= 1e7 ? value.toExponential() : String(value));
    if (one.plot) one.plot.destroy();
    const {data, series, bands} = read(chart);
    // Wide enough for the longest number, its tick, and a gap.
    const size = (u, values) => 28 + 7 * Math.max(2, ...(values || []).map((text) => text.length));
    one.plot = new uPlot({
      width: box.clientWidth, height: HEIGHT, series, bands,
      scales: {x: {time: false}},
      axes: [{...axis(chart.x), values: numbers, space: 70},
        {...axis(chart.y), values: numbers, size}],
      legend: {live: true},
    }, data, box);
  };

  document.documentElement.classList.add("scripted");
  for (const box of document.querySelectorAll(".chart")) {
    const one = {chart: JSON.parse(box.querySelector("script").textContent), box, plot: null};
    box.classList.add("drawn");
    box.parentElement.classList.add("interactive");
    charts.push(one);
    draw(one);
  }
  const sizes = new ResizeObserver(() => charts.forEach((one) => {
    if (one.box.clientWidth && one.plot.width !== one.box.clientWidth) {
      one.plot.setSize({width: one.box.clientWidth, height: HEIGHT});
    }
  }));
  charts.forEach((one) => sizes.observe(one.box));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach(draw));
})();
