import type { PanelProps } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';

export function isEmpty({ data }: PanelProps<any>): boolean {
  return data.series.every((frame) => frame.length === 0);
}

/** What a panel shows in the place of a drawing. */
export function NoData({ data, width, height, fieldConfig }: PanelProps<any>) {
  const theme = useTheme2();
  const color = data.error ? theme.colors.error.text : theme.colors.text.secondary;
  const text = data.error?.message ?? fieldConfig.defaults.noValue ?? 'No data';
  return (
    <div style={{ width, height, color, display: 'flex', alignItems: 'center', justifyContent: 'center' }}>{text}</div>
  );
}
