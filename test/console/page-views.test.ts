import test from 'ava';
import { html } from '../../src/console/framework/html.ts';
import { Form } from '../../src/console/framework/form.ts';
import { explainMissing, explainPage, explainPath, policySection } from '../../src/console/pages/mirror/explain.ts';
import { imageDigestPage } from '../../src/console/pages/images/image-digest.ts';
import { overviewCounters, overviewPage } from '../../src/console/pages/overview.ts';
import { ownTokenPage, ownTokensPage } from '../../src/console/pages/account/own-tokens.ts';
import { findTokenPage, tokenPage, userOf, userSection } from '../../src/console/pages/account/token.ts';
import {
  newTokenPage,
  revokePage,
  sessionPage,
  sessionsPage,
  tokensPage,
} from '../../src/console/pages/account/tokens.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { before, callOf, compareViews, linesOf, shown, type Answers } from './views.ts';

// Pages with answers of the API that are written here, in all states that these can have.

const upstream = {
  id: 'one',
  kind: 'nuget',
  name_there: 'lib',
  included: true,
  rule: 'asked',
  pattern: null,
  state: 'working',
  entries: 0,
  confirmed_at: null,
  said_not_found: false,
  last_outcome: 'not asked yet',
  last_failure: null,
};
const origin = { hosted: false, reserved_by: null, missing_registry: null, upstreams: [upstream] };
const story = { kind: 'package', name: 'Lib', origin, refused: null };

const storyWith = (more: object, ...upstreams: readonly object[]) => ({
  ...story,
  origin: {
    ...origin,
    ...(upstreams.length > 0 && { upstreams: upstreams.map((each, at) => ({ ...upstream, id: `up${at}`, ...each })) }),
    ...more,
  },
});

const failure = { time: before(2), reason: 'answered 500' };
const stories: Record<string, object> = {
  'a name of a registry that is no upstream': storyWith({
    missing_registry: 'far.test',
    hosted: true,
    reserved_by: 'x',
  }),
  'a hosted name': storyWith({ hosted: true, reserved_by: 'x' }, { rule: 'hosted' }),
  'a hosted name that is merged': storyWith({ hosted: true }, { entries: 1 }),
  'a reserved name': storyWith({ reserved_by: 'Lib*' }, { rule: 'reserved', pattern: 'Lib*' }),
  'a name that no upstream is asked for': storyWith(
    {},
    { rule: 'excluded', pattern: 'L*', entries: 5 },
    { rule: 'not included', state: 'offline' },
    { rule: 'other account', state: 'unused' },
  ),
  'a name of no upstream': storyWith({ upstreams: [] }),
  'a stored name': storyWith(
    {},
    { entries: 1, confirmed_at: before(3), last_failure: failure },
    { entries: 1200, confirmed_at: before(1), last_failure: failure, kind: 'registry', state: 'failing' },
    { confirmed_at: before(2), last_failure: failure, state: 'paused' },
  ),
  'a name that upstreams do not have': storyWith(
    {},
    { said_not_found: true, confirmed_at: before(1) },
    { rule: 'excluded', pattern: 'x' },
    { said_not_found: true, last_failure: failure },
  ),
  'a name that one upstream may have': storyWith(
    {},
    { said_not_found: true },
    { last_failure: failure, state: 'refused' },
  ),
};

const refused = { time: before(5), code: 'Denied', reason: 'No <b>', status: 403 };

