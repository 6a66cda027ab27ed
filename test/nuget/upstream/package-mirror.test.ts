import { Readable } from 'node:stream';
import test from 'ava';
import { digestOf, type Digest } from '../../../src/runtime/digest.ts';
import type { MirrorResource } from '../../../src/mirror/fetch/resource.ts';
import { Admission, type MirroredName, type Verdict } from '../../../src/mirror/policy/admission.ts';
import { UpstreamPolicy } from '../../../src/mirror/policy/upstream-policy.ts';
import type { MirrorReader } from '../../../src/mirror/stored-only.ts';
import type { PackageGate } from '../../../src/nuget/upstream/package-gate.ts';
import { addressIn, documentLimit, PackageMirror } from '../../../src/nuget/upstream/package-mirror.ts';
import { contentOf } from '../../../src/storage/files/content.ts';
import { UpstreamError } from '../../../src/upstream/upstream-error.ts';
import type { Upstream, UpstreamRequest } from '../../../src/upstream/upstream.ts';

// Packages of upstreams, with a mirror that answers from lists.

type Key = Pick<MirrorResource['key'], 'upstream' | 'kind' | 'name' | 'reference'>;

const textOf = ({ upstream, kind, name, reference }: Key) => [upstream, kind, name, reference].join(' ').trimEnd();

interface TestUpstream extends Upstream {
  sent: UpstreamRequest[];
  /** Answers in their order: a status, or a failure. */
  answers: (number | Error)[];
  bodies: Readable[];
}

function upstreamNamed(id: string, settings: object = {}): TestUpstream {
  const sent: UpstreamRequest[] = [];
  const answers: (number | Error)[] = [];
  const bodies: Readable[] = [];
  const times = { freshFor: 10, staleFor: 20, negativeFor: 30, timeout: 40 };
  return {
    id,
    name: `${id}.test`,
    base: new URL(`http://${id}.test/v3/index.json`),
    config: { ...times, kind: 'nuget', include: ['*'], exclude: [], ...settings },
    serves: () => true,
    sent,
    answers,
    bodies,
    send: async (request: UpstreamRequest) => {
      sent.push(request);
      const answer = answers.shift() ?? 200;
      if (typeof answer !== 'number') throw answer;
      const body = Readable.from([]);
      bodies.push(body);
      return { status: answer, body, headers: { 'content-type': 'text/html' }, decoded: false };
    },
  } as unknown as TestUpstream;
}

const json = (value: unknown) => JSON.stringify(value);
const listOf = (...versions: readonly string[]) => json({ versions });
const down = (id: string, options = {}) =>
  new UpstreamError('UpstreamUnavailable', `${id} is down.`, { id, ...options });

const metadataOf = (text: string, key: Key) => ({
  digest: digestOf(Buffer.from(text)),
  size: Buffer.byteLength(text),
  attributes: { of: textOf(key) },
  type: 'text/plain',
});

