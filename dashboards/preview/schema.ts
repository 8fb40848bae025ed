/** The dashboard file as Grafana's own types describe it. `npm run schema` turns this into a JSON Schema. */
import type * as barchart from '@grafana/schema/dist/esm/raw/composable/barchart/panelcfg/x/BarChartPanelCfg_types.gen';
import type * as heatmap from '@grafana/schema/dist/esm/raw/composable/heatmap/panelcfg/x/HeatmapPanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as states from '@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type * as grafana from '@grafana/schema/dist/esm/raw/dashboard/x/Dashboard_types.gen';

/** Files leave out what has a default. */
type Partially<T> = T extends (infer Item)[]
  ? Partially<Item>[]
  : T extends object
    ? { [Key in keyof T]?: Partially<T[Key]> }
    : T;

interface Datasource {
  type: 'prometheus' | 'grafana';
  uid: string;
}

/** Not among Grafana's published types: the Prometheus data source has another licence. */
interface Query {
  refId: string;
  expr: string;
  datasource: Datasource;
  legendFormat: string;
  format: 'time_series' | 'table' | 'heatmap';
  instant: boolean;
  range: boolean;
  editorMode: 'code' | 'builder';
  interval?: string;
}

interface FieldConfig<Custom> {
  defaults: Omit<grafana.FieldConfig, 'custom'> & { custom?: Partially<Custom> };
  overrides: grafana.FieldConfigSource['overrides'];
}

type PanelOf<Type extends string, Options, Custom = object> = Omit<
  grafana.Panel,
  'type' | 'id' | 'title' | 'description' | 'options' | 'fieldConfig' | 'targets' | 'datasource' | 'gridPos'
> & {
  type: Type;
  id: number;
  title: string;
  description: string;
  gridPos: grafana.GridPos;
  datasource: Datasource;
  targets: Query[];
  options: Partially<Options>;
  fieldConfig: FieldConfig<Custom>;
};

type Panel =
  | PanelOf<'barchart', barchart.Options, barchart.FieldConfig>
  | PanelOf<'heatmap', heatmap.Options, heatmap.FieldConfig>
  | PanelOf<'stat', stat.Options>
  | PanelOf<'state-timeline', states.Options, states.FieldConfig>
  | PanelOf<'table', table.Options, table.FieldConfig>
  | PanelOf<'timeseries', timeseries.Options, timeseries.FieldConfig>;

interface Row extends Omit<grafana.RowPanel, 'panels' | 'datasource'> {
  panels: Panel[];
}

interface Annotation extends Omit<grafana.AnnotationQuery, 'datasource'> {
  datasource: Datasource;
  expr?: string;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
}

interface Variable extends Omit<grafana.VariableModel, 'datasource'> {
  datasource?: Datasource;
  definition?: string;
}

export interface DashboardFile extends Omit<grafana.Dashboard, 'panels' | 'annotations' | 'templating' | 'id'> {
  uid: string;
  title: string;
  schemaVersion: number;
  panels: (Panel | Row)[];
  annotations: { list: Annotation[] };
  templating: { list: Variable[] };
}