test('a name is explained in each state, with what the policy decides of a reference', async (t) => {
  const views: Record<string, object> = { 'no name': await shown(explainPage) };
  for (const [what, explainName] of Object.entries(stories))
    views[what] = await shown(explainPage, { explainName }, { query: { name: 'Lib' } });
  const query = { kind: 'package', name: 'Lib', reference: '1.0.0', other: 'x' };
  const decisions: Record<string, object> = {
    allowed: { verdict: 'allow', layer: null, rule: null },
    held: {
      verdict: 'hold',
      layer: 'all',
      rule: 'age',
      reason: 'it is too new',
      until: before(-48),
      evidence: ['a', 'b <i>'],
    },
    denied: { verdict: 'deny', layer: 'account', rule: 'advisories', list: 'bad', reason: 'GHSA-1' },
    'denied without a reason': { verdict: 'deny', layer: 'account', rule: 'age', reason: '', evidence: [] },
    audited: { verdict: 'allow', layer: 'all', rule: null, audited: { verdict: 'deny', reason: 'GHSA-2' } },
    'audited without a reason': { verdict: 'hold', rule: 'age', audited: { verdict: 'deny', reason: null } },
  };
  for (const [what, decision] of Object.entries(decisions))
    views[what] = await shown(explainPage, { explainName: { ...story, refused, ...decision } }, { query });
  views['an image'] = await shown(
    explainPage,
    { explainName: { ...storyWith({ reserved_by: 'a' }, { rule: 'reserved' }), kind: 'container' } },
    {
      query: { kind: 'container', name: 'lib/a b' },
    },
  );
  const errors = [{ field: 'name', message: 'It is no name.' }];
  const invalid = new DomainError('Invalid', 'It is wrong.', { detail: { errors } });
  views['a wrong name'] = await shown(explainPage, { explainName: invalid }, { query });
  await compareViews(t, 'views-explain', views);
  const down = new DomainError('StorageUnavailable', 'It is down.');
  await t.throwsAsync(shown(explainPage, { explainName: down }, { query }), { is: down });
  t.is(explainPath('package', 'a b'), '/console/explain?kind=package&name=a+b');
  t.is(explainPath('container', 'a', 'x:1'), '/console/explain?kind=container&name=a&reference=x%3A1');
});

async function section(explainName: unknown, more: object = {}, visitor: Parameters<typeof callOf>[1] = {}) {
  const { call, asked } = callOf({ explainName }, visitor);
  const found = await policySection(call, 'package', {
    name: 'Lib',
    origin: 'mirrored',
    reference: '1.0.0',
    ...more,
  });
  return { lines: linesOf(found), asked };
}

test('what the policy decides is a part of the page of mirrored content, for those who may know it', async (t) => {
  for (const [more, visitor] of [
    [{ origin: 'hosted' }, {}],
    [{}, { scopes: ['read', 'admin'] }],
  ] as const)
    t.deepEqual(await section(story, more, { ...visitor, scopes: visitor.scopes && [...visitor.scopes] }), {
      lines: false,
      asked: [],
    });
  const tags = Array.from({ length: 11 }, (_, at) => `tag${at}`);
  const unknown = new DomainError('UpstreamUnavailable', 'The upstream is down.');
  await compareViews(t, 'views-policy', {
    allowed: await section({ ...story, verdict: 'allow' }, { tags }),
    held: await section({ ...story, verdict: 'hold', rule: 'age', layer: 'all', reason: 'it is new' }),
    unknown: await section(unknown, { reference: 'x'.repeat(61) }),
  });
  const broken = new Error('it broke');
  await t.throwsAsync(section(broken), { is: broken });
});

test('why a page is missing is told in the words of its kind, and the reason to those who may know it', async (t) => {
  const why = async (
    error: unknown,
    {
      reference,
      name = 'Lib',
      explainName = stories['a reserved name'],
      ...visitor
    }: { reference?: string; name?: string; explainName?: unknown; scopes?: string[] } = {},
  ) => {
    const { call, asked } = callOf({ explainName }, visitor);
    const told = await t.throwsAsync<DomainError>(explainMissing(call, 'package', name, reference)(error));
    return [told.name, told.message, told.detail, asked.length] as const;
  };
  const missing = new DomainError('NotFound', 'It is missing.');
  const unstored = 'Lib is not stored here.';
  const open = `${unstored} The package of an upstream has a page after its first download, unless the settings keep its name from upstreams.`;
  const detail = { explain: { kind: 'package', name: 'Lib' } };
  const reserved = `${unstored} Lib is reserved by Lib*: no upstream is ever asked for it. Push the package here.`;
  for (const name of ['NotFound', 'NameUnknown', 'ManifestUnknown'] as const)
    t.deepEqual(await why(new DomainError(name, 'x')), ['NotFound', reserved, detail, 1], name);
  t.deepEqual(await why(missing, { scopes: ['read', 'admin'] }), ['NotFound', open, detail, 0]);
  t.deepEqual(await why(missing, { explainName: stories['a name that one upstream may have'] }), [
    'NotFound',
    open,
    detail,
    1,
  ]);
  t.regex(
    (await why(missing, { explainName: stories['a name that upstreams do not have'] }))[1],
    /Check the spelling\.$/,
  );
  t.deepEqual(await why(missing, { explainName: new DomainError('Invalid', 'no name') }), [
    'NotFound',
    open,
    detail,
    1,
  ]);
  const of =
    'The package Lib is here, but 1.0.0 is not. It may be deleted, written wrong, hidden by a policy, or not downloaded yet.';
  const reference = '1.0.0';
  t.deepEqual(await why(missing, { reference }), ['NotFound', of, { explain: { ...detail.explain, reference } }, 0]);
  t.deepEqual(await why(new DomainError('NameUnknown', 'x'), { reference }), ['NotFound', reserved, detail, 1]);
  const long = await why(missing, { name: 'x'.repeat(256), reference: 'y'.repeat(141), scopes: ['read'] });
  t.true(long[1].startsWith(`The package ${'x'.repeat(255)}… is here, but ${'y'.repeat(140)}… is not.`));
  t.deepEqual(long[2], { explain: { kind: 'package', name: 'x'.repeat(255), reference: `${'y'.repeat(140)}…` } });
  const denied = new DomainError('Denied', 'No.');
  t.deepEqual((await why(denied)).slice(0, 2), ['Denied', 'No.']);
  const broken = new Error('it broke');
  const { call } = callOf({ explainName: broken });
  await t.throwsAsync(explainMissing(call, 'package', 'Lib')(missing), { is: broken });
  await t.throwsAsync(explainMissing(call, 'package', 'Lib')(broken), { is: broken });
});

