import {
  FieldType,
  colorManipulator,
  formattedValueToString,
  getFieldDisplayName,
  getValueFormat,
  type GrafanaTheme2,
  type PanelProps,
} from '@grafana/data';
import { UPlotChart, VizLayout, useTheme2 } from '@grafana/ui';
import { useMemo } from 'react';
import { NoData } from './NoData';
import { clipped, frameOnly, linesBuilder } from './plot';

/** Ours: that of Grafana is not on npm. One line for each series, as Grafana draws series that are no buckets. */
export function HeatmapPanel(props: PanelProps<any>) {
  const { data, options, timeRange, width, height } = props;
  const theme = useTheme2();
  const lines = useMemo(() => findLines(data.series, options.yAxis.reverse), [data.series, options]);
  const palette = useMemo(() => quantize(options.color, theme), [options, theme]);
  const config = useMemo(() => {
    const builder = linesBuilder(
      props,
      theme,
      lines.map((line) => line.name)
    );
    builder.addHook('draw', (plot: any) => clipped(plot, (context) => paint(plot, context)));
    return builder;

    function paint(plot: any, context: CanvasRenderingContext2D) {
      const { min, max } = options.color;
      const lineHeight = plot.bbox.height / lines.length;
      const gap = options.cellGap * devicePixelRatio;
      lines.forEach((line, index) => {
        line.times.forEach((time: number, point: number) => {
          const value = line.values[point];
          if (value === null || value <= options.filterValues.le) {
            return;
          }
          const share = Math.min(1, Math.max(0, (value - min) / (max - min)));
          const left = plot.valToPos(time - line.interval / 2, 'x', true);
          const right = plot.valToPos(time + line.interval / 2, 'x', true);
          context.fillStyle = palette[Math.round(share * (palette.length - 1))];
          const [x, y] = [Math.round(left), Math.round(plot.bbox.top + index * lineHeight)];
          const [nextX, nextY] = [Math.round(right), Math.round(plot.bbox.top + (index + 1) * lineHeight)];
          context.fillRect(x + gap / 2, y + gap / 2, Math.max(1, nextX - x - gap), Math.max(1, nextY - y - gap));
        });
      });
    }
  }, [lines, palette, timeRange, options, theme]);
  if (!lines.length) {
    return <NoData {...props} />;
  }
  const legend = (
    <VizLayout.Legend placement="bottom">
      <Scale options={options} palette={palette} />
    </VizLayout.Legend>
  );
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(wide: number, high: number) => (
        <UPlotChart config={config} data={frameOnly(props)} width={wide} height={high} />
      )}
    </VizLayout>
  );
}

function findLines(series: PanelProps['data']['series'], firstAtTop: boolean) {
  const lines = series.map((frame) => {
    const [time, value] = [FieldType.time, FieldType.number].map((type) => frame.fields.find((one) => one.type === type)!);
    return {
      name: getFieldDisplayName(value, frame, series),
      times: time.values,
      values: value.values,
      interval: time.config.interval ?? 0,
    };
  });
  return firstAtTop ? lines : lines.reverse();
}

/** From the background to the signal colour. */
function quantize({ mode, fill, steps }: any, theme: GrafanaTheme2): string[] {
  if (mode !== 'opacity') {
    throw new Error(`the preview draws heatmaps by opacity only, not by ${mode}`);
  }
  const colour = theme.visualization.getColorByName(fill);
  return Array.from({ length: steps }, (_, index) => colorManipulator.alpha(colour, index / (steps - 1)));
}

function Scale({ options, palette }: { options: any; palette: string[] }) {
  const theme = useTheme2();
  const format = getValueFormat(options.cellValues.unit);
  const [low, high] = [options.color.min, options.color.max].map((value) =>
    formattedValueToString(format(value, options.cellValues.decimals))
  );
  const style = { display: 'flex', gap: 8, padding: '0 8px', alignItems: 'center', fontSize: 12 };
  return (
    <div style={{ ...style, color: theme.colors.text.secondary }}>
      {low}
      <div style={{ width: 240, height: 8, background: `linear-gradient(90deg, ${palette.join(',')})` }} />
      {high}
    </div>
  );
}
