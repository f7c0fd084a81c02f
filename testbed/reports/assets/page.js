"use strict";
(() => {
  const { charts, light, dark: lighter } = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const dashes = ["solid", "dash", "dot", "dashdot"];

  // The edges of a band belong to the legend entry of their curve.
  function band(series, colour, index) {
    const edge = { x: series.x, type: "scatter", mode: "lines", hoverinfo: "skip", showlegend: false,
      legendgroup: String(index), line: { width: 0 } };
    return [{ ...edge, y: series.low },
      { ...edge, y: series.high, fill: "tonexty", fillcolor: colour + "2e" }];
  }

  function traces(chart, palette) {
    return chart.series.flatMap((series, index) => {
      const colour = palette[index % palette.length];
      const common = { name: series.name, x: series.x, y: series.y, legendgroup: String(index) };
      if (series.kind === "bars") {
        return [{ ...common, type: "bar", marker: { color: colour } }];
      }
      const few = series.x.length <= 300;
      const drawn = { ...common, type: "scatter",
        mode: series.kind === "points" ? "markers" : few ? "lines+markers" : "lines",
        line: { color: colour, width: 1.8, dash: dashes[index % dashes.length] },
        marker: { color: colour, size: series.kind === "points" ? 3 : 5, opacity: series.kind === "points" ? 0.6 : 1 } };
      return [...(series.low.length ? band(series, colour, index) : []), drawn];
    });
  }

  function layout(chart, style) {
    const of = (name) => style.getPropertyValue(name).trim();
    const axis = { gridcolor: of("--line"), zerolinecolor: of("--line"), linecolor: of("--soft"), automargin: true };
    return {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: of("--ink"), family: "system-ui, sans-serif", size: 12 },
      margin: { l: 50, r: 10, t: 10, b: 40 },
      xaxis: { ...axis, title: { text: chart.x_title }, ...(chart.log.includes("x") && { type: "log" }) },
      yaxis: { ...axis, title: { text: chart.y_title }, ...(chart.log.includes("y") && { type: "log" }) },
      legend: { orientation: "h", y: -0.25, yanchor: "top" },
      hoverlabel: { namelength: -1 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: of("--line"), activecolor: of("--link") },
      barmode: "stack",
    };
  }

  function drawAll() {
    const style = getComputedStyle(document.documentElement);
    for (const element of document.querySelectorAll(".chart")) {
      const chart = charts[Number(element.dataset.chart)];
      Plotly.react(element, traces(chart, dark.matches ? lighter : light), layout(chart, style),
        { responsive: true, displaylogo: false, showSendToCloud: false });
    }
  }

  dark.addEventListener("change", drawAll);
  drawAll();
})();
