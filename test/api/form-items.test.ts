import { type IncomingMessage } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { bundleOperations } from '../../src/api/bundles/bundles.ts';
import { readSegmentsForm, segmentNumber } from '../../src/api/bundles/bundle-form.ts';
import { cursorOf } from '../../src/api/framework/paging.ts';
import type { Operation } from '../../src/api/framework/operation.ts';
import { prefetchOperations } from '../../src/api/prefetch/prefetch.ts';
import { AppResponse } from '../../src/http/request-context.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { noted, runOf } from '../support/operations.ts';
import { answerRequests } from '../support/answers.ts';

const at = (milliseconds: number) => new Date(milliseconds).toISOString();

/** A form with fields and files: `[field, name of the file, text]`. */
function formOf(fields: Record<string, string>, files: readonly (readonly [string, string, string])[] = []): FormData {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields)) form.set(name, value);
  for (const [field, name, text] of files) form.append(field, new Blob([text]), name);
  return form;
}

/** Sends a form to `work`; resolves to its result, or its error, and how many bytes were counted. */
async function sent<T>(
  t: ExecutionContext,
  form: FormData,
  work: (receiving: { request: IncomingMessage; response: AppResponse }) => Promise<T>,
) {
  const outcome: { result?: T; error?: DomainError; received: number } = { received: 0 };
  const answer = async (request: IncomingMessage, response: AppResponse) => {
    try {
      outcome.result = await work({ request, response });
    } catch (caught) {
      outcome.error = caught as DomainError;
    }
    request.resume();
    outcome.received = response.context.received;
    response.writeHead(200, {}).end();
  };
  const port = await answerRequests(t, answer);
  await (await fetch(`http://127.0.0.1:${port}/`, { method: 'POST', body: form })).arrayBuffer();
  return outcome;
}

/** Runs an operation that receives a form. */
const received = (t: ExecutionContext, operations: readonly Operation[], id: string, form: FormData, params = {}) =>
  sent(t, form, (receiving) => runOf(operations)(id, { receiving, params }));

const fieldOf = (error: DomainError | undefined) =>
  (error?.detail?.['errors'] as { field: string }[] | undefined)?.[0]?.field;

const settings = {
  dryRun: true,
  files: ['a.txt'],
  platforms: [{ os: 'linux', architecture: 'arm', variant: 'v7' }],
  frameworks: ['net8.0'],
  referrers: true,
  kind: undefined,
};
const run = { id: 'r', state: 'running', createdAt: 1, endedAt: null, canFetch: false, settings };
const tallies = (of: number) => ({
  package: { count: of, bytes: of + 1 },
  manifest: { count: of + 2, bytes: of + 3 },
  blob: { count: of + 4, bytes: of + 5 },
});
const talliesShown = (of: number) => ({
  packages: { count: of, size_bytes: of + 1 },
  manifests: { count: of + 2, size_bytes: of + 3 },
  blobs: { count: of + 4, size_bytes: of + 5 },
});
const runShown = {
  id: 'r',
  state: 'running',
  created_at: at(1),
  ended_at: null,
  can_fetch: false,
  dry_run: true,
  files: ['a.txt'],
  platforms: ['linux/arm/v7'],
  frameworks: ['net8.0'],
  referrers: true,
  known: 3,
  ended: 2,
  received_bytes: 9,
  waiting: null,
  error: null,
  result: null,
};

function prefetchRun(progress: object = { known: 3, ended: 2, received: 9 }) {
  const asked: unknown[][] = [];
  const found = { ...run, progress };
  const runs = {
    defaults: { platforms: ['linux/amd64'], frameworks: ['net9.0'], referrers: true },
    table: { list: noted(asked, 'list', [found]), get: noted(asked, 'get', found), cancel: noted(asked, 'cancel') },
    receive: (work: () => Promise<unknown>) => {
      asked.push(['receive']);
      return work();
    },
    start: noted(asked, 'start', found),
    fetch: noted(asked, 'fetch', found),
  };
  const parts = { runs, kinds: ['plain', 'compose'], idle: 60_000 };
  return { asked, parts, operations: prefetchOperations(parts as never) };
}

