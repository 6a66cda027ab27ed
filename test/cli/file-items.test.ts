import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { explainFiles, isFileToRead } from '../../src/cli/explain-files.ts';
import { itemsOfFiles, meaningIn } from '../../src/cli/file-items.ts';
import type { Terminal } from '../../src/cli/with-installation.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { folderUntilEnd } from '../support/folder.ts';

// What items of files mean to clients, with protocols of the test.

type Protocols = Parameters<typeof meaningIn>[0];

/** What a protocol says of a name. */
interface Story {
  isHosted?: boolean;
  reservedBy?: string;
  rules?: string[];
  /** What the upstream has under a reference. */
  found?: { name: string; reference: string } | undefined;
  fails?: Error;
}

function protocols(stories: Record<string, Story>, referenceOf: () => Promise<string | undefined>) {
  const asked: string[] = [];
  const speaking = {
    meaningOf: () => Promise.resolve({ text: 'Lib 1.0.0', names: Object.keys(stories), reference: referenceOf }),
    explain: (account: number, name: string) => {
      asked.push(`${account} ${name}`);
      const { isHosted = false, reservedBy, rules = ['asked'], found, fails } = stories[name]!;
      if (fails) return Promise.reject(fails);
      return Promise.resolve({
        isHosted,
        reservedBy,
        upstreams: rules.map((rule) => ({ rule })),
        referenceTo: (reference: string) => {
          asked.push(`reference ${reference}`);
          return Promise.resolve(found);
        },
      });
    },
  };
  // The first one knows no such item, and the second one no items at all.
  return { asked, all: [{ meaningOf: () => Promise.resolve(undefined) }, {}, speaking] as unknown as Protocols };
}

const item = { kind: 'package', location: { file: 'list.txt', line: 3 } } as never;

async function meaning(stories: Record<string, Story>, reference: string | null | Error = '1.0.0') {
  const { asked, all } = protocols(stories, () =>
    reference instanceof Error ? Promise.reject(reference) : Promise.resolve(reference ?? undefined),
  );
  const { text, place, ...meant } = await meaningIn(all, 7, item);
  return { head: `${text} ${place}`, asked, meant };
}

test('the first name that an upstream is asked for says what an item means', async (t) => {
  const found = { name: 'lib', reference: '1.0.0' };
  const one = await meaning({ Lib: { found } });
  t.is(one.head, 'Lib 1.0.0 list.txt:3');
  t.deepEqual(one.asked, ['7 Lib', 'reference 1.0.0']);
  t.like(one.meant, { found: { askedName: 'Lib', ...found } });
  const second = await meaning({
    'other/Lib': { rules: ['excluded', 'other'] },
    Lib: { rules: ['excluded', 'asked'], found },
  });
  t.deepEqual(second.asked, ['7 other/Lib', '7 Lib', 'reference 1.0.0']);
  t.like(second.meant, { found: { askedName: 'Lib', ...found } });
});

test('why an item has no content of an upstream is said', async (t) => {
  const cases: [stories: Record<string, Story>, reference: string | null | Error, verdict: string, reason: string][] = [
    [{ Lib: { isHosted: true, reservedBy: 'L*' } }, '1', 'none', 'it is hosted here'],
    [{ Lib: { reservedBy: 'L*' } }, '1', 'none', 'reserved by L*: no upstream is asked'],
    [{ Lib: { rules: [] } }, '1', 'none', 'no upstream here serves it'],
    [{}, '1', 'none', 'no upstream here serves it'],
    [{ Lib: {} }, null, '-', 'no version of it is known'],
    [{ Lib: {} }, '1', '-', 'no upstream serves it'],
    [{ Lib: {} }, new DomainError('UpstreamUnavailable', 'The upstream fails.'), '-', 'The upstream fails.'],
    [{ Lib: { fails: new DomainError('Invalid', 'No name.') } }, '1', '-', 'No name.'],
  ];
  for (const [stories, reference, verdict, reason] of cases)
    t.deepEqual((await meaning(stories, reference)).meant as object, { verdict, reason }, reason);
  await t.throwsAsync(meaning({ Lib: {} }, new TypeError('a defect')), { name: 'TypeError' });
  await t.throwsAsync(meaningIn([], 7, item), { message: 'no protocol knows the item package' });
});

function heard() {
  const said = { stdout: '', stderr: '' };
  const terminal = {
    stdout: { write: (text: string) => (said.stdout += text) },
    stderr: { write: (text: string) => (said.stderr += text) },
  } as unknown as Terminal;
  return { said, terminal };
}

async function filesOf(t: ExecutionContext, files: Record<string, string>) {
  const folder = await folderUntilEnd(t);
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(folder, name, '..'), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return folder;
}

