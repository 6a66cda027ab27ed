import { html, type Html } from './html.ts';

export interface Bar {
  label: string;
  value: number;
  /** The value as text. */
  text: string;
}

const width = 720;
const height = 180;
const foot = 22;
const head = 16;

/** A bar chart. A table beside it must have the same values, because not everyone sees the chart. */
export function barChart(bars: readonly Bar[], title: string): Html {
  const most = Math.max(...bars.map(({ value }) => value), 1);
  const step = width / Math.max(1, bars.length);
  const top = bars.find(({ value }) => value === most);
  return html`<svg
    class="plot"
    viewBox="0 0 ${width} ${height}"
    role="img"
    aria-label="${title}; the table has the values"
  >
    ${bars.map(({ label, value, text }, index) => {
      const size = Math.max(value > 0 ? 1 : 0, (value / most) * (height - foot - head));
      const x = (index * step + step * 0.12).toFixed(1);
      return html`<rect
          class="bar"
          x="${x}"
          y="${(height - foot - size).toFixed(1)}"
          width="${(step * 0.76).toFixed(1)}"
          height="${size.toFixed(1)}"
          rx="1.5"
        >
          <title>${label}: ${text}</title>
        </rect>
        ${
          (index % 5 === 0 || bars.length < 12) &&
          html`<text x="${(index * step + step / 2).toFixed(1)}" y="${height - 6}" text-anchor="middle">${label}</text>`
        }`;
    })}
    <line class="axis" x1="0" x2="${width}" y1="${height - foot}" y2="${height - foot}" />
    ${top && html`<text x="0" y="11">at most ${top.text}</text>`}
  </svg>`;
}
