import type { Row } from '../../src/database/database.ts';
import type { ImportOutcome } from '../../src/import/item.ts';
import type { PrefetchResult } from '../../src/jobs/prefetch-run.ts';
import { databaseOf, defaultAccountOf } from './inside.ts';
import type { TestServer } from './server.ts';

// Rows of work in each of its states, and of lists with further pages: what pages show of it, without the time that real work takes.

type Json = Record<string, unknown>;

const hour = 3_600_000;
const day = 24 * hour;

/** Inserts rows into a table. */
export async function insertRows(server: TestServer, table: string, rows: readonly Row[]): Promise<void> {
  await databaseOf(server).transaction(async (tx) => {
    for (const each of rows) await tx.insert(table, each);
  });
}

/** Runs statements, such as changes of a row. */
export async function runSql(server: TestServer, ...statements: readonly string[]): Promise<void> {
  await databaseOf(server).transaction(async (tx) => {
    for (const each of statements) await tx.run(each);
  });
}

/** Numbers from 1. */
export function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, index) => index + 1);
}

/** A digest, and its hexadecimal digits, of a letter from a to f or a digit. */
export const hexOf = (letter: string) => letter.repeat(64);

function runRow(
  server: TestServer,
  id: string,
  state: string,
  age: number,
  settings: Json,
  progress: Json,
): Row & { id: string } {
  const now = server.clock.now!;
  const hasEnded = !['running', 'receiving', 'incomplete', 'checked'].includes(state);
  return {
    id,
    slot: null,
    state,
    cancelled: 0,
    created_at: now - age,
    beat_at: now,
    ended_at: hasEnded ? now - age + 60_000 : null,
    settings: JSON.stringify(settings),
    progress: JSON.stringify(progress),
  };
}

function importResults(given: Partial<Record<ImportOutcome, readonly [count: number, bytes: number]>>) {
  const outcomes = ['imported', 'present', 'updated', 'mirrored', 'conflict', 'failed'] as const;
  return Object.fromEntries(
    outcomes.map((each) => [each, { count: given[each]?.[0] ?? 0, bytes: given[each]?.[1] ?? 0 }]),
  );
}

/** Imports from other servers, whose IDs are their states; `conflicts` is one with several pages of conflicts. */
export async function addImportRuns(server: TestServer): Promise<void> {
  const url = 'https://old.example.com/';
  const base = {
    kind: 'registry',
    url,
    needsSecret: false,
    dryRun: false,
    only: [],
    names: [],
    rename: [],
    moveTags: false,
    hosted: false,
    concurrency: 8,
  };
  const runs: [id: string, state: string, settings: Json, progress: Json][] = [
    [
      'running',
      'running',
      {},
      {
        known: 1200,
        ended: 34,
        received: 5_000_000,
        counts: importResults({ imported: [30, 4_000_000], failed: [2, 0] }),
      },
    ],
    [
      'done',
      'done',
      { user: 'robot', needsSecret: true, only: ['team/*', 'Contoso.*'], rename: ['old/*=team/*', 'a=b'] },
      {
        known: 9,
        ended: 9,
        received: 8192,
        counts: importResults({ imported: [3, 4096], present: [1, 100], updated: [2, 200], mirrored: [3, 300] }),
        warnings: ['The source has no tags.', 'A second thing was seen.'],
      },
    ],
    [
      'conflicts',
      'done',
      { dryRun: true, kind: 'feed' },
      { known: 60, ended: 60, counts: importResults({ conflict: [50, 5000], failed: [3, 0] }) },
    ],
    ['stopped', 'stopped', {}, { error: 'The source ended early.', counts: importResults({ conflict: [1, 1] }) }],
    ['failed', 'failed', {}, { error: 'The source refused the secret.', counts: importResults({ failed: [1, 1] }) }],
    ['cancelled', 'cancelled', {}, {}],
    ['interrupted', 'interrupted', {}, {}],
    ['lost', 'lost', {}, {}],
  ];
  const rows = runs.map(([id, state, settings, progress], index) => ({
    ...runRow(server, id, state, (index + 1) * hour, { ...base, ...settings }, progress),
    account_id: defaultAccountOf(server),
  }));
  await insertRows(server, 'import_runs', rows);
  await insertRows(
    server,
    'import_problems',
    upTo(53).map((position) => ({
      run_id: 'conflicts',
      position,
      outcome: position > 50 ? 'failed' : 'conflict',
      name: `team/app-${String(position).padStart(2, '0')}`,
      reference: 'v1',
      note: position > 50 ? 'it is gone' : 'it is here with other content',
    })),
  );
}