/** Packages of `upstreams`, and what the mirror answers and is asked. */
function start({ reserved = [], merged = [] }: { reserved?: string[]; merged?: string[] } = {}, count = 3) {
  const upstreams = ['one', 'two', 'three'].slice(0, count).map((id) => upstreamNamed(id));
  const asked: string[] = [];
  /** What upstreams answer now, and what is stored, by key. */
  const answers = new Map<string, string | Error>();
  const stored = new Map<string, string>();
  /** Keys of versions that upstreams do not offer, with those that are certain to be withdrawn. */
  const missing = new Map<string, string[]>();
  const resources = new Map<string, MirrorResource>();
  const verdicts = new Map<string, Verdict>();
  const noted: unknown[][] = [];
  const outcomes = new Map<string, string>();
  let due: string[] = [];
  const closed: string[] = [];
  const entryOf = (key: Key, text: string, outcome: string) => {
    const metadata = outcome === 'miss' ? undefined : metadataOf(text, key);
    const content = { ...contentOf(Buffer.from(text)), close: () => void closed.push(textOf(key)) };
    return { outcome, content, metadata, type: '', size: undefined, complete: Promise.resolve(metadataOf(text, key)) };
  };
  const namesOf = ({ upstream, kind, name }: Omit<Key, 'reference'>) =>
    [...stored.keys()]
      .filter((each) => each.startsWith(`${upstream} ${kind} ${name} `))
      .map((each) => each.split(' ')[3]!);
  const mirror = {
    open: async (resource: MirrorResource) => {
      const text = textOf(resource.key);
      asked.push(`open ${text}`);
      resources.set(text, resource);
      const answer = answers.get(text);
      if (answer instanceof Error) throw answer;
      return answer === undefined ? undefined : entryOf(resource.key, answer, outcomes.get(text) ?? 'miss');
    },
    openStored: async (resource: MirrorResource) => {
      const text = textOf(resource.key);
      const { lifetime } = resource;
      asked.push(`stored ${text} ${lifetime === 'immutable' ? lifetime : lifetime.staleFor}`);
      const answer = stored.get(text);
      return answer === undefined ? undefined : entryOf(resource.key, answer, 'stale');
    },
    stored: async (key: Key) => {
      const answer = stored.get(textOf(key));
      return answer === undefined ? undefined : metadataOf(answer, key);
    },
    references: async (key: Omit<Key, 'reference'>, limit: number, after = '') => {
      asked.push(`references ${key.upstream} ${key.kind} ${key.name} ${limit}`.replaceAll('  ', ' '));
      return namesOf(key)
        .filter((each) => each > after)
        .slice(0, limit);
    },
    remove: async (key: Key, also?: (tx: object) => Promise<void>) => {
      asked.push(`remove ${textOf(key)}${also ? ' and more' : ''}`);
      if (!stored.delete(textOf(key))) return false;
      await also?.({ tx: true });
      return true;
    },
    withdrawals: {
      of: async ({ upstream, kind, name }: Key) =>
        (missing.get(`${upstream} ${kind} ${name}`) ?? []).map((reference) => ({ reference })),
      times: async () => new Map<string, number>(),
      missing: async (_name: object, some: readonly string[], after: number) => {
        noted.push(['missing', some, after]);
        return due;
      },
      offered: async (_name: object, isOffered: (version: string) => boolean) => {
        noted.push(['offered', ['1.0.0', '2.0.0', '3.0.0'].filter(isOffered)]);
      },
      mark: async (key: Key) => void noted.push(['mark', textOf(key)]),
      postpone: async (key: Key) => void noted.push(['postpone', textOf(key)]),
    },
  } as unknown as MirrorReader;
  const judge = async ({ upstream, name }: MirroredName, _references: readonly string[], purpose: string) => {
    if (verdicts.size === 0) return undefined;
    return (reference: string) => verdicts.get(`${purpose} ${upstream.id} ${name} ${reference}`) ?? 'allow';
  };
  const sightings = { firstSeen: async (): Promise<Map<string, number>> => (noted.push(['first seen']), new Map()) };
  const gate = {
    accountId: 7,
    admission: new Admission(judge),
    sightings,
  } as unknown as PackageGate;
  const origin = new UpstreamPolicy(upstreams, undefined, reserved, merged);
  const packages = new PackageMirror(mirror, origin, gate, { nupkg: 777 } as never);
  const askedNow = () => asked.splice(0);
  const [one, two, three] = upstreams as [TestUpstream, TestUpstream, TestUpstream];
  const isDue = (...versions: string[]) => void (due = versions);
  return {
    packages,
    one,
    two,
    three,
    askedNow,
    answers,
    stored,
    missing,
    resources,
    verdicts,
    noted,
    outcomes,
    closed,
    isDue,
    sightings,
  };
}

const index = (flat: string) => json({ resources: [{ '@id': flat, '@type': 'PackageBaseAddress/3.0.0' }] });

test('the first upstream that has versions of an id owns it, and later ones are not asked', async (t) => {
  const { packages, answers, askedNow, one, two } = start();
  answers.set('one flat lib', listOf());
  answers.set('two flat lib', listOf('2.0.0', '1.0'));
  answers.set('three flat lib', listOf('3.0.0'));
  const found = (await packages.versions('LIB'))!;
  t.deepEqual([found.value, found.outcome], [['1.0.0', '2.0.0'], 'miss']);
  t.deepEqual(
    askedNow().filter((each) => each.startsWith('open')),
    ['open one flat lib', 'open two flat lib'],
  );
  t.is((await packages.owner('Lib'))!.upstream, two);
  answers.set('one flat lib', listOf('0.1.0'));
  t.deepEqual((await packages.versions('Lib'))!.value, ['0.1.0']);
  t.deepEqual(await packages.owner('Lib'), { upstream: one });
  t.is(await packages.versions('None'), undefined);
  t.is(await packages.owner('None'), undefined);
});

