import { getDisplayValueAlignmentFactors, getFieldDisplayValues, type PanelProps } from '@grafana/data';
import { BigValue, VizRepeater, useTheme2 } from '@grafana/ui';

/** Grafana's own components. */
export function StatPanel(props: PanelProps<any>) {
  const { data, options, fieldConfig, replaceVariables, renderCounter, timeRange, timeZone, width, height } = props;
  const theme = useTheme2();
  const getValues = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables,
      theme,
      data: data.series,
      sparkline: options.graphMode !== 'none',
      timeZone,
    });
  return (
    <VizRepeater
      getValues={getValues}
      getAlignmentFactors={getDisplayValueAlignmentFactors as any}
      width={width}
      height={height}
      source={data}
      itemSpacing={3}
      renderCounter={renderCounter}
      autoGrid
      orientation={options.orientation}
      renderValue={({ value, width, height, alignmentFactors, count }: any) => {
        const sparkline = value.sparkline && { ...value.sparkline, timeRange };
        return (
          <BigValue
            value={value.display}
            count={count}
            sparkline={options.graphMode === 'area' ? sparkline : undefined}
            colorMode={options.colorMode}
            graphMode={options.graphMode}
            justifyMode={options.justifyMode}
            textMode={options.textMode}
            alignmentFactors={alignmentFactors}
            text={options.text}
            width={width}
            height={height}
            theme={theme}
            disableWideLayout={!options.wideLayout}
          />
        );
      }}
    />
  );
}
