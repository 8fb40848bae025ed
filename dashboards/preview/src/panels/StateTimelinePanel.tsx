import { FieldType, colorManipulator, getFieldDisplayName, type PanelProps } from '@grafana/data';
import { UPlotChart, VizLayout, VizLegend, useTheme2 } from '@grafana/ui';
import { useMemo } from 'react';
import { NoData } from './NoData';
import { FONT_PIXELS, clipped, frameOnly, linesBuilder } from './plot';

/** Ours: that of Grafana is not on npm. One band for each series, equal neighbours in one piece. */
export function StateTimelinePanel(props: PanelProps<any>) {
  const { data, options, timeRange, width, height } = props;
  const theme = useTheme2();
  const bands = useMemo(() => findBands(data.series).slice(0, options.perPage || undefined), [data.series, options]);
  const config = useMemo(() => {
    const names = bands.map((band) => band.name);
    const builder = linesBuilder(props, theme, names);
    builder.addHook('draw', (plot: any) => clipped(plot, (context) => paint(plot, context)));
    return builder;

    function paint(plot: any, context: CanvasRenderingContext2D) {
      const lineHeight = plot.bbox.height / bands.length;
      context.font = `${FONT_PIXELS * devicePixelRatio}px ${theme.typography.fontFamily}`;
      context.textBaseline = 'middle';
      context.textAlign = 'left';
      bands.forEach((band, line) => {
        const tall = lineHeight * options.rowHeight;
        const top = plot.bbox.top + line * lineHeight + (lineHeight - tall) / 2;
        for (const piece of band.pieces) {
          const left = plot.valToPos(piece.from, 'x', true);
          const wide = plot.valToPos(Math.min(piece.to, timeRange.to.valueOf()), 'x', true) - left;
          const { text, color } = band.field.display!(piece.value);
          if (color === 'transparent') {
            continue;
          }
          context.fillStyle = colorManipulator.alpha(color!, band.field.config.custom.fillOpacity / 100);
          context.fillRect(left, top, wide, tall);
          if (options.showValue !== 'never' && context.measureText(text).width < wide - 8) {
            context.fillStyle = theme.colors.getContrastText(color!);
            context.fillText(text, left + 4, top + tall / 2);
          }
        }
      });
    }
  }, [bands, timeRange, options, theme]);
  if (!bands.length) {
    return <NoData {...props} />;
  }
  const legend = (
    <VizLayout.Legend placement="bottom">
      <VizLegend placement="bottom" displayMode={'list' as any} items={legendItems(bands)} />
    </VizLayout.Legend>
  );
  return (
    <VizLayout width={width} height={height} legend={options.legend.showLegend ? legend : null}>
      {(wide: number, high: number) => (
        <UPlotChart config={config} data={frameOnly(props)} width={wide} height={high} />
      )}
    </VizLayout>
  );
}

function findBands(series: PanelProps['data']['series']) {
  return series.flatMap((frame) => {
    const time = frame.fields.find((field) => field.type === FieldType.time)!;
    return frame.fields
      .filter((field) => field !== time)
      .map((field) => ({ name: getFieldDisplayName(field, frame, series), field, pieces: findPieces(time, field) }));
  });
}

function findPieces(time: any, field: any) {
  const pieces: { from: number; to: number; value: unknown }[] = [];
  time.values.forEach((from: number, index: number) => {
    const value = field.values[index];
    const to = time.values[index + 1] ?? from + (time.config.interval ?? 0);
    const last = pieces.at(-1);
    if (value === null || value === undefined) {
      return;
    }
    if (last && last.value === value && last.to === from) {
      last.to = to;
    } else {
      pieces.push({ from, to, value });
    }
  });
  return pieces;
}

function legendItems(bands: ReturnType<typeof findBands>): any[] {
  const items = new Map<string, any>();
  for (const { field, pieces } of bands) {
    for (const { value } of pieces) {
      const { text, color, numeric } = field.display!(value);
      items.set(text, { label: text, color, yAxis: 1, numeric });
    }
  }
  return [...items.values()].sort((one, other) => one.numeric - other.numeric);
}
