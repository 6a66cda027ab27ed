import test from 'ava';
import { Form } from '../../src/console/framework/form.ts';
import { connectPage } from '../../src/console/pages/connect.ts';
import { imageDeletePage } from '../../src/console/pages/images/image-delete.ts';
import { imagePage } from '../../src/console/pages/images/image.ts';
import { imagesPage } from '../../src/console/pages/images/images.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { before, callOf, compareViews, linesOf, now, shown, type Answers } from './views.ts';

// The pages of images and of clients, with answers of the API that are written here, in all states that these can have.

const digest = (letter: string) => `sha256:${letter.repeat(64)}`;
const found = {
  name: 'team/app',
  origin: 'hosted',
  upstream: null,
  tag_count: 1200,
  size_bytes: 5000,
  pull_count: 1,
  last_pulled_at: before(2),
  daily_pulls: [0, 3, 1],
};
const mirrored = { ...found, origin: 'mirrored', upstream: 'far.test', last_pulled_at: null };
const tag = {
  name: '1.0',
  digest: digest('a'),
  size_bytes: 1000,
  updated_at: before(30),
  withdrawn_at: null,
  aliases: [],
  platforms: ['linux/amd64', 'linux/arm64'],
  attached: [],
  pull_count: 1200,
  last_pulled_at: null,
};
const tags = [
  tag,
  { ...tag, name: 'a-very-long-tag.of_a/branch', aliases: ['x', 'y'], attached: ['signature', 'sbom', 'attestation'] },
  { ...tag, name: 'gone', withdrawn_at: before(50), platforms: null, last_pulled_at: before(1) },
];
const page = (items: readonly object[], next: string | null = null) => ({ items, next_cursor: next });
const manifest = {
  name: 'team/app',
  digest: digest('a'),
  media_type: 'application/vnd.oci.image.manifest.v1+json',
  artifact_type: null,
  config: { media_type: 'application/vnd.oci.image.config.v1+json' },
  tags: ['1.0', 'other', 'latest'],
  indexes: [],
  referrers: [],
  children: [],
};
const missing = new DomainError('ManifestUnknown', 'It is not here.');
const params = { name: 'team/app' };

test('an image has its tags, its untagged manifests, who uses it and what tags pointed to', async (t) => {
  const answers = { getContainer: found, listTags: page(tags), getManifest: manifest };
  const view = (more: Answers = {}, visitor: Parameters<typeof callOf>[1] = {}) =>
    shown(imagePage, { ...answers, ...more }, { params, ...visitor });
  const query = { show: 'untagged', cursor: 'x' };
  const row = {
    digest: digest('b'),
    media_type: 'application/vnd.oci.image.manifest.v1+json',
    artifact_type: null,
    size_bytes: 9,
    subject: null,
    is_child: false,
    updated_at: before(3),
    pull_count: 0,
  };
  const rows = [
    row,
    { ...row, is_child: true, artifact_type: 'application/spdx+json' },
    { ...row, subject: digest('c') },
    { ...row, subject: digest('c'), is_child: true },
  ];
  const history = page(
    [
      { seen_at: before(4), reference: '1.0', digest: digest('a') },
      { seen_at: before(3), reference: '1.0', digest: null },
    ],
    'next',
  );
  const order = new DomainError('Invalid', 'It cannot be sorted by pulls.', { detail: { parameter: 'order' } });
  const byTag = (reference: string) => (args: { params: { reference: string } }) =>
    args.params.reference === reference ? manifest : missing;
  const { call } = callOf();
  await compareViews(t, 'views-image', {
    tags: await view({}, { values: (name) => (name === 'tag' ? ['1.0', 'elsewhere'] : []) }),
    'for a reader': await view(
      { listTags: page(tags.slice(0, 1), 'next') },
      { scopes: ['read'], query: { sort: 'oldest', q: 'x'.repeat(129), other: 'y' } },
    ),
    'a mirrored one for who may delete hosted ones': await view(
      { getContainer: mirrored, getManifest: missing },
      { scopes: ['read', 'delete'] },
    ),
    'a mirrored one': await view({ getContainer: mirrored, getManifest: byTag(digest('a')) }),
    'a mirrored one without tags': await view({ getContainer: mirrored, getManifest: missing, listTags: page([]) }),
    'with the tags of signatures': await view({}, { query: { attached: '1', cursor: 'x' } }),
    'in an order that is refused': await view(
      { 'listTags {"params":{"name":"team/app"},"query":{"attached":"0","q":"","order":"pulls"}}': order },
      { query: { sort: 'pulls' } },
    ),
    untagged: await view({ listUntaggedManifests: page(rows, 'next') }, { query }),
    'untagged for a reader': await view({ listUntaggedManifests: page([], 'next') }, { query, scopes: ['read'] }),
    'none untagged': await view({ listUntaggedManifests: page([]) }, { query }),
    'used by': await view({ listUses: { items: [] } }, { query: { show: 'used' } }),
    'used by, for a reader': await view({}, { query: { show: 'used' }, scopes: ['read'] }),
    history: await view({ getContainerHistory: history }, { query: { show: 'history', cursor: 'x' } }),
    'no history': await view({ getContainerHistory: page([]) }, { query: { show: 'history' } }),
    'history without signing in': await view(
      {},
      { query: { show: 'history' }, principal: { ...call.principal, kind: 'anonymous' } as never },
    ),
    'another part': await view({ listTags: page([]) }, { query: { show: 'toString' }, scopes: ['read'] }),
  });
  const broken = new DomainError('StorageUnavailable', 'It is down.');
  for (const name of ['getContainer', 'listTags', 'getManifest'])
    await t.throwsAsync(view({ [name]: broken }), { is: broken }, name);
  await t.throwsAsync(view({ getContainer: new DomainError('NameUnknown', 'x') }, { scopes: ['read'] }), {
    name: 'NotFound',
    message:
      'team/app is not stored here. The image of an upstream has a page after its first download, unless the settings keep its name from upstreams.',
  });
});