test('while the owner may be an upstream that fails, only what is stored of later ones is served', async (t) => {
  const { packages, answers, stored, askedNow, two } = start();
  const [first, second] = [down('one'), down('two')];
  answers.set('one flat lib', first);
  answers.set('two flat lib', listOf('5.0.0'));
  stored.set('two flat lib', listOf('2.0.0'));
  const found = (await packages.versions('Lib'))!;
  t.deepEqual([found.value, found.outcome], [['2.0.0'], 'stale']);
  t.deepEqual(
    askedNow().filter((each) => /^(?:open|stored) /.test(each)),
    ['open one flat lib', 'stored two flat lib 20'],
  );
  t.deepEqual(await packages.owner('Lib'), { upstream: two, silence: first });
  stored.clear();
  stored.set('three flat lib', listOf('3.0.0'));
  t.deepEqual((await packages.versions('Lib'))!.value, ['3.0.0']);
  t.is((await packages.owner('Lib'))!.silence, first, 'the first failure counts');
  stored.clear();
  answers.set('two flat lib', second);
  await t.throwsAsync(packages.versions('Lib'), { is: first });
  answers.delete('one flat lib');
  await t.throwsAsync(packages.versions('Lib'), { is: second });
  const broken = new Error('it broke');
  answers.set('one flat lib', broken);
  await t.throwsAsync(packages.versions('Lib'), { is: broken });
});

test('what is stored of any age is served beside an upstream that is offline', async (t) => {
  const { packages, answers, stored, askedNow } = start({}, 2);
  answers.set('one flat lib', down('one', { offline: true }));
  stored.set('two flat lib', listOf('2.0.0'));
  t.deepEqual((await packages.versions('Lib'))!.value, ['2.0.0']);
  t.true(askedNow().includes('stored two flat lib Infinity'));
});

test('the only upstream that may be asked is the owner without a request, and a reserved id has none', async (t) => {
  const alone = start({}, 1);
  t.deepEqual(await alone.packages.owner('Lib'), { upstream: alone.one });
  t.deepEqual(alone.askedNow(), []);
  const { packages, askedNow } = start({ reserved: ['Own.*'] });
  t.is(await packages.owner('Own.Lib'), undefined);
  t.is(await packages.versions('Own.Lib'), undefined);
  t.is(await packages.openNupkg('Own.Lib', '1.0.0', () => Promise.reject(new Error('asked'))), undefined);
  t.is(await packages.openSidecar('Own.Lib', '1.0.0', 'icon'), undefined);
  t.is(await packages.storedNupkg('Own.Lib', '1.0.0'), undefined);
  t.is(await packages.storedAt('Own.Lib', '1.0.0'), undefined);
  t.is(await packages.servedFromStore('Own.Lib', '1.0.0'), undefined);
  t.is(await packages.mirroredFrom('Own.Lib'), undefined);
  t.false(await packages.forget('Own.Lib', '1.0.0', () => Promise.reject(new Error('removed'))));
  t.deepEqual(askedNow(), []);
});