test('items that several files have are said once, at their first place', async (t) => {
  const folder = await filesOf(t, {
    'list.txt': 'Lib@1.0.0\nLib@2.0.0\nLib@1.0.0\n',
    'other.txt': 'Lib@2.0.0\nLib@3.0.0\n',
    'more/Dockerfile': 'FROM team/app:v1\n',
  });
  const { said, terminal } = heard();
  const files = ['list.txt', 'more', 'other.txt'].map((each) => join(folder, each));
  const items = await itemsOfFiles(files, new Map(), terminal);
  t.deepEqual(
    items.map((each) => {
      const { location, ...rest } = each;
      return [location.line, /\d\.0\.0|v1/.exec(JSON.stringify(rest))![0]];
    }),
    [
      [1, '1.0.0'],
      [2, '2.0.0'],
      [1, 'v1'],
      [2, '3.0.0'],
    ],
  );
  t.deepEqual(said, { stdout: '', stderr: `reading ${join(folder, 'more', 'Dockerfile')}\n` });
});

test('a word that looks like a path, or that is a file with items, is read', async (t) => {
  const folder = await filesOf(t, { 'packages.lock.json': '{"version":1}', 'App.sln': '', 'other.bin': '\u0000' });
  for (const word of ['-', './a', '../a', '/a', '.', '..', 'a/', join(folder, 'none'), 'docker/Dockerfile'])
    t.true(await isFileToRead(word), word);
  for (const word of ['Lib', '.a', '...', 'team/app', 'registry.test/team/app', 'README.md'])
    t.false(await isFileToRead(word), word);
});

test('what is decided of each item is printed, and what is held, denied or unclear fails the command', async (t) => {
  const versions = Array.from({ length: 10 }, (_, at) => `Lib@${at}.0.0`);
  const folder = await filesOf(t, { 'list.txt': `${versions.join('\n')}\n` });
  const until = Date.UTC(2027, 0, 2);
  const decisions: Record<string, unknown> = {
    '0.0.0': { enforced: { verdict: 'allow' } },
    '1.0.0': { enforced: { verdict: 'hold', rule: 'age', reason: 'it is young', until } },
    '2.0.0': { enforced: { verdict: 'deny', rule: 'no-two', reason: 'see' }, waitsOnceSeen: true },
    '3.0.0': { enforced: { verdict: 'allow', rule: 'age' }, waitsOnceSeen: true },
    '4.0.0': new DomainError('UpstreamUnavailable', 'The upstream fails.'),
  };
  const times: unknown[] = [];
  let [running, most] = [0, 0];
  const gate = {
    explain: async (_name: string, reference: string, at: unknown) => {
      times.push(at);
      running += 1;
      most = Math.max(most, running);
      await new Promise(setImmediate);
      running -= 1;
      const found = decisions[reference] ?? { enforced: { verdict: 'allow', reason: '' } };
      if (found instanceof Error) throw found;
      return found;
    },
  };
  const speaking = {
    meaningOf: (_account: number, each: object) => {
      const reference = /\d\.0\.0/.exec(JSON.stringify(each))![0];
      return Promise.resolve({ text: `Lib ${reference}`, names: ['Lib'], reference: () => Promise.resolve(reference) });
    },
    explain: () =>
      Promise.resolve({
        isHosted: false,
        upstreams: [{ rule: 'asked' }],
        referenceTo: (reference: string) => Promise.resolve({ name: 'lib', reference }),
      }),
  };
  const explain = async (protocol: object) => {
    const { said, terminal } = heard();
    const parts = { core: { gate }, protocols: [protocol] } as never;
    const asked = { account: 7, values: new Map<string, string>(), at: 5 };
    const error = await explainFiles(parts, [join(folder, 'list.txt')], asked, terminal).then(
      () => undefined,
      (each: DomainError) => `${each.name}: ${each.message}`,
    );
    const lines = said.stdout
      .replace(/\n$/, '')
      .split('\n')
      .map((line) => line.split('\t').toSpliced(4, 1).join(' | '));
    return { error, lines, places: said.stdout.match(/list\.txt:\d+/g) };
  };
  const { error, lines, places } = await explain(speaking);
  t.is(error, 'Denied: Of 10, 2 are held, 1 are denied and 1 are not clear.');
  t.deepEqual(lines, [
    'allow | Lib 0.0.0 | - | - | ',
    'hold | Lib 1.0.0 | 2027-01-02T00:00:00.000Z | age | it is young',
    'deny | Lib 2.0.0 | - | no-two | see',
    'hold | Lib 3.0.0 | - | age | it is held from the first request on',
    '- | Lib 4.0.0 | - | - | The upstream fails.',
    ...[5, 6, 7, 8, 9].map((each) => `allow | Lib ${each}.0.0 | - | - | `),
  ]);
  t.deepEqual(
    places,
    versions.map((_, at) => `list.txt:${at + 1}`),
  );
  t.deepEqual([new Set(times), most], [new Set([5]), 8]);
  decisions['4.0.0'] = new TypeError('a defect');
  t.is((await explain(speaking)).error, 'TypeError: a defect');
  for (const each of ['1.0.0', '2.0.0', '3.0.0', '4.0.0']) delete decisions[each];
  t.is((await explain(speaking)).error, undefined);
  const hosted = { ...speaking, explain: () => Promise.resolve({ isHosted: true, upstreams: [] }) };
  const none = await explain(hosted);
  t.deepEqual([none.error, none.lines[0]], [undefined, 'none | Lib 0.0.0 | - | - | it is hosted here']);
});
