import { cacheFieldDisplayNames, type PanelProps } from '@grafana/data';
import { TableNG } from '@grafana/ui/unstable';
import { useMemo } from 'react';
import { NoData, isEmpty } from './NoData';

// Its properties are not public and change from version to version.
const Table: any = TableNG;

/** Grafana's own component. */
export function TablePanel(props: PanelProps<any>) {
  const { data, options, fieldConfig, timeRange, width, height } = props;
  // Without this the headings are the names from before the renaming.
  useMemo(() => cacheFieldDisplayNames(data.series), [data.series]);
  if (isEmpty(props)) {
    return <NoData {...props} />;
  }
  return (
    <Table
      data={data.series[options.frameIndex ?? 0]}
      width={width}
      height={height}
      noHeader={!options.showHeader}
      showTypeIcons={options.showTypeIcons}
      sortBy={options.sortBy}
      cellHeight={options.cellHeight}
      timeRange={timeRange}
      fieldConfig={fieldConfig}
      structureRev={data.structureRev}
      resizable
    />
  );
}