test('prefetches are listed, shown, started again and stopped', async (t) => {
  const { asked, operations } = prefetchRun();
  const call = runOf(operations);
  t.deepEqual(await call('listPrefetches'), {
    items: [runShown],
    next_cursor: null,
    kinds: ['plain', 'compose'],
    defaults: { platforms: ['linux/amd64'], frameworks: ['net9.0'], referrers: true },
  });
  t.deepEqual(await call('getPrefetch'), runShown);
  t.deepEqual(await call('fetchPrefetch'), runShown);
  await call('cancelPrefetch');
  t.deepEqual(asked, [['list'], ['get', '5'], ['receive'], ['fetch', 7, '5'], ['cancel', 7, '5']]);
  const [skipped, missing] = [[{ what: 'x', reason: 'y' }], [{ file: 'a', line: 1, what: 'x', reason: 'y' }]];
  const numbers = { unmeasured: 1, approximate: true, skipped, skippedTotal: 2, missing, missingTotal: 3 };
  const result = { fetched: tallies(10), present: tallies(20), ...numbers };
  const progress = { known: 0, ended: 0, received: 0, waiting: 'slowly', error: 'broken', result };
  t.deepEqual(await runOf(prefetchRun(progress).operations)('getPrefetch'), {
    ...runShown,
    known: 0,
    ended: 0,
    received_bytes: 0,
    waiting: 'slowly',
    error: 'broken',
    result: {
      fetched: talliesShown(10),
      present: talliesShown(20),
      unmeasured: 1,
      approximate: true,
      skipped,
      skipped_total: 2,
      missing,
      missing_total: 3,
    },
  });
});

test('a prefetch starts with the files and the fields of its form, and else the settings', async (t) => {
  const file = ['file', 'C:\\lists\\a\u0007.txt', 'text'] as const;
  const start = async (fields: Record<string, string>) => {
    const { asked, operations } = prefetchRun();
    const { result, error, received: bytes } = await received(t, operations, 'startPrefetch', formOf(fields, [file]));
    t.is(error, undefined);
    t.deepEqual(result, runShown);
    t.true(bytes > 100);
    return asked;
  };
  const amd = { os: 'linux', architecture: 'amd64', variant: undefined };
  const defaults = { dryRun: false, referrers: true, platforms: [amd], frameworks: ['net9.0'], kind: undefined };
  const given = (changes: object) => [
    ['receive'],
    ['start', 7, { ...defaults, files: ['a.txt'], ...changes }, [{ file: 'a.txt', text: 'text' }]],
  ];
  t.deepEqual(await start({}), given({}));
  t.deepEqual(
    await start({
      dry_run: 'true',
      referrers: 'false',
      platforms: '',
      frameworks: ' net8.0,\n net6.0 ',
      kind: 'compose',
    }),
    given({ dryRun: true, referrers: false, platforms: [], frameworks: ['net8.0', 'net6.0'], kind: 'compose' }),
  );
  const twenty = Array.from({ length: 20 }, (_, each) => `x${each}`);
  const long = `${'x'.repeat(99)}+`;
  t.deepEqual(await start({ frameworks: twenty.join(), kind: '' }), given({ frameworks: twenty }));
  t.deepEqual(await start({ frameworks: long, dry_run: 'false' }), given({ frameworks: [long] }));
});

