/** Safe HTML. Only `html` creates it, so that every other value is escaped. */
export class Html {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a template takes: texts and numbers are escaped; undefined, null and false are left out; lists are joined. */
export type HtmlPart = Html | string | number | undefined | null | false | readonly HtmlPart[];

/**
 * HTML from a template. Values are escaped for text and for quoted attributes, so each attribute with a value needs double
 * quotes. It does not make an address safe: use `webAddress` for one from a package or an image.
 */
export function html(strings: TemplateStringsArray, ...parts: readonly HtmlPart[]): Html {
  let text = strings[0]!;
  for (const [index, part] of parts.entries()) text += render(part) + strings[index + 1]!;
  return new Html(text);
}

function render(part: HtmlPart): string {
  if (part instanceof Html) return part.text;
  if (part === undefined || part === null || part === false) return '';
  if (typeof part === 'string' || typeof part === 'number') return escapeText(String(part));
  return part.map(render).join('');
}

const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (each) => entities[each]!);
}

/** `address` if it is an absolute HTTP or HTTPS address without credentials; otherwise undefined. */
export function webAddress(address: string | null | undefined): string | undefined {
  if (!address || address.length > 2048 || !URL.canParse(address)) return undefined;
  const { protocol, username, password, href } = new URL(address);
  return /^https?:$/.test(protocol) && username + password === '' ? href : undefined;
}
