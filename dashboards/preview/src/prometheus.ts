/** A Prometheus data source: what Grafana's own does with a query, without its server. (Its licence is another one.) */
import { rangeUtil, type ScopedVars } from '@grafana/data';
import { sceneGraph } from '@grafana/scenes';
import { seriesName, tableFrame, timeFrame, type Series } from './frames';

export const DATASOURCE_UID = 'preview';
export const SCRAPE_SECONDS = 30;

const MOST_POINTS = 11_000;
const MARK_STEP_SECONDS = 30;

async function ask(path: string, parameters: Record<string, string | number>): Promise<any> {
  const body = new URLSearchParams(Object.entries(parameters).map(([key, value]) => [key, String(value)]));
  const get = path.startsWith('label/');
  const address = `/prometheus/api/v1/${path}`;
  const response = await (get ? fetch(`${address}?${body}`) : fetch(address, { method: 'POST', body }));
  const answer = await response.json();
  if (answer.status !== 'success') {
    throw new Error(answer.error);
  }
  return answer.data;
}

/** Values of a variable that allows several go into a regular expression. */
function format(value: unknown, variable: any): unknown {
  if (!variable?.multi && !variable?.includeAll) {
    return value;
  }
  const values = (Array.isArray(value) ? value : [value]).map(escape);
  return values.length > 1 ? `(${values.join('|')})` : values[0];
}

function escape(value: unknown): string {
  return String(value).replace(/[\\^$.*+?()[\]{}|]/g, (character) => `\\\\${character}`);
}

export class PrometheusDatasource {
  uid = DATASOURCE_UID;
  type = 'prometheus';
  name = 'Prometheus';
  id = 1;
  interval = `${SCRAPE_SECONDS}s`;
  jsonData = {};
  annotations = {};
  meta: any = { id: 'prometheus', name: 'Prometheus', metrics: true, annotations: true, info: { logos: {} } };

  /** The scene whose variables annotations use; panels bring their own. */
  scene: any;

  getRef() {
    return { type: this.type, uid: this.uid };
  }

  testDatasource() {
    return Promise.resolve({ status: 'success', message: '' });
  }

  async query(request: any) {
    const targets = request.targets.filter((target: any) => target.expr && !target.hide);
    const frames = await Promise.all(targets.map((target: any) => this.frames(request, target, targets.length > 1)));
    return { data: frames.flat() };
  }

  private async frames(request: any, target: any, several: boolean): Promise<any[]> {
    const step = stepSeconds(request, target);
    const expr = this.fill(target.expr, request.scopedVars, request.range, step);
    const align = (time: any) => Math.floor(+time / 1000 / step) * step;
    const answer = target.instant
      ? await ask('query', { query: expr, time: +request.range.to / 1000 })
      : await ask('query_range', { query: expr, start: align(request.range.from), end: align(request.range.to), step });
    const result: Series[] = answer.resultType === 'scalar' ? [{ metric: {}, value: answer.result }] : answer.result;
    if (target.format === 'table') {
      return [tableFrame(target, result, several)];
    }
    return result.map((series) => timeFrame(target, series, expr, step));
  }

  /** Options of a variable. */
  async metricFindQuery(query: any, options: any) {
    const text = this.fill(typeof query === 'string' ? query : query.query, options.scopedVars ?? {}, options.range, SCRAPE_SECONDS);
    const result = /^query_result\((.+)\)$/s.exec(text.trim());
    if (result) {
      const answer = await ask('query', { query: result[1], time: +options.range.to / 1000 });
      return answer.result.map(({ metric, value }: Series) => ({
        text: `${seriesName(metric)} ${value![1]} ${value![0] * 1000}`,
      }));
    }
    const match = /^label_values\((?:(.+),\s*)?(\w+)\)$/s.exec(text.trim());
    if (!match) {
      throw new Error(`a query of an unknown kind: ${text}`);
    }
    const scope: Record<string, string> = match[1] ? { 'match[]': match[1] } : {};
    const range = { start: +options.range.from / 1000, end: +options.range.to / 1000 };
    const values: string[] = await ask(`label/${match[2]}/values`, { ...scope, ...range });
    return values.map((value) => ({ text: value, value }));
  }

  /** Marks on the time axes: neighbouring points of a series are one region. */
  async annotationQuery({ range, annotation }: any) {
    const expr = this.fill(annotation.expr, {}, range, MARK_STEP_SECONDS);
    const align = (time: any) => Math.floor(+time / 1000 / MARK_STEP_SECONDS) * MARK_STEP_SECONDS;
    const window = { start: align(range.from), end: align(range.to), step: MARK_STEP_SECONDS };
    const { result } = await ask('query_range', { query: expr, ...window });
    return result.flatMap((series: Series) => marks(series, annotation));
  }

  private fill(text: string, scoped: ScopedVars, range: any, step: number): string {
    const seconds = Math.round((+range.to - +range.from) / 1000);
    const macros: ScopedVars = {
      ...scoped,
      __interval: { value: `${step}s` },
      __rate_interval: { value: `${Math.max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s` },
      __range: { value: `${seconds}s` },
      __range_s: { value: seconds },
    };
    const asking = (scoped as any).__sceneObject?.value?.valueOf?.() ?? this.scene;
    return sceneGraph.interpolate(asking, text, macros, format as any);
  }
}

/** As Grafana's back end: from the width of the panel, never below the scrape interval. */
function stepSeconds(request: any, target: any): number {
  const least = target.interval ? rangeUtil.intervalToSeconds(target.interval) : SCRAPE_SECONDS;
  const range = (+request.range.to - +request.range.from) / 1000;
  const wanted = rangeUtil.roundInterval((range * 1000) / (request.maxDataPoints || 1000)) / 1000;
  return Math.max(least, wanted, Math.ceil(range / MOST_POINTS));
}

function marks(series: Series, annotation: any): any[] {
  const found: any[] = [];
  for (const [seconds] of series.values ?? []) {
    const time = seconds * 1000;
    const open = found.at(-1);
    if (open && time - open.timeEnd <= MARK_STEP_SECONDS * 1000) {
      open.timeEnd = time;
      open.isRegion = true;
    } else {
      found.push({
        time,
        timeEnd: time,
        title: series.metric.alertname ?? annotation.name,
        text: seriesName(series.metric),
        tags: [],
        source: annotation,
        color: annotation.iconColor,
      });
    }
  }
  return found;
}