test('the form of a prefetch is refused by the field that is wrong, and told again', async (t) => {
  const file = ['file', 'a.txt', 'text'] as const;
  for (const [field, value] of [
    ['kind', 'other'],
    ['frameworks', 'net 8,a/b'],
    ['frameworks', 'x'.repeat(101)],
    ['frameworks', Array.from({ length: 21 }, () => 'x').join()],
    ['platforms', 'linux'],
    ['platforms', Array.from({ length: 21 }, () => 'linux/amd64').join()],
    ['dry_run', 'yes'],
    ['referrers', ''],
  ] as const) {
    const { asked, operations } = prefetchRun();
    const { error } = await received(t, operations, 'startPrefetch', formOf({ [field]: value, other: 'x' }, [file]));
    t.deepEqual([error?.name, fieldOf(error)], ['Invalid', field], value);
    t.deepEqual(error?.detail?.['fields'], { [field]: value, other: 'x' });
    t.deepEqual(asked, [['receive']]);
  }
  const { operations, parts } = prefetchRun();
  const none = await received(t, operations, 'startPrefetch', formOf({ dry_run: 'true' }, [['file', '', '']]));
  t.deepEqual([fieldOf(none.error), none.error?.detail?.['fields']], ['file', { dry_run: 'true' }]);
  const half = 'x'.repeat(2.5 * 2 ** 20);
  const files = (texts: readonly string[]) =>
    formOf(
      {},
      texts.map((text, each) => ['file', `f${each}`, text] as const),
    );
  t.is((await received(t, operations, 'startPrefetch', files([half, half]))).error, undefined);
  t.is((await received(t, operations, 'startPrefetch', files([half, half, 'x']))).error?.name, 'TooLarge');
  const ten = Array.from({ length: 10 }, () => 'x');
  t.is((await received(t, operations, 'startPrefetch', files(ten))).error, undefined);
  t.is((await received(t, operations, 'startPrefetch', files([...ten, 'x']))).error?.name, 'Invalid');
  const busy = new DomainError('TooManyRequests', 'later', { retryAfter: 5 });
  parts.runs.receive = () => Promise.reject(busy);
  const refused = await received(t, operations, 'startPrefetch', formOf({}, [file]));
  t.deepEqual(
    [refused.error?.name, refused.error?.retryAfter, refused.error?.detail],
    ['TooManyRequests', 5, { fields: {}, retryAfter: 5 }],
  );
  const broken = new Error('broken');
  parts.runs.receive = () => Promise.reject(broken);
  t.is<unknown, unknown>((await received(t, operations, 'startPrefetch', formOf({}, [file]))).error, broken);
});

const tally = { count: 1, bytes: 2 };
const counts = {
  packages: tally,
  manifests: { count: 3, bytes: 4 },
  layers: { count: 5, bytes: 6 },
  documents: { count: 7, bytes: 8 },
};
const countsShown = {
  packages: { count: 1, size_bytes: 2 },
  manifests: { count: 3, size_bytes: 4 },
  layers: { count: 5, size_bytes: 6 },
  documents: { count: 7, size_bytes: 8 },
};
const keys = [{ id: 'k', name: 'known', pem: 'PEM' }];
const makeSettings = { ...settings, stored: false, against: undefined };
const made = { id: 'm', state: 'running', createdAt: 1, endedAt: null, settings: makeSettings, progress: {} };
const imported = { ...made, id: 'i', settings: { unsigned: true, older: false } };
const files = [{ number: 1, size: 10 }];
const makingShown = {
  id: 'm',
  state: 'running',
  error: null,
  created_at: at(1),
  ended_at: null,
  done_bytes: 0,
  total_bytes: null,
  segments: [{ number: 1, size_bytes: 10 }],
  bundle: null,
  files: ['a.txt'],
  stored: false,
  platforms: ['linux/arm/v7'],
  frameworks: ['net8.0'],
  referrers: true,
  against: null,
  known: 0,
  ended: 0,
  received_bytes: 0,
  waiting: null,
  missing: [],
  missing_total: 0,
};
const { state, error: none, created_at, ended_at, done_bytes, total_bytes, segments, bundle } = makingShown;
const importShown = {
  id: 'i',
  state,
  error: none,
  created_at,
  ended_at,
  done_bytes,
  total_bytes,
  segments,
  bundle,
  unsigned: true,
  older: false,
  check: false,
  needed: [],
};

function bundleRun(changes: { made?: object; imported?: object; records?: readonly object[]; receipt?: object } = {}) {
  const asked: unknown[][] = [];
  const receipts: string[] = [];
  let kept = 0;
  const staged = () => {
    kept += 1;
    const held = {
      size: 0,
      append: async (content: AsyncIterable<Buffer>) => {
        for await (const piece of content) held.size += piece.length;
      },
      discard: () => {
        kept -= 1;
        receipts.push(`discarded ${held.size}`);
        return Promise.resolve();
      },
    };
    return held;
  };
  const [making, importing] = [
    { ...made, ...changes.made },
    { ...imported, ...changes.imported },
  ];
  const runs = {
    files: {
      segments: (id: string) => Promise.resolve(id === 'none' ? [] : files),
      receipt: () => Promise.resolve(changes.receipt),
      openReceipt: noted(asked, 'openReceipt', 'content'),
    },
    table: { list: (direction: string) => Promise.resolve(direction === 'made' ? [making] : [importing]) },
    signs: true,
    segmentLimit: 99,
    stage: () => Promise.resolve(staged()),
    readReceipt: noted(asked, 'readReceipt', 'receipt'),
    make: noted(asked, 'make', making),
    makingOf: noted(asked, 'makingOf', making),
    importOf: noted(asked, 'importOf', importing),
    beginImport: noted(asked, 'beginImport', importing),
    runImport: noted(asked, 'runImport', importing),
    cancel: noted(asked, 'cancel'),
    open: noted(asked, 'open', 'content'),
    writeReceipt: noted(asked, 'writeReceipt', { id: 'd', digests: 3, size: 4, key: 'k' }),
    receive: async (id: string, number: number, content: AsyncIterable<Buffer>, options: object) => {
      let bytes = 0;
      for await (const piece of content) bytes += piece.length;
      asked.push(['receive', id, number, bytes, options]);
      return bytes;
    },
  };
  const bundles = { list: noted(asked, 'bundles', changes.records ?? []) };
  const trust = { list: () => Promise.resolve(keys), revoked: () => Promise.resolve([]) };
  const { parts: prefetches } = prefetchRun();
  const operations = bundleOperations({ runs, bundles, trust, prefetches, now: () => 0 } as never);
  return { asked, receipts, kept: () => kept, runs, operations, call: runOf(operations) };
}

