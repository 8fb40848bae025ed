/** The kinds of panels that the preview can draw. One that is missing here fails the preview; none is skipped. */
import { FieldColorModeId, FieldConfigProperty, PanelPlugin } from '@grafana/data';
import { BarChartPanel } from './BarChartPanel';
import { HeatmapPanel } from './HeatmapPanel';
import { StatPanel } from './StatPanel';
import { StateTimelinePanel } from './StateTimelinePanel';
import { TablePanel } from './TablePanel';
import { TimeSeriesPanel } from './TimeSeriesPanel';
import * as defaults from './options';

const { fieldSettings, panelOptions } = defaults;

function colourBy(mode: FieldColorModeId): any {
  return { [FieldConfigProperty.Color]: { defaultValue: { mode } } };
}

const byPalette = colourBy(FieldColorModeId.PaletteClassic);
const byThresholds = colourBy(FieldColorModeId.Thresholds);

export const PANELS: Record<string, PanelPlugin<any, any>> = {
  timeseries: new PanelPlugin(TimeSeriesPanel)
    // Without this, annotations do not reach the panel.
    .setDataSupport({ annotations: true, alertStates: true })
    .useFieldConfig({ standardOptions: byPalette, useCustomConfig: fieldSettings(defaults.GRAPH_FIELDS) })
    .setPanelOptions(panelOptions({ legend: defaults.LEGEND, tooltip: { mode: 'single', sort: 'none' } })),
  stat: new PanelPlugin(StatPanel).useFieldConfig({ standardOptions: byThresholds }).setPanelOptions(
    panelOptions({
      reduceOptions: defaults.REDUCE,
      orientation: 'auto',
      textMode: 'auto',
      wideLayout: true,
      colorMode: 'value',
      graphMode: 'area',
      justifyMode: 'auto',
    })
  ),
  table: new PanelPlugin(TablePanel)
    .useFieldConfig({ standardOptions: byThresholds, useCustomConfig: fieldSettings(defaults.TABLE_FIELDS) })
    .setPanelOptions(panelOptions({ showHeader: true, cellHeight: 'sm', frameIndex: 0, sortBy: [] })),
  barchart: new PanelPlugin(BarChartPanel)
    .useFieldConfig({ standardOptions: byPalette, useCustomConfig: fieldSettings(defaults.BAR_FIELDS) })
    .setPanelOptions(panelOptions({ orientation: 'auto', stacking: 'none', legend: defaults.LEGEND })),
  heatmap: new PanelPlugin(HeatmapPanel)
    .useFieldConfig({ useCustomConfig: fieldSettings(defaults.HEATMAP_FIELDS) })
    .setPanelOptions(panelOptions({ cellGap: 1, yAxis: {}, cellValues: {} })),
  'state-timeline': new PanelPlugin(StateTimelinePanel)
    .useFieldConfig({ standardOptions: byThresholds, useCustomConfig: fieldSettings(defaults.STATE_FIELDS) })
    .setPanelOptions(panelOptions({ mergeValues: true, showValue: 'auto', rowHeight: 0.9, legend: defaults.LEGEND })),
};

for (const [id, plugin] of Object.entries(PANELS)) {
  plugin.meta = { id, name: id, type: 'panel', module: '', baseUrl: '', sort: 1, info: { version: '13.2.3' } } as any;
}