const tallies = (count: number, bytes: number) => ({
  package: { count, bytes },
  manifest: { count: count + 1, bytes: bytes + 1 },
  blob: { count: count + 2, bytes: bytes + 2 },
});

const missing = [
  { file: 'compose.yaml', line: 7, what: 'team/gone:1', reason: 'no upstream has it' },
  { file: 'list.txt', line: 0, what: 'Lost 1.0.0', reason: 'it was withdrawn' },
];

/** Prefetches, whose IDs are their states; `dry` would fetch something, and `missed` did not find all. */
export async function addPrefetchRuns(server: TestServer): Promise<void> {
  const base = { dryRun: false, platforms: [], frameworks: [], referrers: true, files: ['compose.yaml'] };
  const result: PrefetchResult = {
    fetched: tallies(1, 1000),
    present: tallies(4, 4000),
    unmeasured: 0,
    approximate: false,
    skipped: [],
    skippedTotal: 0,
    missing: [],
    missingTotal: 0,
  };
  const done = { known: 5, ended: 5, received: 1234 };
  const runs: [id: string, state: string, settings: Json, progress: Json, input?: string][] = [
    ['running', 'running', {}, { known: 4000, ended: 1234, received: 99, waiting: 'for 22:00' }],
    ['busy', 'running', {}, { known: 2, ended: 1, received: 99 }],
    [
      'done',
      'done',
      {
        platforms: [
          { os: 'linux', architecture: 'arm64', variant: 'v8' },
          { os: 'linux', architecture: 'amd64' },
        ],
        frameworks: ['net8.0', 'net9.0'],
        files: ['compose.yaml', 'packages.lock.json'],
      },
      { ...done, result },
    ],
    [
      'missed',
      'done',
      {},
      {
        ...done,
        result: {
          ...result,
          approximate: true,
          unmeasured: 1200,
          missing,
          missingTotal: 1500,
          skipped: [
            { what: 'team/app', reason: 'it is hosted here' },
            { what: 'Own.One', reason: 'it is reserved' },
          ],
          skippedTotal: 2,
        },
      },
    ],
    [
      'dry',
      'done',
      { dryRun: true },
      {
        ...done,
        result: {
          ...result,
          missing: missing.slice(0, 1),
          missingTotal: 1,
          skipped: [{ what: 'team/app', reason: 'it is hosted here' }],
          skippedTotal: 1,
        },
      },
      'x',
    ],
    ['failed', 'failed', {}, { ...done, error: 'The disk is full.' }],
    ['cancelled', 'cancelled', {}, done],
    ['interrupted', 'interrupted', {}, done],
    ['lost', 'lost', {}, done],
  ];
  const rows = runs.map(([id, state, settings, progress, input = null], index) => ({
    ...runRow(server, id, state, (index + 1) * hour, { ...base, ...settings }, progress),
    account_id: defaultAccountOf(server),
    input,
  }));
  await insertRows(server, 'prefetch_runs', rows);
}

const counts = {
  packages: { count: 2, bytes: 20_000 },
  manifests: { count: 1, bytes: 482 },
  layers: { count: 3, bytes: 3_000_000 },
  documents: { count: 1, bytes: 99 },
};
const noCounts = Object.fromEntries(Object.keys(counts).map((each) => [each, { count: 0, bytes: 0 }]));

/** Keys that are trusted and revoked: the first one is `near`. */
export async function addBundleKeys(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const key = (letter: string, name: string, role: string, more: Row = {}) => ({
    id: hexOf(letter),
    name,
    role,
    public_key: 'PEM',
    added_at: now - day,
    expires_at: null,
    vouched_by: null,
    ...more,
  });
  await insertRows(server, 'bundle_keys', [
    key('a', 'near', 'both'),
    key('b', 'next', 'bundles', { vouched_by: hexOf('a'), expires_at: now + 30 * day }),
    key('c', 'receiver', 'receipts', { vouched_by: hexOf('9') }),
    key('d', 'offline', 'revoke'),
  ]);
  await insertRows(server, 'bundle_revocations', [
    { id: hexOf('e'), name: 'stolen', revoked_by: hexOf('d'), revoked_at: now - 2 * day },
    { id: hexOf('f'), name: null, revoked_by: hexOf('8'), revoked_at: now - 3 * day },
  ]);
}