test('a bundle that is made and an import are shown with their progress and their result', async (t) => {
  const { call, asked } = bundleRun();
  t.deepEqual(await call('getBundle'), makingShown);
  t.deepEqual(await call('getBundleImport'), importShown);
  t.deepEqual(await call('beginBundleImport'), importShown);
  t.deepEqual(await call('runBundleImport', { body: { check: true } }), importShown);
  await call('deleteBundle');
  await call('endBundleImport');
  t.deepEqual(await call('getBundleSegment', { params: { id: '5', number: '12' } }), {
    content: 'content',
    type: 'application/x-tar',
    name: '0012.tar',
  });
  t.deepEqual(await call('writeBundleReceipt'), { digest: 'd', items: 3, size_bytes: 4, key: 'k' });
  t.deepEqual(await call('getBundleReceipt'), {
    content: 'content',
    type: 'application/octet-stream',
    name: 'receipt',
  });
  t.deepEqual(asked, [
    ['makingOf', '5'],
    ['importOf', '5'],
    ['beginImport'],
    ['runImport', '5', { check: true }],
    ['cancel', 'made', '5'],
    ['cancel', 'imported', '5'],
    ['open', '5', 12],
    ['writeReceipt'],
    ['openReceipt'],
  ]);
  const result = { id: 'sha256:d', counts, segments: 2, bytes: 30, key: 'k', policy: { a: 1 } };
  const progress = {
    bytes: 5,
    of: 6,
    error: 'broken',
    result,
    known: 1,
    ended: 2,
    received: 3,
    waiting: 'slowly',
    missing: ['x'],
    missingTotal: 4,
  };
  const ended = bundleRun({
    made: { endedAt: 7, progress, settings: { ...makeSettings, against: 'r', stored: true } },
    imported: {
      progress: {
        ...progress,
        lacking: [2],
        result: { ...result, key: 'other', written: 9, knownBad: [{ name: 'l', records: 1 }], newKey: 'n' },
      },
      settings: { unsigned: false, older: true, check: true },
    },
  });
  const bundleShown = {
    digest: 'sha256:d',
    ...countsShown,
    segments: 2,
    size_bytes: 30,
    written: null,
    key: { id: 'k', name: 'known' },
    policy: { a: 1 },
    known_bad: [],
    new_key: null,
  };
  t.deepEqual(await ended.call('getBundle'), {
    ...makingShown,
    error: 'broken',
    ended_at: at(7),
    done_bytes: 5,
    total_bytes: 6,
    bundle: bundleShown,
    stored: true,
    against: 'r',
    known: 1,
    ended: 2,
    received_bytes: 3,
    waiting: 'slowly',
    missing: ['x'],
    missing_total: 4,
  });
  t.deepEqual(await ended.call('getBundleImport'), {
    ...importShown,
    error: 'broken',
    done_bytes: 5,
    total_bytes: 6,
    bundle: {
      ...bundleShown,
      written: 9,
      key: { id: 'other', name: null },
      known_bad: [{ name: 'l', records: 1 }],
      new_key: 'n',
    },
    unsigned: false,
    older: true,
    check: true,
    needed: [2],
  });
  const all = {
    made: [makingShown],
    imported: [importShown],
    kinds: ['plain', 'compose'],
    signs: true,
    segment_limit_bytes: 99,
  };
  const defaults = { platforms: ['linux/amd64'], frameworks: ['net9.0'], referrers: true };
  t.deepEqual(await call('listBundleRuns'), { ...all, defaults, receipt: null });
  const { receipt } = await bundleRun({ receipt: { size: 3, writtenAt: 4 } }).call('listBundleRuns');
  t.deepEqual(receipt, { size_bytes: 3, written_at: at(4) });
});

