/**
 * What Grafana's core gives to its libraries at start, as far as a dashboard needs it.
 *
 * The libraries on npm expect to be hosted by Grafana: registries filled, services set. Everything here is called once,
 * before the first scene is made.
 */
import {
  EventBusSrv,
  FieldConfigProperty,
  LoadingState,
  ThresholdsMode,
  booleanOverrideProcessor,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  identityOverrideProcessor,
  locationUtil,
  numberOverrideProcessor,
  setTimeZoneResolver,
  standardEditorsRegistry,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  toDataFrame,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
} from '@grafana/data';
import * as runtime from '@grafana/runtime';
import { catchError, from, isObservable, map, of } from 'rxjs';
import { DATASOURCE_UID, SCRAPE_SECONDS, type PrometheusDatasource } from './prometheus';

const noEditor = () => null;

const EDITORS = [
  'number', 'text', 'boolean', 'select', 'radio', 'color', 'unit', 'links', 'mappings', 'thresholds', 'stats-picker',
  'fieldColor', 'field-name', 'multi-select', 'slider', 'strings', 'timezone', 'dashboard-uid', 'actions',
];

/** Field options that all panels share, with what turns an override's value into one. */
const FIELD_OPTIONS: [string, unknown, unknown?][] = [
  [FieldConfigProperty.DisplayName, displayNameOverrideProcessor],
  [FieldConfigProperty.Unit, unitOverrideProcessor],
  [FieldConfigProperty.Min, numberOverrideProcessor],
  [FieldConfigProperty.Max, numberOverrideProcessor],
  ['fieldMinMax', booleanOverrideProcessor],
  [FieldConfigProperty.Decimals, numberOverrideProcessor],
  [FieldConfigProperty.NoValue, stringOverrideProcessor],
  [FieldConfigProperty.Color, identityOverrideProcessor],
  [
    FieldConfigProperty.Thresholds,
    thresholdsOverrideProcessor,
    { mode: ThresholdsMode.Absolute, steps: [{ value: -Infinity, color: 'green' }] },
  ],
  [FieldConfigProperty.Mappings, valueMappingsOverrideProcessor, []],
  [FieldConfigProperty.Links, dataLinksOverrideProcessor, []],
  ['actions', identityOverrideProcessor, []],
  ['filterable', booleanOverrideProcessor],
];

export function hostGrafana(datasource: PrometheusDatasource): void {
  fillRegistries();
  const settings = {
    uid: DATASOURCE_UID,
    name: 'Prometheus',
    type: 'prometheus',
    id: 1,
    isDefault: true,
    jsonData: { timeInterval: `${SCRAPE_SECONDS}s` },
    meta: { id: 'prometheus', name: 'Prometheus', metrics: true, info: { logos: { small: '', large: '' } } },
    access: 'proxy',
    readOnly: false,
    url: '',
  };
  const services: any = runtime;
  services.setDataSourceSrv({
    get: async () => datasource,
    getInstanceSettings: () => settings,
    getList: () => [settings],
    reload() {},
    registerRuntimeDataSource() {},
  });
  services.setAppEvents(new EventBusSrv());
  services.setEchoSrv({ addEvent() {}, addBackend() {}, flush() {} });
  services.setTemplateSrv({
    getVariables: () => [],
    replace: (text: string) => text,
    containsTemplate: () => false,
    updateTimeRange() {},
  });
  services.setPluginImportUtils({
    importPanelPlugin: async (id: string) => {
      throw new Error(`the preview cannot draw panels of type ${id}`);
    },
    getPanelPluginFromCache: () => undefined,
  });
  services.setRunRequest(runRequest);
  setTimeZoneResolver(() => 'browser');
  locationUtil.initialize({
    config: runtime.config as any,
    getTimeRangeForUrl: () => ({ from: 'now-1h', to: 'now' }) as any,
    getVariablesUrlParams: () => ({}),
  });
}

function fillRegistries(): void {
  standardEditorsRegistry.setInit(() => EDITORS.map((id) => ({ id, name: id, editor: noEditor })) as any);
  standardFieldConfigEditorRegistry.setInit(
    () =>
      FIELD_OPTIONS.map(([id, process, defaultValue]) => ({
        id,
        path: id,
        name: id,
        editor: noEditor,
        override: noEditor,
        process,
        shouldApply: () => true,
        category: ['Standard options'],
        settings: {},
        defaultValue,
      })) as any
  );
  // Some transformers are listed twice, and a registry refuses a second one of the same id.
  const transformers = new Map(Object.values(standardTransformers).map((one: any) => [one.id, one]));
  standardTransformersRegistry.setInit(
    () =>
      [...transformers.values()].map((one: any) => ({
        id: one.id,
        name: one.name,
        description: '',
        editor: noEditor,
        transformation: async () => one,
      })) as any
  );
}

/** The part of core's runRequest that a data source without streaming needs. */
function runRequest(datasource: PrometheusDatasource, request: any, query?: (request: any) => any) {
  const answer = query ? query(request) : datasource.query(request);
  return (isObservable(answer) ? answer : from(answer)).pipe(
    map((result: any) => ({
      state: result.error ? LoadingState.Error : LoadingState.Done,
      series: (result.data ?? []).map(toDataFrame),
      annotations: [],
      timeRange: request.range,
      request,
      error: result.error,
      structureRev: 1,
    })),
    catchError((error: Error) =>
      of({
        state: LoadingState.Error,
        series: [],
        timeRange: request.range,
        request,
        error: { message: error.message },
      })
    )
  );
}
