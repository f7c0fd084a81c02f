// Draws the dashboard in `window.page`, which docs/site/dashboards.py writes, with Grafana's own components.
// Grafana's library has neither state timelines nor heat maps: these are rows of cells on its axes.
import 'uplot/dist/uPlot.min.css';
import * as data from '@grafana/data';
import * as ui from '@grafana/ui';
import { interpolateOranges } from 'd3-scale-chromatic';
import { createRoot } from 'react-dom/client';

const { dashboard, answers, marks, start, end, step, shade, width } = window.page;
const ROW = 38; // pixels of a row of Grafana's grid, with the gap below
const GAP = 8;
const theme = data.createTheme({ colors: { mode: shade } });
const [from, to] = [data.dateTime(start), data.dateTime(end)];
const overTime = { timeRange: { from, to, raw: { from, to } }, timeZone: 'utc' };

const nameOf = (frame) => frame.fields[1].config.displayNameFromDS;

// The answers to a panel's queries, displayed with the unit, limits, words and colours of the dashboard.
function framesOf(panel, mode) {
  const { defaults, overrides } = panel.fieldConfig;
  return answers[panel.id].map(({ name, times, values }, seriesIndex) => {
    const own = overrides.filter((one) => one.matcher.options === name).flatMap((one) => one.properties);
    const config = { color: { mode }, ...defaults, displayNameFromDS: name };
    own.forEach((one) => (config[one.id] = one.value));
    const fields = [
      { name: 'Time', type: data.FieldType.time, values: times, config: { interval: step } },
      { name: 'Value', type: data.FieldType.number, values, config },
    ];
    const frame = data.toDataFrame({ fields });
    for (const field of frame.fields) {
      field.state = { seriesIndex };
      field.display = data.getDisplayProcessor({ field, theme });
    }
    return frame;
  });
}

// Room for the last label of the horizontal axis, which Grafana cuts off.
const pad = (config) => void config.setPadding([8, 28, 0, 0]);

// Annotations: dashed lines behind the curves.
function drawMarks(config) {
  pad(config);
  config.addHook('drawClear', (u) => {
    u.ctx.save();
    u.ctx.setLineDash([4, 4]);
    for (const { time, color } of marks) {
      const x = u.valToPos(time, 'x', true);
      u.ctx.strokeStyle = theme.visualization.getColorByName(color);
      u.ctx.beginPath();
      u.ctx.moveTo(x, u.bbox.top);
      u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
    }
    u.ctx.restore();
  });
}

function Lines({ panel, ...size }) {
  const frames = framesOf(panel, 'palette-classic');
  return (
    <ui.TimeSeries {...size} {...overTime} frames={frames} legend={panel.options.legend}>
      {drawMarks}
    </ui.TimeSeries>
  );
}

// One query over another, instead of over time.
function Against({ panel, ...size }) {
  const joined = data.outerJoinDataFrames({ frames: framesOf(panel, 'palette-classic') });
  joined.fields = joined.fields.filter((field) => field.type === data.FieldType.number);
  const isX = (field) => field.config.displayNameFromDS === panel.options.xField;
  const fields = { x: isX, y: (field) => !isX(field) };
  return (
    <ui.TimeSeries {...size} {...overTime} fields={fields} frames={[joined]} legend={panel.options.legend}>
      {pad}
    </ui.TimeSeries>
  );
}

function Number({ panel, ...size }) {
  const { reduceOptions, ...look } = panel.options;
  const frames = framesOf(panel, 'thresholds');
  const asked = { data: frames, reduceOptions, fieldConfig: panel.fieldConfig, theme, replaceVariables: String };
  const renderValue = ({ value, width, height }) => (
    <ui.BigValue {...look} {...{ theme, width, height }} value={value.display} />
  );
  const getValues = () => data.getFieldDisplayValues(asked);
  return <ui.VizRepeater {...size} {...{ getValues, renderValue }} source={frames} orientation="auto" />;
}

