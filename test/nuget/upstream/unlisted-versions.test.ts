import test from 'ava';
import { DomainError } from '../../../src/runtime/errors.ts';
import { newStoredRegistrations } from '../../support/inside.ts';
import { startTestServer } from '../../support/server.ts';
import { within } from '../../support/until.ts';
import { UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

test('a stored registration that many requests need at once is read once', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  const ids = ['One', 'Two'];
  for (const id of ids) {
    await up.offer({ id, versions: [{ version: '1.0.0' }, { version: '1.1.0', entry: { listed: false } }] });
    t.is((await server.fetch(`/v3/registration-gz-semver2/${id.toLowerCase()}/index.json`)).status, 200);
  }
  const opened: string[] = [];
  const registrations = newStoredRegistrations(server, (digest) => opened.push(digest));
  const asked = Array.from({ length: 20 }, (_, at) => registrations.unlisted('up.test', ids[at % 2]!.toLowerCase()));
  for (const unlisted of await Promise.all(asked)) t.is(unlisted.size, 1);
  t.is(opened.length, 2);
  t.is(new Set(opened).size, 2);
});

test('a stored registration that takes too much to read hides no package', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startTestServer(t, { upstreams: [up.as('up.test')] });
  await up.offer({ id: 'Heavy', versions: [{ version: '1.0.0', entry: { listed: false } }] });
  t.is((await server.fetch('/v3/registration-gz-semver2/heavy/index.json')).status, 200);
  let error = new DomainError('TooManyRequests', 'The content could not be read.');
  const registrations = newStoredRegistrations(server, () => {
    throw error;
  });
  t.deepEqual([...(await registrations.unlisted('up.test', 'heavy'))], []);
  error = new DomainError('StorageUnavailable', 'The storage cannot be reached.');
  await t.throwsAsync(registrations.unlisted('up.test', 'heavy'), { name: 'StorageUnavailable' });
});

test('a stored registration of one upstream that is read for long does not hold those of another', async (t) => {
  const [slow, quick] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  const server = await startTestServer(t, { upstreams: [slow.as('slow.test'), quick.as('quick.test')] });
  for (const [up, id] of [
    [slow, 'Slow'],
    [quick, 'Quick'],
  ] as const) {
    await up.offer({ id, versions: [{ version: '1.0.0', entry: { listed: false } }] });
    t.is((await server.fetch(`/v3/registration-gz-semver2/${id.toLowerCase()}/index.json`)).status, 200);
  }
  const [reading, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let opened = 0;
  const registrations = newStoredRegistrations(server, () => {
    opened += 1;
    if (opened > 1) return undefined;
    reading.resolve();
    return end.promise;
  });
  const held = registrations.unlisted('slow.test', 'slow');
  await within(reading.promise);
  t.deepEqual([...(await within(registrations.unlisted('quick.test', 'quick')))], ['1.0.0']);
  end.resolve();
  t.deepEqual([...(await held)], ['1.0.0']);
});