test('stored versions that the upstream offers no more are among its versions, and keep it the owner', async (t) => {
  const { packages, answers, stored, missing, verdicts, one } = start();
  missing.set('one nupkg lib', ['1.5.0']);
  answers.set('one flat lib', listOf('1.0.0', '2.0.0'));
  const found = (await packages.versions('Lib'))!;
  t.deepEqual([found.value, found.outcome], [['1.0.0', '1.5.0', '2.0.0'], 'miss']);
  missing.set('one nupkg lib', ['2.5.0', '10.0.0', '1.5.0']);
  t.deepEqual((await packages.versions('Lib'))!.value, ['1.0.0', '1.5.0', '2.0.0', '2.5.0', '10.0.0']);
  missing.set('one nupkg lib', ['1.5.0']);
  t.deepEqual(await packages.keptVersions({ upstream: one }, 'lib'), [], 'nothing of it is stored');
  for (const version of ['1.5.0', '4.0.0']) stored.set(`one nupkg lib ${version}`, '');
  t.deepEqual(await packages.keptVersions({ upstream: one }, 'lib'), ['1.5.0']);
  answers.set('two flat lib', listOf('9.0.0'));
  for (const [answer, kept] of [
    [undefined, ['1.5.0']],
    [listOf(), ['1.5.0', '4.0.0']],
  ] as const) {
    if (answer === undefined) answers.delete('one flat lib');
    else answers.set('one flat lib', answer);
    const { value, outcome, ...more } = (await packages.versions('Lib'))!;
    t.deepEqual([value, outcome], [kept, 'withdrawn']);
    t.deepEqual(more, { owner: { upstream: one } });
    t.deepEqual(await packages.keptVersions({ upstream: one }, 'lib'), [...kept]);
  }
  answers.set('one flat lib', down('one'));
  t.deepEqual(await packages.keptVersions({ upstream: one }, 'lib'), ['1.5.0']);
  const broken = new Error('it broke');
  answers.set('one flat lib', broken);
  await t.throwsAsync(packages.keptVersions({ upstream: one }, 'lib'), { is: broken });
  answers.delete('one flat lib');
  verdicts.set('list one lib 1.5.0', 'hold');
  t.deepEqual((await packages.versions('Lib'))!.value, []);
  t.deepEqual((await packages.allVersions({ upstream: one }, 'lib'))?.value, undefined);
});

/** What the mirror was told to fetch for a key, with the answer of the upstream. */
async function fetched(
  { resources, one }: ReturnType<typeof start>,
  text: string,
  known?: object,
  answer: number | Error = 404,
) {
  one.sent.length = 0;
  one.answers.push(answer);
  const { signal } = new AbortController();
  const { kind } = await resources.get(text)!.fetch(known as never, signal);
  const sent = one.sent.map(({ url, signal: own, ...request }) => ({
    url: url.href,
    isCancelled: own === signal,
    ...request,
  }));
  return { kind, sent };
}

test('a document is asked for where the service index says, and again only if it may have changed', async (t) => {
  const feed = start({}, 1);
  const { packages, answers, one, resources, askedNow } = feed;
  answers.set('one service-index', index('http://flat.test/some/'));
  t.is(await packages.flat(one), 'http://flat.test/some/');
  answers.set('one service-index', index('http://flat.test/some'));
  t.is(await packages.flat(one), 'http://flat.test/some/');
  await packages.versions('Lib');
  t.like(resources.get('one flat lib'), {
    key: { upstream: 'one', kind: 'flat', name: 'lib', reference: '' },
    lifetime: { freshFor: 10, staleFor: 20 },
    negativeFor: 30,
    idle: 40,
    limit: documentLimit,
    upstreamName: 'one.test',
    upstreamKind: 'nuget',
    whole: true,
  });
  askedNow();
  const request = {
    url: 'http://flat.test/some/lib/index.json',
    isCancelled: true,
    subject: 'package lib',
    isDocument: true,
    headers: { 'accept-encoding': 'gzip' } as object,
  };
  t.deepEqual(await fetched(feed, 'one flat lib'), { kind: 'absent', sent: [request] });
  const headers = { 'accept-encoding': 'gzip', 'if-none-match': '"7"' };
  const again = await fetched(feed, 'one flat lib', { etag: '"7"' }, 304);
  t.deepEqual(again, { kind: 'not-modified', sent: [{ ...request, headers }] });
  t.is((await fetched(feed, 'one flat lib', undefined, 200)).kind, 'fetched');
  const service = { ...request, url: 'http://one.test/v3/index.json', subject: 'service-index' };
  t.deepEqual(await fetched(feed, 'one service-index'), { kind: 'absent', sent: [service] });
  t.is(resources.get('one service-index')!.limit, 2 ** 20);
});

const lacks = (what: string) => `The upstream one.test has no ${what}, so it cannot be mirrored.`;

test('an upstream without a service index, or without what is needed of it, cannot be mirrored', async (t) => {
  const { packages, answers, one } = start({}, 1);
  const name = 'UpstreamUnavailable';
  await t.throwsAsync(packages.resources(one), { name, message: lacks('service index') });
  answers.set('one service-index', json({ resources: [{ '@id': 'http://one.test/b', '@type': 'B' }] }));
  await t.throwsAsync(packages.flat(one), { name, message: lacks('PackageBaseAddress/3.0.0') });
  await t.throwsAsync(packages.resource(one, ['A', 'C']), { name, message: lacks('A') });
  t.is(await packages.resource(one, ['A', 'B']), 'http://one.test/b');
  t.deepEqual([...(await packages.resources(one))], [['B', 'http://one.test/b']]);
  answers.set('one service-index', json({ resources: 7 }));
  await t.throwsAsync(packages.resources(one), {
    name,
    message: 'An upstream sent a document that is not of the expected form.',
  });
});