const digestOf = (letter: string) => `sha256:${letter.repeat(64)}`;
const config = {
  digest: digestOf('c'),
  media_type: 'application/vnd.oci.image.config.v1+json',
  size_bytes: 5,
  is_stored: true,
  platform: 'linux/amd64',
  created: '2026-01-02T03:04:05Z',
  author: 'Ada',
  labels: [{ name: 'a.label', value: 'v'.repeat(301) }],
  entrypoint: ['/bin/app', '--serve'],
  command: ['x'.repeat(501)],
  environment: ['A=1', `B=${'y'.repeat(300)}`],
  user: 'nobody',
  working_directory: '/work',
  ports: ['80/tcp', '443/tcp'],
};
const layer = (letter: string, size: number) => ({
  digest: digestOf(letter),
  media_type: 'application/gzip',
  size_bytes: size,
});
const step = (more: object) => ({ created: null, created_by: null, comment: null, is_empty: false, ...more });
const image = {
  digest: digestOf('a'),
  media_type: 'application/vnd.oci.image.manifest.v1+json',
  size_bytes: 1234,
  name: 'team/app',
  origin: 'hosted',
  upstream: null,
  artifact_type: null,
  subject: null,
  updated_at: before(30),
  pull_count: 1200,
  last_pulled_at: before(1),
  annotations: [{ name: 'an.annotation', value: 'its value' }],
  tags: ['1.0', 'latest'],
  withdrawn_tags: [],
  indexes: [],
  config,
  layers: [layer('1', 100), layer('2', 2000)],
  history: [
    step({ created_by: 'ADD one', created: '2026-01-02T03:04:05Z' }),
    step({ created_by: 'ENV x', is_empty: true }),
    step({ comment: 'a comment' }),
  ],
  children: [],
  referrers: [],
  are_referrers_known: true,
};
const bare = {
  ...image,
  config: null,
  layers: [],
  history: [],
  tags: [],
  annotations: [],
  last_pulled_at: null,
};
const child = (letter: string, more: object = {}) => ({
  ...layer(letter, 7),
  platform: 'linux/arm64',
  is_stored: true,
  content_bytes: 3000,
  attests: null,
  ...more,
});
const unstated = {
  platform: null,
  created: null,
  author: null,
  labels: [],
  entrypoint: [],
  command: [],
  environment: [],
  user: null,
  working_directory: null,
  ports: [],
};

