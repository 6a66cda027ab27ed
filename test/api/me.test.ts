import test from 'ava';
import { createToken, tokenOf } from '../support/inside.ts';
import { personalToken, signedIn, startProvider } from '../support/provider.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

const meOf = async (server: TestServer, token: string | null = server.token) => server.fetch('/v1/me', { token });

test('a token is told whose it is, and what it may do', async (t) => {
  const server = await startTestServer(t, { anonymousRead: true });
  const { token, value } = await createToken(server, ['read', 'write'], 'team', { packages: ['Contoso.*'] });
  t.deepEqual(await (await meOf(server, value)).json(), {
    kind: 'token',
    id: token.id,
    name: 'a test',
    account: 'team',
    accounts: ['team'],
    scopes: ['read', 'write'],
    limited: true,
    person_id: null,
    expires_at: null,
  });
  t.like(await (await meOf(server, await tokenOf(server, ['read']))).json(), { account: 'default', limited: false });
  t.is((await meOf(server, null)).status, 401);
});

test('a person is told the accounts and rights in the browser, and a personal token names its person', async (t) => {
  const rules = ['default', 'other'].map((account) => ({ claim: 'sub', value: 'ann', account, scopes: ['read'] }));
  const { server } = await startProvider(t, { ann: { name: 'Ann' } }, rules);
  await tokenOf(server, ['read'], 'other');
  const browser = await signedIn(server);
  const me = (await (await browser.fetch(`${server.url}/v1/me`)).json()) as { id: string };
  t.like(me, { kind: 'person', name: 'ann', account: 'default', accounts: ['default', 'other'], scopes: ['read'] });
  t.like(me, { limited: false, expires_at: null, person_id: me.id });
  const own = (await (await meOf(server, await personalToken(browser, server, ['read']))).json()) as object;
  t.like(own, { kind: 'token', person_id: me.id, scopes: ['read'] });
  t.regex(JSON.stringify(own), /"expires_at":"20/);
});

test('a person lists the own tokens in pages, and sees and ends sessions within the own rights', async (t) => {
  const rules = ['ann', 'bob'].map((value) => ({ claim: 'sub', value, account: 'default', scopes: ['read', 'admin'] }));
  const { server, who } = await startProvider(t, { ann: { name: 'Ann' }, bob: { name: 'Bob' } }, rules);
  // So that the ID orders those of one instant.
  server.clock.now = Date.now();
  const ann = await signedIn(server);
  who.id = 'bob';
  const bob = await signedIn(server);
  await Visitor.signedIn(server);
  const list = async (browser: typeof ann, path: string) =>
    (await (await browser.fetch(`${server.url}/v1${path}`)).json()) as {
      items: { id: string; person: { id: string; name: string } | null; token_id: string | null }[];
      next_cursor: string | null;
    };
  for (let number = 0; number < 3; number += 1) await personalToken(ann, server, ['read']);
  await personalToken(bob, server, ['read']);
  const { items: whole, next_cursor: end } = await list(ann, '/me/tokens');
  t.deepEqual([whole.length, end], [3, null]);
  const paged: string[] = [];
  for (let cursor = ''; ;) {
    const page = await list(ann, `/me/tokens?limit=1${cursor}`);
    paged.push(...page.items.map(({ id }) => id));
    if (page.next_cursor === null || paged.length > 3) break;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
  t.deepEqual(
    paged,
    whole.map(({ id }) => id),
  );

  const sessions = async (query = '') => {
    const { items } = (await (await server.fetch(`/v1/sessions${query}`)).json()) as Awaited<ReturnType<typeof list>>;
    return items;
  };
  const { id: annId } = (await list(ann, '/me')) as unknown as { id: string };
  const all = await sessions();
  t.is(all.length, 3);
  const [own, ...others] = await sessions('?q=ANN');
  t.deepEqual([own!.person, own!.token_id, others], [{ id: annId, name: 'ann' }, null, []]);
  t.deepEqual(await sessions('?q=nobody'), []);
  const ofToken = all.find(({ person }) => person === null)!;
  const ofBob = all.find(({ person }) => person?.name === 'bob')!;
  const finish = async ({ id }: { id: string }) => (await ann.send(`${server.url}/console/sessions/${id}`, {})).status;
  t.is(await finish(ofToken), 403, 'a session that may do more');
  t.is(await finish(ofBob), 303);
  t.deepEqual((await sessions()).map(({ id }) => id).toSorted(), [ofToken.id, own!.id].toSorted());
  t.is(await finish(ofBob), 404);
  t.is(await finish(own!), 303, 'the own session');
  t.deepEqual(
    (await sessions()).map(({ id }) => id),
    [ofToken.id],
  );
});
