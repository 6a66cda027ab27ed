import test from 'ava';
import { pages } from '../../src/console/pages/index.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken, databaseOf, tokenOf } from '../support/inside.ts';
import { instancesOf } from '../support/instances.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// A form with errors is shown again at an address of its own.

const path = '/console/tokens/new';

/** Sends a form without a name; resolves to the address that shows it again. */
async function send(visitor: Visitor, note = 'My.*'): Promise<string> {
  const response = await visitor.send(path, { name: ' ', scope: 'write', packages: note });
  if (response.status !== 303) throw new Error(`${response.status}`);
  return response.headers.get('location')!;
}

const shown = /value="write" checked[^]*value="My\.\*"/;

function rowsOf(server: TestServer): Promise<{ id: string; content: string }[]> {
  return databaseOf(server).select('SELECT id, content FROM refused_forms ORDER BY created_at');
}

for (const dialect of dialects) {
  test(`${dialect}: the page of a refused form can be loaded again for an hour, by its sender only`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    const { value } = await createToken(server, ['read', 'admin']);
    const visitor = await Visitor.signedIn(server, value);
    const address = await send(visitor);
    t.regex(address, /^\/console\/tokens\/new\?refused=[\w-]{22}$/, 'nothing that was entered');
    for (let count = 0; count < 2; count += 1) {
      const page = await visitor.page(address);
      t.regex(page, shown);
      t.regex(page, /aria-describedby="name-error"[^]*id="name-error"/);
    }
    const other = await createToken(server, ['read', 'admin']);
    const foreign = await tokenOf(server, ['read', 'admin'], 'other');
    for (const token of [other.value, foreign]) {
      const page = await (await Visitor.signedIn(server, token)).page(address);
      t.notRegex(page, /My\.\*|name-error/);
    }
    t.notRegex(await visitor.page(`${path}?refused=${'A'.repeat(22)}`), /name-error/);
    server.clock.now += 3_599_999;
    t.regex(await visitor.page(address), shown);
    await server.installation.core.sessions.deleteEnded();
    t.is((await rowsOf(server)).length, 1);
    server.clock.now += 1;
    const late = await visitor.page(address);
    t.notRegex(late, /My\.\*|name-error/);
    t.regex(late, /role="status">What was entered here is kept for an hour only/);
    await server.installation.core.sessions.deleteEnded();
    t.deepEqual(await rowsOf(server), []);
  });

  test(`${dialect}: the latest ten forms of a token are kept, and those of another one`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    server.clock.now = Date.now();
    const first = await Visitor.signedIn(server);
    const kept = await send(first);
    const visitor = await Visitor.signedIn(server, (await createToken(server, ['read', 'admin'])).value);
    const addresses: string[] = [];
    for (let count = 0; count < 12; count += 1) {
      server.clock.now += 1;
      addresses.push(await send(visitor));
    }
    const isShown = await Promise.all(addresses.map(async (each) => shown.test(await visitor.page(each))));
    t.deepEqual(isShown, [false, false, ...Array.from({ length: 10 }, () => true)]);
    t.regex(await first.page(kept), shown);
    t.is((await rowsOf(server)).length, 11);
  });

  test(`${dialect}: another instance shows a refused form`, async (t) => {
    const begin = await instancesOf(t, dialect);
    const [a, b] = [await begin(), await begin()];
    const visitor = await Visitor.signedIn(a);
    const address = await send(visitor);
    const response = await b.fetch(address, { token: null, headers: { cookie: visitor.cookie! } });
    t.regex(await response.text(), shown);
  });
}

test('no token is kept or in an address: of the forms that take one, only the errors are kept', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const secret = 'ent_SECRET0000';
  for (const [form, field, wrong] of [
    ['/console/tokens/find', 'token', 'token'],
    ['/console/publishers/explain', 'token', 'token'],
    ['/console/imports', 'secret', 'url'],
  ] as const) {
    const response = await visitor.send(form, { [field]: secret });
    const address = response.headers.get('location')!;
    t.false(address.includes(secret), form);
    const page = await visitor.page(address);
    t.regex(page, new RegExp(`id="${wrong}-error"`), form);
    t.false(page.includes(secret), form);
  }
  const rows = await rowsOf(server);
  t.is(rows.length, 3);
  t.false(JSON.stringify(rows).includes('SECRET'));
  const stranger = new Visitor(server);
  const signIn = await stranger.send('/console/sign-in', { token: secret });
  t.is(signIn.status, 422, 'nobody to keep it for');
  t.false((await signIn.text()).includes(secret));
});

test('a secret in a field for something else is not kept, nor shown in the message', async (t) => {
  const server = await startTestServer(t, { trustedIssuers: [] });
  const visitor = await Visitor.signedIn(server);
  const { value: token } = await createToken(server, ['read']);
  const identityToken = 'eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln';
  const webhook = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
  const forms: [string, [string, string][]][] = [
    [
      path,
      [
        ['name', ' '],
        ['packages', `My.*, ${token}`],
        ['containers', 'kept/*'],
      ],
    ],
    [
      path,
      [
        ['name', identityToken],
        ['containers', 'kept/*'],
      ],
    ],
    [
      '/console/webhooks/new',
      [
        ['name', 'kept'],
        ['url', 'https://me:PASSWORD@a.example/'],
        ['event', '*'],
      ],
    ],
    [
      '/console/webhooks/new',
      [
        ['name', 'kept'],
        ['url', webhook],
        ['event', '*'],
      ],
    ],
    [
      '/console/webhooks/new',
      [
        ['name', 'kept'],
        ['url', 'https://a.example/'],
        ['event', webhook],
      ],
    ],
  ];
  for (const [form, fields] of forms) {
    const page = await visitor.refused(form, fields);
    t.regex(page, /value="kept/);
    for (const secret of [token, identityToken, webhook, 'PASSWORD']) t.false(page.includes(secret), form);
  }
  const rows = await rowsOf(server);
  t.is(rows.length, forms.length);
  const text = rows.map(({ content }) => content).join();
  for (const secret of [token, identityToken, webhook, 'PASSWORD']) t.false(text.includes(secret), secret);
  const names = 'kept/ent_app,kept/eyJ-app,kept//app';
  const page = await visitor.refused(path, [
    ['name', ' '],
    ['containers', names],
  ]);
  t.true(page.includes(`value="${names}"`), 'names that only begin as a secret does');
});

test('each form with a field for a secret keeps none of its values', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const found: string[] = [];
  for (const each of pages) {
    const { path: page } = each;
    if ((!each.send && !each.receive) || page.includes(':')) continue;
    const text = await (await visitor.fetch(`/console${page}`)).text();
    if (/name="(?:token|secret|password)"/.test(text)) found.push(page);
  }
  t.deepEqual(found.toSorted(), ['/imports', '/publishers/explain', '/tokens/find'], 'see the test above for these');
});

test('a form without a session, or that is too large to show again, is not kept', async (t) => {
  const server = await startTestServer(t);
  const stranger = await new Visitor(server).send(path, { name: ' ' });
  t.is(stranger.headers.get('location'), '/console/sign-in');
  const visitor = await Visitor.signedIn(server);
  const response = await visitor.fetch(path, {
    method: 'POST',
    body: `name=+&packages=${'\u0001'.repeat(30_000)}`,
    headers: { 'content-type': 'application/x-www-form-urlencoded', 'sec-fetch-site': 'same-origin' },
  });
  t.is(response.status, 413);
  t.deepEqual(await rowsOf(server), []);
});