function bundleRow(server: TestServer, letter: string, direction: string, state: string, age: number, summary: Json) {
  const now = server.clock.now!;
  return {
    id: hexOf(letter),
    direction,
    source: '11111111-2222-4333-8444-555555555555',
    sequence: age,
    state,
    summary: JSON.stringify({ ...counts, segments: 2, bytes: 3_020_581, against: null, key: null, ...summary }),
    created_at: now - age - hour,
    changed_at: now - age,
  };
}

/** Bundles that were made and imported, in each state. */
export async function addBundles(server: TestServer): Promise<void> {
  const bundle = (letter: string, direction: string, state: string, age: number, summary: Json) =>
    bundleRow(server, letter, direction, state, age, summary);
  const knownBad = [
    { name: 'osv', records: 1 },
    { name: 'own', records: 2000 },
  ];
  await insertRows(server, 'bundles', [
    bundle('1', 'imported', 'complete', hour, { written: 1234, key: hexOf('a'), against: hexOf('0'), knownBad }),
    bundle('2', 'imported', 'incomplete', 2 * hour, { key: hexOf('7'), segments: 1 }),
    bundle('3', 'imported', 'complete', 3 * hour, { ...noCounts, written: 0 }),
    bundle('4', 'made', 'complete', 4 * hour, { against: hexOf('0') }),
  ]);
}

/** More bundles that were imported than a page shows. */
export async function addManyBundles(server: TestServer): Promise<void> {
  await insertRows(
    server,
    'bundles',
    upTo(50).map((number) => ({
      ...bundleRow(server, '5', 'imported', 'complete', number * day, { written: number }),
      id: String(number).padStart(64, '0'),
    })),
  );
}

/** Makings and imports of bundles. Their IDs are their states, after `made-` and `in-`. */
export async function addBundleRuns(server: TestServer): Promise<void> {
  const result = (more: Json = {}) => ({
    result: { id: `sha256:${hexOf('1')}`, counts, segments: 2, bytes: 3_020_581, key: null, policy: false, ...more },
  });
  const making = {
    platforms: [],
    frameworks: [],
    referrers: true,
    files: [],
    stored: false,
    policy: false,
    allowMissing: false,
  };
  const announced = { statement: `statement ${'x'.repeat(60)}`, id: hexOf('6'), signer: 'near', refused: null };
  const made: [name: string, state: string, settings: Json, progress: Json][] = [
    [
      'fetching',
      'running',
      { files: ['a.txt'] },
      { known: 3000, ended: 1200, received: 55, waiting: 'for the rate limit' },
    ],
    ['writing', 'running', { files: ['a.txt'] }, { known: 3, ended: 3, received: 55, bytes: 1000, of: 4000 }],
    [
      'done',
      'done',
      {
        files: ['a.txt', 'b.txt'],
        platforms: [
          { os: 'linux', architecture: 'amd64' },
          { os: 'linux', architecture: 'arm64' },
        ],
        frameworks: ['net8.0', 'net9.0'],
        against: `sha256:${hexOf('0')}`,
      },
      {
        ...result({
          policy: true,
          key: hexOf('a'),
          knownBad: [
            { name: 'osv', records: 1 },
            { name: 'own', records: 2 },
          ],
        }),
        missing,
        missingTotal: 700,
        received: 5,
      },
    ],
    [
      'failed',
      'failed',
      { files: ['a.txt'] },
      { error: 'It cannot be had.', missing: missing.slice(0, 1), missingTotal: 1 },
    ],
    ['cancelled', 'cancelled', { stored: true }, {}],
    ['interrupted', 'interrupted', { files: ['a.txt'] }, {}],
    ['lost', 'lost', { files: ['a.txt'] }, {}],
  ];
  const imported: [name: string, state: string, settings: Json, progress: Json][] = [
    ['receiving', 'receiving', {}, {}],
    ['running', 'running', {}, { bytes: 1_000_000, of: 2_500_000 }],
    ['incomplete', 'incomplete', { unsigned: true }, { lacking: [2, 3] }],
    ['far', 'incomplete', { older: true }, { lacking: upTo(23) }],
    ['checked', 'checked', {}, result({ key: hexOf('7') })],
    ['done', 'done', {}, result({ written: 1, key: hexOf('a'), newKey: announced })],
    [
      'refused',
      'done',
      {},
      result({ written: 1200, newKey: { ...announced, signer: null, refused: 'the key near may not sign it' } }),
    ],
    [
      'odd',
      'done',
      {},
      result({ written: 0, newKey: { ...announced, id: null, signer: null, refused: 'it is no statement' } }),
    ],
    ['failed', 'failed', {}, { error: 'A segment is damaged.' }],
    ['cancelled', 'cancelled', {}, {}],
    ['interrupted', 'interrupted', {}, {}],
    ['lost', 'lost', {}, {}],
    ['expired', 'expired', {}, {}],
  ];
  // Every making is older than every import, except the last one.
  const rows = [
    ...imported.map(([name, state, settings, progress], index) => ({
      ...runRow(
        server,
        `in-${name}`,
        state,
        (index + 1) * 60_000,
        { unsigned: false, older: false, ...settings },
        progress,
      ),
      direction: 'imported',
    })),
    ...made.map(([name, state, settings, progress], index) => ({
      ...runRow(
        server,
        `made-${name}`,
        state,
        index === 0 ? 0 : (index + 1) * hour,
        { ...making, ...settings },
        progress,
      ),
      direction: 'made',
    })),
  ];
  await insertRows(server, 'bundle_runs', rows);
}

