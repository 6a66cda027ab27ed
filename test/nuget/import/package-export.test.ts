import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import type { ImportResult } from '../../../src/import/item.ts';
import type { ExportOptions } from '../../../src/import/target.ts';
import type { FeedContext } from '../../../src/nuget/hosted/feed-context.ts';
import { PackageExport } from '../../../src/nuget/import/package-export.ts';
import { digestOf } from '../../../src/runtime/digest.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { fakeRemote, type FakeAnswer } from '../../support/upstreams/fake-remote.ts';

const { signal } = new AbortController();
const base = 'http://old.test/v3/index.json';
const sha512Of = (text: string) =>
  Buffer.from(digestOf(Buffer.from(text), 'sha512').slice('sha512:'.length), 'hex').toString('base64');

/** A version here. */
interface Version {
  version: string;
  file: string;
  listed?: number;
  imported?: string | null;
  symbols?: string;
}

interface Target {
  /** Its versions with what its registration says; the text of a file is served. */
  versions?: Record<string, { file?: string; listed?: boolean; hash?: string }>;
  /** Statuses of changes, by the beginning of `METHOD path`. */
  statuses?: Record<string, number>;
  /** Deletes what it is asked to unlist. */
  deletes?: boolean;
  /** Keeps what is pushed. */
  keeps?: boolean;
  push?: string;
  symbols?: string | undefined;
}