const list = (items: readonly object[], more: object = {}) => ({
  ...page(items),
  total: { count: items.length, size_bytes: 5 },
  ...more,
});

const viewOf = (listContainers: object, query: Record<string, string> = {}) =>
  shown(imagesPage, { listContainers }, { query });

test('the list of images, and what an empty one says', async (t) => {
  await compareViews(t, 'views-images', {
    images: await viewOf(list([found, { ...mirrored, name: 'far.test/a-very-long.name/of_an/image' }])),
    'a page of images': await viewOf(list([found], { next_cursor: 'next', total: null }), {
      q: 'app',
      origin: 'hosted',
      sort: 'size',
      cursor: 'x',
      other: 'y',
    }),
    none: await viewOf(list([])),
    'none mirrored': await viewOf(list([]), { origin: 'mirrored' }),
    'none of a name': await viewOf(list([]), { q: 'app' }),
    'no further ones': await viewOf(list([]), { cursor: 'x', q: 'app' }),
  });
});

const deleted = (seconds: number) => ({ deleted_for_seconds: seconds, items: [] });

test('before tags and manifests are deleted, the page says what that breaks', async (t) => {
  const view = (values: Record<string, string[]>, more: Answers = {}) =>
    shown(
      imageDeletePage,
      { getContainer: found, getManifest: manifest, listDeleted: deleted(86_400), ...more },
      { params, values: (name) => values[name] ?? [] },
    );
  const needed = {
    ...manifest,
    indexes: [digest('b'), digest('c')],
    referrers: [{}, {}],
    children: [{}],
  };
  await compareViews(t, 'views-image-delete', {
    nothing: await view({}),
    tags: await view({ tag: ['1.0', 'other'] }),
    'all tags': await view({ tag: ['1.0', 'other', 'latest'] }, { listDeleted: deleted(0) }),
    'a needed manifest': await view({ digest: [digest('a')] }, { getManifest: needed }),
    'a manifest that nothing needs': await view({ digest: [digest('a')] }, { getManifest: { ...manifest, tags: [] } }),
    'what is gone': await view({ tag: ['1.0'], digest: [digest('a'), digest('b')] }, { getManifest: missing }),
    'a mirrored one': await view({ tag: ['1.0'] }, { getContainer: mirrored }),
  });
  const many = await view({ tag: Array.from({ length: 101 }, (_, at) => `t${at}`) }, { getManifest: missing });
  t.is(many.asked.filter(([id]) => id === 'getManifest').length, 100);
  t.true(many.lines.some((line) => line.startsWith('(warning) Only the first 100 of 101 selected ones are shown')));
  const send = async (form: [string, string][], answers: Answers = {}) => {
    const { call, asked } = callOf({ listDeleted: deleted(0), getContainer: found, ...answers }, { params, form });
    const result = await imageDeletePage.send!(call);
    return { result, asked: asked.map(([id, args]) => [id, (args as { params?: object }).params]) };
  };
  const both: [string, string][] = [
    ['tag', '1.0'],
    ['digest', digest('a')],
  ];
  t.deepEqual(await send([]), { result: { to: '/console/images/team%2Fapp', done: 'nothing-selected' }, asked: [] });
  t.like((await send(both, { getManifest: manifest })).result, { title: 'Delete 1 tag and 1 manifest of team/app' });
  const deletion = [
    ['deleteTag', { ...params, tag: '1.0' }],
    ['deleteManifest', { ...params, reference: digest('a') }],
    ['getContainer', params],
    ['listDeleted', undefined],
  ];
  const confirmed: [string, string][] = [...both, ['confirmed', 'yes']];
  t.deepEqual(await send(confirmed), {
    result: { to: '/console/images/team%2Fapp', done: 'deleted' },
    asked: deletion,
  });
  const restorable = { listDeleted: { items: [{ deleted_at: before(0) }] } };
  t.deepEqual(
    (await send(confirmed, { ...restorable, getContainer: new DomainError('NameUnknown', 'x'), deleteTag: missing }))
      .result as object,
    {
      to: '/console/images',
      done: 'restorable',
    },
  );
  const denied = new DomainError('Denied', 'No.');
  t.like((await send(confirmed, { deleteTag: denied })).result, { title: 'Not all is done', status: 403 });
});