/** What was asked of an upstream in two hours of the last day, and on an earlier day. */
export async function addUpstreamSamples(server: TestServer, kind: string, upstream: string): Promise<void> {
  const now = server.clock.now!;
  const sample = (age: number, requests: number, failures: number, milliseconds: number) => ({
    kind,
    upstream,
    hour: Math.floor((now - age) / hour) * hour,
    requests,
    failures,
    milliseconds,
    needed: requests * 3,
    hits: requests * 2,
    received_bytes: requests * 1_000_000,
  });
  await insertRows(server, 'upstream_samples', [
    sample(hour, 4, 1, 400),
    sample(3 * hour, 1000, 0, 20_000),
    sample(3 * day, 2000, 7, 30_000),
    { ...sample(2 * hour, 0, 0, 0), needed: 5, hits: 5 },
  ]);
}

/** Runs of the job `scrub`, one for each outcome, and of others. */
export async function addJobRuns(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const run = (job: string, outcome: string, age: number, counted: Json, more: Row = {}) => ({
    job,
    scheduled_at: null,
    started_at: now - age,
    ended_at: now - age + 1500,
    outcome,
    counts: JSON.stringify(counted),
    error: null,
    ...more,
  });
  await insertRows(server, 'job_runs', [
    run('scrub', 'lost', 9 * hour, { blobs: 3 }),
    run('scrub', 'interrupted', 8 * hour, { blobs: 3, bytes: 4096 }),
    run('scrub', 'failed', 7 * hour, { blobs: 3 }, { error: 'The disk fails.', ended_at: now - 7 * hour + 49 }),
    run(
      'scrub',
      'done',
      6 * hour,
      { blobs: 1200, checked_bytes: 5000, damaged_hosted: 1 },
      { scheduled_at: now - 6 * hour },
    ),
    run('scrub', 'running', 5 * hour, { blobs: 2 }, { ended_at: null }),
    run('gc', 'done', 5 * hour, { bytes: 0, missing: 2 }, { ended_at: now - 5 * hour + 50 }),
    run('gc', 'running', 4 * hour, {}, { ended_at: null }),
    run('evict', 'done', 4 * hour, { failed: 1 }),
    run('retention', 'done', 4 * hour, { missing: 2 }),
  ]);
}

const actor = JSON.stringify({ kind: 'token', id: 'a-token', name: 'Ada' });

/** A number with two digits. */
const numbered = (number: number) => String(number).padStart(2, '0');