async function exported(
  { versions = {}, statuses = {}, deletes, keeps, push = '/push', symbols = '/symbols' }: Target,
  rows: readonly Version[],
  more: Partial<ExportOptions> = {},
  apiKey?: string,
) {
  const files = new Map(
    Object.entries(versions).flatMap(([key, { file }]) => (file === undefined ? [] : [[key, file]])),
  );
  const resources = [
    { '@type': 'PackageBaseAddress/3.0.0', '@id': 'http://old.test/flat/' },
    { '@type': 'RegistrationsBaseUrl/3.6.0', '@id': 'http://old.test/reg/' },
    ...(push === '' ? [] : [{ '@type': 'PackagePublish/2.0.0', '@id': new URL(push, base).href }]),
    ...(symbols === '' ? [] : [{ '@type': 'SymbolPackagePublish/4.9.0', '@id': new URL(symbols, base).href }]),
  ];
  const changes: [what: string, text?: string][] = [];
  const fake = fakeRemote(
    async (path, { method = 'GET', sent }): Promise<FakeAnswer | undefined> => {
      if (path === '/v3/index.json') return { body: JSON.stringify({ resources }) };
      const line = `${method} ${path}`;
      if (method === 'PUT' || method === 'DELETE') {
        const stream = await sent?.open();
        if (stream?.readableObjectMode) throw new Error('a body is a stream of bytes');
        const text = stream && (await buffer(stream)).toString();
        if (text !== undefined && text.length !== sent!.size) throw new Error(`${path} is sent with a wrong size`);
        const file = text?.split('\r\n')[4];
        changes.push(file === undefined ? [line] : [line, file]);
        const status = Object.entries(statuses).find(([start]) => line.startsWith(start))?.[1] ?? 201;
        if (keeps && path === '/push' && status < 300) files.set('1.0.0', file!);
        if (deletes && method === 'DELETE') files.delete(path.split('/').at(-1)!);
        return { status };
      }
      if (path === '/flat/lib/index.json') return { body: JSON.stringify({ versions: Object.keys(versions) }) };
      if (path === '/reg/lib/index.json') {
        const items = Object.entries(versions).map(([version, { listed = true, hash }]) => ({
          catalogEntry: {
            id: 'Lib',
            version,
            listed,
            ...(hash !== undefined && { packageHash: hash, packageHashAlgorithm: 'SHA512' }),
          },
        }));
        return { body: JSON.stringify({ items: [{ lower: '1.0.0', upper: '9.0.0', items }] }) };
      }
      const file = files.get(/^\/flat\/lib\/([^/]+)\/lib\./.exec(path)?.[1] ?? '');
      return file === undefined ? undefined : { body: file, headers: { 'content-length': `${file.length}` } };
    },
    { kind: 'nuget', base },
  );
  const texts = rows.flatMap(({ file, symbols: pdb }) => (pdb === undefined ? [file] : [file, pdb]));
  const selected: unknown[] = [];
  const database = {
    select: async (sql: string, values: unknown[]) => {
      selected.push(values);
      if (sql.includes('EXISTS'))
        return [
          { id: 5, package_key: 'lib', package_id: 'Lib' },
          { id: 6, package_key: 'other', package_id: 'Other' },
        ];
      return rows.map(({ version, file, listed = 1, imported = null, symbols: pdb }) => ({
        version_key: version.toLowerCase(),
        version,
        listed,
        imported,
        sha512: sha512Of(file),
        size_bytes: file.length,
        nupkg_digest: digestOf(Buffer.from(file)),
        snupkg_digest: pdb === undefined ? null : digestOf(Buffer.from(pdb)),
        snupkg_size: pdb === undefined ? null : pdb.length,
      }));
    },
  };
  const staged = { made: 0, discarded: 0 };
  const blobs = {
    open: async (digest: string, size: number) => {
      const text = texts.find((each) => digestOf(Buffer.from(each)) === digest)!;
      if (text.length !== size) throw new Error('a wrong size');
      return contentOf(Buffer.from(text));
    },
    stageHosted: async () => {
      staged.made += 1;
      const file = {
        size: 0,
        text: '',
        append: async (body: AsyncIterable<Buffer>) => {
          for await (const each of body) file.text += each.toString();
          file.size = file.text.length;
        },
        digest: async () => digestOf(Buffer.from(file.text), 'sha512'),
        discard: async () => void (staged.discarded += 1),
      };
      return file;
    },
  };
  const context = { database, blobs, limits: { nupkg: 1000 } } as unknown as FeedContext;
  const warnings: string[] = [];
  const options = {
    accountId: 7,
    dryRun: false,
    all: false,
    isWanted: (name: string) => name === 'Lib',
    warn: (text: string) => void warnings.push(text),
    signal,
    ...more,
  } as unknown as ExportOptions;
  const results: Record<string, ImportResult | string> = {};
  for await (const { name, items } of new PackageExport(context, { remote: fake.remote, apiKey }, options).groups())
    for await (const item of items())
      results[`${name} ${item.name} ${item.reference}`] = await item.run().catch((error: Error) => error.message);
  return { results, changes, warnings, selected, staged, ...fake };
}

const one: Version = { version: '1.0.0', file: 'a package' };
const pushed = ['PUT /push', one.file] as [string, string];
const key = 'Lib Lib 1.0.0';
const conflict = { outcome: 'conflict', bytes: 0, note: 'the target has other content under this name' } as const;

test('a version that the target lacks is pushed as clients do, with its symbols', async (t) => {
  const { results, changes, warnings, requests, selected, bodies } = await exported(
    {},
    [
      { ...one, symbols: 'its symbols' },
      { version: '2.0.0-Beta', file: 'another one' },
    ],
    { since: 3 },
    'the key',
  );
  t.deepEqual(results, {
    [key]: { outcome: 'imported', bytes: one.file.length + 'its symbols'.length, note: undefined },
    'Lib Lib 2.0.0-Beta': { outcome: 'imported', bytes: 'another one'.length, note: undefined },
  });
  t.deepEqual([changes, warnings], [[pushed, ['PUT /symbols', 'its symbols'], ['PUT /push', 'another one']], []]);
  t.deepEqual(selected, [
    [7, '', 3, 500],
    [5, '', 3, 500],
  ]);
  const push = requests.find(({ method }) => method === 'PUT');
  t.deepEqual([push!.subject, push!.signal, push!.headers!['x-nuget-apikey']], ['lib', signal, 'the key']);
  const boundary = /^multipart\/form-data; boundary="([0-9a-f-]{36})"$/.exec(push!.headers!['content-type']!)?.[1];
  t.is(
    (await buffer(await push!.sent!.open())).toString(),
    `--${boundary}\r\nContent-Type: application/octet-stream\r\nContent-Disposition: form-data; name=package; filename=package.nupkg\r\n\r\n${one.file}\r\n--${boundary}--\r\n`,
  );
  await turn();
  t.true(
    bodies.every((each) => each.readableEnded),
    'no answer is left unread',
  );
  const plain = await exported({}, [one]);
  t.false('x-nuget-apikey' in plain.requests.find(({ method }) => method === 'PUT')!.headers!);
  t.deepEqual(plain.selected[0], [7, '', 0, 500]);
});