test('an address in a document is one of the web, below the upstream and without a user', (t) => {
  const upstream = upstreamNamed('one');
  for (const [address, expected] of [
    ['https://other.test/a?b=c', 'https://other.test/a?b=c'],
    ['page.json', 'http://one.test/v3/page.json'],
    ['/a', 'http://one.test/a'],
    ['http://user:secret@one.test/a', 'http://one.test/a'],
  ] as const)
    t.is(addressIn(upstream, address).href, expected);
  for (const address of [
    undefined,
    7,
    null,
    'ftp://one.test/',
    'file:///a',
    'xhttp://one.test/',
    'http://',
    'httpx://a/',
  ])
    t.throws(() => addressIn(upstream, address), {
      name: 'UpstreamUnavailable',
      message: 'The upstream one.test sent a document with an invalid address.',
    });
});

test('whether a document of an upstream is stored', async (t) => {
  const { packages, stored, one, askedNow } = start({}, 1);
  t.false(await packages.hasDocument(one, 'vulnerability-index'));
  stored.set('one vulnerability-index  x', '');
  t.true(await packages.hasDocument(one, 'vulnerability-index'));
  t.false(await packages.hasDocument(one, 'service-index'));
  t.is(askedNow()[0], 'references one vulnerability-index 1');
});

const staged = (text: string) => ({
  digest: async () => digestOf(Buffer.from(text)),
  size: Buffer.byteLength(text),
  bytes: async () => Buffer.from(text),
});

test('a new list of versions is compared with what is stored before it is served', async (t) => {
  const feed = start({}, 1);
  const { packages, answers, stored, resources, noted, one, missing, isDue } = feed;
  answers.set('one service-index', index('http://one.test/flat'));
  answers.set('one flat lib', listOf('9.0.0'));
  for (const version of ['1.0.0', '2.0.0']) stored.set(`one nupkg lib ${version}`, '');
  await packages.allVersions({ upstream: one }, 'lib');
  t.deepEqual(noted, []);
  const verify = (text: string) => resources.get('one flat lib')!.verify!(staged(text) as never);
  t.deepEqual(await verify(listOf('1.0.0')), {});
  t.deepEqual(noted.splice(0), [['missing', ['2.0.0'], 30]]);
  await t.throwsAsync(verify('[]'), { message: 'it is not a JSON document of the expected form' });
  t.deepEqual(noted, []);
  // "Not found" says that there is no version any more, and an unchanged list is looked at if a version is missing.
  await fetched(feed, 'one flat lib');
  t.deepEqual(noted.splice(0), [['missing', ['1.0.0', '2.0.0'], 30]]);
  stored.set('one flat lib', listOf('2.0.0'));
  await fetched(feed, 'one flat lib', {}, 304);
  t.deepEqual(noted, []);
  missing.set('one nupkg lib', ['1.0.0']);
  await fetched(feed, 'one flat lib', {}, 304);
  t.deepEqual(noted.splice(0), [
    ['offered', ['2.0.0']],
    ['missing', ['1.0.0'], 30],
  ]);
  missing.clear();
  // A version that is due is asked for itself.
  isDue('1.0.0');
  for (const [answer, expected] of [
    [404, ['mark', 'one nupkg lib 1.0.0']],
    [410, ['mark', 'one nupkg lib 1.0.0']],
    [200, ['postpone', 'one nupkg lib 1.0.0']],
    [302, ['postpone', 'one nupkg lib 1.0.0']],
    [down('one'), undefined],
  ] as const) {
    [one.sent.length, one.bodies.length] = [0, 0];
    one.answers.push(answer);
    await verify(listOf('2.0.0'));
    t.deepEqual(noted.splice(0), [['missing', ['1.0.0'], 30], ...(expected ? [[...expected]] : [])]);
    const url = new URL('http://one.test/flat/lib/1.0.0/lib.1.0.0.nupkg');
    t.deepEqual(one.sent as object[], [{ method: 'HEAD', url, subject: 'package lib' }]);
    t.true(
      one.bodies.every((body) => body.readableFlowing),
      'each body is discarded',
    );
  }
  const broken = new Error('it broke');
  one.answers.push(broken);
  await t.throwsAsync(verify(listOf('2.0.0')), { is: broken });
});

