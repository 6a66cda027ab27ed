import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { entrepot } from '../support/in-process.ts';
import { linesOf, osv } from '../support/known-bad.ts';
import { auditOf } from '../support/audit.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';

for (const dialect of dialects) {
  test(`${dialect}: a policy from a file holds with the next request, until an empty file ends it`, async (t) => {
    const data = await folderUntilEnd(t);
    const url = await temporaryDatabase(t, dialect);
    const feed = await UpstreamFeed.start(t);
    await feed.offer({ id: 'Lib', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
    const server = await startMirrorOf(t, [feed.as('feed.test')], { data, database: { url } });
    const environment = { ENTREPOT_DATA: data, ENTREPOT_DATABASE_URL: url, ENTREPOT_UPSTREAMS: '[]' };
    const policy = (...words: string[]) => entrepot(environment, 'policy', ...words);
    const statusOf = async (version: string) =>
      (await server.fetch(`/v3/package/lib/${version}/lib.${version}.nupkg`)).status;
    const file = join(data, 'policy.yaml');
    const text =
      '# Ours\nrules:\n  - { name: two, packages: [Lib], versions: "[2.0.0, )", verdict: deny, reason: see SEC-12 }\n';

    t.is(await statusOf('2.0.0'), 200);
    t.like(await policy('show'), { code: 0, stdout: '', stderr: 'There is no policy.\n' });
    await writeFile(file, text);
    const checked = await policy('apply', file, '--dry-run');
    t.like(checked, { code: 0, stdout: '' });
    t.regex(
      checked.stderr,
      /^The policy of all accounts is valid; nothing was changed\.\nIt would have refused 0 of 0 /,
    );
    t.is(await statusOf('2.0.0'), 200);
    t.like(await policy('apply', file), { code: 0, stderr: 'The policy of all accounts is in force.\n' });
    t.deepEqual([await statusOf('1.0.0'), await statusOf('2.0.0')], [200, 403]);
    const shown = await policy('show');
    t.regex(shown.stdout, /^rules:\n {2}- name: two\n/);
    t.like(await policy('show', '--account', 'default'), { stdout: '', stderr: 'There is no policy.\n' });
    const [event] = await auditOf(server, 'type=policy.changed');
    t.like(event, { account: null, details: { layer: 'all', mode: 'enforce', revision: 1 } });

    const upstreams = JSON.stringify([feed.as('feed.test')]);
    const explain = (...words: string[]) =>
      entrepot({ ...environment, ENTREPOT_UPSTREAMS: upstreams }, 'explain', ...words);
    t.like(await explain('Lib', '2.0.0'), {
      code: 0,
      stdout: 'deny: see SEC-12\nrule: two, in the policy of all accounts\nevidence: rule two\n',
    });
    t.like(await explain('Lib', '1.0.0'), { code: 0, stdout: 'allow\n' });
    t.like(await explain('Lib'), { code: 0, stdout: 'feed.test: asked\n' });
    const offline = { ...environment, ENTREPOT_UPSTREAMS: upstreams, ENTREPOT_OFFLINE: 'true' };
    const isolated = await entrepot(offline, 'explain', 'Lib');
    t.like(isolated, { code: 0, stdout: 'feed.test: offline, so not asked; what is stored is served\n' });
    t.regex((await explain('Lib', '1.0.0', '--at', 'soon')).stderr, /--at: expected a time/);
    await writeFile(file, 'minimumAge: { packages: 1s }\n');
    await policy('apply', file);
    t.regex((await explain('Lib', '1.0.0')).stdout, /^evidence: .*first stored here 20\d\d-\d\d-\d\dT\d\d:\d\dZ/m);
    const list = join(data, 'list.jsonl');
    await writeFile(list, linesOf([osv('MAL-2026-1', 'Lib', { summary: 'Malicious code in Lib' })]));
    await writeFile(file, `knownBad: { lists: [{ name: openssf, file: ${list} }] }\n`);
    const applied = await policy('apply', file);
    t.regex(
      applied.stderr,
      /^The policy of all accounts is in force\.\nA new list denies nothing .*: .*jobs run known-bad\n$/,
    );
    t.like(await entrepot(environment, 'jobs', 'run', 'known-bad'), { code: 0 });
    t.like(await explain('Lib', '1.0.0'), {
      code: 0,
      stdout:
        'deny: it is known to be bad (MAL-2026-1): Malicious code in Lib\nentry: MAL-2026-1 of the list "openssf"\n',
    });
    await writeFile(file, text);
    await policy('apply', file);
    t.like(await explain('Lib', '1.0.0'), { code: 0, stdout: 'allow\n' }, 'the policy does not name the list');
    const unknown = await explain('team/app', 'v1');
    t.deepEqual([unknown.code, unknown.stdout], [1, '']);
    t.regex(unknown.stderr, /^entrepot: team\/app v1: there is nothing to decide\. No upstream serves it\.\n$/);
    t.regex((await explain('Lib', '1.0.0', '--kind', 'x')).stderr, /expected package or image/);

    for (const [wrong, message] of [
      [
        'mode: enforce\nrules:\n  - { name: one, packages: [Lib], versions: "[1.0.0]", verdict: deny }\n  - name: two\n    packages: [Lib]\n    verdict: deny\n    versions: "[2, 1"\n',
        /policy\.yaml: line 7: rules\.1\.versions: expected a range of versions such as/,
      ],
      [
        'rules:\n  - { name: two, packages: [Lib], verdict: no }\n',
        /policy\.yaml: line 2: rules\.0\.verdict: expected/,
      ],
      [
        'rules:\n  - { name: two, packages: [Lib], versions: "2.0", verdict: deny }\n',
        /policy\.yaml: line 2: rules\.0\.versions: expected a range/,
      ],
    ] as const) {
      await writeFile(file, wrong);
      const { code, stderr } = await policy('apply', file);
      t.is(code, 1);
      t.regex(stderr, message);
      t.deepEqual((await policy('show')).stdout, shown.stdout, 'a malformed policy changes nothing');
    }
    for (const all of [
      'minimumAge: { images: 40000d }\n',
      // A registry says no dates.
      'minimumAge: { images: 1d, unknownDate: hold }\n',
      'rules:\n  - { name: some, packages: [Lib], verdict: allow }\n  - { name: rest, packages: ["*"], verdict: deny }\n',
    ]) {
      await writeFile(file, all);
      const refused = await policy('apply', file);
      t.is(refused.code, 1);
      t.regex(refused.stderr, /policy\.yaml: This policy refuses [^\n]+ Add --yes if you mean that\.\n$/);
      t.deepEqual((await policy('show')).stdout, shown.stdout);
    }
    t.is((await policy('apply', file, '--yes', '--account', 'default')).code, 0);
    await writeFile(file, '');
    t.is((await policy('apply', file, '--account', 'default')).code, 0);
    t.regex((await policy('apply', join(data, 'none.yaml'))).stderr, /none\.yaml: cannot be read/);
    t.regex((await policy('apply', file, '--account', 'none')).stderr, /There is no account "none"/);

    await writeFile(file, text);
    t.is((await policy('apply', file, '--account', 'default')).code, 0);
    await writeFile(file, '');
    t.like(await policy('apply', file), { code: 0, stderr: 'The policy of all accounts has ended.\n' });
    t.is(await statusOf('2.0.0'), 403, 'the account has one of its own');
    t.is((await policy('apply', file, '--account', 'default')).code, 0);
    t.is(await statusOf('2.0.0'), 200);
  });
}
