// What a page does beyond reading: it says whether it is live, and draws lines that can be explored.
"use strict";
(() => {
  const status = document.getElementById("connection");
  const live = document.getElementById("live");

  function say(text) {
    if (!status) return;
    status.textContent = text;
    status.hidden = !text;
  }

  // htmx may begin before its extension is loaded, which then never connects. So this file opens the stream, after htmx.
  function connect() {
    if (!live._htmx?.sse) window.htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live });
  }

  // The extension connects again by itself once a stream was open, but not when the first request fails.
  function connectAgain() {
    say("Not live: the console does not answer. Trying again.");
    window.setTimeout(connect, 2000);
  }

  document.addEventListener("htmx:sse:after:connection", () => say(""));
  document.addEventListener("htmx:sse:error", () => say("Not live: the connection to the console was lost. Trying again."));
  document.addEventListener("htmx:sse:close", () => say("Not live: load the page again."));
  document.addEventListener("htmx:error", (event) => { if (event.target === live) connectAgain(); });

  function numbers(cells) {
    return [...cells].map((cell) => (cell.dataset.value === "" ? null : Number(cell.dataset.value)));
  }

  function draw(figure) {
    const table = figure.querySelector("table[data-chart]");
    const old = figure.querySelector(".plot");
    if (!table || !window.uPlot) return;
    const names = [...table.tHead.rows[0].cells].slice(1).map((cell) => cell.textContent);
    const rows = [...table.tBodies[0].rows];
    const values = rows.map((row) => numbers(row.cells));
    const { divisor, unit } = table.dataset;
    const scaled = (value) => (value === null ? null : value / Number(divisor));
    const data = [values.map((row) => row[0] / 1000), ...names.map((_, at) => values.map((row) => scaled(row[at + 1])))];
    const keys = figure.querySelectorAll("figcaption .key");
    const series = names.map((name, at) => {
      const key = getComputedStyle(keys[at]);
      return { label: name, stroke: key.textDecorationColor, width: 2, dash: at ? [4 + 2 * at, 3] : undefined };
    });
    // A canvas does not know `light-dark()`, so that the colour is one that the browser has computed.
    const axis = { stroke: getComputedStyle(figure).color, grid: { width: 1 } };
    const amounts = { ...axis, size: 80, values: (_, ticks) => ticks.map((tick) => `${tick} ${unit}`.trim()) };
    const options = { width: figure.clientWidth || 600, height: 180, series: [{}, ...series], axes: [axis, amounts] };
    const place = document.createElement("div");
    place.className = "plot";
    place.setAttribute("aria-hidden", "true");
    if (old) old.remove();
    figure.insertBefore(place, figure.querySelector("svg"));
    new window.uPlot(options, data, place);
  }

  function drawAll() {
    document.querySelectorAll("figure.chart").forEach(draw);
  }

  document.addEventListener("htmx:after:swap", drawAll);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  window.addEventListener("resize", () => window.requestAnimationFrame(drawAll));
  drawAll();
  if (live) window.setTimeout(connect);
})();
