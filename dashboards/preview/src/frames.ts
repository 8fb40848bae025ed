/** Prometheus' answers as Grafana's data frames, as its Prometheus data source makes them. */
import { FieldType } from '@grafana/data';

export interface Series {
  metric: Record<string, string>;
  value?: [number, string];
  values?: [number, string][];
}

/** A name like `up{job="node"}`. */
export function seriesName(metric: Record<string, string>): string {
  const { __name__ = '', ...labels } = metric;
  const text = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
  return `${__name__}{${text.join(', ')}}`;
}

/** One frame of a time and a value field. */
export function timeFrame(target: any, series: Series, expr: string, stepSeconds: number): any {
  const { __name__, ...labels } = series.metric;
  const points = series.values ?? (series.value ? [series.value] : []);
  const { times, values } = withGaps(points, stepSeconds);
  const legend = target.legendFormat === '__auto' ? undefined : fillLegend(target.legendFormat, series.metric);
  const name = legend ?? (Object.keys(series.metric).length ? seriesName(series.metric) : expr);
  return {
    refId: target.refId,
    name,
    meta: { type: 'timeseries-multi', executedQueryString: expr },
    length: times.length,
    fields: [
      { name: 'Time', type: FieldType.time, config: { interval: stepSeconds * 1000 }, values: times },
      { name: 'Value', type: FieldType.number, config: { displayNameFromDS: name }, labels, values },
    ],
  };
}

/** One frame with a column for each label; rows are series. */
export function tableFrame(target: any, result: Series[], several: boolean): any {
  const keys = [...new Set(result.flatMap((series) => Object.keys(series.metric)))].sort();
  const values = result.map((series) => number((series.value ?? series.values!.at(-1)!)[1]));
  return {
    refId: target.refId,
    length: result.length,
    fields: [
      {
        name: 'Time',
        type: FieldType.time,
        config: {},
        values: result.map((series) => (series.value ?? series.values!.at(-1)!)[0] * 1000),
      },
      ...keys.map((key) => ({
        name: key,
        type: FieldType.string,
        config: { filterable: true },
        values: result.map((series) => series.metric[key] ?? ''),
      })),
      { name: several ? `Value #${target.refId}` : 'Value', type: FieldType.number, config: {}, values },
    ],
  };
}

function fillLegend(legend: string, metric: Record<string, string>): string {
  return legend.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label) => metric[label] ?? '');
}

/** A missing point becomes null, so that a line breaks there. */
function withGaps(points: [number, string][], stepSeconds: number) {
  const times: number[] = [];
  const values: (number | null)[] = [];
  for (const [seconds, text] of points) {
    const last = times.at(-1);
    if (last !== undefined && seconds * 1000 - last > stepSeconds * 1500) {
      times.push(last + stepSeconds * 1000);
      values.push(null);
    }
    times.push(seconds * 1000);
    values.push(number(text));
  }
  return { times, values };
}

function number(text: string): number {
  if (text === '+Inf') {
    return Infinity;
  }
  return text === '-Inf' ? -Infinity : Number(text);
}