function Cells({ names, ticks, cells, legend, ...size }) {
  const config = new ui.UPlotConfigBuilder('utc');
  pad(config);
  config.addScale({ scaleKey: 'x', isTime: true, orientation: 0, direction: 1, range: [start, end] });
  config.addScale({ scaleKey: 'y', orientation: 1, direction: 1, range: [0, names.length] });
  config.addAxis({ scaleKey: 'x', isTime: true, placement: 'bottom', timeZone: 'utc', theme });
  config.addAxis({ scaleKey: 'y', placement: 'left', splits: ticks, values: names, grid: { show: false }, theme });
  config.addSeries({ scaleKey: 'y', pathBuilder: () => null, theme });
  config.addHook('draw', (u) => {
    for (const { row, time, color } of cells) {
      const [left, right] = [time, Math.min(time + step, end)].map((x) => u.valToPos(x, 'x', true));
      const [top, bottom] = [row + 0.95, row + 0.05].map((y) => u.valToPos(y, 'y', true));
      u.ctx.fillStyle = color;
      u.ctx.fillRect(left, top, right - left, bottom - top);
    }
  });
  return (
    <ui.VizLayout {...size} legend={legend}>
      {(width, height) => <ui.UPlotChart {...{ config, width, height }} data={[[start, end], [null, null]]} />}
    </ui.VizLayout>
  );
}

function States({ panel, ...size }) {
  const shown = {};
  const frames = framesOf(panel, 'thresholds').reverse();
  const cells = frames.flatMap(({ fields: [times, states] }, row) =>
    states.values.map((value, place) => {
      const { text, color } = states.display(value);
      shown[text] = color;
      return { row, time: times.values[place], color };
    })
  );
  const items = Object.entries(shown).map(([label, color]) => ({ label, color, yAxis: 1 }));
  const legend = (
    <ui.VizLayout.Legend placement="bottom">
      <ui.VizLegend placement="bottom" displayMode="list" items={items} />
    </ui.VizLayout.Legend>
  );
  const ticks = frames.map((_, row) => row + 0.5);
  return <Cells {...size} {...{ ticks, cells, legend }} names={frames.map(nameOf)} />;
}

// Prometheus's buckets are cumulative: a bucket holds its count less that of the one below.
function Heat({ panel, ...size }) {
  const bound = (frame) => parseFloat(nameOf(frame).replace('+Inf', 'Infinity'));
  const frames = framesOf(panel, 'fixed').sort((one, other) => bound(one) - bound(other));
  const counts = frames.map((frame) => frame.fields[1].values);
  const cells = frames.flatMap(({ fields: [times] }, row) =>
    times.values.map((time, place) => ({ row, time, count: counts[row][place] - (row && counts[row - 1][place]) }))
  );
  const filled = cells.filter((cell) => cell.count > panel.options.filterValues.le);
  const most = Math.max(...filled.map((cell) => cell.count));
  for (const cell of filled) {
    const share = (cell.count / most) ** panel.options.color.exponent;
    cell.color = interpolateOranges(theme.isDark ? 1 - share : share);
  }
  const ticks = frames.map((_, row) => row + 1);
  return <Cells {...size} {...{ ticks }} cells={filled} names={frames.map(nameOf)} />;
}

const KINDS = { timeseries: Lines, trend: Against, stat: Number, 'state-timeline': States, heatmap: Heat };

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (width - GAP) / 24;
  const place = { position: 'absolute', left: GAP + x * column, top: GAP + y * ROW };
  const size = { width: w * column - GAP, height: h * ROW - GAP };
  if (panel.type === 'row') {
    return <h5 style={{ ...place, lineHeight: `${size.height}px` }}>{panel.title}</h5>;
  }
  const Kind = KINDS[panel.type];
  const draw = (width, height) => (answers[panel.id].length ? <Kind {...{ panel, width, height }} /> : 'No data');
  return (
    <div style={place}>
      <ui.PanelChrome {...size} title={panel.title}>
        {draw}
      </ui.PanelChrome>
    </div>
  );
}

createRoot(document.getElementById('dashboard')).render(
  <data.ThemeContext.Provider value={theme}>
    <ui.GlobalStyles />
    {dashboard.panels.map((panel, key) => (
      <Panel key={key} panel={{ ...panel, id: key }} />
    ))}
  </data.ThemeContext.Provider>
);