test('bundles are listed by where they were made, filtered and added up', async (t) => {
  const summary = { ...counts, segments: 1, bytes: 20, against: null, key: null };
  const record = {
    id: 'd',
    direction: 'imported',
    source: 'Site-A',
    sequence: 4,
    state: 'whole',
    summary,
    createdAt: 1,
    changedAt: 2,
  };
  const other = {
    ...record,
    id: 'e',
    source: 'b',
    state: 'incomplete',
    summary: { ...summary, written: 3, key: 'x', knownBad: [{ name: 'l', records: 1 }] },
  };
  const { call, asked } = bundleRun({ records: [record, other] });
  const shown = {
    digest: 'sha256:d',
    direction: 'imported',
    source: 'Site-A',
    sequence: 4,
    state: 'whole',
    ...countsShown,
    segments: 1,
    size_bytes: 20,
    against: null,
    written: null,
    known_bad: [],
    key: null,
    created_at: at(1),
    changed_at: at(2),
  };
  const otherShown = {
    ...shown,
    digest: 'sha256:e',
    source: 'b',
    state: 'incomplete',
    written: 3,
    key: { id: 'x', name: null },
    known_bad: [{ name: 'l', records: 1 }],
  };
  t.deepEqual(await call('listBundles', { query: { total: '1' } }), {
    items: [shown, otherShown],
    next_cursor: null,
    total: { count: 2, size_bytes: 40 },
  });
  t.deepEqual((await call('listBundles', { query: { q: 'SITE' } }))['items'], [shown]);
  t.deepEqual((await call('listBundles', { query: { state: 'incomplete' } }))['items'], [otherShown]);
  const first = await call('listBundles', { query: { limit: '1', direction: 'made' } });
  t.deepEqual(first['next_cursor'], cursorOf('bundles made', [2, 'd']));
  await call('listBundles', { query: { sort: 'oldest' } });
  t.deepEqual(
    [asked[0]!.slice(0, 2), asked.at(-2)![1], asked.at(-1)![1], asked.at(-2)![4], asked.at(-1)![4]],
    [['bundles', 'imported'], 'made', 'imported', false, true],
  );
});