const stated = () => Promise.resolve({});

test('a nupkg comes from the owner, as it is, and what a policy hides does not', async (t) => {
  const feed = start();
  const { packages, answers, resources, verdicts, missing, outcomes, askedNow } = feed;
  answers.set('one service-index', index('http://one.test/flat'));
  answers.set('one flat lib', listOf('1.0.0'));
  answers.set('one nupkg lib 1.0.0', 'bytes');
  t.is((await packages.openNupkg('Lib', '1.0.0', stated))!.outcome, 'miss');
  const { lifetime, limit, algorithms } = resources.get('one nupkg lib 1.0.0')!;
  t.deepEqual([lifetime, limit, algorithms], ['immutable', 777, ['sha512']]);
  const request = {
    url: 'http://one.test/flat/lib/1.0.0/lib.1.0.0.nupkg',
    isCancelled: true,
    subject: 'package lib',
    headers: {},
  };
  t.deepEqual(await fetched(feed, 'one nupkg lib 1.0.0', { etag: 'x' }), { kind: 'absent', sent: [request] });
  feed.one.answers.push(200);
  const answer = await resources.get('one nupkg lib 1.0.0')!.fetch(undefined, new AbortController().signal);
  t.is(answer.kind === 'fetched' && answer.type, 'application/octet-stream');
  missing.set('one nupkg lib', ['1.0.0']);
  t.is((await packages.openNupkg('Lib', '1.0.0', stated))!.outcome, 'miss');
  outcomes.set('one nupkg lib 1.0.0', 'hit');
  t.is((await packages.openNupkg('Lib', '1.0.0', stated))!.outcome, 'withdrawn');
  missing.set('one nupkg lib', ['2.0.0']);
  t.is((await packages.openNupkg('Lib', '1.0.0', stated))!.outcome, 'hit');
  t.is(await packages.openNupkg('Lib', '2.0.0', stated), undefined);
  askedNow();
  verdicts.set('request one lib 1.0.0', 'hold');
  t.is(await packages.openNupkg('Lib', '1.0.0', stated), undefined);
  verdicts.set('request one lib 1.0.0', { denied: 'No.' });
  await t.throwsAsync(packages.openNupkg('Lib', '1.0.0', stated), { name: 'Denied', message: 'No.' });
  t.false(askedNow().includes('open one nupkg lib 1.0.0'));
});

test('a nupkg that arrives is looked at as other content of its version, and a stored one is not', async (t) => {
  const { packages, answers, verdicts, outcomes, noted, closed, sightings } = start({}, 1);
  const open = () => packages.openNupkg('Lib', '1.0.0', stated);
  t.is(await open(), undefined);
  answers.set('one nupkg lib 1.0.0', 'bytes');
  verdicts.set('content one lib 1.0.0', 'hold');
  t.is((await open())!.outcome, 'miss');
  t.deepEqual(noted.splice(0), [['first seen']]);
  outcomes.set('one nupkg lib 1.0.0', 'hit');
  t.is((await open())!.outcome, 'hit');
  t.deepEqual(noted, []);
  outcomes.clear();
  const broken = new Error('it broke');
  sightings.firstSeen = () => Promise.reject(broken);
  t.deepEqual(closed, []);
  await t.throwsAsync(open(), { is: broken });
  t.deepEqual(closed, ['one nupkg lib 1.0.0']);
});

test('whether a version is withdrawn is asked beside its nupkg, and matters only for a stored one', async (t) => {
  const { packages, answers, outcomes } = start({}, 1);
  const open = () => packages.openNupkg('Lib', '1.0.0', stated);
  const [unknown, broken] = [new Error('unknown'), new Error('it broke')];
  packages.withdrawn.keys = () => Promise.reject(unknown);
  answers.set('one nupkg lib 1.0.0', broken);
  await t.throwsAsync(open(), { is: broken });
  t.is(await packages.openNupkg('Lib', '2.0.0', stated), undefined);
  answers.set('one nupkg lib 1.0.0', 'bytes');
  t.is((await open())!.outcome, 'miss');
  outcomes.set('one nupkg lib 1.0.0', 'hit');
  await t.throwsAsync(open(), { is: unknown });
});

