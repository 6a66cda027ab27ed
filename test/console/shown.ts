import { readFile, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import { tokenOf } from '../support/inside.ts';
import type { TestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

// A page as lines of text, to compare what it shows.

const folder = join(import.meta.dirname, 'shown');
const isWritten = process.env['ENTREPOT_TEST_SHOWN'] === 'write';

interface Asked {
  by?: string;
  at: string;
  send?: Record<string, string | undefined> | [string, string][];
  whole?: true;
}

/**
 * An address, or who opens it and what is sent to it; or the link or button to a further page that is followed from the last one; or
 * what is done between two pages. A visitor who is not named may do everything. Of a `whole` page, the header and the footer are
 * shown, too.
 */
export type Step = string | Asked | { follow: string } | { later: () => string | Asked } | (() => Promise<unknown>);

/** A step that is known only after what is done before it. */
export function later(step: () => string | Asked): Step {
  return { later: step };
}

/** Nobody, who is not signed in; one who may do everything; and one for each of `scopesOf`. */
export async function visitorsWith(
  server: TestServer,
  scopesOf: Readonly<Record<string, Parameters<typeof tokenOf>[1]>>,
): Promise<Record<string, Visitor>> {
  const visitors: Record<string, Visitor> = { nobody: new Visitor(server), all: await Visitor.signedIn(server) };
  for (const [by, scopes] of Object.entries(scopesOf)) {
    // Lists are in the order of time.
    server.clock.now! += 1000;
    visitors[by] = await Visitor.signedIn(server, await tokenOf(server, scopes, 'default'));
  }
  return visitors;
}

/** Compares what pages show with the file of this name in the folder `shown`, or writes that file. `visitors` has `all`. */
export async function compareShown(
  t: ExecutionContext,
  name: string,
  visitors: Readonly<Record<string, Visitor>>,
  steps: readonly Step[],
): Promise<void> {
  const file = join(folder, `${name}.txt`);
  const known = isWritten ? [] : (await readFile(file, 'utf8')).trimEnd().split('\n\n');
  const shown: string[] = [];
  /** The first page at each path: of a further one, the file has the differences. */
  const firsts = new Map<string, string[]>();
  let last = { by: 'all', at: '', page: '' };
  for (const step of steps) {
    if (typeof step === 'function') {
      await step();
      continue;
    }
    const followed = typeof step !== 'string' && 'follow' in step ? step.follow : undefined;
    const { by = 'all', at, send, whole } = requestOf(step, last);
    const visitor = visitors[by]!;
    const answer = await (send ? visitor.send(at, send as Record<string, string>) : visitor.fetch(at));
    const location = answer.headers.get('location') ?? at;
    const page = /[?&]refused=/.test(location) ? await visitor.refusedPage(answer) : await answer.text();
    last = { by, at, page };
    const what =
      followed === undefined ? `${send ? `sends ${JSON.stringify(send)} to ` : ''}${at}` : `follows ${followed}`;
    const result = answer.status === 303 ? `leads to ${leadsTo(answer)}` : `status ${answer.status}`;
    const lines = page === '' ? [] : shownLines(page, whole);
    const path = `${location.split('?', 1)[0]!}${whole ? ' whole' : ''}`;
    const first = firsts.get(path);
    if (!first && lines.length > 0) firsts.set(path, lines);
    const compared = first && page !== '' ? differences(first, lines) : lines;
    const text = [...[`${by} ${what}`, result].map(masked), ...compared].join('\n');
    if (!isWritten) t.is(text, known[shown.length] ?? '');
    shown.push(text);
  }
  if (isWritten) await writeFile(file, `${shown.join('\n\n')}\n`);
  else t.is(shown.length, known.length);
  t.pass();
}

function requestOf(step: Exclude<Step, () => unknown>, last: { by: string; at: string; page: string }): Asked {
  if (typeof step === 'string') return { at: step };
  if ('later' in step) return requestOf(step.later(), last);
  return 'follow' in step ? { by: last.by, at: furtherPage(last, step.follow) } : step;
}

/** The address to which a link of a page leads, or a button that has the cursor of a further page. */
function furtherPage({ at, page }: { at: string; page: string }, text: string): string {
  const link = new RegExp(`<a href="([^"]+)"[^>]*>${text}</a`).exec(page)?.[1];
  if (link !== undefined) return link.replaceAll('&amp;', '&');
  const cursor = new RegExp(`<button name="cursor" value="([^"]+)">${text}</button>`).exec(page)?.[1];
  if (cursor === undefined) throw new Error(`${at} does not lead to: ${text}`);
  const address = new URL(at, 'http://console.invalid');
  address.searchParams.set('cursor', cursor);
  return address.pathname + address.search;
}

/**
 * What a visitor reads and can do on a page, without its header and footer unless it is `whole`: `#` begins a heading,
 * `[text](address)` is a link, `<text>` a button and `{name}` a field. A row of a table is a line; rows are sorted here, because many
 * have the same time. What differs in each run is masked.
 */
export function shownLines(page: string, isWhole = false): string[] {
  const [start, end] = isWhole ? ['<head', '</html>'] : ['<main', '</main>'];
  const main = page.slice(page.indexOf(start), page.indexOf(end));
  const json = /<span>As JSON: [^]*?<code title="([^"]*)"/.exec(page)?.[1];
  const lines = new Lines();
  for (const [token, close, name, rest = ''] of main.matchAll(/<(\/?)([a-z][a-z0-9]*)((?:[^>"]|"[^"]*")*)>|[^<]+/g)) {
    if (name === undefined) lines.text(token);
    else if (close !== '') lines.close(name);
    else lines.open(name, attributesOf(rest), rest.endsWith('/'));
  }
  return [...lines.all(), ...(json === undefined ? [] : [masked(decoded(`As JSON: ${json}`))])];
}

/** What differs between two pages: the lines of the second one with `+`, and how many lines of the first one are not there. */
export function differences(before: readonly string[], after: readonly string[]): string[] {
  // How many lines are common from a line of each on.
  const common = Array.from({ length: before.length + 1 }, () => Array.from({ length: after.length + 1 }, () => 0));
  for (let one = before.length - 1; one >= 0; one -= 1)
    for (let other = after.length - 1; other >= 0; other -= 1)
      common[one]![other] =
        before[one] === after[other]
          ? common[one + 1]![other + 1]! + 1
          : Math.max(common[one + 1]![other]!, common[one]![other + 1]!);
  const lines: string[] = [];
  let [one, other, gone] = [0, 0, 0];
  const tellGone = (): void => {
    if (gone > 0) lines.push(`- ${gone}`);
    gone = 0;
  };
  while (one < before.length || other < after.length) {
    if (one < before.length && before[one] === after[other]) {
      tellGone();
      one += 1;
      other += 1;
    } else if (one < before.length && (other >= after.length || common[one + 1]![other]! >= common[one]![other + 1]!)) {
      gone += 1;
      one += 1;
    } else {
      tellGone();
      lines.push(`+ ${after[other]}`);
      other += 1;
    }
  }
  tellGone();
  return lines;
}

const blocks = new Set(
  'main header footer p div section form fieldset legend ul li dl dt dd table thead tbody tr nav details summary pre select label textarea h1 h2 h3'.split(
    ' ',
  ),
);
/** Most rows of a table, options of a field and boxes of a form; of others only their number is compared. */
const most = 10;

class Lines {
  readonly #lines: string[] = [];
  #line = '';
  /** Elements that are open, with what stands after their content. */
  readonly #open: { name: string; end: string }[] = [];
  /** How many open elements are left out with all that is in them. */
  #left = 0;
  /** The first line of the rows of a table. */
  #rows = 0;
  #options = 0;
  #boxes = 0;

  all(): string[] {
    this.#finish();
    return this.#lines;
  }

  text(text: string): void {
    if (this.#left === 0) this.#line += text;
  }

  open(name: string, all: Record<string, string>, isEmpty: boolean): void {
    if (this.#left > 0 || this.#isLeft(name, all)) {
      this.#left += isEmpty ? 0 : 1;
      return;
    }
    if (blocks.has(name) && name !== 'dd') this.#finish();
    if (name === 'tbody') this.#rows = this.#lines.length;
    const [before, end] = partsOf(name, all);
    this.#line += before;
    if (!isEmpty) this.#open.push({ name, end });
  }

  close(name: string): void {
    if (this.#left > 0) {
      this.#left -= 1;
      return;
    }
    if (name === 'tbody') {
      const rows = this.#lines.splice(this.#rows).sort();
      this.#lines.push(...rows.slice(0, most));
      if (rows.length > most) this.#lines.push(`… ${rows.length - most} more rows`);
    }
    if (name === 'select' && this.#options > most) this.#line += `… ${this.#options - most} more`;
    if (name === 'fieldset' && this.#boxes > most) {
      this.#finish();
      this.#line = `… ${this.#boxes - most} more boxes`;
    }
    this.#line += this.#open.splice(this.#open.findLastIndex((each) => each.name === name))[0]!.end;
    if (blocks.has(name) && name !== 'dt') this.#finish();
  }

  #isLeft(name: string, all: Record<string, string>): boolean {
    if (name === 'select') this.#options = 0;
    if (name === 'fieldset') this.#boxes = 0;
    const isOption = name === 'option' && !('selected' in all);
    const isBox = name === 'label' && all['class'] === 'choice';
    return all['class'] === 'copy' || (isOption && (this.#options += 1) > most) || (isBox && (this.#boxes += 1) > most);
  }

  #finish(): void {
    // A row is one line.
    if (this.#open.some(({ name }) => name === 'td' || name === 'th')) {
      this.#line += ' ';
      return;
    }
    const text = masked(decoded(this.#line.replaceAll(/\s+/g, ' ').trim()));
    if (text !== '') this.#lines.push(text);
    this.#line = '';
  }
}

const ofFields =
  'name type value checked required readonly autofocus rows inputmode spellcheck min max maxlength placeholder accept multiple autocomplete aria-label aria-describedby'.split(
    ' ',
  );

/** What stands before and after the content of an element. */
function partsOf(name: string, all: Record<string, string>): [before: string, after: string] {
  switch (name) {
    case 'h1':
    case 'h2':
    case 'h3':
      return [`${'#'.repeat(Number(name[1]))} `, ''];
    case 'a':
      return [
        '[',
        `](${all['href']}${title(all)})${'aria-current' in all ? (all['aria-current'] === 'page' ? '*' : `*${all['aria-current']}`) : ''} `,
      ];
    case 'button':
      return ['<', `${named(all, ['class', 'name', 'value', 'formmethod', 'formaction'])}> `];
    case 'input':
      return [`{${named(all, ofFields)}} `, ''];
    case 'textarea':
    case 'select':
      return [`{${named(all, ofFields)}: `, '}'];
    case 'option':
      return [`${'selected' in all ? '*' : ''}${all['value']}=`, '; '];
    case 'form':
      return [`form${named(all, ['method', 'action', 'enctype'])}`, ''];
    case 'th':
    case 'td':
      return [`| ${'aria-sort' in all ? `(${all['aria-sort']}) ` : ''}${all['class'] === 'number' ? '# ' : ''}`, ' '];
    case 'li':
      return ['- ', ''];
    case 'dt':
      return ['', ': '];
    case 'svg':
      return [`chart ${all['aria-label'] ?? ''}: `, ''];
    case 'title':
      return ['', '; '];
    case 'meter':
      return [`meter ${all['value']} of ${all['max']}, high from ${all['high']}: `, ''];
    case 'pre':
      return ['` ', ' `'];
    default:
      return [marks(all), ''];
  }
}

/** The states, warnings and times that an element shows besides its text. */
function marks(all: Record<string, string>): string {
  const isMark = /^(?:state|warning|failure|notice|empty|field-error|origin)\b/.test(all['class'] ?? '');
  const version = all['data-version'] === undefined ? '' : `, at ${all['data-version']}`;
  const refresh = all['data-refresh'] === undefined ? '' : `(again after ${all['data-refresh']} ms${version}) `;
  const label = all['class'] === 'table' && all['aria-label'] ? `(table: ${all['aria-label']}) ` : '';
  const others = ['open', 'hidden', 'data-answer'].filter((each) => each in all).map((each) => `(${each}) `);
  return `${isMark ? `(${all['class']!.trim()}) ` : ''}${refresh}${label}${others.join('')}${title(all)}`;
}

function title(all: Record<string, string>): string {
  return all['title'] === undefined ? '' : ` (${all['title']}) `;
}

function named(all: Record<string, string>, names: readonly string[]): string {
  const given = names.filter((each) => all[each] !== undefined);
  return given.map((each) => ` ${each}${all[each] === '' ? '' : `=${all[each]}`}`).join('');
}

function attributesOf(text: string): Record<string, string> {
  const found = text.matchAll(/([a-z-]+)(?:="([^"]*)")?/g);
  return Object.fromEntries([...found].map(([, name, value]) => [name!, value ?? '']));
}

const entities: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };

function decoded(text: string): string {
  return text.replaceAll(/&(amp|lt|gt|quot|#39);/g, (_, name: string) => entities[name]!);
}

/** A digest or the beginning of one, whose length a page chooses. */
const hex = (text: string) => (text.length === 64 ? 'HEX' : `HEX${text.length}`);

const masks: readonly (readonly [RegExp, string | ((text: string) => string)])[] = [
  [/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'UUID'],
  [/(?<=sha256(?::|%3A))[0-9a-f]{10,}/g, hex],
  [/\b(?:[0-9a-f]{12,}|[0-9a-f]{8})\b/g, hex],
  [/(?<=^SHA-512: ).*/, 'SHA-512'],
  [/(?<=BEGIN PUBLIC KEY-----).*(?=-----END)/, 'KEY'],
  [/ent_\w{4,}/g, 'ent_TOKEN'],
  [/YXBpOmVudF\w+=*/g, 'BASE64'],
  [/refused=[\w-]{22}/g, 'refused=ID'],
  [/(?<=cursor(?:=| value=))(?!x\b)[\w%-]{4,}/g, 'CURSOR'],
  [/Entrepot \d+\.\d+\.\d+/, 'Entrepot VERSION'],
  [/127\.0\.0\.1(?::|%3A|\.\.)\d{4,5}/g, '127.0.0.1:PORT'],
  // Real times, and what was measured.
  [/\(\d{4}-\d\d-\d\dT[\d:]{8}\.(?!000)\d{3}Z\) (?:just now|now|[\w ]+? ago|in \d+ \w+)/g, 'TIME'],
  [/\d+(?:\.\d+)? m?s\b/g, 'DURATION'],
  [/meter \d+ of \d+, high from [\d.]+: [\d.]+ \wB free/, 'meter free'],
  [/\(2026-11-20T[\d:.]+Z\) (?:just now|now|\d+ minutes? ago)/g, 'TODAY'],
  [/2026-11-20T[\d:.]+Z/g, 'TODAY'],
  [/\b20\d\d-\d\d-\d\dT[\d:]{8}\.001Z/g, 'TIME'],
  // The clock of the test can end them.
  [/(?<=\/console\/(?:imports|prefetch)\/UUID\) ).*/, 'RESULT'],
  [/Mozilla\/5\.0 [^|]*/g, 'BROWSER '],
  [/(?<=^Without an upstream: ).*/, 'SHARE'],
  [/(?<=\b(?:package feed|registry) .*)[\d.]+ % of [\d,]+/, 'SHARE'],
  [/(?<=^(?:Needed from it|Saved): .*)[\d,]+(?= requests| documents| from the storage,)/g, 'N'],
  [/(?<=TODAY by )\[[\w ]+\]/g, '[TOKEN]'],
  [/failed a moment ago: it /g, ''],
  [/(?<=manifest library\/alpine )(?:3\.21|sha256:HEX),/g, 'TAG OR DIGEST,'],
  // The test asks until all is ready, and these answers are bytes that were sent.
  [/[\d.]+ MB(?= sent)/, 'SIZE'],
  [/(?<=^chart Bytes sent .*)[\d.]+ MB/g, 'SIZE'],
  [/(?<=^Sent: )\S+ bytes\) [\d.]+ MB/, 'SIZE'],
  [/(?<=^\| 2026-11-(?:14|20) \| # )\S+ bytes\) [\d.]+ MB/, 'SIZE'],
];

/** The text without what differs in each run. */
export function masked(text: string): string {
  return masks.reduce(
    (all, [pattern, mask]) => (typeof mask === 'string' ? all.replace(pattern, mask) : all.replace(pattern, mask)),
    text.replaceAll(`| ${hostname()} |`, '| HOST |'),
  );
}