/** Lines with an address of this server or a token, fields, buttons, and what the page says of its visitor. */
const isOfServer = /(?:here|feed|images)\.test|TOKEN|^[{<(#]|^form|^It |^Put /;

test('the lines that connect clients have the addresses of this server and the token', async (t) => {
  const answers = {
    getAccount: { usage: { is_used: true } },
    listClients: { registries: ['docker.test', 'far.test'] },
  };
  const view = async (more: Answers = {}, visitor: Parameters<typeof callOf>[1] = {}) => {
    const { lines, ...rest } = await shown(connectPage, { ...answers, ...more }, visitor);
    const own = lines.filter((line) => isOfServer.test(line) && !line.startsWith('docker uses'));
    return {
      ...rest,
      lines: own.map((line) => line.replaceAll(/remove source (?!entrepot)\S+/g, 'remove source PUBLIC')),
    };
  };
  const { call } = callOf();
  const plain = { base: 'http://here.test:81', feed: 'http://here.test:81', registry: 'http://here.test:81' };
  const principal = (more: object) => ({ principal: { ...call.principal, ...more } as never });
  const person = principal({ kind: 'person', personName: 'Ada', scopes: new Set(['read']) });
  const end = now + 90 * 86_400_000;
  await compareViews(t, 'views-connect', {
    'an administrator': await view(),
    'before the first request, without HTTPS': await view(
      { getAccount: { usage: { is_used: false } }, listClients: { registries: [] } },
      { urls: plain },
    ),
    'a reader': await view({}, { scopes: ['read'], query: { form: 'prefix', fallback: '1' } }),
    'an administrator who may not write': await view(
      {},
      { scopes: ['read', 'admin'], query: { ca: '1', fallback: '0' } },
    ),
    'a person': await view({}, person),
    'without signing in': await view({}, principal({ kind: 'anonymous', reads: 'all' })),
    'with a token that ends before': await view({}, principal({ expiresAt: end - 1 })),
    'with a token that ends then': await view({}, principal({ expiresAt: end })),
    refused: await view(
      {},
      { refused: new Form({ name: 'x', scopes: 'read' }, { name: 'It is taken.', form: 'It is wrong.' }) },
    ),
  });
  const send = async (visitor: Parameters<typeof callOf>[1] = {}, createToken: unknown = { token: 'the-value' }) => {
    const { call: sending, asked } = callOf(
      { ...answers, createToken, createOwnToken: createToken },
      {
        form: [
          ['name', 'a laptop'],
          ['scopes', 'read write'],
        ],
        ...visitor,
      },
    );
    const result = (await connectPage.send!(sending)) as { body: { text: string }; status: number; refused?: Form };
    return { result, asked: asked[0] };
  };
  const body = { name: 'a laptop', scopes: ['read', 'write'] };
  const made = await send();
  t.deepEqual(made.asked, ['createToken', { body: { ...body, expires_at: new Date(end).toISOString() } }]);
  t.is(made.result.status, 201);
  const lines = linesOf(made.result.body) as string[];
  t.is(lines[0], '(warning) The token is in the lines below. This is the only time that it is shown.');
  t.is(lines.filter((line) => line.includes('TOKEN') && !line.includes('_TOKEN')).length, 0);
  t.true(lines.some((line) => line.includes('--api-key the-value')));
  t.deepEqual((await send(person)).asked, ['createOwnToken', { body }]);
  t.deepEqual((await send(principal({ expiresAt: end - 1 }))).asked, ['createToken', { body }]);
  const wrong = new DomainError('Invalid', 'x', { detail: { errors: [{ field: 'name', message: 'It is taken.' }] } });
  const { refused } = (await send({}, wrong)).result;
  t.deepEqual([refused!.errors, refused!.values.get('name')], [{ name: 'It is taken.' }, 'a laptop']);
  const broken = new Error('it broke');
  await t.throwsAsync(send({}, broken), { is: broken });
});