test('a nupkg is compared with what is known of it from its owner', async (t) => {
  const { packages, answers, resources, two } = start();
  answers.set('two flat lib', listOf('1.0.0'));
  const broken = new Error('it broke');
  const asked: unknown[] = [];
  await packages.openNupkg('Lib', '1.0.0', (owner) => {
    asked.push(owner);
    return Promise.reject(broken);
  });
  t.deepEqual(asked, [], 'only when it has come');
  const staged = { digest: () => 'sha256:x', open: () => new Promise(() => undefined) };
  await t.throwsAsync(resources.get('two nupkg lib 1.0.0')!.verify!(staged as never), { is: broken });
  t.deepEqual(asked, [{ upstream: two }]);
});

test('while no owner is known, a nupkg is served by the first upstream of which it is stored', async (t) => {
  const { packages, answers, stored, verdicts, missing, askedNow, outcomes } = start();
  const open = async (id = 'Lib') => (await packages.openNupkg(id, '1.0.0', stated))?.outcome;
  for (const id of ['two', 'three']) {
    stored.set(`${id} nupkg lib 1.0.0`, id);
    answers.set(`${id} nupkg lib 1.0.0`, id);
  }
  outcomes.set('two nupkg lib 1.0.0', 'hit');
  t.is(await open(), 'hit');
  t.is(askedNow().at(-1), 'open two nupkg lib 1.0.0');
  const failure = down('one');
  answers.set('one flat lib', failure);
  t.is(await open(), 'hit');
  t.deepEqual((await packages.storedNupkg('Lib', '1.0.0'))!.nupkg.attributes, { of: 'two nupkg lib 1.0.0' });
  t.is((await packages.storedNupkg('Lib', '1.0.0'))!.outcome, 'hit');
  missing.set('two nupkg lib', ['1.0.0']);
  t.is((await packages.storedNupkg('Lib', '1.0.0'))!.outcome, 'withdrawn');
  verdicts.set('request two lib 1.0.0', 'hold');
  t.is(await packages.storedNupkg('Lib', '1.0.0'), undefined);
  verdicts.delete('request two lib 1.0.0');
  // Lists do not show it, so that the next one counts.
  verdicts.set('list two lib 1.0.0', 'hold');
  t.deepEqual((await packages.storedNupkg('Lib', '1.0.0'))!.nupkg.attributes, { of: 'three nupkg lib 1.0.0' });
  t.is((await packages.storedAt('Lib', '1.0.0'))!.upstream.id, 'three');
  stored.clear();
  missing.clear();
  await t.throwsAsync(open(), { is: failure });
  await t.throwsAsync(packages.storedNupkg('Lib', '1.0.0'), { is: failure });
  answers.delete('one flat lib');
  t.is(await open(), undefined);
  t.is(await packages.storedNupkg('Lib', '1.0.0'), undefined);
  const broken = new Error('it broke');
  answers.set('one flat lib', broken);
  stored.set('two nupkg lib 1.0.0', '');
  await t.throwsAsync(open(), { is: broken });
});

test('a nupkg of an owner that may not be asked is served from what is stored', async (t) => {
  const { packages, answers, stored, askedNow } = start({}, 2);
  const failure = down('one');
  answers.set('one flat lib', failure);
  stored.set('two flat lib', listOf('1.0.0', '2.0.0'));
  stored.set('two nupkg lib 1.0.0', 'bytes');
  const entry = (await packages.openNupkg('Lib', '1.0.0', stated))!;
  t.is(entry.metadata!.digest, digestOf(Buffer.from('bytes')) satisfies Digest);
  t.is(askedNow().at(-1), 'stored two nupkg lib 1.0.0 immutable');
  await t.throwsAsync(packages.openNupkg('Lib', '2.0.0', stated), { is: failure });
  await t.throwsAsync(packages.openSidecar('Lib', '1.0.0', 'icon'), { is: failure });
});