test('a manifest is shown with all that is known of it, and without what is not', async (t) => {
  const params = { name: 'team/app', digest: digestOf('a') };
  const view = (more: object, scopes?: string[]) =>
    shown(
      imageDigestPage,
      { getManifest: { ...image, ...more }, explainName: { ...story, verdict: 'allow' } },
      { params, ...(scopes && { scopes }) },
    );
  const reader = ['read'];
  const children = [
    child('4', { attests: digestOf('5'), platform: null }),
    child('5'),
    child('6', { platform: null, is_stored: false, content_bytes: null }),
    child('7', { attests: digestOf('8'), content_bytes: 0 }),
  ];
  const views = {
    'an image': await view({}),
    'an image for a reader': await view({}, reader),
    'a mirrored image': await view({
      origin: 'mirrored',
      upstream: 'one.test',
      withdrawn_tags: [{ name: '1.0', withdrawn_at: before(50) }],
    }),
    'a mirrored image for who may delete': await view({ origin: 'mirrored', upstream: 'one.test' }, ['read', 'delete']),
    'a mirrored image whose config is not stored': await view(
      {
        ...bare,
        config: { ...config, ...unstated, is_stored: false },
        origin: 'mirrored',
        upstream: 'one.test',
        are_referrers_known: false,
      },
      reader,
    ),
    'an image whose config is not stored': await view(
      { ...bare, config: { ...config, ...unstated, is_stored: false } },
      reader,
    ),
    'an image without history': await view({ ...bare, config: { ...config, ...unstated } }, reader),
    'an image with another number of layers': await view({ layers: [layer('1', 100)] }, reader),
    'an index': await view({ ...bare, children }, reader),
    'an index of one': await view({ ...bare, children: children.slice(1, 2) }, reader),
    'an image of indexes': await view({ ...bare, indexes: [digestOf('d')] }, reader),
    'an image of thirty indexes': await view(
      { ...bare, indexes: Array.from({ length: 30 }, () => digestOf('d')) },
      reader,
    ),
    'an image of many indexes': await view(
      { ...bare, indexes: Array.from({ length: 32 }, () => digestOf('d')) },
      reader,
    ),
    'an attachment': await view(
      {
        ...bare,
        artifact_type: 'application/spdx+json',
        subject: digestOf('e'),
        tags: Array.from({ length: 100 }, (_, at) => `tag${at}`),
        referrers: [
          { ...layer('f', 9), artifact_type: null, annotations: [] },
          {
            ...layer('f', 9),
            artifact_type: 'application/vnd.dev.cosign.x',
            annotations: [
              { name: 'a', value: 'b' },
              { name: 'c', value: 'd'.repeat(300) },
            ],
          },
        ],
      },
      reader,
    ),
    'a chart': await view(
      { ...bare, config: { ...config, ...unstated, media_type: 'application/vnd.cncf.helm.config.v1+json' } },
      reader,
    ),
    'a long command': await view(
      { history: [step({ created_by: 'r'.repeat(500) }), step({ created_by: 's'.repeat(501) })] },
      reader,
    ),
  };
  await compareViews(t, 'views-digest', views);
  const text = (
    await imageDigestPage.show(callOf({ getManifest: { ...bare, children } }, { params, scopes: reader }).call)
  ).body.text;
  const places = [
    'linux/arm64',
    '>none<',
    'Build attestation for linux/arm64',
    `Build attestation for ${digestOf('8').slice(0, 19)}`,
  ];
  const at = places.map((each) => text.indexOf(each, text.indexOf('of this index')));
  t.deepEqual(
    at,
    at.toSorted((a, b) => a - b),
    'images come before what attests them',
  );
  const missing = new DomainError('ManifestUnknown', 'x');
  await t.throwsAsync(shown(imageDigestPage, { getManifest: missing }, { params }), {
    name: 'NotFound',
    message: `The image team/app is here, but ${digestOf('a')} is not. It may be deleted, written wrong, hidden by a policy, or not downloaded yet.`,
  });
});

const usage = {
  storage_bytes: 0,
  storage_as_of: null,
  egress_bytes: 0,
  ingress_bytes: 0,
  requests: 0,
  downloads: 0,
  last_client_at: null,
  is_used: true,
};
const limit = (name: string, unit: string, value: number | null) => ({ name, unit, limit: value });
const account = {
  id: '1',
  name: 'default',
  created_at: before(900),
  billing_period: {},
  usage,
  limits: [
    limit('package', 'bytes', 1000),
    limit('storage', 'bytes', null),
    limit('egress', 'bytes per month', 5e9),
    limit('rate', 'requests per minute', 6000),
  ],
};
const counters = {
  as_of: before(0),
  storage_as_of: before(1),
  hosted_bytes: 1500,
  mirrored_bytes: 2_000_000,
  egress_bytes: 30_000,
  ingress_bytes: 4000,
  requests: 99,
  downloads: 1234,
  uploads: 5,
  cache_hits: 3,
  cache_misses: 1,
};
const event = {
  id: '7',
  time: before(4),
  type: 'package.published',
  account: 'default',
  actor: { kind: 'token', id: 'x', name: 'ci' },
  subject: { kind: 'package', name: 'Lib', version: '1.0.0' },
  address: null,
  request_id: null,
  details: { token_id: 'first' },
};
const finding = {
  id: 'Lib',
  version: '1.0.0',
  origin: 'hosted',
  upstream: null,
  severity: 'high',
  advisories: [],
  deprecated: true,
  downloads_30_days: 1,
  last_used_at: null,
  last_used_by: null,
};
const warned = { items: [finding], next_cursor: null, vulnerable_count: 1, deprecated_count: 1200, is_complete: true };
const report = {
  period: { start: '2026-05-01T00:00:00Z' },
  items: [
    { date: '2026-05-02', downloads: 3 },
    { date: '2026-05-20', downloads: 8 },
  ],
};
const mirror = (...states: readonly string[]) => ({
  items: states.map((state, at) => ({ id: `up${at}`, kind: 'nuget', state })),
});