/** More rows than a page shows of the lists of claims, waivers, promotions, deletions, people, grants, and failed requests. */
export async function addLongLists(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const account = defaultAccountOf(server);
  const requested = { requester: 'a-token', requested_by: actor, decided_by: null, decided_at: null };
  await insertRows(
    server,
    'packages',
    upTo(60).map((number) => ({
      account_id: account,
      package_key: `gone.${numbered(number)}`,
      package_id: `Gone.${numbered(number)}`,
      standing: 0,
      created_at: now - day,
      updated_at: now - day,
    })),
  );
  await insertRows(
    server,
    'waivers',
    upTo(60).map((number) => ({
      ...requested,
      account_id: account,
      state: 'requested',
      layer: null,
      kind: 'package',
      name: `Wanted.${numbered(number)}`,
      name_key: `wanted.${numbered(number)}`,
      reference_list: '["1.0.0"]',
      lifts: 'age',
      reason: 'It is needed.',
      requested_at: now - number * 60_000,
      expires_at: now + day,
      warned: 0,
      ended_at: null,
    })),
  );
  await insertRows(
    server,
    'promotions',
    upTo(60).map((number) => ({
      ...requested,
      state: 'requested',
      kind: 'package',
      from_account: account,
      from_name: `Ready.${numbered(number)}`,
      reference: '1.0.0',
      digest: `sha256:${hexOf('1')}`,
      to_account: account,
      to_name: `Ready.${numbered(number)}`,
      reason: '',
      requested_at: now - number * 60_000,
    })),
  );
  await insertRows(
    server,
    'deleted_items',
    upTo(60).map((number) => ({
      account_id: account,
      kind: 'container',
      type: number % 2 === 0 ? 'tag' : 'manifest',
      name: 'team/gone',
      reference: number % 2 === 0 ? `v${numbered(number)}` : `sha256:${hexOf('1')}`,
      digest: `sha256:${hexOf('1')}`,
      size_bytes: number % 2 === 0 ? 0 : 1000,
      row_id: 0,
      part_of: 0,
      changed_at: now - 2 * day,
      deleted_by: number > 2 ? actor : JSON.stringify({ kind: 'system', id: null, name: null }),
      deleted_at: now - number * 60_000,
      ends_at: now + 12 * hour,
    })),
  );
  await insertRows(
    server,
    'people',
    upTo(60).map((number) => ({
      id: String(number).padStart(32, '0'),
      person: JSON.stringify({
        issuer: 'https://id.example.com',
        subject: `person-${numbered(number)}`,
        name: `Person ${numbered(number)}`,
        claims: [],
      }),
      signed_in_at: now - number * 60_000,
      disabled:
        number > 3
          ? null
          : JSON.stringify({
              ...(number > 1 && { default: { by: JSON.parse(actor) as object, at: now - hour, reason: 'Has left.' } }),
              ...(number < 3 && { other: { by: JSON.parse(actor) as object, at: now - day, reason: 'Is away.' } }),
            }),
      used_accounts: null,
    })),
  );
  await insertRows(
    server,
    'grants',
    upTo(60).map((number) => ({
      id: `00000000-0000-4000-8000-0000000000${numbered(number)}`,
      account_id: account,
      subject_kind: 'group',
      issuer: 'https://id.example.com',
      subject_id: `group-${numbered(number)}`,
      verbs: 'read,write',
      patterns: null,
      created_by: actor,
      created_at: now - number * 60_000,
      accepted_at: null,
    })),
  );
  await insertRows(
    server,
    'failed_requests',
    upTo(60).map((number) => ({
      id: hexOf('0').slice(2) + numbered(number),
      account_id: account,
      kind: number % 2 === 0 ? 'package' : 'container',
      name: number % 2 === 0 ? 'lost' : 'team/lost',
      reference: number === 1 ? '' : `v${numbered(number)}`,
      token_id: number % 2 === 0 ? null : '11111111-2222-4333-8444-555555555555',
      upstream: null,
      status: 404,
      code: 'NotFound',
      reason: 'There is no such name.',
      request_id: 'a-request',
      count: number,
      first_at: now - hour,
      last_at: now - number * 1000,
    })),
  );
}

/** The ID of an object with a number. */
export function numberedId(number: number): string {
  return `00000000-0000-4000-8000-${String(number).padStart(12, '0')}`;
}

