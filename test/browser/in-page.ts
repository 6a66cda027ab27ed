import axe from 'axe-core';
import type { Page } from 'playwright-core';

// What tests measure inside of a page. Each function runs in the browser, so it uses nothing from outside of itself.

const rules = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** The violations that axe finds, as `rule: element`. `only` limits it to some rules. */
export async function violationsOf(page: Page, only?: readonly string[]): Promise<string[]> {
  const isLoaded = await page.evaluate(() => 'axe' in globalThis);
  if (!isLoaded) await page.evaluate(axe.source);
  const runOnly = only ? { type: 'rule' as const, values: [...only] } : { type: 'tag' as const, values: rules };
  const options = { runOnly, resultTypes: ['violations' as const], rules: { 'target-size': { enabled: true } } };
  return page.evaluate(async (given) => {
    const { violations } = await (globalThis as unknown as { axe: typeof axe }).axe.run(document, given);
    return violations.flatMap(({ id, nodes }) =>
      nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 200)} ${failureSummary?.slice(0, 300)}`),
    );
  }, options);
}

export interface PageFacts {
  title: string;
  lang: string;
  h1: number;
  /** The width of what scrolls sideways beyond the window, in pixels. */
  overflow: number;
  /** Elements that reach beyond the window although no scrolling part has them. */
  wide: string[];
  /** Buttons, fields and entries of the navigation smaller than 24 pixels in a direction. */
  small: string[];
}

export function factsOf(page: Page): Promise<PageFacts> {
  return page.evaluate(() => {
    const root = document.documentElement;
    const visible = [...document.body.querySelectorAll('*')].filter((each) => each.getClientRects().length > 0);
    const isInScroller = (element: Element | null): boolean =>
      element !== null && (getComputedStyle(element).overflowX !== 'visible' || isInScroller(element.parentElement));
    const wide = visible.filter(
      (each) => each.getBoundingClientRect().right > root.clientWidth + 1 && !isInScroller(each),
    );
    const controls = 'button, input:not([type=hidden]), select, textarea, summary, nav a, .button, [role=button]';
    const small = visible.filter((each) => {
      if (!each.matches(controls)) return false;
      const box = (each.closest('label') ?? each).getBoundingClientRect();
      return box.width < 24 || box.height < 24;
    });
    return {
      title: document.title,
      lang: root.lang,
      h1: document.querySelectorAll('h1').length,
      overflow: root.scrollWidth - root.clientWidth,
      wide: wide.map((each) => each.outerHTML.slice(0, 120)),
      small: small.map((each) => each.outerHTML.slice(0, 120)),
    };
  });
}

/** An element that Tab has reached. */
export interface Stop {
  /** Its place among the elements that Tab should reach; -1 for another one. */
  index: number;
  html: string;
  /** Whether an outline of 2 pixels or more shows the focus, within the window. */
  visible: boolean;
}

/** Lists the elements that Tab should reach, for `focusOf`. Resolves to their number. */
export function listStops(page: Page): Promise<number> {
  return page.evaluate(() => {
    // Tab reaches the chosen button of a radio group; arrow keys reach its others.
    const input = 'input:not([type=hidden], [type=radio]:not(:checked))';
    const focusable = `a[href], button, ${input}, select, textarea, summary, [tabindex]`;
    const stops = [...document.querySelectorAll<HTMLElement>(focusable)].filter(
      (each) => each.tabIndex >= 0 && !each.matches(':disabled') && each.checkVisibility({ visibilityProperty: true }),
    );
    Object.assign(globalThis, { stops });
    return stops.length;
  });
}

/** The element that has the focus; undefined if it is the document. */
export function focusOf(page: Page): Promise<Stop | undefined> {
  return page.evaluate(() => {
    const { stops } = globalThis as unknown as { stops: Element[] };
    const element = document.activeElement;
    if (!element || element === document.body) return undefined;
    const { outlineStyle, outlineWidth } = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const isInside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    return {
      index: stops.indexOf(element),
      html: element.outerHTML.slice(0, 120),
      visible: outlineStyle !== 'none' && Number.parseFloat(outlineWidth) >= 2 && isInside && box.width > 1,
    };
  });
}

/** What a text from outside could have added to a page of the console: scripts, handlers, styles, frames, addresses. */
export function dangersIn(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const dangers: string[] = [];
    const own = location.origin;
    for (const element of document.querySelectorAll('*')) {
      const isOwnScript = element instanceof HTMLScriptElement && element.src.startsWith(`${own}/console/assets/`);
      if (element.matches('script, iframe, object, embed, base, style, meta[http-equiv], template') && !isOwnScript)
        dangers.push(element.outerHTML.slice(0, 200));
      for (const { name, value } of element.attributes) {
        const isAddress = ['href', 'src', 'action', 'formaction', 'poster', 'srcset', 'ping'].includes(name);
        const url = isAddress && URL.canParse(value, location.href) ? new URL(value, location.href) : undefined;
        const isLink = element.matches('a') && url !== undefined && /^https?:$/.test(url.protocol);
        if (/^on|^style$|^srcdoc$/.test(name) || (isAddress && url?.origin !== own && !isLink))
          dangers.push(`${name}="${value}" of ${element.outerHTML.slice(0, 200)}`);
      }
    }
    const scripts = document.scripts.length;
    return scripts === 1 ? dangers : [...dangers, `${scripts} scripts`];
  });
}

/** Opens all parts of a page that are closed at first. */
export function openDetails(page: Page): Promise<void> {
  return page.evaluate(() => {
    for (const each of document.querySelectorAll('details')) each.open = true;
  });
}