test('the overview shows what the server holds and does, by the rights of its visitor', async (t) => {
  const answers = {
    getAccount: account,
    getUsage: report,
    getCounters: counters,
    listEvents: { items: [event] },
    listUpstreams: mirror('working', 'unused'),
    listFindings: warned,
  };
  const view = (more: Answers = {}, visitor: Parameters<typeof callOf>[1] = {}) =>
    shown(overviewPage, { ...answers, ...more }, visitor);
  const { call } = callOf();
  const none = { ...warned, items: [] };
  const unmeasured = { ...counters, storage_as_of: null, cache_hits: 0, cache_misses: 0 };
  const broken = ['failing', 'refused', 'paused', 'failing', 'failing', 'failing', 'working', 'offline'];
  await compareViews(t, 'views-overview', {
    all: await view(),
    'for a reader': await view({ listFindings: none }, { scopes: ['read'] }),
    'for an operator': await view({ listUpstreams: { items: [] } }, { scopes: ['read', 'operate'] }),
    'for who manages the account': await view({ getCounters: unmeasured }, { scopes: ['read', 'admin'] }),
    'with upstreams that fail': await view({
      listUpstreams: mirror(...broken),
      listFindings: { ...none, is_complete: false },
    }),
    'with one upstream that fails': await view({
      listUpstreams: mirror('failing'),
      listFindings: { ...warned, items: [{ ...finding, severity: null }] },
      getAccount: { ...account, limits: [limit('storage', 'bytes', null)] },
    }),
    'without signing in': await view({}, { principal: { ...call.principal, kind: 'anonymous' } as never }),
  });
  t.deepEqual(
    (await view({ getCounters: { ...counters, cache_hits: 4, cache_misses: 0 } })).lines.includes(
      'Answered without the upstream: 100 % 4 of 4 mirrored requests',
    ),
    true,
  );
  t.like(await overviewCounters(callOf({ getCounters: counters }).call), {
    stored: '2.0 MB',
    hit_rate: '75.0 %',
    as_of: 'just now',
  });
});

const token = {
  id: 'first',
  name: 'ci of web',
  token_prefix: 'ab_t5qC',
  scopes: ['read', 'write'],
  patterns: null,
  publisher_id: null,
  person_id: null,
  created_by: { kind: 'token', id: 'x', name: 'the maker' },
  created_at: before(100),
  expires_at: null,
  last_used_at: before(2),
  revoked_at: null,
  refused_because: null,
};
const tokens = [
  token,
  {
    ...token,
    id: 'second',
    name: 'limited',
    patterns: { packages: ['A.*', 'B'], containers: ['c/*'] },
    publisher_id: 'rule',
    created_by: null,
    expires_at: before(-1),
  },
  {
    ...token,
    id: 'third',
    name: 'personal',
    person_id: 'p',
    token_prefix: '',
    refused_because: 'disabled',
    created_by: { kind: 'system', id: null, name: null },
  },
  { ...token, id: 'fourth', name: 'ended', expires_at: before(0), last_used_at: null },
  { ...token, id: 'fifth', name: 'gone', revoked_at: before(1), expires_at: before(1), refused_because: 'no_rights' },
  { ...token, id: 'sixth', name: 'unseen', refused_because: 'no_sign_in' },
  { ...token, id: 'seventh', name: 'no rights', refused_because: 'no_rights' },
];
const listed = (
  items: readonly object[],
  next: string | null = null,
  total: object | null = { count: items.length },
) => ({ items, next_cursor: next, total });
const session = {
  id: 'this',
  person: null,
  token_id: 'first',
  token_name: 'ci of web',
  agent: 'A browser',
  address: '192.0.2.1',
  created_at: before(3),
  last_used_at: before(1),
};
const sessions = [session, { ...session, id: 'other', person: { id: 'p', name: 'Ada' }, agent: 'b'.repeat(121) }];
const use = {
  kind: 'package',
  name: 'lib',
  token_id: 'first',
  token_name: 'ci of web',
  downloads: 1200,
  uploads: 1,
  last_used_at: before(6),
};

