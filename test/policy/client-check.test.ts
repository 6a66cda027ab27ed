import test from 'ava';
import type { NameStory } from '../../src/mirror/policy/upstream-policy.ts';
import { checkLine, checkResult, plainName, startClientCheck } from '../../src/policy/client-check.ts';
import type { ClientCheck, ClientChecks, NotedRequest } from '../../src/usage/client-checks.ts';

// What a check of a client asks for, and what it says. test/api/clients.test.ts has the requests.

type Parts = Parameters<typeof startClientCheck>[0];
type Wanted = Parameters<typeof startClientCheck>[1];

const asked: unknown[] = [];

const begin = async (wanted: object, nameOf: (id: string) => string) => ({ ...wanted, name: nameOf('0f') });

/** What checks need of a server on which a policy gives this verdict on what is in upstreams. */
function partsWith(verdict: 'allow' | 'hold' | 'deny', referenceTo: NameStory['referenceTo']): Parts {
  const explain = (kind: string) => async (accountId: number, name: string) => {
    asked.push([kind, accountId, name]);
    return { spellings: ['lib', 'Lib'], nameThere: 'Lib', referenceTo } as unknown as NameStory;
  };
  return {
    checks: { start: begin } as unknown as ClientChecks,
    gate: {
      explain: async (name: unknown, reference: string) => {
        asked.push([name, reference]);
        return { enforced: { verdict } };
      },
    } as unknown as Parts['gate'],
    protocols: ['package', 'container'].map((kind) => ({ kind, explain: explain(kind) })),
  };
}

const found = (async () => ({
  name: 'of the upstream',
  reference: 'in policy',
})) as unknown as NameStory['referenceTo'];
const wanted: Wanted = {
  accountId: 7,
  client: 'docker',
  form: 'mirror',
  host: 'hub.test:5000',
  registries: ['docker.io', 'quay.test:444'],
  registry: undefined,
  denied: undefined,
};
const start = (more: Partial<Wanted>, parts = partsWith('deny', found)) =>
  startClientCheck(parts, { ...wanted, ...more }) as Promise<object>;

test('a check asks for a name that nobody has, at the registry and in the form of the client', async (t) => {
  const image = { accountId: 7, client: 'docker', kind: 'container', reference: 'latest', denied: null };
  t.deepEqual(await start({}), { ...image, name: 'docker.io/entrepot-check/0f' });
  t.deepEqual(await start({ registry: 'quay.test:444' }), { ...image, name: 'quay.test:444/entrepot-check/0f' });
  t.deepEqual(await start({ form: 'prefix' }), { ...image, name: 'hub.test:5000/docker.io/entrepot-check/0f' });
  for (const more of [{}, { form: 'prefix', registries: [] }, { registry: 'gcr.io' }] as const)
    t.deepEqual(await start({ client: 'dotnet', ...more }), {
      accountId: 7,
      client: 'dotnet',
      kind: 'package',
      reference: '1.0.0',
      denied: null,
      name: 'entrepot-check.0f',
    });
  for (const [more, message] of [
    [{ registry: 'gcr.io' }, /no registry gcr\.io for this account\. It mirrors: docker\.io, quay\.test:444\.$/],
    [{ registries: [] }, /no registry  for this account\. It mirrors: none\.$/],
    [
      { form: 'prefix', registry: 'quay.test:444' },
      /^No image is named hub\.test:5000\/quay\.test:444\/…: name a registry without a port\.$/,
    ],
  ] as const)
    await t.throwsAsync(start(more), { name: 'Invalid', message });
});