/** Webhooks that fail and that the server disabled. The first one has deliveries in each state, and more than a page shows. */
export async function addWebhooks(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const webhook = (number: number, more: Row) => ({
    id: numberedId(number),
    account_id: defaultAccountOf(server),
    name: `hook ${number}`,
    url: 'https://receiver.example.com/hook',
    events: '["package.published","tag.*","unknown.thing"]',
    patterns: JSON.stringify({ packages: ['Contoso.*', 'Fabrikam.*'], containers: ['team/*'] }),
    enabled: 1,
    disabled_reason: null,
    operate: 0,
    secret: 'encrypted',
    since_position: 0,
    // Nothing is sent in the test.
    paused_until: now + 365 * day,
    failing_since: null,
    created_at: now - number * hour,
    deleted_at: null,
    ...more,
  });
  await insertRows(server, 'webhooks', [
    webhook(1, { failing_since: now - 2 * hour }),
    webhook(2, { enabled: 0, disabled_reason: 'its receiver answered 410' }),
    webhook(3, { name: '', patterns: null }),
  ]);
  const delivery = (number: number, more: Row) => ({
    id: numberedId(100 + number),
    webhook_id: numberedId(1),
    event_position: number,
    type: 'package.published',
    body: '{"some":"body"}',
    state: 'delivered',
    attempts: 1,
    next_at: now + 300 * day,
    lease: null,
    created_at: now - number * 60_000,
    attempted_at: now - number * 60_000 + 30_000,
    duration: 12,
    status: 204,
    failure: null,
    answer: '',
    ...more,
  });
  await insertRows(server, 'webhook_deliveries', [
    ...upTo(56).map((number) => delivery(70 - number, {})),
    delivery(4, {
      type: 'tag.deleted',
      state: 'pending',
      attempts: 0,
      attempted_at: null,
      duration: null,
      status: null,
      answer: null,
    }),
    delivery(3, { state: 'pending', attempts: 3, status: null, failure: 'it cannot be reached', answer: null }),
    delivery(2, { state: 'failed', attempts: 12, status: 500, failure: 'status 500', answer: 'no' }),
    delivery(1, { state: 'delivered', attempts: 2, duration: 1234 }),
  ]);
}

/** Tokens in each state, and sessions, both more than a page shows. */
export async function addTokens(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const account_id = defaultAccountOf(server);
  const token = (number: number, name: string, more: Row) => ({
    id: numberedId(number),
    account_id,
    name,
    token_prefix: `ent_${number}`,
    hash: String(number).padStart(64, '0'),
    scopes: 'read',
    created_at: now - number * 60_000,
    expires_at: null,
    last_used_at: null,
    revoked_at: null,
    created_by: actor,
    ...more,
  });
  await insertRows(server, 'tokens', [
    token(1, 'revoked', { revoked_at: now - hour }),
    token(2, 'by a rule', {
      publisher_id: numberedId(7),
      created_by: JSON.stringify({ kind: 'publisher', id: numberedId(7), name: 'main' }),
    }),
    token(3, 'of nobody', { owner_id: 'f'.repeat(32) }),
    token(4, 'of the first person', { owner_id: String(1).padStart(32, '0') }),
    token(5, 'of the second person', { owner_id: String(2).padStart(32, '0') }),
    token(6, 'limited', { patterns: JSON.stringify({ packages: ['A.*'], containers: ['a/*', 'b/*'] }) }),
    token(7, 'old', { created_by: null, token_prefix: '' }),
    token(8, 'by the system', { created_by: JSON.stringify({ kind: 'system', id: null, name: null }) }),
    token(9, 'ends now', { expires_at: now }),
    ...upTo(50).map((number) => token(100 + number, `one of many ${number}`, {})),
  ]);
  await insertRows(
    server,
    'token_uses',
    upTo(25).map((number) => ({
      account_id,
      kind: 'package',
      name: 'made.library',
      user_id: numberedId(100 + number),
      downloads: number,
      uploads: 0,
      last_at: now - number * 60_000,
    })),
  );
  await insertRows(
    server,
    'sessions',
    upTo(60).map((number) => ({
      id: numberedId(number),
      hash: String(number).padStart(64, '0'),
      account_id,
      token_id: numberedId(100 + (number % 50) + 1),
      agent: `A browser ${'x'.repeat(number === 2 ? 200 : 1)}`,
      address: '192.0.2.1',
      created_at: now - number * 60_000,
      used_at: now - number * 1000,
    })),
  );
}