test('the tokens of an account and who is signed in with them, in each state', async (t) => {
  const lists = { listTokens: listed(tokens), listSessions: listed(sessions) };
  await compareViews(t, 'views-tokens', {
    tokens: await shown(tokensPage, lists, { values: (name) => (name === 'id' ? ['first', 'elsewhere'] : []) }),
    'no tokens': await shown(tokensPage, { listTokens: listed([]), listSessions: listed([]) }),
    'a page of tokens': await shown(
      tokensPage,
      { listTokens: listed(tokens.slice(0, 1), 'next', null), listSessions: listed(sessions.slice(0, 1), 'more') },
      { query: { name: 'ci', sort: 'used', cursor: 'x', other: 'y' } },
    ),
    'no token of a name': await shown(
      tokensPage,
      { listTokens: listed([]), listSessions: listed([], 'more') },
      { query: { name: 'zz' } },
    ),
    sessions: await shown(sessionsPage, lists),
    'a page of sessions': await shown(
      sessionsPage,
      { listSessions: listed(sessions, 'next') },
      { query: { q: 'ada', cursor: 'x', other: 'y' } },
    ),
    'no sessions': await shown(sessionsPage, { listSessions: listed([]) }, { query: { q: 'ada' } }),
    'own session': await shown(sessionPage, {}, { params: { id: 'this' } }),
    'another session': await shown(sessionPage, {}, { params: { id: 'other' } }),
    'own tokens': await shown(
      ownTokensPage,
      { listOwnTokens: listed([tokens[0]!, tokens[4]!], 'next') },
      { query: { cursor: 'x', other: 'y' } },
    ),
    'no own tokens': await shown(ownTokensPage, { listOwnTokens: listed([]) }),
    'an own token': await shown(ownTokenPage, { listOwnTokens: listed(tokens) }, { params: { id: 'fourth' } }),
  });
  await t.throwsAsync(shown(ownTokenPage, { listOwnTokens: listed(tokens) }, { params: { id: 'none' } }), {
    name: 'NotFound',
    message: 'You have no such token in this account.',
  });
  const own = callOf({}, { params: { id: 'first' } });
  t.deepEqual(await ownTokenPage.send!(own.call), { to: '/console/my-tokens', done: 'tokens-revoked' });
  t.deepEqual(own.asked, [['revokeOwnToken', { params: { id: 'first' } }]]);
  const ending = callOf({}, { params: { id: 'other' } });
  t.deepEqual(await sessionPage.send!(ending.call), { to: '/console/tokens', done: 'session-ended' });
  t.deepEqual(ending.asked, [['endSession', { params: { id: 'other' } }]]);
});

const made = (form: [string, string][], answer: unknown = { token: 'the value' }) => {
  const { call, asked } = callOf({ createToken: answer }, { form });
  return newTokenPage.send!(call).then((view) => ({
    view: view as { body: { text: string }; refused?: Form },
    asked,
  }));
};

