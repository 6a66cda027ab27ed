import { counted, countText } from './format.ts';
import { html, type Html } from './html.ts';

interface Bar {
  label: string;
  value: number;
  /** The part of the value that is drawn darker, from below; none by default. */
  part?: number;
  /** The value as text. */
  text: string;
}

/** Parts of the height for the text above the bars and for the labels below, in per cent. */
const head = 12;
const foot = 12;
/** The height of a small plot, in steps. */
const sparkHeight = 24;

/**
 * A bar chart as wide as its place. It uses per cent, so that its texts have the same size in each window. A table beside it
 * must have the same values, because not everyone sees the chart.
 */
export function barChart(bars: readonly Bar[], title: string, height: 'plot' | 'plot small' = 'plot'): Html {
  const every = Math.max(5, Math.ceil(bars.length / 8));
  const most = Math.max(...bars.map(({ value }) => value), 1);
  const step = 100 / Math.max(1, bars.length);
  const top = bars.find(({ value }) => value === most);
  return html`<svg class="${height}" role="img" aria-label="${title}; the table has the values">
    ${top && html`<line class="axis" x1="0" x2="100%" y1="${percent(head)}" y2="${percent(head)}" />`}
    ${bars.map(({ label, value, part = 0, text }, index) => {
      const size = Math.max(value > 0 ? 0.5 : 0, (value / most) * (100 - foot - head));
      const lower = value === 0 ? 0 : (part / value) * size;
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
          lower > 0 &&
          html`<rect
            class="part"
            x="${percent(index * step + step * 0.12)}"
            y="${percent(100 - foot - lower)}"
            width="${percent(step * 0.76)}"
            height="${percent(lower)}"
          ></rect>`
        }
        ${
          (index % every === 0 || bars.length < 12) &&
          html`<text x="${percent((index + 0.5) * step)}" y="99%" text-anchor="middle">${label}</text>`
        }`;
    })}
    <line class="axis" x1="0" x2="100%" y1="${percent(100 - foot)}" y2="${percent(100 - foot)}" />
    ${top && html`<text x="0" y="${percent(head - 3)}">at most ${top.text}</text>`}
  </svg>`;
}

/**
 * A small plot of the numbers of the last days, today last, for a cell of a table. Its title says the same in words: the sum and
 * the highest number of `one` or `many`. Nothing without a number.
 */
export function sparkline(values: readonly number[] | undefined, one: string, many?: string): Html | undefined {
  const most = Math.max(0, ...(values ?? []));
  if (!values || most === 0) return undefined;
  const sum = values.reduce((all, each) => all + each, 0);
  const path = values.map((each, index) => {
    const height = Math.ceil((sparkHeight * each) / most);
    return height > 0 ? `M${index * 3 + 1} ${sparkHeight}v-${height}` : '';
  });
  const text = `${counted(sum, one, many)} in ${values.length} days, ${countText(most)} at most on a day`;
  return html`<svg class="spark" role="img" viewBox="0 0 ${values.length * 3} ${sparkHeight}">
    <title>${text}</title>
    <path d="${path.join('')}" />
  </svg>`;
}

function percent(value: number): string {
  return `${value.toFixed(2)}%`;
}

/** A bar that shows a share of a whole, with its text. */
export function shareBar(value: number, whole: number, text: string): Html {
  return html`<meter
      min="0"
      max="${Math.max(whole, 1)}"
      value="${Math.min(value, whole)}"
      high="${whole * 0.9}"
    ></meter>
    ${text}`;
}
