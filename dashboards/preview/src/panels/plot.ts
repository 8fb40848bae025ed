/** What our two drawings on a time axis share. */
import { type GrafanaTheme2, type PanelProps } from '@grafana/data';
import { UPlotConfigBuilder } from '@grafana/ui';

export const FONT_PIXELS = 12;

const Horizontal: any = 0;
const Vertical: any = 1;
const Increasing: any = 1;

/** A plot with a time axis below, names at the left, and room for lines of equal height between. */
export function linesBuilder(
  props: PanelProps<any>,
  theme: GrafanaTheme2,
  names: string[],
  least = 13
): UPlotConfigBuilder {
  const { timeRange, timeZone } = props;
  const builder = new UPlotConfigBuilder(timeZone);
  builder.addScale({
    scaleKey: 'x',
    isTime: true,
    orientation: Horizontal,
    direction: Increasing,
    range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()],
  });
  builder.addScale({
    scaleKey: 'y',
    isTime: false,
    orientation: Vertical,
    direction: Increasing,
    range: [0, names.length] as any,
  });
  const axis: any = { theme, grid: { show: false } };
  builder.addAxis({ ...axis, scaleKey: 'x', isTime: true, placement: 'bottom', timeZone });
  builder.addAxis({
    ...axis,
    scaleKey: 'y',
    isTime: false,
    placement: 'left',
    size: textWidth(names, theme) + 18,
    ticks: { show: false },
    splits: (plot: any) => everySoMany(names.length, plot.height, least).map((line) => names.length - line - 0.5),
    values: (_: any, splits: number[]) => splits.map((split) => names[Math.round(names.length - split - 0.5)]),
  });
  const invisible: any = { scaleKey: 'y', theme, show: true, pathBuilder: () => null, pointsBuilder: () => null };
  builder.addSeries(invisible);
  return builder;
}

/** Which lines get a name: all, or every second, fourth, … where they would overlap. */
function everySoMany(count: number, height: number, least: number): number[] {
  let every = 1;
  while (count / every > 3 && (height - 15) / (count / every) < least) {
    every *= 2;
  }
  return Array.from({ length: Math.ceil(count / every) }, (_, index) => index * every);
}

/** Data that makes uPlot draw its axes; the lines are painted by a hook. */
export function frameOnly(props: PanelProps<any>): any {
  const { from, to } = props.timeRange;
  return [
    [from.valueOf(), to.valueOf()],
    [0, 1],
  ];
}

/** Paint inside the axes only. */
export function clipped(plot: any, paint: (context: CanvasRenderingContext2D) => void): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  paint(ctx);
  ctx.restore();
}

export function textWidth(texts: string[], theme: GrafanaTheme2): number {
  const context = document.createElement('canvas').getContext('2d')!;
  context.font = `${FONT_PIXELS}px ${theme.typography.fontFamily}`;
  return Math.max(0, ...texts.map((text) => context.measureText(text).width));
}
