import test from 'ava';
import { examine } from '../../src/cli/doctor.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { applyPolicy } from '../support/inside.ts';
import { ago, day, now, putPolicy, startMirrors, versionsOf } from '../support/policy.ts';
import { startTestServer } from '../support/server.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

for (const dialect of dialects) {
  test(`${dialect}: doctor tells of policies that refuse more than they seem to, or nothing`, async (t) => {
    const feed = await UpstreamFeed.start(t);
    const undated = await UpstreamFeed.start(t);
    undated.upstream.on('/index.json', (_, response) => {
      const flat = { '@id': `${undated.url}/flat/`, '@type': 'PackageBaseAddress/3.0.0' };
      response
        .setHeader('content-type', 'application/json')
        .end(JSON.stringify({ version: '3.0.0', resources: [flat] }));
    });
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      upstreams: [feed.as('dated.test'), undated.as('undated.test')],
    });
    const findings = async () => {
      const found = await examine(server.installation, server.clock.time);
      return found
        .filter(({ subject }) => subject.startsWith('policy '))
        .map(({ subject, ok, isNote, text }) => `${isNote ? 'note' : ok ? 'ok' : 'FAIL'} ${subject}: ${text}`);
    };
    const all = 'policy of all accounts';
    t.deepEqual(await findings(), []);
    await applyPolicy(server, { rules: [{ name: 'a', packages: ['Foo'], verdict: 'deny' }] });
    t.deepEqual(await findings(), [`ok ${all}: it can work`]);
    await applyPolicy(server, { mode: 'audit', minimumAge: { packages: '3d' } });
    t.deepEqual(await findings(), [
      `note ${all}: the upstream undated.test says no dates, so its packages count from their first sighting here; it is in audit mode, so it refuses nothing`,
    ]);
    await applyPolicy(server, { minimumAge: { packages: '3d', unknownDate: 'hold' } });
    t.deepEqual(await findings(), [
      `FAIL ${all}: the upstream undated.test says no dates, so its packages are held for ever: name it under minimumAge.except`,
    ]);
    await applyPolicy(server, { minimumAge: { packages: '40000d' } });
    t.regex((await findings()).join(), /^FAIL policy of all accounts: it refuses names that no rule mentions/);
    await applyPolicy(server, { knownBad: { lists: [{ name: 'own', file: import.meta.dirname }] } });
    t.deepEqual(await findings(), [`FAIL ${all}: nothing reads its lists again, because jobs.knownBad is off`]);
    await applyPolicy(server, {});
    const headers = { 'content-type': 'application/json' };
    await server.fetch('/v1/policy', { method: 'PUT', headers, body: '{"mode":"audit"}' });
    t.deepEqual(await findings(), ['note policy of the account default: it is in audit mode, so it refuses nothing']);
  });
}

test('doctor names versions that are held below one that clients get', async (t) => {
  const { feed, server } = await startMirrors(t);
  const dates = { '1.0.0': 100, '1.1.0': 1, '2.0.0': 100, '2.1.0': 1 };
  const versions = Object.entries(dates).map(([version, days]) => ({ version, published: ago(days) }));
  await feed.offer({ id: 'Lib', versions });
  await putPolicy(server, { minimumAge: { packages: '3d' } });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '2.0.0']);
  const finding = async () =>
    (await examine(server.installation, server.clock.time)).find(
      ({ subject }) => subject === 'policy of all accounts',
    )!;
  const found = await finding();
  t.true(found.isNote);
  t.regex(
    found.text,
    /^it holds versions below one that clients get, .*\(NU1603\): lib 1\.1\.0\. ".*policy held" lists all$/,
  );
  server.clock.now = now + 3 * day;
  t.is((await finding()).text, 'it can work');
});