test('a file beside a nupkg has its own name and few bytes', async (t) => {
  const feed = start({}, 1);
  const { packages, answers, resources, verdicts, askedNow } = feed;
  answers.set('one service-index', index('http://one.test/flat'));
  for (const [kind, leaf] of [
    ['nuspec', 'lib.nuspec'],
    ['readme', 'readme'],
    ['icon', 'icon'],
  ] as const) {
    const key = `one ${kind} lib 1.0.0`;
    t.is(await packages.openSidecar('LIB', '1.0.0', kind), undefined);
    answers.set(key, kind);
    t.is((await packages.openSidecar('Lib', '1.0.0', kind))!.outcome, 'miss');
    const { lifetime, limit, whole } = resources.get(key)!;
    t.deepEqual([lifetime, limit, whole], ['immutable', 2 ** 20, true]);
    const url = `http://one.test/flat/lib/1.0.0/${leaf}`;
    const request = { url, isCancelled: true, subject: 'package lib', isDocument: true, headers: {} };
    t.deepEqual(await fetched(feed, key, { etag: 'x' }), { kind: 'absent', sent: [request] });
  }
  askedNow();
  verdicts.set('request one lib 1.0.0', 'hold');
  t.is(await packages.openSidecar('Lib', '1.0.0', 'icon'), undefined);
  t.deepEqual(askedNow(), []);
});

test('what is stored of a version, from which upstream, and what is removed of it', async (t) => {
  const { packages, stored, verdicts, askedNow } = start();
  t.is(await packages.mirroredFrom('Lib'), undefined);
  for (const kind of ['flat', 'nupkg', 'registration-semver2', 'registration']) {
    stored.set(`two ${kind} lib x`, '');
    t.is(await packages.mirroredFrom('Lib'), 'two.test', kind);
    stored.clear();
  }
  for (const kind of ['icon', 'symbols']) stored.set(`one ${kind} lib x`, '');
  stored.set('three flat lib x', '');
  t.is(await packages.mirroredFrom('LIB'), 'three.test');
  stored.clear();

  for (const id of ['one', 'two'])
    for (const kind of ['nupkg', 'nuspec', 'flat']) stored.set(`${id} ${kind} lib 1.0.0`, '');
  t.deepEqual((await packages.servedFromStore('Lib', '1.0.0'))!.upstream.id, 'one');
  verdicts.set('request one lib 1.0.0', 'hold');
  t.is(await packages.servedFromStore('Lib', '1.0.0'), undefined);
  t.is((await packages.storedAt('Lib', '1.0.0'))!.upstream.id, 'one');
  askedNow();
  const removed: unknown[] = [];
  const also = async (tx: object, name: string) => void removed.push([tx, name]);
  t.true(await packages.forget('LIB', '1.0.0', also));
  t.deepEqual(
    askedNow(),
    ['one', 'two', 'three'].flatMap((id) =>
      ['nupkg', 'nuspec', 'readme', 'icon'].map(
        (kind) => `remove ${id} ${kind} lib 1.0.0${kind === 'nupkg' ? ' and more' : ''}`,
      ),
    ),
  );
  t.deepEqual(removed, [
    [{ tx: true }, 'one.test'],
    [{ tx: true }, 'two.test'],
  ]);
  t.deepEqual([...stored.keys()], ['one flat lib 1.0.0', 'two flat lib 1.0.0']);
  stored.set('one icon lib 1.0.0', '');
  t.false(await packages.forget('Lib', '1.0.0', also), 'without a nupkg there was no version');
  t.is(removed.length, 2);
});

test('lists show what the policy does not hold, of this account and package', async (t) => {
  const { packages, one, verdicts } = start();
  t.false(await packages.isLimited(one, 'lib'));
  verdicts.set('list one lib 2.0.0', 'hold');
  verdicts.set('list one lib 3.0.0', { denied: 'No.' });
  t.true(await packages.isLimited(one, 'lib'));
  const items = ['1.0.0', '2.0.0', '3.0.0'].map((version) => ({ version }));
  t.deepEqual(
    (await packages.listed(one, 'lib', items, ({ version }) => version)).map(({ version }) => version),
    ['1.0.0', '3.0.0'],
  );
  const { facts: _facts, ...name } = packages.nameOf(one, 'lib');
  t.deepEqual(name as object, { accountId: 7, upstream: one, kind: 'package', name: 'lib', shown: ['lib'] });
});
