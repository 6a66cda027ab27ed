import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { ExecutionContext } from 'ava';
import type { FormCall, Page, PageCall } from '../../src/console/framework/page.ts';
import { shownLines } from './shown.ts';

// Pages with answers of the API that a test writes, without a server.

/** The time of all calls. */
export const now = Date.parse('2026-05-20T12:00:00Z');
/** A time so many hours before now. */
export const before = (hours: number) => new Date(now - hours * 3_600_000).toISOString().replace('.000', '');

export type Answers = Record<string, unknown>;

/** A visitor with these scopes, and what the API answers, by the operation and perhaps what it is asked. */
export function callOf(
  answers: Answers = {},
  more: Partial<PageCall> & { scopes?: string[]; form?: [string, string][] } = {},
) {
  const { scopes = ['read', 'write', 'delete', 'promote', 'admin', 'operate'], form, ...rest } = more;
  const asked: unknown[][] = [];
  const answer = async (id: string, args?: object) => {
    asked.push(args ? [id, args] : [id]);
    const found = answers[`${id} ${JSON.stringify(args)}`] ?? answers[id];
    const value: unknown = typeof found === 'function' ? (found as (args: unknown) => unknown)(args) : found;
    if (value instanceof Error) throw value;
    return value;
  };
  const call = {
    principal: {
      kind: 'token',
      accountId: 1,
      accountName: 'default',
      scopes: new Set(scopes),
      names: undefined,
      tokenId: 'own',
      expiresAt: null,
    },
    session: 'this',
    params: {},
    query: {},
    values: () => [],
    refused: undefined,
    urls: { base: 'https://here.test', feed: 'https://feed.test', registry: 'https://images.test' },
    api: { call: (id: string, _schema: unknown, args?: object) => answer(id, args), do: answer },
    now,
    form: new URLSearchParams(form),
    ...rest,
  } as unknown as FormCall;
  return { call, asked };
}

/** The lines of a part of a page; see `shownLines`. */
/** What a part of a page shows; see `shownLines`. */
export const linesOf = (body: { text: string } | false | undefined) =>
  body ? shownLines(`<main>${body.text}</main>`) : body;

/** What a page shows. */
export async function shown(page: Page, answers: Answers = {}, more: Parameters<typeof callOf>[1] = {}) {
  const { call, asked } = callOf(answers, more);
  const { body, ...view } = await page.show(call);
  return { ...view, lines: shownLines(`<main>${body.text}</main>`), asked };
}

const folder = join(import.meta.dirname, 'shown');
const isWritten = process.env['ENTREPOT_TEST_SHOWN'] === 'write';

/** Compares what was shown of each with the file of this name in the folder `shown`, or writes that file. */
export async function compareViews(t: ExecutionContext, name: string, views: Record<string, { asked?: unknown[][] }>) {
  const texts = Object.entries(views).map(([what, { asked, ...view }]) => {
    const { lines = [], ...rest } = view as { lines?: string[] };
    const calls = (asked ?? []).map(
      (each) => `asks ${each.map((one) => (typeof one === 'string' ? one : JSON.stringify(one))).join(' ')}`,
    );
    return [`${what}: ${JSON.stringify(rest)}`, ...calls, ...lines].join('\n');
  });
  const file = join(folder, `${name}.txt`);
  if (isWritten) await writeFile(file, `${texts.join('\n\n')}\n`);
  t.deepEqual(texts, (await readFile(file, 'utf8')).trimEnd().split('\n\n'));
}