test('a token is made of what its form says, and shown once', async (t) => {
  const body = { name: 'x', scopes: ['read', 'admin'] };
  const fields: [string, string][] = [
    ['name', 'x'],
    ['scope', 'read'],
    ['scope', 'admin'],
  ];
  const bodyOf = async (form: [string, string][]) => ((await made(form)).asked[0]![1] as { body: object }).body;
  t.deepEqual(await bodyOf(fields), { ...body, expires_at: '2026-08-18T12:00:00.000Z' });
  t.deepEqual(await bodyOf([...fields, ['days', '0']]), body);
  t.deepEqual(await bodyOf([...fields, ['days', '7'], ['packages', 'A.*, B'], ['containers', '']]), {
    ...body,
    patterns: { packages: ['A.*', 'B'], containers: [] },
    expires_at: '2026-05-27T12:00:00.000Z',
  });
  t.deepEqual(await bodyOf([['days', 'soon']]), { name: '', scopes: [], expires_at: 'soon' });
  const {
    view: { body: shownBody, ...rest },
  } = await made(fields);
  const errors = [
    { field: 'expires_at', message: 'It is no time.' },
    { field: 'patterns.packages', message: 'It is no pattern.' },
    { field: 'scopes', message: 'There is none.' },
  ];
  const invalid = new DomainError('Invalid', 'It is wrong.', { detail: { errors } });
  const { refused: wrong } = (
    await made(
      [
        ['name', 'x'],
        ['scope', 'write'],
        ['days', '7'],
      ],
      invalid,
    )
  ).view;
  const { call } = callOf();
  const expiring = { ...call.principal, expiresAt: Date.parse('2026-06-01T00:00:00Z') } as never;
  await compareViews(t, 'views-new-token', {
    form: await shown(newTokenPage),
    'for who may not operate': await shown(newTokenPage, {}, { scopes: ['read', 'admin'] }),
    'with a token that ends': await shown(newTokenPage, {}, { principal: expiring }),
    refused: await shown(newTokenPage, {}, { refused: wrong! }),
    made: { ...rest, lines: linesOf(shownBody) } as never,
  });
  const broken = new Error('it broke');
  await t.throwsAsync(made(fields, broken), { is: broken });
});

const twoUses = ({ query: { kind } }: { query: { kind: string } }) => ({
  items: kind === 'package' ? [use, { ...use, name: 'b' }] : [],
});

test('tokens are revoked together, with a warning of what that ends', async (t) => {
  const missing = new DomainError('NotFound', 'It is not there.');
  const getToken = ({ params: { id } }: { params: { id: string } }) => tokens.find((each) => each.id === id) ?? missing;
  const admin = { ...token, id: 'admin', scopes: ['admin'] };
  const view = (
    ids: readonly string[],
    others: readonly object[] = [admin],
    more: Parameters<typeof callOf>[1] = {},
    uses: unknown = twoUses,
  ) =>
    shown(
      revokePage,
      { getToken, listUses: uses, listTokens: listed(others) },
      { values: (name) => (name === 'id' ? ids : []), ...more },
    );
  const { call } = callOf();
  await compareViews(t, 'views-revoke', {
    none: await view([]),
    one: await view(['first']),
    several: await view(['first', 'second', 'fifth', 'none'], [], {}, { items: [] }),
    'the own one': await view(['first'], [admin], { principal: { ...call.principal, tokenId: 'first' } as never }),
  });
  const warns = async (...others: readonly object[]) =>
    (await view(['first'], others)).lines.some((line) => line.includes('No other token'));
  t.false(await warns({ ...admin, expires_at: before(-1) }));
  for (const more of [
    { id: 'first' },
    { scopes: ['read'] },
    { patterns: { packages: ['*'] } },
    { revoked_at: before(1) },
    { refused_because: 'disabled' },
    { publisher_id: 'rule' },
    { expires_at: before(0) },
  ])
    t.true(await warns({ ...admin, ...more }), JSON.stringify(more));
  const pages: Answers = {
    getToken,
    listUses: twoUses,
    'listTokens {"query":{"limit":"200"}}': listed([], 'next'),
    'listTokens {"query":{"limit":"200","cursor":"next"}}': listed([admin]),
  };
  const further = await shown(revokePage, pages, { values: () => ['first'] });
  t.false(further.lines.some((line) => line.includes('No other token')));
  const summed = Array.from({ length: 21 }, (_, at) => `t${at}`);
  const all = ({ params: { id } }: { params: { id: string } }) => ({ ...token, id });
  const many = await shown(
    revokePage,
    { getToken: all, listUses: twoUses, listTokens: listed([admin]) },
    { values: () => summed },
  );
  t.is(many.asked.filter(([id]) => id === 'listUses').length, 40, 'the uses of twenty tokens, of two kinds');
  const broken = new Error('it broke');
  await t.throwsAsync(shown(revokePage, { getToken: broken }, { values: () => ['first'] }), { is: broken });

  const sending = callOf({ getToken }, { form: ['first', 'none', 'fifth', 'second'].map((id) => ['id', id]) });
  t.deepEqual(await revokePage.send!(sending.call), { to: '/console/tokens', done: 'tokens-revoked' });
  t.deepEqual(sending.asked.slice(4), [
    ['revokeToken', { params: { id: 'first' } }],
    ['revokeToken', { params: { id: 'second' } }],
  ]);
  const denied = new DomainError('Denied', 'Not this one.');
  const partly = callOf(
    {
      getToken,
      revokeToken: ({ params: { id } }: { params: { id: string } }) => (id === 'first' ? denied : undefined),
    },
    {
      form: [
        ['id', 'first'],
        ['id', 'second'],
      ],
    },
  );
  const { body, status } = (await revokePage.send!(partly.call)) as { body: { text: string }; status: number };
  t.is(status, 403);
  t.deepEqual(linesOf(body), [
    '(failure) Done: 1 of 2. Not done:',
    '- ci of web: Not this one.',
    '[Go back](/console/tokens)',
  ]);
});

