import test from 'ava';
import { dialects } from '../support/databases.ts';
import { instancesOf } from '../support/instances.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// What a page says once after a form was sent.

const path = '/console/jobs/scrub';
const notice = /<p class="notice" role="status">The job has started/;

/** Starts a job by its form; resolves to the `Set-Cookie` of the notice. */
async function start(visitor: Visitor): Promise<string> {
  const response = await visitor.send(path, { act: 'run' });
  if (response.headers.get('location') !== path) throw new Error(`${response.status}`);
  return response.headers.getSetCookie().find((each) => each.includes('entrepot-notice='))!;
}

/** The page as the visitor sees it with other cookies than its own. */
async function pageWith(server: TestServer, cookies: (string | undefined)[], at = path): Promise<string> {
  const response = await server.fetch(at, { token: null, headers: { cookie: cookies.join('; ') } });
  return response.text();
}

const pairOf = (set: string) => set.split(';', 1)[0]!;

test('a notice is shown once, by the page that the form leads to, and is in no address', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  await start(visitor);
  t.notRegex(await visitor.page('/console/jobs'), notice, 'another page');
  t.is((await visitor.fetch(path, { method: 'HEAD' })).status, 200);
  t.regex(await visitor.page(path), notice);
  t.notRegex(await visitor.page(path), notice, 'loaded again');
  for (const link of [`${path}?done=job-started`, `${path}?notice=job-started`]) {
    t.notRegex(await visitor.page(link), /role="status">The job has started/, link);
  }
  await start(visitor);
  t.notRegex(await (await Visitor.signedIn(server)).page(path), notice, 'of another visitor');
  t.regex(await visitor.page(path), notice);
});

test('the cookie of a notice is signed for one address and one minute, and holds only the key of a sentence', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const visitor = await Visitor.signedIn(server);
  const set = await start(visitor);
  t.regex(set, /^entrepot-notice=job-started\.[0-9a-z]+\.[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax; Max-Age=60$/);
  const pair = pairOf(set);
  t.regex(await pageWith(server, [visitor.cookie, pair]), notice);
  const wrong = [
    pair.replace('job-started', 'rule-deleted'),
    pair.replace('job-started', 'constructor'),
    `${pair.slice(0, -1)}${pair.endsWith('A') ? 'Q' : 'A'}`,
    pair.replace(/\.[0-9a-z]+\./, '.zzzzzzzzz.'),
    'entrepot-notice=job-started',
    `${pair}; ${pair}`,
  ];
  for (const each of wrong) t.notRegex(await pageWith(server, [visitor.cookie, each]), /class="notice"/, each);
  t.notRegex(await pageWith(server, [visitor.cookie, pair], '/console/jobs/gc'), /class="notice"/, 'another address');
  t.notRegex(await pageWith(server, [visitor.cookie, pair], `${path}?a=1`), /class="notice"/);
  server.clock.now += 59_999;
  t.regex(await pageWith(server, [visitor.cookie, pair]), notice);
  server.clock.now += 1;
  t.notRegex(await pageWith(server, [visitor.cookie, pair]), notice);
});

test('over HTTPS no other host and no plain HTTP can set the cookie of a notice', async (t) => {
  const server = await startTestServer(t, { server: { baseUrl: 'https://hub.example' } });
  const visitor = await Visitor.signedIn(server);
  t.regex(
    await start(visitor),
    /^__Host-entrepot-notice=job-started\..*; Path=\/; HttpOnly; SameSite=Lax; Secure; Max-Age=60$/,
  );
  t.regex(await visitor.page(path), notice);
});

for (const dialect of dialects) {
  test(`${dialect}: another instance shows the notice`, async (t) => {
    const begin = await instancesOf(t, dialect);
    const [a, b] = [await begin(), await begin()];
    const visitor = await Visitor.signedIn(a);
    const pair = pairOf(await start(visitor));
    t.regex(await pageWith(b, [visitor.cookie, pair]), notice);
  });
}