/** What many packages and tokens used in a month, and the bytes that were stored on some days. */
export async function addUsage(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const account_id = defaultAccountOf(server);
  const month = Date.UTC(2026, 9, 1);
  const used = (dimension: string, name: string, number: number, day: number) => ({
    account_id,
    dimension,
    period_start: month,
    name,
    day,
    requests: number * 1000,
    downloads: number * 100,
    uploads: number,
    version_checks: number,
    cache_hits: number * 2,
    cache_misses: number,
    egress_bytes: number * 1_000_000,
    ingress_bytes: number * 1000,
    upstream_bytes: number * 2000,
  });
  await insertRows(server, 'usage_counts', [
    ...upTo(60).map((number) => used('package', `used.${String(number).padStart(2, '0')}`, number, month)),
    used('package', '', 1, month),
    used('token', numberedId(1), 1, month),
    used('token', numberedId(999), 2, month),
    used('account', '', 1, month),
    used('account', '', 2, month + day),
    used('account', '', 4, month + 7 * day),
    used('account', '', 5, month + 30 * day),
    // The first day of the last 53 weeks, and the day before it, which is not shown.
    ...[8, 16].map((number, before) => {
      const first = now - (now % day) + day - 53 * 7 * day - before * day;
      return {
        ...used('account', '', number, first),
        period_start: Date.parse(`${new Date(first).toISOString().slice(0, 7)}-01`),
      };
    }),
  ]);
  await insertRows(
    server,
    'storage_samples',
    [1, 2, 40].map((days) => ({
      account_id,
      hour: Math.floor((now - days * day) / hour) * hour,
      hosted_bytes: 1_000_000 * days,
      mirrored_bytes: 2_000_000 * days,
    })),
  );
}

/** Who pulled version 1.0.0 of the package `mine`: tokens, jobs, people and clients without a token. */
export async function addPulls(server: TestServer): Promise<void> {
  const now = server.clock.now!;
  const account_id = defaultAccountOf(server);
  const today = now - (now % day);
  const none = { name: null, ruleId: null, person: null, job: null };
  const job = {
    id: 'a-job',
    issuer: 'github',
    repository: 'team/app',
    ref: 'refs/heads/main',
    run: '77',
    subject: 'repo:team/app',
  };
  const users: [id: string, facts: Json][] = [
    [numberedId(6), { ...none, kind: 'token', name: 'limited', person: 'Ann' }],
    ['a-job', { ...none, kind: 'job', name: 'main', ruleId: numberedId(7), job }],
    ['b-job', { ...none, kind: 'job', name: 'main', job: { ...job, id: 'b-job', repository: null, run: null } }],
    [`anonymous-${account_id}`, { ...none, kind: 'anonymous' }],
    [`console-${account_id}`, { ...none, kind: 'console' }],
  ];
  await insertRows(
    server,
    'pull_users',
    [
      ...users,
      ...upTo(50).map((number): [string, Json] => [
        `user-${String(number).padStart(2, '0')}`,
        { ...none, kind: 'job', name: 'many', job: null },
      ]),
    ].map(([id, facts]) => ({
      id,
      account_id,
      facts: JSON.stringify(facts),
      last_day: today,
    })),
  );
  const content = (letter: string, kind: string, name: string, reference: string) => ({
    id: letter.repeat(32),
    account_id,
    kind,
    name,
    reference,
    last_day: today,
    is_compared: 1,
  });
  await insertRows(server, 'pull_contents', [
    content('1', 'package', 'mine', '1.0.0'),
    content('2', 'container', 'team/app', `sha256:${hexOf('1')}`),
    content('3', 'package', 'out', '7.0.0'),
  ]);
  const use = (letter: string, act: string, user_id: string, age: number) => ({
    content_id: letter.repeat(32),
    act,
    user_id,
    day: today,
    count: 1200,
    first_at: now - age,
    last_at: now - age + 1000,
  });
  await insertRows(server, 'pulls', [
    ...users.map(([id], index) => use('1', 'pull', id, hour + index * 1000)),
    ...upTo(50).map((number) => use('1', 'pull', `user-${String(number).padStart(2, '0')}`, hour)),
    use('2', 'push', 'a-job', hour / 2),
    use('3', 'push', 'a-job', hour / 3),
  ]);
}