test('what the target has is compared by its hash, else by its size and its bytes', async (t) => {
  const present = { outcome: 'present', bytes: 0, note: undefined } as const;
  for (const [there, result, staged] of [
    [{ hash: sha512Of(one.file) }, present, 0],
    [{ hash: sha512Of('other') }, conflict, 0],
    [{ file: one.file }, present, 1],
    [{ file: 'b package' }, conflict, 1],
    [{ file: 'longer than it' }, conflict, 0],
  ] as const) {
    const found = await exported({ versions: { '1.0.0': there } }, [one]);
    t.deepEqual([found.results, found.changes], [{ [key]: result }, []]);
    t.deepEqual(found.staged, { made: staged, discarded: staged });
  }
  // It is listed, and has no file.
  t.deepEqual((await exported({ versions: { '1.0.0': {} } }, [one])).changes, [pushed]);
});

test('an assessment changes nothing, and tells what would go or be unlisted', async (t) => {
  const plan = async (target: Target, row: Version) => {
    const { results, changes } = await exported(target, [row], { dryRun: true });
    t.deepEqual(changes, []);
    return results[key];
  };
  const there = { '1.0.0': { hash: sha512Of(one.file) } };
  t.deepEqual(await plan({}, { ...one, symbols: 'pdb' }), { outcome: 'imported', bytes: one.file.length + 3 });
  t.deepEqual(await plan({ symbols: '' }, { ...one, symbols: 'pdb' }), { outcome: 'imported', bytes: one.file.length });
  t.deepEqual(await plan({}, { ...one, listed: 0 }), { outcome: 'imported', bytes: one.file.length });
  t.deepEqual(await plan({ versions: there }, one), { outcome: 'present', bytes: 0 });
  const unlisted = { ...one, listed: 0 };
  t.deepEqual(await plan({ versions: there }, unlisted), { outcome: 'updated', bytes: 0 });
  t.deepEqual(await plan({ versions: there }, { ...unlisted, imported: '{}' }), { outcome: 'present', bytes: 0 });
  const hidden = { '1.0.0': { ...there['1.0.0'], listed: false } };
  t.deepEqual(await plan({ versions: hidden }, unlisted), { outcome: 'present', bytes: 0 });
});