test('a check of what a policy refuses waits for each of its names, and needs a policy that refuses it', async (t) => {
  asked.length = 0;
  const denied = { name: 'Lib', reference: '1.0' };
  const check = {
    accountId: 7,
    client: 'dotnet',
    kind: 'package',
    reference: '1.0',
    denied: ['lib', 'Lib'],
    name: 'Lib',
  };
  for (const verdict of ['deny', 'hold'] as const)
    t.deepEqual(await start({ client: 'dotnet', denied }, partsWith(verdict, found)), check, verdict);
  t.deepEqual(asked.slice(0, 2), [
    ['package', 7, 'Lib'],
    ['of the upstream', 'in policy'],
  ]);
  asked.length = 0;
  t.like(await start({ form: 'prefix', denied }), { kind: 'container', name: 'hub.test:5000/Lib' });
  t.deepEqual(asked[0], ['container', 7, 'Lib']);
  t.like(await start({ denied }), { name: 'Lib' });
  const message = 'No policy refuses Lib 1.0 to this account. Name something that is refused.';
  for (const parts of [
    partsWith('allow', found),
    partsWith('deny', async () => undefined),
    partsWith('deny', undefined),
  ])
    await t.throwsAsync(start({ denied }, parts), { name: 'Invalid', message });
});

const check = { accountId: 7, client: 'docker', name: 'docker.io/app', reference: 'v1', denied: null, expiresAt: 100 };
const checkOf = (more: object = {}) => ({ ...check, ...more }) as unknown as ClientCheck;
const request = (more: Partial<NotedRequest>) =>
  ({
    status: 401,
    reason: null,
    hasCredential: false,
    accountId: null,
    path: '/v2/app/manifests/v1',
    ...more,
  }) as NotedRequest;

test('a check says why the requests of a client are refused', (t) => {
  const [wrong, older] = [
    request({ hasCredential: true, reason: 'The API token is not valid.' }),
    request({ hasCredential: true, reason: 'older' }),
  ];
  const other = request({ status: 403, hasCredential: true, accountId: 8, reason: 'of the other' });
  const own = request({ status: 403, hasCredential: true, accountId: 7, reason: 'The token cannot read it.' });
  const none = request({ reason: 'Send a token.' });
  const cases: [requests: NotedRequest[], text: string][] = [
    [[older, wrong, none], 'Its credential is wrong: The API token is not valid.'],
    [[wrong, own], 'Its credential is wrong: The API token is not valid.'],
    [
      [none, other],
      'It has the credential of another account, or none where readers without one count as another account: Send a token.',
    ],
    [[none], 'It sends no credential: Send a token.'],
    [[none, own], 'Its token may not read this name: The token cannot read it.'],
    [[request({})], 'It sends no credential: '],
  ];
  for (const [requests, text] of cases)
    t.deepEqual(
      checkResult(checkOf(), requests, 100),
      { state: 'refused', conclusion: `The client asks this server, and was refused. ${text}` },
      text,
    );
});

const conclusion = (requests: NotedRequest[], at: number, more: object = {}) =>
  checkResult(checkOf(more), requests, at).conclusion;

test('a check says that it waits, and whether the client asks here', (t) => {
  t.regex(conclusion([], 99), /^No request has come yet\. Run the line/);
  t.regex(conclusion([], 100), /^No request for the name has come: the client asks another server/);
  const [missing, sent] = [request({ status: 404, accountId: 7 }), request({ status: 200, accountId: 7 })];
  t.regex(conclusion([missing], 0), /^The client uses this server\. The line itself fails/);
  t.regex(conclusion([missing], 0, { denied: ['app'] }), /^The client asks this server, which refused\./);
  t.is(conclusion([sent], 0, { denied: ['app'] }), 'This server sent it: no policy refuses it any more.');
});

test('the line of a check of what is refused says whether it came another way', (t) => {
  const line = checkLine(checkOf());
  t.is(line, 'docker pull docker.io/app:v1');
  t.is(
    checkLine(checkOf({ denied: ['app'] })),
    `if ${line}; then echo "NOT REFUSED: it came another way"; else echo "not had, as it must be"; fi`,
  );
});

test('names and references that a line for a shell can have', (t) => {
  for (const text of ['a', 'Contoso.Core', 'docker.io/library/app', '1.0.0-beta+5', 'sha256:0f', 'a@b', '9_x'])
    t.regex(text, plainName);
  for (const text of ['', '-a', '.a', '/a', 'a b', 'a;b', 'a$b', 'a\nb', "a'b", ' a', 'a '])
    t.notRegex(text, plainName, text);
});
