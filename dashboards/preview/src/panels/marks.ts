/** Annotations on a time axis: a dashed line where one begins, a tinted region for as long as it lasts. */
import { colorManipulator, type DataFrame, type GrafanaTheme2 } from '@grafana/data';

export function drawMarks(plot: any, frames: DataFrame[], theme: GrafanaTheme2): void {
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  ctx.save();
  for (const frame of frames) {
    const field = (name: string) => frame.fields.find((one) => one.name === name)?.values ?? [];
    const [times, ends, colours] = [field('time'), field('timeEnd'), field('color')];
    for (let index = 0; index < frame.length; index++) {
      const begin = Math.max(plot.valToPos(times[index], 'x', true), bbox.left);
      const end = Math.min(plot.valToPos(ends[index] || times[index], 'x', true), right);
      if (end < bbox.left || begin > right) {
        continue;
      }
      const colour = theme.visualization.getColorByName(colours[index] || 'red');
      ctx.fillStyle = colorManipulator.alpha(colour, 0.08);
      ctx.fillRect(begin, bbox.top, end - begin, bbox.height);
      ctx.fillStyle = colour;
      ctx.fillRect(begin, bbox.top + bbox.height, Math.max(end - begin, 4), 3);
      ctx.strokeStyle = colour;
      ctx.setLineDash([4, 4]);
      ctx.beginPath();
      ctx.moveTo(begin, bbox.top);
      ctx.lineTo(begin, bbox.top + bbox.height);
      ctx.stroke();
    }
  }
  ctx.restore();
}