test('an unlisted version is unlisted there, or stays listed with the reason', async (t) => {
  const unlisted = { ...one, listed: 0 };
  const there = { '1.0.0': { file: one.file } };
  const unlist: [string] = ['DELETE /push/lib/1.0.0'];
  const found = await exported({ versions: there }, [unlisted]);
  t.deepEqual([found.results, found.changes], [{ [key]: { outcome: 'updated', bytes: 0, note: undefined } }, [unlist]]);
  const first = await exported({ keeps: true }, [unlisted]);
  t.deepEqual(first.results, { [key]: { outcome: 'imported', bytes: one.file.length, note: undefined } });
  t.deepEqual(first.changes, [pushed, unlist]);
  // Of a method that the target lacks, and of a key that may only push.
  for (const status of [405, 403]) {
    const refused = await exported({ versions: there, statuses: { DELETE: status } }, [unlisted]);
    const answered = `it is listed there, and not here: the target answered ${status}`;
    t.deepEqual(refused.results, { [key]: { outcome: 'present', bytes: 0, note: answered } });
  }
  const row = { ...unlisted, symbols: 'pdb' };
  const twice = [row, { ...unlisted, version: '2.0.0', file: 'another one' }];
  const versions = { ...there, '2.0.0': { file: 'another one' } };
  const deleting = await exported({ versions, deletes: true }, twice);
  const note = 'it is listed there, and not here: the target deletes what it is asked to unlist';
  t.deepEqual(deleting.results, {
    [key]: { outcome: 'present', bytes: 0, note },
    'Lib Lib 2.0.0': { outcome: 'present', bytes: 0, note },
  });
  const symbols: [string, string] = ['PUT /symbols', 'pdb'];
  t.deepEqual(deleting.changes, [symbols, unlist, pushed, symbols], 'it is asked no more');
  const lost = await exported({ versions: there, deletes: true, statuses: { 'PUT /push': 400 } }, [unlisted]);
  t.deepEqual(lost.results, { [key]: 'The target refused the package, which it had deleted (400).' });
});

test('what the target answers to a push: there already, refused, symbols', async (t) => {
  const answered = async (statuses: Record<string, number>, more: Target = {}, row: Version = one) =>
    (await exported({ statuses, ...more }, [row])).results[key];
  t.is(await answered({ 'PUT /push': 400 }), 'The target refused the package (400).');
  t.is(await answered({ 'PUT /push': 500 }), 'The upstream old.test answered 500.');
  t.like(await answered({ 'PUT /push': 299 }), { outcome: 'imported' });
  t.deepEqual(await answered({ 'PUT /push': 409 }), {
    ...conflict,
    note: 'the target has this version already, and does not show it',
  });
  const withSymbols = { ...one, symbols: 'pdb' };
  const bytes = one.file.length;
  const outcome = 'imported';
  t.deepEqual(await answered({ 'PUT /symbols': 409 }, {}, withSymbols), { outcome, bytes: bytes + 3, note: undefined });
  const note = 'the target answered 404 to the symbols';
  t.deepEqual(await answered({ 'PUT /symbols': 404 }, {}, withSymbols), { outcome, bytes, note });
  t.deepEqual(await answered({ 'PUT /symbols': 299 }, {}, withSymbols), { outcome, bytes: bytes + 3, note: undefined });
  const there = { versions: { '1.0.0': { file: one.file } } };
  t.deepEqual(await answered({ 'PUT /symbols': 404 }, there, withSymbols), { outcome: 'present', bytes: 0, note });
  t.deepEqual(await answered({}, there, withSymbols), { outcome: 'present', bytes: 0, note: undefined });
});

test('a target without an address for pushes, or with one elsewhere, gets nothing; one without symbols is told once', async (t) => {
  await t.throwsAsync(exported({ push: '' }, [one]), {
    name: 'Invalid',
    message: 'The target has no PackagePublish/2.0.0, so nothing can be pushed to it.',
  });
  const elsewhere = await exported({ push: 'http://other.test:8080/push' }, [one]);
  t.deepEqual(elsewhere.results, {
    [key]: 'The target names other.test:8080 for pushes, which is not the host of its index, so nothing is sent there.',
  });
  t.deepEqual(elsewhere.changes, []);
  const rows = [
    { ...one, symbols: 'pdb' },
    { version: '2.0.0', file: 'another one', symbols: 'pdb' },
  ];
  const { warnings, changes } = await exported({ symbols: '' }, rows);
  t.deepEqual(warnings, ['The target has no address for symbols, so none are sent.']);
  t.deepEqual(changes, [pushed, ['PUT /push', 'another one']]);
  t.deepEqual((await exported({ symbols: '' }, [one])).warnings, []);
});

test('what is sent to the target ends with the export', async (t) => {
  t.deepEqual(
    (await exported({}, [one])).requests.filter((each) => each.signal !== signal),
    [],
  );
});
