import test from 'ava';
import { putPolicy, versionsOf } from '../support/policy.ts';
import { createToken } from '../support/inside.ts';
import { advisory, age, fixesOn, old, releasedIn, start, statusOf, young } from './fixes-pass-suite.ts';

// Versions that fix a known vulnerability are not held by the minimum age.

fixesOn('mysql');

test('a fix is denied all the same, and each layer decides for itself', async (t) => {
  const { server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1')], Two: [old('1.0.0'), young('1.0.1')] },
    {
      lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')],
      two: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)'), advisory('GHSA-worse', '[1.0.1]', 3)],
    },
  );
  const rules = [{ name: 'no', packages: ['lib'], versions: '[1.0.1]', verdict: 'deny' }];
  await putPolicy(server, { minimumAge: age, rules, advisories: { severity: 'critical' } });
  t.is(await statusOf(server, 'lib', '1.0.1'), 403);
  t.is(await statusOf(server, 'two', '1.0.1'), 403);
  t.deepEqual(await releasedIn(server), []);

  await putPolicy(server, { minimumAge: age });
  const admin = (await createToken(server, ['read', 'admin'], 'team')).value;
  const { status } = await putPolicy(
    server,
    { minimumAge: { ...age, fixesPass: false } },
    { layer: 'account', token: admin },
  );
  t.is(status, 200);
  t.deepEqual(await versionsOf(server, 'lib', admin), ['1.0.0']);
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0', '1.0.1']);
  await putPolicy(server, { minimumAge: { ...age, fixesPass: false } });
  await putPolicy(server, { minimumAge: age }, { layer: 'account', token: admin });
  t.deepEqual(await versionsOf(server, 'lib', admin), ['1.0.0'], 'the policy of all accounts holds it');
});

test('if vulnerabilities cannot be read, nothing is released and nothing fails', async (t) => {
  const { feed, server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1')] },
    { lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')] },
  );
  feed.upstream.on('/vulnerabilities/base.json', (_request, response) => void response.writeHead(503).end());
  await putPolicy(server, { minimumAge: age });
  t.deepEqual(await versionsOf(server, 'lib'), ['1.0.0']);
  t.is(await statusOf(server, 'lib', '1.0.1'), 404);
});

test('a mode that only counts releases nothing and counts no fix', async (t) => {
  const { server } = await start(
    t,
    { Lib: [old('1.0.0'), young('1.0.1'), young('1.0.2')] },
    { lib: [advisory('GHSA-aaaa', '[1.0.0, 1.0.1)')] },
  );
  await putPolicy(server, { mode: 'audit', minimumAge: age });
  for (const version of ['1.0.1', '1.0.2']) t.is(await statusOf(server, 'lib', version), 200);
  const metrics = await (await server.fetch('/metrics')).text();
  t.regex(metrics, /entrepot_policy_refusals_total\{kind="package",verdict="hold",mode="audit"\} 1\n/);
  t.deepEqual(await releasedIn(server), []);
});
