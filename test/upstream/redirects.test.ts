import test from 'ava';
import { answer, startFaultyUpstream, until } from '../support/upstreams/faulty-upstream.ts';
import { othersInTurn } from '../../src/upstream/name-lookup.ts';
import { openUpstream } from '../support/mirror.ts';

const secret = { username: 'me', password: 'secret' };
const redirect = (status: number, location: string) => answer(status, { location }, 'moved');

test('a redirect to another host is followed without credentials, and one back to the upstream with them', async (t) => {
  const upstreamServer = await startFaultyUpstream(t);
  const other = await startFaultyUpstream(t);
  const otherHost = await startFaultyUpstream(t, { host: '127.0.0.1' });
  const byName = new URL('/elsewhere', `http://localhost:${otherHost.url.port}`);
  upstreamServer.on('/start', redirect(307, new URL('/port', other.url).href));
  other.on('/port', redirect(302, byName.href));
  otherHost.on('/elsewhere', redirect(308, new URL('/end', upstreamServer.url).href));
  upstreamServer.on('/end', answer(200, {}, 'content'));
  const { upstream } = await openUpstream(t, upstreamServer.url, { settings: { kind: 'nuget' }, auth: secret });
  const { body } = await upstream.send({ subject: 'thing', url: new URL('/start', upstreamServer.url) });
  t.is((await body.toArray()).join(''), 'content');
  const basic = `Basic ${Buffer.from('me:secret').toString('base64')}`;
  t.deepEqual(
    upstreamServer.asked.map(({ path, headers }) => [path, headers.authorization]),
    [
      ['/start', basic],
      ['/end', basic],
    ],
  );
  for (const { headers } of [...other.asked, ...otherHost.asked]) {
    t.is(headers.authorization, undefined);
    t.is(headers.cookie, undefined);
  }
  t.is(other.asked.length, 1);
  t.is(otherHost.asked.length, 1);
});

test('the request’s own headers are sent after a redirect: a Range must reach the host with the bytes', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/start', redirect(302, '/end'));
  server.on('/end', answer(206, {}, 'x'));
  const { upstream } = await openUpstream(t, server.url);
  await upstream.send({ subject: 'thing', url: new URL('/start', server.url), headers: { range: 'bytes=5-' } });
  t.is(server.asked[1]!.range, 'bytes=5-');
});

test('names that an upstream redirects to are looked up one after the other, and its own at once', async (t) => {
  const server = await startFaultyUpstream(t);
  const base = new URL(`http://own.test:${server.url.port}/`);
  const slow: { name: string; fail: () => void }[] = [];
  const { upstream } = await openUpstream(t, base, {
    resolve: (name, _options, done) => {
      if (name === 'own.test') done(null, [{ address: '127.0.0.1', family: 4 }]);
      else slow.push({ name, fail: () => done(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []) });
    },
  });
  const send = (path: string) => upstream.send({ subject: path, url: new URL(path, base) });
  const paths = ['/0', '/1', '/2'];
  for (const path of paths) server.on(path, redirect(302, `http://slow-${path.slice(1)}.test/`));
  server.on('/own', answer(200));
  const failing = Promise.allSettled(paths.map(send));
  await until(() => paths.every((path) => server.count(path) === 1));
  await send('/own');
  for (let each = 0; each < paths.length; each += 1) {
    await until(() => slow.length > each);
    t.is(slow.length, each + 1);
    slow[each]!.fail();
  }
  t.deepEqual(
    (await failing).map(({ status }) => status),
    ['rejected', 'rejected', 'rejected'],
  );
  t.deepEqual(slow.map(({ name }) => name).toSorted(), ['slow-0.test', 'slow-1.test', 'slow-2.test']);
});

for (const [what, next] of [
  ['a loop', '/again'],
  ['a loop by way of another path', '/other'],
] as const) {
  test(`${what} is given up after a few requests`, async (t) => {
    const server = await startFaultyUpstream(t);
    server.on('/again', redirect(302, next));
    server.on('/other', redirect(302, '/again'));
    const { upstream } = await openUpstream(t, server.url);
    await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/again', server.url) }), {
      name: 'UpstreamUnavailable',
      message: /redirects more than 5 times/,
    });
    t.is(server.asked.length, 6);
  });
}

