/** A dashboard file as a scene. */
import {
  ConstantVariable,
  CustomVariable,
  DataSourceVariable,
  EmbeddedScene,
  QueryVariable,
  SceneControlsSpacer,
  SceneDataLayerControls,
  SceneDataLayerSet,
  SceneDataTransformer,
  SceneGridItem,
  SceneGridLayout,
  SceneGridRow,
  SceneQueryRunner,
  SceneRefreshPicker,
  SceneTimePicker,
  SceneTimeRange,
  SceneVariableSet,
  VariableValueSelectors,
  VizPanel,
  behaviors,
  dataLayers,
  type SceneGridItemLike,
  type SceneVariable,
} from '@grafana/scenes';

class AnnotationLayer extends dataLayers.AnnotationsDataLayer {}

/** The address may choose variables and a time range, as in Grafana: `var-run=…&from=…&to=…`. */
export function buildScene(dashboard: any, address: URLSearchParams): EmbeddedScene {
  const annotations = dashboard.annotations.list.filter((one: any) => !one.builtIn && one.enable);
  return new EmbeddedScene({
    $timeRange: new SceneTimeRange({
      from: address.get('from') ?? dashboard.time.from,
      to: address.get('to') ?? dashboard.time.to,
      timeZone: dashboard.timezone,
    }),
    $variables: new SceneVariableSet({
      variables: dashboard.templating.list.map((one: any) => buildVariable(one, address)),
    }),
    $data: new SceneDataLayerSet({
      layers: annotations.map(
        (query: any, index: number) =>
          new AnnotationLayer({ key: `annotation-${index}`, name: query.name, isEnabled: true, query })
      ),
    }),
    $behaviors: [new behaviors.CursorSync({ sync: dashboard.graphTooltip })],
    controls: [
      new VariableValueSelectors({}),
      new SceneDataLayerControls(),
      new SceneControlsSpacer(),
      new SceneTimePicker({ isOnCanvas: true }),
      new SceneRefreshPicker({ refresh: '' }),
    ],
    body: new SceneGridLayout({ children: buildGrid(dashboard.panels) }),
  });
}

function buildVariable(model: any, address: URLSearchParams): SceneVariable {
  const { name, label, hide } = model;
  const asked = address.getAll(`var-${name}`);
  const chosen = asked.length ? (model.multi ? asked : asked[0]) : undefined;
  switch (model.type) {
    case 'datasource':
      return new DataSourceVariable({ name, label, hide, pluginId: model.query, value: '', text: '' });
    case 'constant':
      return new ConstantVariable({ name, hide, value: model.query });
    case 'custom':
      return new CustomVariable({ name, label, hide, query: model.query, value: chosen ?? model.current.value });
    case 'query':
      return new QueryVariable({
        name,
        label,
        hide,
        datasource: model.datasource,
        query: model.query,
        regex: model.regex,
        refresh: model.refresh,
        sort: model.sort,
        isMulti: model.multi,
        includeAll: model.includeAll,
        allValue: model.allValue,
        defaultToAll: model.includeAll,
        value: chosen ?? model.current.value,
        text: chosen ?? model.current.text,
      });
    default:
      throw new Error(`variable of type ${model.type}`);
  }
}

/** Panels below a row belong to it, up to the next row. */
function buildGrid(models: any[]): SceneGridItemLike[] {
  const children: SceneGridItemLike[] = [];
  let row: SceneGridRow | undefined;
  for (const model of models) {
    if (model.type === 'row') {
      row = new SceneGridRow({ title: model.title, y: model.gridPos.y, isCollapsible: true, children: [] });
      children.push(row);
    } else if (row) {
      row.setState({ children: [...row.state.children, buildPanel(model)] });
    } else {
      children.push(buildPanel(model));
    }
  }
  return children;
}

function buildPanel(model: any): SceneGridItem {
  const queries = new SceneQueryRunner({
    datasource: model.datasource,
    queries: model.targets,
    maxDataPoints: model.maxDataPoints,
    minInterval: model.interval,
    dataLayerFilter: { panelId: model.id },
  });
  const body = new VizPanel({
    key: `panel-${model.id}`,
    title: model.title,
    description: model.description,
    pluginId: model.type,
    pluginVersion: model.pluginVersion,
    options: model.options,
    fieldConfig: model.fieldConfig,
    $data: new SceneDataTransformer({ $data: queries, transformations: model.transformations ?? [] }),
  });
  const { x, y, w, h } = model.gridPos;
  return new SceneGridItem({ x, y, width: w, height: h, isDraggable: false, isResizable: false, body });
}
