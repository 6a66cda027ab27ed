import { Readable } from 'node:stream';
import test from 'ava';
import { Admission, type MirroredName, type Verdict } from '../../../src/mirror/policy/admission.ts';
import type { MirrorResource } from '../../../src/mirror/fetch/resource.ts';
import type { Mirror } from '../../../src/mirror/mirror.ts';
import type { PackageSource } from '../../../src/nuget/source/package-source.ts';
import { UpstreamSymbols } from '../../../src/nuget/source/symbols.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream, UpstreamRequest } from '../../../src/upstream/upstream.ts';

const key = `${'0123456789abcdef'.repeat(2)}ffffffff`;

/** Symbol servers of upstreams; `answers` has what the mirror answers for each. */
function start(answers: Record<string, string | Error | undefined>, settings: Record<string, object> = {}) {
  const asked: unknown[][] = [];
  const sent: UpstreamRequest[] = [];
  const resources: MirrorResource[] = [];
  const verdicts = new Map<string, Verdict>();
  const upstreams = Object.keys(answers).map((id) => ({
    id,
    name: `${id}.test`,
    config: {
      kind: 'nuget',
      name: `${id}.test`,
      freshFor: 1,
      staleFor: 2,
      negativeFor: 3,
      timeout: 4,
      ...settings[id],
    },
    send: async (request: UpstreamRequest) => {
      sent.push(request);
      return { status: 404, headers: {}, body: Readable.from([]) };
    },
  })) as unknown as Upstream[];
  const source = {
    candidates: async (accountId: number, id: string) => {
      asked.push(['candidates', accountId, id]);
      return upstreams;
    },
  } as unknown as PackageSource;
  const mirror = {
    open: async (resource: MirrorResource) => {
      asked.push(['open', resource.key.upstream]);
      resources.push(resource);
      const answer = answers[resource.key.upstream];
      if (answer instanceof Error) throw answer;
      return answer;
    },
  } as unknown as Mirror;
  const judge = async (name: MirroredName, references: readonly string[], purpose: string) => {
    const { accountId, upstream, kind, name: file, shown, facts } = name;
    asked.push(['judge', accountId, upstream.id, kind, file, shown, (await facts.of([])).size, references, purpose]);
    return () => verdicts.get(upstream.id) ?? 'allow';
  };
  const symbols = new UpstreamSymbols(mirror, source, new Admission(judge), { nupkg: 99 } as never);
  return { symbols, asked, sent, resources, verdicts };
}

test('a PDB comes from the first upstream that has it, as no more than its name, key and checksum', async (t) => {
  const { symbols, asked, sent, resources } = start({ one: undefined, two: 'the PDB', three: 'another' });
  t.is((await symbols.open(7, 'LIB.pdb', key.toUpperCase(), 'SHA256:ab')) as unknown as string, 'the PDB');
  t.deepEqual(asked, [
    ['candidates', 7, 'lib'],
    ['judge', 7, 'one', 'symbols', 'lib.pdb', ['lib.pdb'], 0, [key], 'request'],
    ['open', 'one'],
    ['judge', 7, 'two', 'symbols', 'lib.pdb', ['lib.pdb'], 0, [key], 'request'],
    ['open', 'two'],
  ]);
  t.like(resources[0], {
    key: { upstream: 'one', kind: 'symbols', name: 'lib.pdb', reference: key },
    lifetime: 'immutable',
    limit: 99,
    negativeFor: 3,
    idle: 4,
  });
  const { signal } = new AbortController();
  t.deepEqual(await resources[0]!.fetch({ etag: '"1"' } as never, signal), { kind: 'absent' });
  t.deepEqual(sent, [
    {
      url: new URL(`https://symbols.one.test/download/symbols/lib.pdb/${key}/lib.pdb`),
      subject: 'lib.pdb',
      headers: { symbolchecksum: 'SHA256:ab', 'if-none-match': '"1"' },
      service: 'symbols',
      signal,
    },
  ]);
});

