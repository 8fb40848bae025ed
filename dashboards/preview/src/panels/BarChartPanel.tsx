import {
  FieldType,
  cacheFieldDisplayNames,
  formattedValueToString,
  getFieldSeriesColor,
  type Field,
  type GrafanaTheme2,
  type PanelProps,
} from '@grafana/data';
import { VizLayout, VizLegend, useTheme2 } from '@grafana/ui';
import { useMemo } from 'react';
import { NoData } from './NoData';
import { FONT_PIXELS, textWidth } from './plot';

const TICKS = 5;

/** Ours: that of Grafana is not on npm. Bars or stacks by name, standing or lying, coloured by series or by value. */
export function BarChartPanel(props: PanelProps<any>) {
  const { data, options, width, height } = props;
  const theme = useTheme2();
  useMemo(() => cacheFieldDisplayNames(data.series), [data.series]);
  const frame = data.series[0];
  const names = frame?.fields.find((field) => field.name === options.xField || field.state?.displayName === options.xField);
  const numbers = frame?.fields.filter((field) => field !== names && field.type === FieldType.number) ?? [];
  if (!names || !numbers.length || !frame.length) {
    return <NoData {...props} />;
  }
  const items: any[] = numbers.map((field) => ({
    label: field.state?.displayName ?? field.name,
    color: getFieldSeriesColor(field, theme).color,
    yAxis: 1,
  }));
  const legend = (
    <VizLayout.Legend placement="bottom">
      <VizLegend placement="bottom" displayMode={'list' as any} items={items} />
    </VizLayout.Legend>
  );
  return (
    <VizLayout width={width} height={height} legend={options.legend.showLegend ? legend : null}>
      {(wide: number, high: number) => (
        <Bars names={names.values} fields={numbers} options={options} width={wide} height={high} />
      )}
    </VizLayout>
  );
}

interface BarsProps {
  names: string[];
  fields: Field[];
  options: any;
  width: number;
  height: number;
}

interface Piece {
  from: number;
  to: number;
  value: number;
  field: Field;
  /** Which part of the bar's thickness is its own: 0 and 1 for all of it. */
  slot: number;
  slots: number;
}

function Bars({ names, fields, options, width, height }: BarsProps) {
  const theme = useTheme2();
  const lying = options.orientation === 'horizontal';
  const pieces = names.map((_, index) => (options.stacking === 'none' ? beside : stack)(fields, index));
  const scale = makeScale(pieces.flat(), fields[0]);
  const label = (value: number) => formattedValueToString(fields[0].display!(value));
  const ticks = scale.ticks.map(label);
  const nameRoom = textWidth(names, theme) + 14;
  const plot = lying
    ? { left: nameRoom, top: 8, right: width - 56, bottom: height - 24 }
    : { left: textWidth(ticks, theme) + 16, top: 8, right: width - 8, bottom: height - 24 };
  const band = (lying ? plot.bottom - plot.top : plot.right - plot.left) / names.length;
  const along = (value: number) => {
    const share = (value - scale.low) / (scale.high - scale.low);
    return lying ? plot.left + share * (plot.right - plot.left) : plot.bottom - share * (plot.bottom - plot.top);
  };
  const every = lying || !options.xTickLabelSpacing ? 1 : Math.ceil(nameRoom / band);
  const text = { fontSize: FONT_PIXELS, fill: theme.colors.text.primary };
  return (
    <svg width={width} height={height}>
      {scale.ticks.map((tick, index) => (
        <g key={tick}>
          <line {...across(lying, along(tick), plot)} stroke={theme.colors.border.weak} />
          {lying ? (
            <text {...text} x={along(tick)} y={height - 8} textAnchor="middle">
              {ticks[index]}
            </text>
          ) : (
            <text {...text} x={plot.left - 8} y={along(tick) + 4} textAnchor="end">
              {ticks[index]}
            </text>
          )}
        </g>
      ))}
      {names.map((name, index) => {
        const begin = (lying ? plot.top : plot.left) + band * (index + (1 - options.barWidth) / 2);
        const thick = band * options.barWidth;
        const end = pieces[index].at(-1);
        return (
          <g key={name}>
            {pieces[index].map((piece) => (
              <rect
                key={piece.field.name}
                {...area(lying, begin + (thick * piece.slot) / piece.slots, thick / piece.slots, along(piece.from), along(piece.to))}
                fill={colour(piece, theme)}
                fillOpacity={(piece.field.config.custom.fillOpacity ?? 80) / 100}
              />
            ))}
            {lying ? (
              <text {...text} x={plot.left - 8} y={begin + thick / 2 + 4} textAnchor="end">
                {name}
              </text>
            ) : (
              index % every === 0 && (
                <text {...text} x={begin + thick / 2} y={height - 8} textAnchor="middle">
                  {name}
                </text>
              )
            )}
            {options.showValue === 'always' && end && lying && (
              <text
                {...text}
                fill={colour(end, theme)}
                x={along(end.to) + (end.to < 0 ? -6 : 6)}
                y={begin + thick / 2 + 4}
                textAnchor={end.to < 0 ? 'end' : 'start'}
              >
                {label(end.value)}
              </text>
            )}
          </g>
        );
      })}
      <line {...across(lying, along(0), plot)} stroke={theme.colors.text.secondary} />
    </svg>
  );
}

/** The pieces of one bar, from zero outwards. */
function stack(fields: Field[], index: number): Piece[] {
  let from = 0;
  return fields.flatMap((field) => {
    const value = field.values[index];
    if (!Number.isFinite(value)) {
      return [];
    }
    const piece = { from, to: from + value, value, field, slot: 0, slots: 1 };
    from = piece.to;
    return [piece];
  });
}

/** One bar for each field, all from zero. */
function beside(fields: Field[], index: number): Piece[] {
  return fields.flatMap((field, slot) => {
    const value = field.values[index];
    return Number.isFinite(value) ? [{ from: 0, to: value, value, field, slot, slots: fields.length }] : [];
  });
}

function colour({ field, value }: Piece, theme: GrafanaTheme2): string {
  const byValue = field.config.color?.mode === 'thresholds';
  return byValue ? field.display!(value).color! : getFieldSeriesColor(field, theme).color;
}

/** Round ticks that hold all pieces and zero. */
function makeScale(pieces: Piece[], field: Field) {
  const { axisSoftMin = 0, axisSoftMax = 0 } = field.config.custom;
  const ends = [0, axisSoftMin, axisSoftMax, ...pieces.flatMap(({ from, to }) => [from, to])];
  const [least, most] = [field.config.min ?? Math.min(...ends), field.config.max ?? Math.max(...ends)];
  const rough = (most - least || 1) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough)!;
  const low = Math.floor(least / step) * step;
  const count = Math.ceil((most - low) / step);
  return { low, high: low + count * step, ticks: Array.from({ length: count + 1 }, (_, index) => low + index * step) };
}

function across(lying: boolean, at: number, plot: any) {
  return lying ? { x1: at, x2: at, y1: plot.top, y2: plot.bottom } : { x1: plot.left, x2: plot.right, y1: at, y2: at };
}

function area(lying: boolean, begin: number, thick: number, one: number, other: number) {
  const [low, long] = [Math.min(one, other), Math.abs(one - other)];
  return lying
    ? { x: low, y: begin, width: long, height: thick }
    : { x: begin, y: low, width: thick, height: long };
}