for (const target of ['http://169.254.169.254/latest/meta-data/', 'http://[fe80::1]/', 'http://0.0.0.0/']) {
  test(`a redirect to ${target} is refused even with allowPrivateNetwork`, async (t) => {
    const server = await startFaultyUpstream(t);
    server.on('/start', redirect(302, target));
    const { upstream } = await openUpstream(t, server.url);
    await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/start', server.url) }), {
      name: 'UpstreamUnavailable',
      message: /never allowed/,
    });
    t.is(upstream.unavailable(), undefined, 'one bad redirect does not close the upstream');
  });
}

test('a redirect to a name that resolves to loopback is refused without allowPrivateNetwork', async (t) => {
  // A test has no public address, so a proxy takes the place of the Internet: it knows the first name only.
  const server = await startFaultyUpstream(t);
  server.on('http://public.test/start', redirect(302, 'http://127.0.0.1:9/inner'));
  const base = new URL('http://public.test/');
  const { upstream } = await openUpstream(t, base, {
    settings: { allowPrivateNetwork: false },
    proxy: { HTTP_PROXY: server.url.href },
  });
  await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/start', base) }), {
    message: /private address/,
  });
  t.is(server.asked.length, 1);

  const bypassed = await openUpstream(t, base, {
    settings: { allowPrivateNetwork: false },
    proxy: { HTTP_PROXY: server.url.href, NO_PROXY: 'inner.test' },
    resolve: (_name, _options, done) => done(null, [{ address: '::ffff:127.0.0.1', family: 6 }]),
  });
  server.on('http://public.test/start', redirect(302, `http://inner.test:${server.url.port}/inner`));
  await t.throwsAsync(bypassed.upstream.send({ subject: 'thing', url: new URL('/start', base) }), {
    message: /private address/,
  });
  t.is(server.count('/inner'), 0);
});

test('connections to one name that an upstream redirects to share its lookup', async (t) => {
  const asked: { name: string; answer: () => void }[] = [];
  const look = othersInTurn('own.test', (name, _options, done) => {
    asked.push({ name, answer: () => done(null, [{ address: `${name} ${asked.length}`, family: 4 }]) });
  });
  const find = (name: string, family = 0) =>
    new Promise<string>((found) => look(name, { all: true, family }, (_error, [first]) => found(first!.address)));
  const answers = [find('cdn.test'), find('other.test'), find('cdn.test'), find('cdn.test', 6)];
  for (const turn of [1, 2, 3]) {
    await until(() => asked.length === turn);
    asked[turn - 1]!.answer();
  }
  t.deepEqual(await Promise.all(answers), ['cdn.test 1', 'other.test 2', 'cdn.test 1', 'cdn.test 3']);
  const later = find('cdn.test');
  await until(() => asked.length === 4);
  asked[3]!.answer();
  t.is(await later, 'cdn.test 4', 'an answer is not kept');
});

for (const target of [
  'ftp://example.test/',
  'xhttps://example.test/',
  'file:///etc/passwd',
  'javascript:1',
  'http://[broken',
]) {
  test(`a redirect to ${target} is refused`, async (t) => {
    const server = await startFaultyUpstream(t);
    server.on('/start', redirect(302, target));
    const { upstream } = await openUpstream(t, server.url);
    await t.throwsAsync(upstream.send({ subject: 'thing', url: new URL('/start', server.url) }), {
      name: 'UpstreamUnavailable',
    });
    t.is(server.asked.length, 1);
  });
}

test('credentials in the URL of a redirect are not used', async (t) => {
  const server = await startFaultyUpstream(t);
  const other = await startFaultyUpstream(t);
  server.on('/start', redirect(302, `http://someone:else@${other.url.host}/end`));
  other.on('/end', answer(200, {}, 'x'));
  const { upstream } = await openUpstream(t, server.url);
  await upstream.send({ subject: 'thing', url: new URL('/start', server.url) });
  t.is(other.asked[0]!.headers.authorization, undefined);
});

test('a user name in an address that an upstream sent is not used', async (t) => {
  const server = await startFaultyUpstream(t);
  server.on('/thing', answer(200));
  const { upstream } = await openUpstream(t, server.url);
  await upstream.send({ subject: 'thing', url: new URL(`http://me:secret@${server.url.host}/thing`) });
  t.is(server.asked[0]!.headers.authorization, undefined);
});
