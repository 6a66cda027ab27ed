import { html, type Html } from './html.ts';

interface Bar {
  label: string;
  value: number;
  /** The value as text. */
  text: string;
}

/** Parts of the height for the text above the bars and for the labels below, in per cent. */
const head = 12;
const foot = 12;

/**
 * A bar chart as wide as its place. It uses per cent, so that its texts have the same size in each window. A table beside it
 * must have the same values, because not everyone sees the chart.
 */
export function barChart(bars: readonly Bar[], title: string): Html {
  const most = Math.max(...bars.map(({ value }) => value), 1);
  const step = 100 / Math.max(1, bars.length);
  const top = bars.find(({ value }) => value === most);
  return html`<svg class="plot" role="img" aria-label="${title}; the table has the values">
    ${top && html`<line class="axis" x1="0" x2="100%" y1="${percent(head)}" y2="${percent(head)}" />`}
    ${bars.map(({ label, value, text }, index) => {
      const size = Math.max(value > 0 ? 0.5 : 0, (value / most) * (100 - foot - head));
      return html`<rect
          class="bar"
          x="${percent(index * step + step * 0.12)}"
          y="${percent(100 - foot - size)}"
          width="${percent(step * 0.76)}"
          height="${percent(size)}"
        >
          <title>${label}: ${text}</title>
        </rect>
        ${
          (index % 5 === 0 || bars.length < 12) &&
          html`<text x="${percent((index + 0.5) * step)}" y="99%" text-anchor="middle">${label}</text>`
        }`;
    })}
    <line class="axis" x1="0" x2="100%" y1="${percent(100 - foot)}" y2="${percent(100 - foot)}" />
    ${top && html`<text x="0" y="${percent(head - 3)}">at most ${top.text}</text>`}
  </svg>`;
}

function percent(value: number): string {
  return `${value.toFixed(2)}%`;
}