test('the checksum of a client is sent on only if it can be one', async (t) => {
  for (const [checksum, headers] of [
    [undefined, {}],
    ['', {}],
    ['a\nb', {}],
    ['x'.repeat(1001), {}],
    ['x'.repeat(1000), { symbolchecksum: 'x'.repeat(1000) }],
    ['SHA256:ab, sha-1:c_d;', { symbolchecksum: 'SHA256:ab, sha-1:c_d;' }],
  ] as const) {
    const { symbols, sent, resources } = start({ one: undefined });
    await symbols.open(1, 'lib.pdb', key, checksum);
    await resources[0]!.fetch(undefined, new AbortController().signal);
    t.deepEqual(sent[0]!.headers as object, headers, checksum);
  }
});

test('what is no name or key of a PDB is asked of nobody', async (t) => {
  const { symbols, asked } = start({ one: 'the PDB' });
  const name = 'lib.pdb';
  for (const [file, signature] of [
    ['lib.dll', key],
    ['.pdb', key],
    ['a/lib.pdb', key],
    ['a\\lib.pdb', key],
    ['lib.pdb.x', key],
    [`${'x'.repeat(201)}.pdb`, key],
    [name, key.slice(0, 32)],
    [name, `${key}0`],
    [name, `g${key.slice(1)}`],
    [name, ` ${key.slice(1)}`],
  ] as const)
    t.is(await symbols.open(1, file, signature, undefined), undefined, `${file} ${signature}`);
  t.deepEqual(asked, []);
  for (const [file, signature] of [
    [`${'x'.repeat(200)}.pdb`, key],
    [name, key.slice(0, 33)],
  ] as const)
    t.is((await symbols.open(1, file, signature, undefined)) as unknown as string, 'the PDB');
});

test('upstreams without a symbol server or that a policy holds are passed, and a failure counts if no other has it', async (t) => {
  const down = new UpstreamError('UpstreamUnavailable', 'It is down.');
  const other = new UpstreamError('UpstreamTimeout', 'It is slow.');
  const url = new URL('https://four.test/v3/index.json');
  const settings = { none: { url }, own: { url, symbolsUrl: 'https://own.test/symbols?x=1' } };
  const all = start({ none: 'x', held: 'x', down, own: 'the PDB' }, settings);
  all.verdicts.set('held', 'hold');
  t.is((await all.symbols.open(1, 'lib.pdb', key, undefined)) as unknown as string, 'the PDB');
  t.deepEqual(
    all.asked.filter(([what]) => what === 'open'),
    [
      ['open', 'down'],
      ['open', 'own'],
    ],
  );
  await all.resources.at(-1)!.fetch(undefined, new AbortController().signal);
  t.is(all.sent[0]!.url.href, `https://own.test/symbols/lib.pdb/${key}/lib.pdb`);
  await t.throwsAsync(start({ down, other, none: undefined }).symbols.open(1, 'lib.pdb', key, undefined), { is: down });
  const broken = new Error('it broke');
  const bad = start({ broken, two: 'the PDB' });
  await t.throwsAsync(bad.symbols.open(1, 'lib.pdb', key, undefined), { is: broken });
  all.verdicts.set('down', { denied: 'No.' });
  await t.throwsAsync(all.symbols.open(1, 'lib.pdb', key, undefined), { name: 'Denied', message: 'No.' });
  t.is(await start({ one: undefined }).symbols.open(1, 'lib.pdb', key, undefined), undefined);
});

/** A staged file with these bytes. */
const staged = (bytes: Buffer) => ({
  read: async (target: Buffer, position: number) => bytes.copy(target, 0, position),
});

async function verify(signature: string, bytes: Buffer) {
  const { symbols, resources } = start({ one: undefined });
  await symbols.open(1, 'lib.pdb', signature, undefined);
  return resources[0]!.verify!(staged(bytes) as never);
}

test('a file is refused that is not the PDB which was asked for', async (t) => {
  const windows = Buffer.from(`Microsoft C/C++ MSF 7.00\r\n\x1aDS\0\0\0`, 'latin1');
  const old = `${key.slice(0, 32)}1`;
  t.deepEqual(await verify(old, windows), {});
  const message = 'it is not the requested PDB';
  for (const bytes of [Buffer.alloc(0), Buffer.from('<html>'), Buffer.alloc(100)]) {
    await t.throwsAsync(verify(old, bytes), { message });
    await t.throwsAsync(verify(key, bytes), { message });
  }
  await t.throwsAsync(verify(key, windows), { message });
});
