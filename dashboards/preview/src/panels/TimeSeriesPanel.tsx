import { FieldType, type PanelProps } from '@grafana/data';
import { TimeSeries, useTheme2 } from '@grafana/ui';
import { useEffect, useMemo, useRef } from 'react';
import { drawMarks } from './marks';
import { NoData } from './NoData';

/** Grafana's own component; the marks are ours. */
export function TimeSeriesPanel(props: PanelProps<any>) {
  const { data, options, timeRange, timeZone, width, height } = props;
  const theme = useTheme2();
  const plot = useRef<any>(null);
  const marks = useRef(data.annotations ?? []);
  marks.current = data.annotations ?? [];
  useEffect(() => plot.current?.redraw(false, true), [data.annotations]);
  const frames = useMemo(
    () => data.series.filter((frame) => frame.length && frame.fields.some((field) => field.type === FieldType.number)),
    [data.series]
  );
  if (!frames.length) {
    return <NoData {...props} />;
  }
  const prepared = new WeakSet();
  return (
    <TimeSeries
      frames={frames}
      structureRev={data.structureRev}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={options.legend}
      options={options}
    >
      {(builder: any) => {
        if (!prepared.has(builder)) {
          prepared.add(builder);
          builder.addHook('init', (made: any) => {
            plot.current = made;
          });
          builder.addHook('draw', (made: any) => drawMarks(made, marks.current, theme));
        }
        return null;
      }}
    </TimeSeries>
  );
}