test('a bundle is made of the files of its form, or of all that is mirrored', async (t) => {
  const file = ['file', 'a.txt', 'text'] as const;
  const make = async (
    fields: Record<string, string>,
    given: readonly (readonly [string, string, string])[] = [file],
  ) => {
    const world = bundleRun();
    const { result, error } = await received(t, world.operations, 'makeBundle', formOf(fields, given));
    t.deepEqual([error, result], [undefined, makingShown] as never);
    return { ...world, call: world.asked.find(([name]) => name === 'make')! };
  };
  const amd = { os: 'linux', architecture: 'amd64', variant: undefined };
  const defaults = {
    referrers: true,
    platforms: [amd],
    frameworks: ['net9.0'],
    kind: undefined,
    stored: false,
    policy: false,
    knownBad: false,
    newKey: undefined,
    allowMissing: false,
    segment: undefined,
    validFor: undefined,
    files: ['a.txt'],
  };
  const plain = await make({ dry_run: 'true', segment: ' ', expires: '' });
  t.deepEqual(plain.call, ['make', 7, defaults, [{ file: 'a.txt', text: 'text' }], undefined]);
  t.deepEqual(plain.receipts, []);
  const all = {
    stored: 'true',
    policy: 'true',
    known_bad: 'true',
    allow_missing: 'true',
    segment: ' 5MB ',
    expires: '3650d',
  };
  const against = ['against', 'receipt', 'data'] as const;
  const full = await make(all, [against]);
  t.deepEqual(full.call, [
    'make',
    7,
    {
      ...defaults,
      stored: true,
      policy: true,
      knownBad: true,
      allowMissing: true,
      segment: 5_000_000,
      validFor: 3650 * 86_400_000,
      files: [],
    },
    [],
    'receipt',
  ]);
  t.deepEqual([full.receipts, full.asked[0]![0]], [['discarded 4'], 'readReceipt']);
  const empty = await make({}, [file, ['against', '', '']]);
  t.is(empty.call[4], undefined);
  for (const [field, fields, given] of [
    ['file', {}, []],
    ['segment', { segment: 'large' }, [file]],
    ['segment', { segment: '0' }, [file]],
    ['expires', { expires: '3651d' }, [file]],
    ['expires', { expires: 'soon' }, [file]],
    ['stored', { stored: '1' }, [file]],
    ['policy', { policy: '1' }, [file]],
    ['known_bad', { known_bad: '1' }, [file]],
    ['allow_missing', { allow_missing: '1' }, [file]],
    ['new_key', { new_key: 'x' }, [file]],
    // The first one is still arriving when the second one begins.
    ['against', {}, [file, ['against', 'receipt', 'x'.repeat(500_000)], against]],
    // Both arrive in one piece.
    ['against', {}, [file, against, against]],
  ] as const) {
    const { operations, asked, receipts, kept } = bundleRun();
    const { error } = await received(t, operations, 'makeBundle', formOf(fields, given));
    t.deepEqual([fieldOf(error), error?.detail?.['fields']], [field, fields] as never);
    t.false(asked.some(([name]) => name === 'make'));
    if (field === 'against') t.is(receipts.length, 1);
    t.is(kept(), 0);
  }
  const refusing = bundleRun();
  refusing.runs.readReceipt = () => Promise.reject(new DomainError('Invalid', 'the receipt is old.'));
  const old = await received(t, refusing.operations, 'makeBundle', formOf({}, [file, against]));
  t.is(old.error?.message, 'against: The receipt is old.');
  t.deepEqual(refusing.receipts, ['discarded 4']);
  refusing.runs.readReceipt = () => Promise.reject(new DomainError('Denied', 'its key is not trusted'));
  const denied = await received(t, refusing.operations, 'makeBundle', formOf({}, [file, against]));
  t.deepEqual([denied.error?.name, denied.error?.message], ['Denied', 'its key is not trusted']);
});

test('segments are sent one by one, or in a form under their names', async (t) => {
  const { operations, asked, runs } = bundleRun();
  const one = await received(t, operations, 'putBundleSegment', formOf({ a: 'b' }), { id: '5', number: '3' });
  t.deepEqual(one.result as unknown, importShown);
  const [, , , bytes, options] = asked[0] as [string, string, number, number, { announced: number }];
  t.deepEqual(asked[0]!.slice(0, 3), ['receive', '5', 3]);
  t.deepEqual([one.received, options], [bytes, { announced: bytes, idle: 60_000, consume: true }] as never);
  asked.length = 0;
  const form = formOf({}, [
    ['segment', 'folder/0001.tar', 'one'],
    ['segment', 'C:\\0020.tar', 'twenty'],
    ['segment', '', ''],
  ]);
  const many = await received(t, operations, 'sendBundleSegments', form, { id: '5' });
  t.deepEqual([many.error, many.result as unknown], [undefined, importShown] as never);
  t.true(many.received > 100);
  const consume = { announced: 0, consume: false };
  t.deepEqual(asked, [
    ['importOf', '5'],
    ['receive', '5', 1, 3, consume],
    ['receive', '5', 20, 6, consume],
    ['importOf', '5'],
  ]);
  const send = async (names: readonly string[]) => {
    const given = formOf(
      {},
      names.map((name) => ['segment', name, 'x'] as const),
    );
    const { error } = await sent(t, given, (receiving) => readSegmentsForm(runs as never, receiving, '5', 60_000));
    return [error?.name, fieldOf(error)];
  };
  t.deepEqual(await send([]), ['Invalid', 'segment']);
  for (const bad of ['1.tar', '00001.tar', '0001.tar.gz', 'x0001.tar', '0001xtar', 'a.txt'])
    t.deepEqual(await send([bad]), ['Invalid', 'segment'], bad);
  t.deepEqual(await send(['0000.tar']), ['Invalid', undefined]);
  t.deepEqual(['1', '0012', '9999'].map(segmentNumber), [1, 12, 9999]);
  for (const bad of ['0', '', '10000', 'x', '1.5', '-1', '1x', '0000'])
    t.throws(() => segmentNumber(bad), { name: 'Invalid' }, bad);
});
