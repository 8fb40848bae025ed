/** Default options and field settings of each kind of panel, as Grafana's own plugins register them. */
import { identityOverrideProcessor } from '@grafana/data';

const noEditor = () => null;

export const LEGEND = { showLegend: true, displayMode: 'list', placement: 'bottom', calcs: [] };
export const REDUCE = { values: false, calcs: ['lastNotNull'], fields: '' };

const AXIS = {
  axisPlacement: 'auto',
  axisLabel: '',
  axisWidth: undefined,
  axisSoftMin: undefined,
  axisSoftMax: undefined,
  axisGridShow: undefined,
  axisColorMode: 'text',
  axisCenteredZero: false,
  axisBorderShow: false,
  scaleDistribution: { type: 'linear' },
};

const HIDE = { hideFrom: { legend: false, tooltip: false, viz: false } };

export const GRAPH_FIELDS = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  lineWidth: 1,
  lineColor: undefined,
  lineStyle: { fill: 'solid' },
  fillOpacity: 0,
  fillColor: undefined,
  fillBelowTo: undefined,
  gradientMode: 'none',
  spanNulls: false,
  insertNulls: false,
  showPoints: 'auto',
  pointSize: 5,
  stacking: { mode: 'none', group: 'A' },
  barAlignment: 0,
  barWidthFactor: 0.6,
  thresholdsStyle: { mode: 'off' },
  transform: undefined,
  ...AXIS,
  ...HIDE,
};

export const TABLE_FIELDS = {
  align: 'auto',
  cellOptions: { type: 'auto' },
  width: undefined,
  minWidth: undefined,
  filterable: false,
  inspect: false,
  hidden: false,
  hideFrom: undefined,
  wrapHeaderText: undefined,
  wrapText: undefined,
  footer: undefined,
};

export const STATE_FIELDS = { lineWidth: 0, fillOpacity: 70, spanNulls: false, insertNulls: false, ...HIDE };
export const HEATMAP_FIELDS = { scaleDistribution: { type: 'linear' }, ...HIDE };
export const BAR_FIELDS = { lineWidth: 1, fillOpacity: 80, gradientMode: 'none', ...AXIS, ...HIDE };

/** Each path must be registered, or an override of it does nothing. */
export function fieldSettings(defaults: Record<string, unknown>) {
  return (builder: any) => {
    for (const [path, defaultValue] of Object.entries(defaults)) {
      builder.addCustomEditor({
        id: path,
        path,
        name: path,
        editor: noEditor,
        override: noEditor,
        process: identityOverrideProcessor,
        shouldApply: () => true,
        defaultValue,
      });
    }
  };
}

export function panelOptions(defaults: Record<string, unknown>) {
  return (builder: any) => {
    for (const [path, defaultValue] of Object.entries(defaults)) {
      builder.addCustomEditor({ id: path, path, name: path, editor: noEditor, defaultValue });
    }
  };
}