test('a token is traced: its state, from where it is used, and what it did', async (t) => {
  const listUses = ({ query: { kind } }: { query: { kind: string } }) => ({
    items: {
      package: [use],
      container: [{ ...use, kind: 'container', name: 'team/app', downloads: 0 }],
      client: [
        { ...use, kind: 'client', name: `192.0.2.1 ${'a'.repeat(121)}` },
        { ...use, kind: 'client', name: '192.0.2.2 dotnet/9 (x y)' },
      ],
    }[kind],
  });
  const other = { ...event, subject: { ...event.subject, name: 'Other' }, details: { token_id: 'second' } };
  const answers = { listUses, listEvents: { items: [event, other] }, listSessions: listed(sessions) };
  const nothing = { listUses: { items: [] }, listEvents: { items: [] }, listSessions: listed([]) };
  const { call } = callOf();
  await compareViews(t, 'views-token', {
    'a token': await shown(tokenPage, { ...answers, getToken: token }, { params: { id: 'first' } }),
    'the own one, which did nothing': await shown(
      tokenPage,
      { ...nothing, getToken: tokens[2] },
      { params: { id: 'third' }, principal: { ...call.principal, tokenId: 'third' } as never },
    ),
    'a token of a rule': await shown(tokenPage, { ...nothing, getToken: tokens[1] }, { params: { id: 'second' } }),
    'a token that was revoked': await shown(
      tokenPage,
      { ...nothing, getToken: tokens[4] },
      { params: { id: 'fifth' } },
    ),
    'the users of a name': await users({ items: [use, { ...use, token_id: 'rule', token_name: null }] }),
    'the users of a name that nobody uses': await users({ items: [] }),
    'for others': await users({ items: [use] }, ['read', 'write', 'delete', 'operate']),
  });
  const many = await users({ items: Array.from({ length: 21 }, (_, at) => ({ ...use, token_name: `t${at}` })) });
  t.is(many.lines && many.lines.at(-1), '… 10 more rows', 'of twenty');
  t.is(html`${userOf({ token_id: 'a', token_name: 'b' })}`.text, '<a href="/console/tokens/a">b</a>');
});

async function users(listUses: object, scopes?: string[]) {
  const { call, asked } = callOf({ listUses }, scopes ? { scopes } : {});
  return { lines: linesOf(await userSection(call, 'package', 'lib')), asked };
}

test('a token is found by its value, or by its beginning', async (t) => {
  const find = async (findTokens: unknown) => {
    const { call, asked } = callOf({ findTokens }, { form: [['token', 'ab_t5qC']] });
    const found = (await findTokenPage.send!(call)) as { to?: string; refused?: Form; body?: { text: string } };
    t.deepEqual(asked, [['findTokens', { body: { token: 'ab_t5qC' } }]]);
    return found;
  };
  t.deepEqual(await find(listed([token])), { to: '/console/tokens/first' });
  const { refused: none } = await find(listed([]));
  t.deepEqual(none!.errors, { token: 'No token of this account has this value or this beginning.' });
  t.is(none!.values.toString(), '', 'what was typed is not kept');
  const { body: several, ...rest } = await find(listed(tokens.slice(0, 2)));
  t.deepEqual(rest as object, { title: 'Find a token' });
  t.deepEqual(linesOf(several), ['- [ci of web](/console/tokens/first)', '- [limited](/console/tokens/second)']);
  const { refused: short } = await find(
    new DomainError('Invalid', 'x', { detail: { errors: [{ field: 'token', message: 'It is short.' }] } }),
  );
  t.deepEqual([short!.errors, short!.values.toString()], [{ token: 'It is short.' }, '']);
  const broken = new Error('it broke');
  await t.throwsAsync(find(broken), { is: broken });
  await compareViews(t, 'views-find-token', {
    form: await shown(findTokenPage),
    refused: await shown(findTokenPage, {}, { refused: none! }),
  });
});
